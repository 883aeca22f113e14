"""Packages for peers and scripts, installed once from the registries into the work folder."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import scripts
from node import Failed
from scripts import HERE, ROOT

WIT = ROOT / "guest-vm/runtime/wit"
COMPONENTIZE_JS = "@bytecodealliance/componentize-js@0.23.0"
NPM = [COMPONENTIZE_JS, "esbuild@0.28.2", "mathjs@15.2.0"]
HTTPX = "httpx==0.28.1"
PYPI = [
    "componentize-py==0.25.1",
    "uvicorn==0.54.0",
    "uvloop",
    "httptools",
    "jinja2==3.1.6",
    HTTPX,
]
IMPORTED = ["jinja2==3.1.6", "flask==3.1.3", "sqlglot==30.30.0", HTTPX]
# The packages of the TypeScript project.
PROJECT = ["hono@4.13.19", "itty-router@5.0.24", "jose@6.2.18", "nanoid@6.0.2", "zod@4.6.7"]
# Packages that Flask does not import.
NOT_FLASK = ("sqlglot", *scripts.HTTPX)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Tools:
    """The programs and components that are built from the registries' packages."""

    def __init__(self, work, wasmtime):
        self.work, self.wasmtime = work, wasmtime
        self.venv, self.npm, self.packages = work / "venv/bin", work / "npm", work / "packages"
        for program in ("node", "npm"):
            if not shutil.which(program):
                raise Failed(f"`{program}` is not in PATH: install Node.js 20 or later")
        # A changed list of packages needs a new installation.
        wanted = hashlib.sha256(repr((NPM, PYPI, IMPORTED, PROJECT)).encode()).hexdigest()
        stamp = work / "packages.digest"
        if not stamp.exists() or stamp.read_text() != wanted:
            self.install()
            stamp.write_text(wanted)

    def install(self):
        print("installing packages…", file=sys.stderr)
        project = self.work / "project"
        for path in (self.work / "venv", self.npm, self.packages, project):
            shutil.rmtree(path, ignore_errors=True)
        run(sys.executable, "-m", "venv", self.work / "venv")
        run(self.venv / "pip", "install", "--quiet", *PYPI)
        options = ["--no-binary", "markupsafe", "--no-compile", "--target", self.packages]
        run(self.venv / "pip", "install", "--quiet", *options, *IMPORTED)
        for native in self.packages.rglob("*.so"):
            native.unlink()
        for folder, names in ((self.npm, NPM), (project, PROJECT)):
            folder.mkdir()
            (folder / "package.json").write_text('{"type": "module"}\n')
            run("npm", "install", "--silent", "--save-exact", *names, cwd=folder)

    def add_packages(self, folder, *names):
        for name in names:
            if (package := self.packages / name).is_dir():
                shutil.copytree(package, folder / name, dirs_exist_ok=True)
            else:
                shutil.copy(package, folder)

    def all_of_flask(self):
        found = (path for path in self.packages.iterdir() if (path / "__init__.py").exists())
        return sorted(path.name for path in found if path.name not in NOT_FLASK)

    def bundle(self, path):
        """Bundles a JavaScript module and its imports with npm's esbuild."""
        inside, bundled = self.npm / path.name, self.npm / f"bundled-{path.name}"
        shutil.copy(path, inside)
        options = [
            "--bundle",
            "--format=esm",
            "--platform=neutral",
            "--main-fields=module,main",
            "--log-level=warning",
        ]
        self.esbuild(inside, bundled, *options)
        return bundled

    def esbuild(self, source, target, *options):
        run(self.npm / "node_modules/.bin/esbuild", source, *options, f"--outfile={target}")

    def project(self, folder):
        """Makes a folder with the packages of the TypeScript project, and no module yet."""
        return Path(shutil.copytree(self.work / "project", folder, symlinks=True))

    def component(self, language, work):
        """Builds the same work as a precompiled component."""
        name = f"{language}-{work}"
        source = scripts.for_peers(self, self.work / name, language, work)
        compiled, stamp = self.work / f"{name}.cwasm", self.work / f"{name}.digest"
        digest = hashlib.sha256(run(self.wasmtime, "--version").encode())
        folder = source.parent if source.is_file() else source
        for path in sorted(folder.glob("*.*")):
            digest.update(path.read_bytes() if path.is_file() else b"")
        if compiled.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
            return compiled
        print(f"building the component {name}…", file=sys.stderr)
        component = self.work / f"{name}.wasm"
        if language == "js":
            self.build_js(source, component)
        else:
            world = ["-d", WIT, "-w", "wasi:http/proxy@0.2.12"]
            run(
                self.venv / "componentize-py",
                *world,
                "componentize",
                "component",
                "-p",
                source,
                "-o",
                component,
            )
        run(self.wasmtime, "compile", "-O", "pooling-allocator=y", component, "-o", compiled)
        stamp.write_text(digest.hexdigest())
        return compiled

    def build_js(self, source, component):
        with tempfile.TemporaryDirectory() as wit:
            # The engine in componentize-js 0.23 supports only WASI 0.2.10.
            shutil.copytree(WIT / "deps", Path(wit) / "deps")
            for path in Path(wit, "deps").glob("*.wit"):
                path.write_text(path.read_text().replace("0.2.12", "0.2.10"))
            shutil.copy(ROOT / "examples/js-http/world.wit", wit)
            program = self.npm / "node_modules/.bin/componentize-js"
            run(program, source, "--wit", wit, "--world-name", "function", "-o", component)

    def peer(self, bench, component):
        """Starts the peer with a component. Returns its address."""
        options = [
            "-O",
            "pooling-allocator=y",
            "--allow-precompiled",
            "-S",
            "cli",
            "--addr",
            "127.0.0.1:0",
        ]
        return bench.start(self.wasmtime, "serve", *options, component)

    def native(self, bench, language, folder):
        """Starts the language's native server with the same work. Returns its address."""
        if language == "js":
            return bench.start("node", HERE / "js/node.mjs", folder / "handler.js")
        options = ["--port", "0", "--log-level", "info", "--no-access-log"]
        return bench.start(self.venv / "uvicorn", *options, "asgi:app", cwd=folder)
