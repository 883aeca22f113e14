#!/usr/bin/env python3
"""Writes docs/performance.md from the data files bench/results/*.json.

Usage: performance.py [--check]

With --check, the script writes nothing and exits with 1 if the page differs from the data files.
Each number on the page is a figure or a table's cell of a data file, referred to by name. A name
that does not exist is an error.
"""

import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"


def short(number):
    """Formats a number with about three digits."""
    if number >= 1000:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}".removesuffix(".0")
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def only(found, name):
    """Returns the only element of a list."""
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} found instead of one")
    return found[0]


class Data:
    """A data file."""

    def __init__(self, path):
        self.name = path.stem
        self.fields = json.loads(path.read_text())

    def __getattr__(self, field):
        return self.fields[field]

    def link(self, text):
        return f"[{text}](../bench/results/{self.name}.json)"

    def figure(self, name):
        """Returns the figure of this name, or the only one whose name begins so."""
        found = [figure for figure in self.figures if figure["figure"] == name]
        begin = [figure for figure in self.figures if figure["figure"].startswith(name)]
        return only(found or begin, f"{self.name}: {name}")

    def value(self, name):
        """Returns a figure's value."""
        return short(self.figure(name)["ratio"])

    def interval(self, name):
        """Returns a figure's value, and its interval if it has one."""
        figure = self.figure(name)
        if figure["low"] is None:
            return short(figure["ratio"])
        return f"{short(figure['ratio'])} ({short(figure['low'])}–{short(figure['high'])})"

    def cell(self, caption, row, column, interval=True):
        """Returns the cell of the only row that begins with the cells `row`."""
        name = f"{self.name}: {caption}"
        table = only([table for table in self.tables if table["caption"] == caption], name)
        rows = [cells for cells in table["rows"] if cells[: len(row)] == row]
        cells = only(rows, f"{name}: {row}")
        text = cells[table["columns"].index(column)]
        return re.sub(r" \((\S+) to (\S+)\)", r" (\1–\2)" if interval else "", text)

    def machine_name(self):
        """Returns the vendor and the generation of the machine's processor."""
        name = (self.machine or "unknown").split(",")[0]
        return re.sub(r"\(R\)| (Processor|Xeon|EPYC)", "", name)


FILES = {path.stem: Data(path) for path in sorted(RESULTS.glob("*.json"))}


def text(words, first="", others=""):
    """Wraps a paragraph at 100 columns. `first` and `others` precede its lines."""
    return textwrap.fill(
        " ".join(words.split()),
        100,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(columns, rows):
    rule = "|---" + "|---:" * (len(columns) - 1) + "|"
    head, *body = (f"| {' | '.join(cells)} |" for cells in [columns, *rows])
    return "\n".join([head, rule, *body])


def times(text):
    """Writes the unit of a figure's text as the page does."""
    return text.replace(" us", " µs")


def goal_text(goal):
    """Writes a goal without trailing zeros, and a ratio without its sign."""
    bound, number, *unit = times(goal).split()
    number = short(float(number.replace(",", "")))
    number = re.sub(r"\.?0+$", "", number) if "." in number else number
    return " ".join([bound, number, *(word for word in unit if word != "×")])


def reading():
    report = FILES["report"]
    empty = report.cell("The floor", ["KVM_RUN of an empty guest in one process"], "p50 us")
    return [
        "## How to read this page",
        text(f"""A ratio is faasw's number divided by the other one, as the median over rounds of
        one run. Brackets contain the 95 % confidence interval. Clients and servers share two
        processors of a cloud VM with nested KVM, where an empty `KVM_RUN` takes {empty} µs. Compare
        ratios, not times of different runs. *Hot* instances poll for the next request (`--poll
        auto`)."""),
    ]


def peers():
    report, intel, amd = FILES["report"], FILES["hot-ablation"], FILES["hot-amd"]
    rows = []
    for title, name in [
        ("Rust, hello", "hello"),
        ("Go", "go (after-init)"),
        ("JavaScript", "js"),
        ("Python", "python"),
    ]:
        one, many = f"{name}, 1 connection", f"{name}, 24 connections"
        latency = report.figure(f"{one}: p50 to fresh instances'")
        rows.append([
            title,
            latency["faasw"].removesuffix(" us"),
            latency["other"].removesuffix(" us"),
            report.interval(f"{one}: p50 to fresh instances'"),
            report.value(f"{one}: p99/p50 to fresh instances'"),
            report.interval(f"{many}: throughput to fresh instances'"),
        ])
    warm = report.figure("hello, 1 connection: p50 to one warm instance's")
    fresh = "hello, to `wasmtime serve` with a fresh instance for each request"
    return [
        "## Beside `wasmtime serve`",
        text(f"""Components: p50 at one connection, ratio of throughput at 24
        ({report.link("Intel")}). The peer has precompiled code and a fresh, pooled instance for
        each request."""),
        table(["component", "p50, µs", "peer", "ratio", "p99/p50", "throughput"], rows),
        text(f"""One warm instance of the peer, shared by all requests, answers hello in
        {times(warm["other"])}; faasw takes {short(warm["ratio"])} times as long. A hot instance
        takes {intel.interval("hello, hot: p50 to fresh instances'")}
        ({intel.link("Intel")}) and {amd.cell("`--poll auto`, 1 connection", [fresh], "p50")}
        ({amd.link("AMD")}) of the fresh instance's time."""),
    ]


def microvm():
    report, embedded, reset = FILES["report"], FILES["embedded"], FILES["hot-ablation"]
    floor = (
        "warm microVM, request written to handler finished, to an empty KVM_RUN between two"
        " processes"
    )
    warm = "hello, requests that warm instances serve, 1 connection, ratios"
    forks = "hello, requests that forks serve, 1 connection, ratios"
    calls = "Requests without HTTP"

    def without_jails(caption):
        return report.cell(caption, ["without jails"], "answers/s").removesuffix(" ×")

    return [
        "## What a microVM costs",
        "![Times in the microVM](performance/floor.svg)",
        text(f"""A warm microVM takes {times(report.figure(floor)["faasw"])} for a request, an empty
        `KVM_RUN` between two processes {times(report.figure(floor)["other"])}: ratio
        {report.interval(floor)} ({report.link("data")}). Without jails, the ratio of throughput is
        {without_jails(warm)} for warm instances and {without_jails(forks)} for forks. A
        {reset.link("reset")} takes
        {reset.value("hello: CPU time of a reset")} µs. In an {embedded.link("embedded node")},
        `Node::invoke` takes {embedded.cell(calls, ["`Node::invoke`, `--poll off`"], "p50")}, hot
        {embedded.value("`Node::invoke`, hot")} µs."""),
    ]


def starts():
    report, amd, intel = FILES["report"], FILES["cold-amd"], FILES["cold-intel"]
    restart, scripts = FILES["restart"], FILES["scripts"]
    rows = [
        [
            title,
            amd.cell(f"Code read {how}", [row], "cold", False),
            intel.cell("Cold functions", [row], "cold", False),
        ]
        for title, row, how in [
            ("hello", "hello", "completely"),
            ("JavaScript script, engine", "a script in JavaScript and its engine", "in parts"),
            ("Python script, engine", "a script in Python and its engine", "in parts"),
            ("Python component", "a Python component", "in parts"),
        ]
    ]
    stages, answer = "Stages of requests", "hello: restart, start to answer"
    index = "an index of 2 MB, nothing seeded to level 2"
    zygote = "sandbox made when asked, new groups, 1 at once: p50 to made ahead"
    return [
        "## Forks, cold starts, restart",
        text(f"""A new sandbox takes {times(report.figure(zygote)["faasw"])}, a zygote
        {times(report.figure(zygote)["other"])} ({report.link("data")}). A request for hello then
        takes {report.cell(stages, ["zygote", "alone"], "in the VM, us")} µs in a zygote,
        {report.cell(stages, ["warm", "alone"], "in the VM, us")} µs in a warm instance. Without
        seeds, a {scripts.link("script")} with a 2 MB index takes
        {scripts.value(f"JavaScript: {index}")} (JavaScript) and
        {scripts.value(f"Python: {index}")} (Python) times as long. First answers of functions whose
        seed is on disk:"""),
        table(["function", amd.link("AMD"), intel.link("Intel")], rows),
        text(f"""The first answer of hello comes {restart.value(answer)} ms after a
        {restart.link("restart")}, or {restart.value(f"{answer}, program read from disk")} ms if the
        program is read from disk."""),
    ]


def memory():
    report, density, many = FILES["report"], FILES["density"], FILES["many-scripts"]
    fall = "fall of MemAvailable per instance, over"
    five = "5,000 of one function"
    return [
        "## Memory and density",
        text(f"""A warm instance of hello has
        {report.figure("hello: unique set size per warm instance")["faasw"]} of its own and costs
        the machine {report.figure(f"hello: {fall}")["faasw"]}; of the JavaScript component
        {report.figure("js: unique set size per warm instance")["faasw"]} and
        {report.figure(f"js: {fall}")["faasw"]} ({report.link("data")}).
        {density.link("5,000 instances")} are warm after {density.value(f"{five}: warm after")} s
        and take {density.value(f"{five}: CPU of the idle node")} % of a processor when idle. With
        {many.link("1,000 scripts")}, memory for only 20 seeds costs
        {many.value("20 in memory to all: p50")} times the p50."""),
    ]


def scripts():
    data = FILES["scripts"]
    rows = []
    for title, javascript, python in [
        ("text", "a text", "a text"),
        ("10 KB JSON", *["10 KB of JSON, parsed, transformed, written"] * 2),
        (
            "page",
            "a page of 50 items out of a template",
            "a page of 50 items out of a template (Jinja2)",
        ),
        ("lookup", *["a lookup in an index of 2 MB, built before"] * 2),
    ]:
        rows.append([title] + [
            data.cell("p50 to peers", row, column, False)
            for row in (["JavaScript", javascript], ["Python", python])
            for column in ("to `wasmtime serve`", "to native")
        ])
    columns = ["JavaScript/serve", "JavaScript/Node.js", "Python/serve", "Python/CPython"]
    return [
        "## Scripts",
        text(f"""Ratios of p50 ({data.link("AMD")}) to `wasmtime serve` (fresh instances), and to
        Node.js 20 and CPython 3.11, which do not isolate requests:"""),
        table(["request", *columns], rows),
        text(f"""A text takes {data.interval("JavaScript: a text, to Rust's")} (JavaScript) and
        {data.interval("Python: a text, to Rust's")} (Python) of the time in Rust."""),
    ]


def calls():
    outbound, store = FILES["outbound"], FILES["key-value"]
    return [
        "## Outbound calls, key-value stores",
        text(f"""A request with one {outbound.link("outbound call")} takes
        {outbound.interval("p50 of one call to the peer's")} of the peer's time, hot
        {outbound.interval("p50 of one call to the peer's, hot")}. A GiB passes at
        {outbound.interval("throughput of a GiB to the peer's")} of its throughput. A `get` from a
        {store.link("store")} takes {store.value("Zen 5: get beside a round trip")}
        µs beside a round trip; a node commits
        {store.value("Zen 5: sets in a second, 24 at once")} sets a second."""),
    ]


def load():
    report, overload = FILES["report"], FILES["overload"]
    last = report.value("long load: last window's throughput to the first")
    minutes = "Honest clients under attack"
    return [
        "## Overload and long load",
        "![Answers under overload](performance/overload.svg)",
        text(f"""At three times its capacity, a node {overload.link("answers")}
        {overload.cell("Overload", ["3.00"], "answered/s")} requests a second, with a p99 of
        {overload.cell("Overload", ["3.00"], "p99 ms")} ms, and rejects the rest. After ten minutes
        of {report.link("load")}, throughput is {last} of the first minute's, and nothing has grown.
        During {overload.value("hostile connections")} hostile connections, honest clients get
        {overload.cell(minutes, ["60"], "answers/s")} answers a second, in the fourth minute
        {overload.cell(minutes, ["240"], "answers/s")}."""),
    ]


def verdicts(verdict):
    """Returns the figures with a verdict: by file, figure and goal, the values of all subjects."""
    found = {}
    for data in FILES.values():
        for figure in data.figures:
            if figure["met"] == verdict:
                subject, _, what = figure["figure"].rpartition(": ")
                subject = subject.removesuffix(", 1 connection")
                value = "" if figure["ratio"] is None else short(figure["ratio"])
                values = found.setdefault((data.name, what, figure["goal"]), [])
                values.append(f"{subject} {value}".strip())
    return [
        f"{FILES[name].link(what)} {goal_text(goal)}: {', '.join(values)}"
        for (name, what, goal), values in found.items()
    ]


def goals():
    return [
        "## Missed goals",
        "Figures, goals and values; the peer is `wasmtime serve`:",
        "\n".join(text(missed, "- ", "  ") for missed in verdicts("no")),
        text(f"""Too noisy for a verdict: {"; ".join(verdicts("too noisy to tell"))}.
        Not measured: {"; ".join(verdicts("not measured"))}."""),
    ]


def repeating():
    return [
        "## Repeating the measurements",
        text("""Each data file has its command. This one measures `report.json` in 30 minutes
        ([bench/README.md](../bench/README.md)):"""),
        "```sh\ntarget/release/faasw-bench report --faasw target/release/faasw \\\n"
        "  --ablation-faasw target/ablation/release/faasw \\\n"
        "  --wasmtime ~/.cargo/bin/wasmtime --function js=js-http.wasm \\\n"
        "  --function python=python-http.wasm --data bench/results/report.json &&\n"
        "  bench/scripts/performance.py\n```",
    ]


def files():
    rows = [
        [data.link(data.title), data.machine_name(), data.commit or "unknown", data.date]
        for data in FILES.values()
    ]
    return ["## Data files", table(["measurement", "machine", "commit", "date"], rows)]


def page():
    parts = ["# Performance", "[Generated](../bench/README.md#results) from data files."]
    for section in (
        reading, peers, microvm, starts, memory, scripts, calls, load, goals, repeating, files,
    ):
        parts += section()
    return "\n\n".join(parts) + "\n"


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if arguments == ["--help"] else 2
    if not arguments:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        print("docs/performance.md differs: run bench/scripts/performance.py", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
