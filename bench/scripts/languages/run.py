#!/usr/bin/env python3
"""Compares scripts in JavaScript and Python with their peers on real nodes, as Markdown with goals.

    run.py --faasw FILE --bench FILE [--wasmtime FILE] [--against FILE]
        [--only PART,…] [--language NAME,…] [--quick] [--json FILE]

Needs Linux with /dev/kvm, Python 3.10 or later with venv, and Node.js 20 or later. The first run
downloads packages from their registries and keeps what it builds in the work folder. Starts nodes
and peers on loopback addresses, and ends them, also after an error or an interrupt.
"""

import argparse
import contextlib
import functools
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# The modules for nodes, medians and tables are those of the func-image benchmark.
sys.path.append(str(Path(__file__).resolve().parents[1] / "images"))

import hello
import initialising
import latency
import memory
import nodes
import outbound
import saving
import scripts
import typescript
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
    "outbound": outbound.measure,
    "typescript": typescript.measure,
    "hello": hello.measure,
}
# Parts that need the option `--wasmtime`, and those that need `--against`.
BESIDE_WASMTIME, BESIDE_EARLIER = ("requests", "outbound"), ("hello",)
# Default numbers of rounds and so on, and those of `--quick`.
COUNTS = {
    "rounds": (20, 3, "rounds of requests beside a peer's"),
    "slow_rounds": (10, 2, "rounds of requests that begin anew, and of deployments"),
    "saves": (12, 3, "saves of a file under `up --watch`"),
    "starts": (20, 2, "starts of this program and the one of --against"),
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
        self.against = arguments.against
        self.rounds, self.slow_rounds = arguments.rounds, arguments.slow_rounds
        self.saves, self.starts = arguments.saves, arguments.starts
        self.languages, self.dice = arguments.language, random.Random(arguments.seed)
        self.work = work = arguments.work.resolve()
        work.mkdir(parents=True, exist_ok=True)
        # Removes the parts of an earlier run that was killed.
        self.parts, self.numbers = work / "parts", itertools.count(1)
        shutil.rmtree(self.parts, ignore_errors=True)
        scope.callback(shutil.rmtree, self.parts, ignore_errors=True)
        self.base = work / "base"
        self.logs = arguments.logs or self.parts / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.post = work / "orders.json"
        self.post.write_text(json.dumps(scripts.orders(), indent=1))
        self.other_module = ROOT / "examples/hello-wat/hello.wasm"

    @functools.cached_property
    def tools(self):
        """The peers' packages, which the first part that needs one installs."""
        return Tools(self.work, self.wasmtime)

    def folder(self, name):
        """Returns an unused path in the work folder."""
        return self.parts / f"{name}-{next(self.numbers)}"

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
    add("--wasmtime", type=Path, help="the peer, of the node's release")
    add("--against", type=Path, help="an earlier program, optimised, for the part `hello`")
    add("--only", type=listed, help=f"only these parts of {','.join(PARTS)}")
    add(
        "--language",
        type=listed,
        default=list(LANGUAGES),
        help=f"only these of {','.join(LANGUAGES)}",
    )
    for name, (usual, quick, what) in COUNTS.items():
        add(f"--{name.replace('_', '-')}", type=int, help=f"{what} ({usual}; quick: {quick})")
    add("--quick", action="store_true", help="few rounds: a trial, whose figures decide nothing")
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
    for name, (usual, quick, _) in COUNTS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else usual)
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if arguments.only is None:
        is_possible = {"hello": arguments.against}
        arguments.only = [part for part in PARTS if is_possible.get(part, True)]
    for given, known in ((arguments.only, PARTS), (arguments.language, LANGUAGES)):
        unknown = [one for one in given if one not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    for option, parts in (("wasmtime", BESIDE_WASMTIME), ("against", BESIDE_EARLIER)):
        needed = [part for part in parts if part in arguments.only]
        if needed and not getattr(arguments, option):
            parser.error(f"--{option} is missing, which {' and '.join(needed)} need")
    for option in ("faasw", "bench", "wasmtime", "against"):
        program = getattr(arguments, option)
        if program and not os.access(program, os.X_OK):
            parser.error(f"--{option}: {program} is no program; bench/README.md says how to get it")
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
        programs = {"node": version_of(bench.faasw)}
        if bench.wasmtime:
            programs["peer"] = version_of(bench.wasmtime)
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
            f"{', '.join(programs.values())}. "
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
