"""Nodes of `faasw up`, peers, and requests to both in the same rounds."""

import json
import re
import subprocess
import time
from pathlib import Path

from figures import Figure
from node import Failed, Node, until

# Seconds to compile Python's engine on a small, busy machine.
COMPILES = 300


class Interval(Figure):
    """A result of `faasw-bench`: a median with its interval."""

    def __init__(self, told):
        super().__init__([told["median"]])
        self.low, self.high = told["low"], told["high"]

    def told(self, scale=1.0, digits=2):
        median, low, high = (
            f"{value * scale:.{digits}f}" for value in (self.median, self.low, self.high)
        )
        return f"{median} ({low} to {high})"

    def as_json(self):
        return {"median": self.median, "low": self.low, "high": self.high}


class Up(Node):
    """A node of `faasw up`, which keeps nothing on disk: neither code nor images."""

    def __init__(self, bench, paths, *options):
        Node.number += 1
        self.bench, self.options, self.pins = bench, options, []
        self.log = bench.logs / f"{Node.number:03}-up.log"
        self.told = self.log.with_suffix(".json")
        command = [bench.faasw, "up", *paths, "--listen", "127.0.0.1:0", "--json", *options]
        with open(self.log, "wb") as log, open(self.told, "wb") as told:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=told, stderr=log
            )
        bench.scope.callback(self.stop)
        ready = until("`up` is ready", self.ready, patience=COMPILES)
        self.port = int(ready["address"].rpartition(":")[2])
        # The folder of its admin socket.
        self.data = Path(ready["data_dir"])

    def ready(self):
        if self.process.poll() is not None:
            raise Failed(f"the node has ended:\n{self.said()}")
        line, end, _ = self.told.read_text().partition("\n")
        return json.loads(line) if end else None


def start(bench, *command, **options):
    """Starts a server that ends with the part. Returns its address once it has printed it."""
    log = bench.logs / f"peer-{time.monotonic_ns()}.log"
    with open(log, "wb") as out:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options
        )
    bench.scope.callback(lambda: (server.terminate(), server.wait()))

    def address():
        said = log.read_text(errors="replace")
        if server.poll() is not None:
            raise Failed(f"{' '.join(map(str, command))} does not serve:\n{said[-2000:]}")
        return re.search(r"(127\.0\.0\.1:\d+)", said)

    return f"http://{until('a peer serves', address)[1]}"


class Compared:
    """A result of `faasw-bench http`."""

    def __init__(self, told, why):
        self.connections, self.why = told["connections"], why
        results = {one["name"]: one for one in told["contestants"]}
        if not {"ours", "peer"} <= results.keys():
            raise Failed(f"a server answered no request: {why}")
        self.ours, self.peer = results["ours"], results["peer"]
        if not (told["ratios"]["latency"] and told["ratios"]["throughput"]):
            raise Failed(f"a round had no answers: {why}")
        self.latency = Interval(told["ratios"]["latency"])
        self.throughput = Interval(told["ratios"]["throughput"])


def compare(bench, ours, peer, post=None, rounds=None, requests=200, connections=1):
    """Measures two servers in alternating rounds. Failed requests are counted; `why` has the first.

    Raises `Failed` if a server is not reached, or if a request fails before the first round.
    """
    command = [
        bench.program,
        "http",
        "--json",
        "--ours",
        ours,
        "--peer",
        peer,
        "--warm-up",
        str(max(min(50, requests), 5 * (connections - 1))),
        "--connections",
        str(connections),
    ]
    command += ["--rounds", str(rounds or bench.rounds), "--requests", str(requests)]
    command += ["--post", post] if post else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # The command also fails after it has printed its report, if any request failed.
    if not done.stdout:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr[-1000:]}")
    return Compared(json.loads(done.stdout), done.stderr[-1000:] if done.returncode else "")


def against(bench, ours, peer, **options):
    """Returns the ratio of latencies on one connection, and both medians in microseconds."""
    compared = compare(bench, ours, peer, **options)
    if compared.why:
        raise Failed(compared.why)
    return compared.latency, compared.ours["p50"], compared.peer["p50"]
