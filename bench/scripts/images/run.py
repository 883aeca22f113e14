#!/usr/bin/env python3
"""Measures func-images: cold restores, restarts and many functions on real nodes, as Markdown.

    run.py --faasw FILE [--component js=FILE] [--component python=FILE]
        [--only PART,…] [--json FILE]

Needs only Linux with /dev/kvm and Python 3.10 or later. Starts nodes on loopback addresses and in
its own folders. Ends and removes them, also after an error or an interrupt.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import ablation
import disk
import many
import restart
import restore
from figures import Report
from node import Failed, Node, until

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
# All parts in the order of their runs, with the function that measures each.
PARTS = {
    "disk": disk.measure,
    "restore": restore.measure,
    "ablation": ablation.measure,
    "restart": restart.measure,
    "many": many.measure,
    "count": many.counts,
}
# Size of the file for bandwidth measurements, in bytes.
BIG = 256 << 20

# Scripts that wait for a body that is never sent.
PINS = {
    "js": (
        ".js",
        "export default { fetch: async (request) => new Response(await request.text()) };\n",
    ),
    "python": (".py", "def handler(request):\n    return str(len(request.body))\n"),
}


class Function:
    """A function that is measured."""

    def __init__(self, name, path, *options, goal=None, pin=None, language=False):
        self.name, self.path, self.options = name, path, options
        # The name of its goals, and whether its language is JavaScript or Python.
        self.goal, self.is_of_language = goal, language
        # A script that pins the same engine.
        self.pin = pin


class Bench:
    """The state that all parts share, and their time limit."""

    # The function whose requests evict others.
    other = "other"

    def __init__(self, arguments, work, scope):
        self.report, self.scope, self.outer = Report(), scope, scope
        self.work, self.rounds, self.seed = work, arguments.rounds, arguments.seed
        self.dice = random.Random(arguments.seed)
        self.minutes, self.scripts, self.fit = arguments.minutes, arguments.scripts, arguments.fit
        self.counts = arguments.counts
        self.components = {f"{name}-component": path for name, path in arguments.component}
        self.deadline, self.numbers = float("inf"), 0
        self.logs = arguments.logs or work / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        # A private copy, so that no other process keeps its pages in memory.
        self.faasw = work / "faasw"
        program = arguments.faasw.read_bytes()
        if not self.faasw.exists() or self.faasw.read_bytes() != program:
            self.faasw.write_bytes(program)
            self.faasw.chmod(0o755)
        self.functions = [
            Function("hello", EXAMPLES / "hello/hello.wasm", goal="hello"),
            Function("go", EXAMPLES / "go-http/go-http.wasm", "--freeze", "after-init"),
            Function("js-script", EXAMPLES / "js/hello.js", pin="pin-js", language=True),
            Function(
                "python-script", EXAMPLES / "python/hello.py", pin="pin-python", language=True
            ),
        ]
        for name, path in self.components.items():
            language = name.partition("-")[0]
            of_language = language in ("js", "python")
            self.functions.append(Function(name, path, goal=language, language=of_language))
        self.all = self.functions
        if arguments.function:
            self.functions = [one for one in self.all if one.name in arguments.function]

    def folder(self, name):
        """Returns an unused path in the work folder."""
        self.numbers += 1
        return self.work / "parts" / f"{name}-{self.numbers}"

    def is_late(self):
        return time.monotonic() > self.deadline

    @contextlib.contextmanager
    def time_for(self, seconds):
        """Limits the time of a part."""
        self.deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self.deadline = float("inf")

    @contextlib.contextmanager
    def part_of_scope(self):
        """Ends the nodes and removes the folders of a part with it."""
        with contextlib.ExitStack() as scope:
            before, self.scope = self.scope, scope
            parts = self.work / "parts"
            parts.mkdir(exist_ok=True)
            scope.callback(shutil.rmtree, parts, ignore_errors=True)
            try:
                yield
            finally:
                self.scope = before

    def data_of(self, _function):
        return self.base

    def prepare(self):
        """Makes a data directory with all functions and their images.

        Reuses the one in the work folder if it belongs to the same program and functions.
        """
        self.base, stamp = self.work / "base", self.work / "base.digest"
        digest = hashlib.sha256(self.faasw.read_bytes())
        for function in self.all:
            digest.update(
                f"{function.name} {function.options}".encode() + function.path.read_bytes()
            )
        if stamp.exists():
            said, _, images = stamp.read_text().partition("\n")
            if said == digest.hexdigest():
                self.images = json.loads(images)
                return
        shutil.rmtree(self.base, ignore_errors=True)
        stamp.unlink(missing_ok=True)
        self.base.mkdir(mode=0o700)
        pins = {name: self.work / f"pin{ending}" for name, (ending, _) in PINS.items()}
        for name, path in pins.items():
            path.write_text(PINS[name][1])
        with self.part_of_scope():
            node = Node(self, self.base)
            engines, self.images = {None: 0}, {}
            self.deployed(node, EXAMPLES / "hello-wat/hello.wasm", self.other)
            wanted = {function.pin for function in self.all if function.pin}
            for name, path in pins.items():
                if f"pin-{name}" in wanted:
                    print(f"compiling what scripts in {name} run on…", file=sys.stderr)
                    engines[f"pin-{name}"] = self.deployed(node, path, f"pin-{name}")["engine"]
            for function in self.all:
                print(f"deploying {function.name}…", file=sys.stderr)
                own = self.deployed(node, function.path, function.name, *function.options)["own"]
                self.images[function.name] = {"own": own, "engine": engines[function.pin]}
            names = [self.other, *sorted(wanted), *(function.name for function in self.all)]
            for name in names * 4:
                node.ask(name)
            node.settle(0.5)
            for name in names:
                if not all(seed["written_pages"] for seed in node.chain(name)[-1:]):
                    raise Failed(f"what requests of {name} use is not known")
            node.stop()
        stamp.write_text(f"{digest.hexdigest()}\n{json.dumps(self.images)}")

    def deployed(self, node, path, name, *options):
        """Deploys a function. Returns the bytes of its image, and of a new engine's image."""
        before = set(node.images())
        node.deploy(path, name, *options)

        def fresh():
            found = {
                image: told
                for image, told in node.images().items()
                if image not in before and image[0] != "."
            }
            return found if any(not image.startswith("engine-") for image in found) else None

        until(f"{name} has an image", fresh)
        node.settle()
        new = fresh()
        # The first deployment also writes the images that all functions share.
        own = min(
            (size for image, (_, size) in new.items() if not image.startswith("engine-")), default=0
        )
        return {
            "own": own,
            "engine": sum(size for image, (_, size) in new.items() if image.startswith("engine-")),
        }

    def open_disk(self):
        path = self.work / "random"
        if not path.exists() or path.stat().st_size != BIG:
            disk.write_random(path, BIG)
        self.big = self.scope.enter_context(disk.Direct(path))


def named(text):
    name, _, path = text.partition("=")
    return name, Path(path)


def listed(text):
    return text.split(",")


def numbers(text):
    return [int(number) for number in text.split(",")]


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--faasw", required=True, type=Path, help="the optimised program")
    add(
        "--component", metavar="NAME=FILE", type=named, action="append", default=[], help="one more"
    )
    add("--only", type=listed, default=list(PARTS), help=f"only these parts of {','.join(PARTS)}")
    add("--function", type=listed, help="only these functions of restore, ablation and restart")
    add("--rounds", type=int, default=15)
    add("--minutes", type=float, default=1, help="of load on each node of many scripts")
    add("--scripts", type=int, default=1000, help="how many")
    add("--fit", type=int, default=20, help="how many of them fit in memory")
    add("--counts", type=numbers, default=[10, 1000], help="of functions")
    add("--work", type=Path, help="a folder on the disk to be measured, which is kept")
    add("--logs", type=Path, help="keep the nodes' logs here; FAASW_LOG chooses what they tell")
    add("--seed", type=int, default=time.time_ns() % 1_000_000, help="of all that is random")
    add("--json", type=Path, help="also write all figures to this file")
    arguments = parser.parse_args(words)
    unknown = [part for part in arguments.only if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    return arguments


def main():
    arguments = arguments_of(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as scope:
        if arguments.work:
            work = arguments.work.resolve()
            work.mkdir(parents=True, exist_ok=True)
            scope.callback(shutil.rmtree, work / "parts", ignore_errors=True)
        else:
            made = tempfile.TemporaryDirectory(
                prefix="faasw-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")
            )
            work = Path(scope.enter_context(made))
        bench = Bench(arguments, work, scope)
        host, told = bench.report.figures["host"], disk.describe(work)
        bench.report.figures |= {"disk": told, "seed": arguments.seed, "rounds": arguments.rounds}
        busy = (
            f" **The machine was busy: load {host['load']:.1f} at the start.**"
            if host["load"] > 0.5
            else ""
        )
        print(
            f"# Func-images\n\n{time.strftime('%Y-%m-%d')}, {host['cpu']}, {host['processors']} "
            "processors, "
            f"{host['memory_mib']} MiB, Linux {host['kernel']}, {host['kvm']}; disk "
            f"{told['name']}, "
            f"{told['file_system']}, read-ahead {told['read_ahead_kib']} KiB. {arguments.rounds} "
            "rounds, "
            f"`--seed {arguments.seed}`; medians, and the intervals that hold them with 95 % "
            f"confidence.{busy}",
            flush=True,
        )
        begun = time.monotonic()
        try:
            bench.prepare()
        except Failed as why:
            sys.exit(f"the functions cannot be deployed: {why}")
        bench.open_disk()
        for part, measure in PARTS.items():
            if part in arguments.only:
                measure(bench)
        bench.report.end(arguments.json)
        print(f"\n{time.monotonic() - begun:.0f} s in all.")
    missed = [goal for goal in bench.report.goals if goal[3] == "not measured"]
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
