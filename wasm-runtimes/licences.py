#!/usr/bin/env python3
"""Collects the licences of what the carried engines and fixtures have of others:
wasm-runtimes/licences.py

Each text is as its registry package has it. Takes cargo, npm, pip, apt-get with dpkg-deb, and zstd;
README.md says what is from where. To be run again whenever a recipe names another version.
"""

import io
import pathlib
import re
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LICENSES = HERE / "LICENSES"
FIXTURES = HERE / "../tests/fixtures"
# As the recipes have them.
STREAMS, COMPONENTIZE = "web-streams-polyfill@4.3.0", "componentize-py==0.25.1"
PATTERNS = "urlpattern-polyfill@10.1.0"
# Packages from which the modules of Node.js in the engine of JavaScript are made.
NODE = [
    "buffer@6.0.3", "base64-js@1.5.1", "ieee754@1.2.1", "events@3.3.0", "path-browserify@1.0.1",
    "readable-stream@4.8.0", "string_decoder@1.3.0", "unenv@2.0.0-rc.24",
]  # fmt: skip
BUNDLED = ["hono@4.13.19", "itty-router@6.0.0"]
LUA, ZIG = "lua-src@551.1.0", "ziglang==0.17.0"
# CPython's parts of others, but for HACL*, as Debian's package of an earlier one tells them; and a
# crate that has files of HACL* which CPython has, too.
PYTHON, HACL = "libpython3.11-minimal", "libcrux-hacl@0.0.2-pre.2"
MEANT = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|UNLICENSE)([-_.].*)?", re.IGNORECASE)
# Of several licences to choose from, the shortest that is enough.
CHOSEN = ["LICENSE-MIT", "license-mit", "LICENSE-MIT.txt", "LICENSE-MIT.md", "LICENSE"]


def run(*words, cwd=None):
    done = subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def write(path, *texts):
    path.parent.mkdir(exist_ok=True)
    lines = "\n\n".join(text.strip("\n") for text in texts).splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")


def npm(work, package):
    file = work / run("npm", "pack", "--silent", package, cwd=work).strip()
    with tarfile.open(file) as archive:
        return archive.extractfile("package/LICENSE").read().decode()


def wheel(work, package):
    folder = work / package.split("=")[0]
    run("pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def crate_folder(work, crate):
    name, version = crate.split("@")
    folder = work / f"{name}-fetched"
    (folder / "src").mkdir(parents=True)
    (folder / "src/lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "fetched"\nversion = "0.0.0"\n'
        f'[dependencies]\n{name} = "={version}"\n[workspace]\n'
    )
    run("cargo", "vendor", "--quiet", "vendor", cwd=folder)
    return folder / "vendor" / name


def texts_of(folder):
    files = sorted(
        path for path in folder.iterdir() if MEANT.fullmatch(path.name) and path.is_file()
    )
    chosen = [path for name in CHOSEN for path in files if path.name == name][:1]
    # What is there besides one's own, such as WHATWG's tables.
    chosen += [path for path in files if chosen and path.name == "LICENSE-WHATWG"]
    return [path.read_text() for path in chosen or files]


def linked(work):
    """The crates that the component of JavaScript has, with their folders."""
    folder = work / "js"
    (folder / "src").mkdir(parents=True)
    (folder / "src/lib.rs").touch()
    manifest = (HERE / "js/Cargo.toml").read_text().split("# Made by build.sh")[0] + "[workspace]\n"
    (folder / "Cargo.toml").write_text(manifest)
    (folder / "Cargo.lock").write_bytes((HERE / "js/Cargo.lock").read_bytes())
    run("cargo", "vendor", "--quiet", "--versioned-dirs", "vendor", cwd=folder)
    tree = run(
        "cargo", "tree", "--target", "wasm32-wasip2", "--edges", "normal,no-proc-macro",
        "--prefix", "none", "--format", "{p}", cwd=folder,
    )  # fmt: skip
    found = {}
    for line in sorted(set(tree.splitlines())):
        name, version = line.split()[:2]
        if name != "faasw-js-engine":
            found[f"{name} {version[1:]}"] = folder / f"vendor/{name}-{version[1:]}"
    return found


def crates(found):
    by_text = {}
    for crate, folder in found.items():
        texts = texts_of(folder)
        # A crate of a workspace may have left its text there.
        if not texts:
            package = tomllib.loads((folder / "Cargo.toml").read_text())["package"]
            texts = [
                f"It has no text of its own; {package['license']}, as all of "
                f"{package['repository']}"
            ]
        by_text.setdefault("\n\n".join(texts), []).append(crate)
    sections = [f"{', '.join(names)}\n{'=' * 40}\n\n{text}" for text, names in by_text.items()]
    locked = tomllib.loads((HERE / "js/Cargo.lock").read_text())["package"]
    locked = {f"{package['name']} {package['version']}" for package in locked}
    others = sorted(locked - set(found) - {"faasw-js-engine 0.1.0"})
    write(LICENSES / "js-crates.txt", *sections, f"Only to build it: {', '.join(others)}")
    sys = next(folder for crate, folder in found.items() if crate.startswith("rquickjs-sys "))
    write(LICENSES / "quickjs-ng.txt", (sys / "quickjs/LICENSE").read_text())


def cpython(work):
    with wheel(work, COMPONENTIZE) as package:
        names = package.namelist()
        licence = next(name for name in names if name.endswith("licenses/LICENSE"))
        write(LICENSES / "componentize-py.txt", package.read(licence).decode())
        program = package.read(next(name for name in names if name.endswith(".so")))
    # The standard library is a tar in it, compressed.
    at = 0
    while (at := program.find(b"\x28\xb5\x2f\xfd", at)) >= 0:
        unpacked = subprocess.run(
            ["zstd", "-dc"], input=program[at : at + (16 << 20)], capture_output=True
        ).stdout
        at += 4
        if unpacked[257:262] != b"ustar":
            continue
        try:
            with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
                text = archive.extractfile("LICENSE.txt").read().decode()
        except (KeyError, tarfile.TarError):
            continue
        return write(LICENSES / "cpython.txt", text)
    raise SystemExit("componentize-py has no LICENSE.txt of CPython")


def debian(work, package):
    run("apt-get", "download", package, cwd=work)
    run("dpkg-deb", "-x", str(next(work.glob(f"{package}_*.deb"))), str(work / package))
    return (work / package / f"usr/share/doc/{package}/copyright").read_text()


def python_parts(work):
    copyright = debian(work, PYTHON)
    parts = re.findall(r"^Files: .*?(?=^Files: |\Z)", copyright, re.MULTILINE | re.DOTALL)
    wanted = ("Modules/expat", "Modules/_decimal/libmpdec", "Modules/zlib", "Python/dtoa.c")
    chosen = [part for part in parts if part.removeprefix("Files: ").startswith(wanted)]
    write(LICENSES / "python-parts.txt", *chosen)


def first_comment(path):
    """What a file in C begins with."""
    comment = path.read_text().partition("/*")[2].partition("*/")[0]
    return "\n".join(line.strip().removeprefix("*").strip() for line in comment.splitlines())


def hacl(work, apache):
    folder = crate_folder(work, HACL) / "c"
    # A hash, and the headers of KaRaMeL, by which it was made.
    files = {
        "Modules/_hacl": "src/Hacl_Hash_MD5.c",
        "Modules/_hacl/include/krml": "karamel/include/krml/internal/target.h",
    }
    texts = [
        f"{name}\n{'=' * 40}\n\n{first_comment(folder / path)}" for name, path in files.items()
    ]
    write(LICENSES / "hacl.txt", *texts, apache.read_text())


def wasi_libc(work):
    with wheel(work, ZIG) as package:
        libc = "ziglang/lib/libc/wasi/"
        files = [
            "LICENSE", "LICENSE-APACHE-LLVM", "LICENSE-MIT", "libc-bottom-half/cloudlibc/LICENSE",
            "libc-top-half/musl/COPYRIGHT",
        ]  # fmt: skip
        texts = [f"{name}\n{'=' * 40}\n\n{package.read(libc + name).decode()}" for name in files]
        write(LICENSES / "wasi-libc.txt", *texts)


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        found = linked(work)
        crates(found)
        hacl(
            work, next(path for folder in found.values() for path in folder.glob("LICENSE-APACHE"))
        )
        write(LICENSES / "web-streams-polyfill.txt", npm(work, STREAMS))
        write(LICENSES / "urlpattern-polyfill.txt", npm(work, PATTERNS))
        head = lambda package: f"{package.replace('@', ' ')}\n{'=' * 40}\n\n"
        texts = [head(package) + npm(work, package) for package in NODE]
        write(LICENSES / "node-modules.txt", *texts)
        cpython(work)
        python_parts(work)
        wasi_libc(work)
        for package in BUNDLED:
            name = package.split("@")[0]
            write(FIXTURES / f"scripts/LICENSES/{name}.txt", npm(work, package))
        lua = crate_folder(work, LUA)
        header = next(lua.glob("lua-5.4*/lua.h")).read_text()
        notice = header[header.rindex("/***") : header.rindex("***/") + 4]
        write(FIXTURES / "lua-engine.LICENSE.txt", notice)


main()
