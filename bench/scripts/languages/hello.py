"""Compares scripts that make no call with the same scripts on an earlier program (`--against`).

`faasw-bench versions` starts both programs many times and measures them in alternating rounds.
"""

import copy
import json
import subprocess

import memory
from figures import Figure
from node import Failed
from nodes import Interval
from scripts import LANGUAGES

# Maximum ratios to the earlier program.
TIME = 1.02
SIZE = 1.05
CONNECTIONS = 1, 24


def measure(bench):
    before = copy.copy(bench)
    before.faasw = bench.against
    before.base = bench.base.with_name("base-before")
    before.prepare()
    report = bench.report
    report.say("### Hello, to an earlier program")
    report.table(
        "language", "connections", "p50", "p99", "answers", "CPU per answer", "p50, µs", "before"
    )
    for language in bench.languages:
        for one in versions(bench, language):
            tell(bench, language, one)
    report.say("A script's layer and the private memory of a warm instance, to the earlier ones:")
    report.table("language", "layer", "warm instance")
    for language in bench.languages:
        sizes(bench, before, language)


def versions(bench, language):
    command = [bench.program, "versions", "--json", "--before", bench.against]
    command += ["--after", bench.faasw, "--function", f"hello={memory.HELLO[language]}"]
    command += ["--starts", str(bench.starts)]
    command += ["--connections", ",".join(map(str, CONNECTIONS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def tell(bench, language, one):
    names = "p50", "p99", "throughput", "cpu"
    if not all(one[name] for name in names):
        raise Failed(f"a start of {LANGUAGES[language]} gave no figures")
    ratios = {name: Interval(one[name]) for name in names}
    connections = one["connections"]
    bench.report.row(
        LANGUAGES[language],
        connections,
        *(ratio.told(digits=3) for ratio in ratios.values()),
        f"{one['after']['p50']:.1f}",
        f"{one['before']['p50']:.1f}",
    )
    bench.report.keep("hello", f"{language}, {connections}", **ratios)
    if connections == 1:
        title = f"{LANGUAGES[language]}: hello, p50 to the earlier program's"
        bench.report.goal(title, ratios["p50"], TIME)


def sizes(bench, before, language):
    name, measured = LANGUAGES[language], []
    for program in (before, bench):
        with program.part_of_scope():
            node = program.node()
            names = [f"{language}-{number}" for number in range(memory.SCRIPTS)]
            for one in names:
                node.deploy(memory.HELLO[language], one)
            measured.append(memory.sizes(memory.used(node, names)))
    ratios = [
        Figure([now / earlier for now, earlier in zip(*(one.values for one in pair))])
        for pair in zip(measured[1], measured[0])
    ]
    bench.report.row(name, *(ratio.told(digits=3) for ratio in ratios))
    for what, ratio in zip(("a script's layer", "memory of a warm instance"), ratios):
        bench.report.keep("hello", f"{language}, {what}", ratio=ratio)
        bench.report.goal(f"{name}: {what}, to the earlier program's", ratio, SIZE)
