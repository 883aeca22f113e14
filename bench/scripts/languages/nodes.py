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


def against(bench, ours, peer, post=None, rounds=None, requests=200):
    """Returns the ratio of latencies on one connection, and both medians in microseconds."""
    command = [
        bench.program,
        "http",
        "--json",
        "--ours",
        ours,
        "--peer",
        peer,
        "--warm-up",
        str(min(50, requests)),
    ]
    command += ["--rounds", str(rounds or bench.rounds), "--requests", str(requests)]
    command += ["--post", post] if post else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr[-1000:]}")
    report = json.loads(done.stdout)
    times = {one["name"]: one["p50"] for one in report["contestants"]}
    return Interval(report["ratios"]["latency"]), times["ours"], times["peer"]
