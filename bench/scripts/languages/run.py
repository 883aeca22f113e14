#!/usr/bin/env python3
"""Scripts on a node, beside the same as components on `wasmtime serve` and beside Node.js and
CPython themselves: medians of latency, as ratios of alternating rounds, one table.

    run.py --faasw FILE --bench FILE --wasmtime FILE [--work FOLDER] [--rounds N]

Needs Python 3.10 or later with venv, Node.js 20 or later, and their registries the first time;
what it builds of their packages stays in the work folder. Runs nothing but what it starts, and
ends that.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WIT = ROOT / "guest-vm/runtime/wit"
COMPONENTIZE_JS = "@bytecodealliance/componentize-js@0.23.0"
TOOLS = ["componentize-py==0.25.1", "uvicorn==0.54.0", "uvloop", "httptools", "jinja2==3.1.6"]
PACKAGES = ["jinja2==3.1.6", "flask==3.1.3"]
LANGUAGES = {"js": "JavaScript", "python": "Python"}
WORK = {
    "hello": "a text",
    "api": "10 KB of JSON parsed, transformed, written",
    "page": "a page of 50 items out of a template",
    "index": "a lookup in an index of 2 MB, built before",
}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def orders():
    """Some 10 KB of JSON."""
    item = {"name": "item of some kind", "price": 12.5, "quantity": 3}
    items = [[item | {"price": 1.25 * i + j} for j in range(4)] for i in range(40)]
    return {"orders": [{"id": i, "customer": f"c{i % 7}", "items": items[i]} for i in range(25)]}


def table():
    """2 MB of lines."""
    return "\n".join(f"k{i},name number {i:010} of the whole table,{i * 7}.5" for i in range(42_000))


def script(folder, language, work, in_request=False):
    """The script of a language that does some work, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (HERE / language / f"{work}.{'js' if language == 'js' else 'py'}").read_text()
    if work == "index":
        literal, flag = json.dumps(table()), in_request
        text = (
            f"const TABLE = {literal};\nconst IN_REQUEST = {json.dumps(flag)};\n{text}"
            if language == "js"
            else text.replace("import json\n", f"import json\n\nTABLE = {literal}\nIN_REQUEST = {flag}\n")
        )
    if language == "js":
        (folder / "handler.js").write_text(text)
    else:
        (folder / "work.py").write_text(text)
        shutil.copy(HERE / "python/handler.py", folder)
    return folder


class Tools:
    """What is built of the registries' packages, once."""

    def __init__(self, work):
        self.work = work
        self.bin = work / "venv/bin"
        if not (self.bin / "componentize-py").exists():
            print("installing Python's packages…", file=sys.stderr)
            run(sys.executable, "-m", "venv", work / "venv")
            run(self.bin / "pip", "install", "--quiet", *TOOLS)
        self.packages = work / "packages"
        if not self.packages.exists():
            print("installing what scripts import…", file=sys.stderr)
            options = ["--no-binary", "markupsafe", "--no-compile", "--target", self.packages]
            run(self.bin / "pip", "install", "--quiet", *options, *PACKAGES)
            for native in self.packages.rglob("*.so"):
                native.unlink()

    def add_packages(self, folder, *names):
        for package in self.packages.iterdir():
            if package.is_dir() and (package.name in names or not names):
                shutil.copytree(package, folder / package.name, dirs_exist_ok=True)

    def component(self, language, work, wasmtime):
        """The same as a component, compiled ahead."""
        compiled = self.work / f"{language}-{work}.cwasm"
        source = script(self.work / f"{language}-{work}", language, work)
        stamp = self.work / f"{language}-{work}.source"
        text = "".join(path.read_text() for path in sorted(source.glob("*.*")))
        if compiled.exists() and stamp.exists() and stamp.read_text() == text:
            return compiled
        print(f"building the component {language}-{work}…", file=sys.stderr)
        component = self.work / f"{language}-{work}.wasm"
        if language == "js":
            self.build_js(source / "handler.js", component)
        else:
            if work == "page":
                self.add_packages(source, "jinja2", "markupsafe")
            shutil.copy(HERE / "python/component.py", source)
            world = ["-d", WIT, "-w", "wasi:http/proxy@0.2.12"]
            run(self.bin / "componentize-py", *world, "componentize", "component", "-p", source, "-o", component)
        run(wasmtime, "compile", "-O", "pooling-allocator=y", component, "-o", compiled)
        stamp.write_text(text)
        return compiled

    def build_js(self, source, component):
        with tempfile.TemporaryDirectory() as wit:
            # The engine in componentize-js 0.23 knows WASI 0.2.10 and no other.
            shutil.copytree(WIT / "deps", Path(wit) / "deps")
            for path in Path(wit, "deps").glob("*.wit"):
                path.write_text(path.read_text().replace("0.2.12", "0.2.10"))
            shutil.copy(ROOT / "examples/js-http/world.wit", wit)
            run("npx", "--yes", COMPONENTIZE_JS, source, "--wit", wit, "--world-name", "function", "-o", component)


class Servers(contextlib.ExitStack):
    """Whatever is started ends with this."""

    def start(self, *command, **options):
        """A server, once it has said where it is."""
        log = self.enter_context(tempfile.TemporaryFile("w+"))
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
        self.callback(lambda: (server.terminate(), server.wait()))
        for _ in range(1200):
            log.seek(0)
            said = log.read()
            address = re.search(r"(127\.0\.0\.1:\d+)", said)
            if address:
                return f"http://{address[1]}"
            if server.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"{' '.join(map(str, command))} does not serve:\n{said}")


class Node:
    """A node with functions."""

    def __init__(self, servers, faasw, *options):
        folder = servers.enter_context(tempfile.TemporaryDirectory(prefix="faasw-bench-"))
        self.faasw, self.data = faasw, folder
        self.url = servers.start(faasw, "serve", "--listen", "127.0.0.1:0", "--data-dir", folder, *options)

    def deploy(self, path, name, *options):
        run(self.faasw, "deploy", path, "--name", name, "--data-dir", self.data, *options)
        return f"{self.url}/{name}/"


def measure(arguments, ours, peer, post=None, rounds=None, requests=200):
    command = [arguments.bench, "http", "--json", "--ours", ours, "--peer", peer]
    command += ["--rounds", str(rounds or arguments.rounds), "--requests", str(requests)]
    command += ["--warm-up", str(min(50, requests))]
    if post:
        command += ["--post", post]
    report = json.loads(run(*command))
    # Ours, the peer's.
    times = {one["name"]: one["p50"] for one in report["contestants"]}
    ratio = report["ratios"]["latency"]
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})", times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faasw", required=True, type=Path)
    parser.add_argument("--bench", required=True, type=Path)
    parser.add_argument("--wasmtime", required=True, type=Path)
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/faasw-bench")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--language", choices=LANGUAGES, action="append")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    tools = Tools(arguments.work)
    (post := arguments.work / "orders.json").write_text(json.dumps(orders(), indent=1))
    sent = post.stat().st_size

    print("| | | peer | p50 ratio (95 %) | ours, peer's p50 µs |\n| --- | --- | --- | --- | --- |")

    def tell(language, work, peer, ours, theirs, **options):
        ratio, times = measure(arguments, ours, theirs, **options)
        us = f"{times['ours']:.0f}, {times['peer']:.0f}"
        print(f"| {LANGUAGES[language]} | {work} | {peer} | {ratio} | {us} |", flush=True)

    for language in arguments.language or LANGUAGES:
        for work in WORK:
            component = tools.component(language, work, arguments.wasmtime)
            with Servers() as servers, tempfile.TemporaryDirectory() as scratch:
                source = script(Path(scratch) / work, language, work)
                if (language, work) == ("python", "page"):
                    tools.add_packages(source, "jinja2", "markupsafe")
                node = Node(servers, arguments.faasw)
                ours = node.deploy(source, work)
                body = {"post": post} if work == "api" else {}
                serve = ["serve", "-O", "pooling-allocator=y", "--allow-precompiled", "-S", "cli"]
                peer = servers.start(arguments.wasmtime, *serve, "--addr", "127.0.0.1:0", component)
                tell(language, work, "wasmtime serve", ours, f"{peer}/", **body)
                if language == "js":
                    native = servers.start("node", HERE / "js/node.mjs", source / "handler.js")
                    name = "Node.js"
                else:
                    shutil.copy(HERE / "python/asgi.py", source)
                    uvicorn = [tools.bin / "uvicorn", "--port", "0", "--log-level", "info", "--no-access-log"]
                    environment = os.environ | {"PYTHONPATH": str(source)}
                    native = servers.start(*uvicorn, "asgi:app", cwd=source, env=environment)
                    name = "CPython, uvicorn"
                tell(language, work, name, ours, f"{native}/", **body)
                if work == "hello":
                    rust = node.deploy(ROOT / "examples/hello/hello.wasm", "rust")
                    tell(language, work, "Rust on the same node", ours, rust)
                if work == "index":
                    late = script(Path(scratch) / "late", language, work, in_request=True)
                    if language == "python":
                        shutil.copy(HERE / "python/handler.py", late)
                    late = node.deploy(late, "late")
                    few = {"rounds": 10, "requests": 5}
                    tell(language, work, "only the engine seeded", ours, late, **few)
        if language == "python":
            with Servers() as servers, tempfile.TemporaryDirectory() as scratch:
                shutil.copy(HERE / "python/shop.py", scratch)
                shutil.copytree(HERE / "python/templates", Path(scratch) / "templates")
                tools.add_packages(Path(scratch))
                node = Node(servers, arguments.faasw)
                entry = ["--entry", "shop.py"]
                ours = node.deploy(scratch, "warm", *entry, "--warmup-request", "/")
                tell(language, "Flask's page", "without --warmup-request", ours, node.deploy(scratch, "cold", *entry))
    print(f"\nThe JSON has {sent} bytes; all at one connection.")


if __name__ == "__main__":
    main()
