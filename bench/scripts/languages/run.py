#!/usr/bin/env python3
"""Compares scripts in JavaScript and Python with their peers on real nodes, as Markdown with goals.

    run.py --faasw FILE --bench FILE --wasmtime FILE
        [--only PART,…] [--language NAME,…] [--json FILE]

Needs Linux with /dev/kvm, Python 3.10 or later with venv, and Node.js 20 or later. The first run
downloads packages from their registries and keeps what it builds in the work folder. Starts nodes
and peers on loopback addresses, and ends them, also after an error or an interrupt.
"""

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# The modules for nodes, medians and tables are those of the func-image benchmark.
sys.path.append(str(Path(__file__).resolve().parents[1] / "images"))

import initialising
import latency
import memory
import nodes
import saving
import scripts
from figures import Report
from node import Failed, Node, copy_data
from scripts import LANGUAGES, ROOT
from tools import Tools

# All parts in the order of their runs, with the function that measures each.
PARTS = {
    "requests": latency.measure,
    "initialising": initialising.measure,
    "memory": memory.measure,
    "saving": saving.measure,
}
LUA = ROOT / "tests/fixtures/lua-engine.wasm"


class Bench:
    """The state that all parts share."""

    def __init__(self, arguments, scope):
        self.report, self.scope = Report(), scope
        self.faasw, self.program, self.wasmtime = (
            arguments.faasw,
            arguments.bench,
            arguments.wasmtime,
        )
        self.rounds, self.slow_rounds = arguments.rounds, arguments.slow_rounds
        self.languages, self.dice = arguments.language, random.Random(arguments.seed)
        work = arguments.work.resolve()
        work.mkdir(parents=True, exist_ok=True)
        # Removes the parts of an earlier run that was killed.
        self.parts, self.numbers = work / "parts", 0
        shutil.rmtree(self.parts, ignore_errors=True)
        scope.callback(shutil.rmtree, self.parts, ignore_errors=True)
        self.base = work / "base"
        self.logs = arguments.logs or self.parts / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.tools = Tools(work, self.wasmtime)
        self.post = work / "orders.json"
        self.post.write_text(json.dumps(scripts.orders(), indent=1))
        self.other_module = ROOT / "examples/hello-wat/hello.wasm"

    def folder(self, name):
        """Returns an unused path in the work folder."""
        self.numbers += 1
        return self.parts / f"{name}-{self.numbers}"

    def prepare(self):
        """Makes a data directory with all engines.

        Reuses the one in the work folder if it belongs to the same program.
        """
        stamp, digest = (
            self.base.with_suffix(".digest"),
            hashlib.sha256(self.faasw.read_bytes()).hexdigest(),
        )
        if stamp.exists() and stamp.read_text() == digest:
            return
        shutil.rmtree(self.base, ignore_errors=True)
        stamp.unlink(missing_ok=True)
        self.base.mkdir(mode=0o700)
        print("compiling the engines…", file=sys.stderr)
        with self.part_of_scope():
            node = Node(self, self.base)
            node.command("engine", "add", LUA, "--name", "lua", "--extension", ".lua")
            for engine in (*LANGUAGES, "lua"):
                node.command("engine", "warm", engine)
            node.settle()
            node.stop()
        stamp.write_text(digest)

    def node(self, *options):
        """Starts a node with all engines on its own data directory."""
        return Node(self, copy_data(self.base, self.folder("data")), *options)

    def start(self, *command, **options):
        return nodes.start(self, *command, **options)

    @contextlib.contextmanager
    def part_of_scope(self):
        """Ends the processes of a part with it."""
        with contextlib.ExitStack() as scope:
            before, self.scope = self.scope, scope
            try:
                yield
            finally:
                self.scope = before


def listed(text):
    return text.split(",")


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--faasw", required=True, type=Path, help="the optimised program")
    add("--bench", required=True, type=Path, help="faasw-bench, optimised")
    add("--wasmtime", required=True, type=Path, help="the peer, of the node's release")
    add("--only", type=listed, default=list(PARTS), help=f"only these parts of {','.join(PARTS)}")
    add(
        "--language",
        type=listed,
        default=list(LANGUAGES),
        help=f"only these of {','.join(LANGUAGES)}",
    )
    add("--rounds", type=int, default=20, help="of requests beside a peer's")
    add("--slow-rounds", type=int, default=10, help="of requests that begin anew")
    add(
        "--work",
        type=Path,
        default=Path.home() / ".cache/faasw-bench",
        help="keeps what is built once",
    )
    add("--logs", type=Path, help="keep the nodes' logs here; FAASW_LOG chooses what they tell")
    add(
        "--seed",
        type=int,
        default=time.time_ns() % 1_000_000,
        help="of the order in which contestants are asked",
    )
    add("--json", type=Path, help="also write all figures to this file")
    arguments = parser.parse_args(words)
    for given, known in ((arguments.only, PARTS), (arguments.language, LANGUAGES)):
        unknown = [one for one in given if one not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    return arguments


def version_of(program):
    return subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main():
    arguments = arguments_of(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    missed = []
    with contextlib.ExitStack() as scope:
        begun = time.monotonic()
        try:
            bench = Bench(arguments, scope)
            bench.prepare()
        except Failed as why:
            sys.exit(f"there is nothing to measure: {why}")
        host = bench.report.figures["host"]
        programs = {
            name: version_of(program)
            for name, program in (("node", bench.faasw), ("peer", bench.wasmtime))
        }
        bench.report.figures |= programs | {"seed": arguments.seed, "rounds": arguments.rounds}
        busy = (
            f" **The machine was busy: load {host['load']:.1f} at the start.**"
            if host["load"] > 0.5
            else ""
        )
        print(
            f"# Scripts\n\n{time.strftime('%Y-%m-%d')}, {host['cpu']}, {host['processors']} "
            "processors, "
            f"{host['memory_mib']} MiB, Linux {host['kernel']}, {host['kvm']}; "
            f"{programs['node']}, {programs['peer']}. "
            f"{arguments.rounds} rounds, `--seed {arguments.seed}`; medians, and the intervals "
            "that hold them with "
            f"95 % confidence.{busy}",
            flush=True,
        )
        for part in PARTS:
            if part in arguments.only:
                try:
                    PARTS[part](bench)
                except Failed as why:
                    missed.append(part)
                    bench.report.say(f"**{part} was not measured to its end: {why}**")
        bench.report.end(arguments.json)
        print(f"\n{time.monotonic() - begun:.0f} s in all.")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
