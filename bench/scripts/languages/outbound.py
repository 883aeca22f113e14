"""Compares a script that makes one outbound call with `wasmtime serve` and native servers.

The upstream server belongs to the benchmark (`upstream.py`) and keeps its connections. Each
contestant has an upstream process of its own, so that its connections can be counted.
"""

import json
import sys
import urllib.error
import urllib.request

import scripts
from figures import Figure
from node import PATIENCE, Failed
from nodes import compare
from scripts import HERE, LANGUAGES

# Connections with the number of requests in a round.
LOADS = {1: 200, 24: 480}
# Maximum ratios of time on one connection.
TO_SERVE = {"js": 0.5, "python": 0.25}
TO_NATIVE = {"js": 1.6, "python": 3.0}
# Minimum ratio of answers to those of `wasmtime serve`, by the number of connections.
ANSWERS = {"js": 3.0, "python": 8.0}
NATIVE = {"js": "Node.js, fetch", "python": "CPython, uvicorn, httpx"}
SERVE = "wasmtime serve"


def measure(bench):
    report = bench.report
    report.say("### One outbound call")
    report.table(
        "language", "connections", "peer", "p50, to the peer's", "µs", "peer's µs",
        "answers, to the peer's", "answers/s", "peer's answers/s", "errors", "peer's errors",
        "upstream connections per 100 calls", "peer's",
    )  # fmt: skip
    for language in bench.languages:
        with bench.part_of_scope():
            beside_peers(bench, language)
    report.say("Each request gets 1 KB of JSON, parses it and answers with a summary as JSON.")


class Upstream:
    """An upstream server, and its counts since the last look."""

    def __init__(self, bench):
        self.url = bench.start(bench.tools.venv / "python", HERE / "upstream.py")
        self.port = self.url.rpartition(":")[2]
        self.before = self.counts()

    def counts(self):
        with urllib.request.urlopen(f"{self.url}/counts", timeout=PATIENCE) as told:
            return json.load(told)

    def since(self):
        """Returns the connections and calls since the last look, without those of the looks."""
        before, self.before = self.before, self.counts()
        return (
            self.before["connections"] - before["connections"] - 1,
            self.before["requests"] - before["requests"],
        )


def beside_peers(bench, language):
    component = bench.tools.component(language, "outbound")
    folder = bench.folder("peers")
    scripts.for_peers(bench.tools, folder, language, "outbound")
    source = scripts.script(bench.tools, bench.folder("outbound"), language, "outbound")
    upstream, of_peer = Upstream(bench), Upstream(bench)
    node = bench.node("--allow-private", "127.0.0.1/32")
    node.deploy(source, "outbound", "--allow-outbound", f"http://127.0.0.1:{upstream.port}")
    ours = f"http://127.0.0.1:{node.port}/outbound/{upstream.port}"
    peers = {
        SERVE: bench.tools.peer(bench, component),
        NATIVE[language]: bench.tools.native(bench, language, folder),
    }
    urls = {name: f"{url}/{of_peer.port}" for name, url in peers.items()}
    same_answers(ours, urls)
    for connections, requests in LOADS.items():
        for peer, url in urls.items():
            upstream.since(), of_peer.since()
            result = compare(bench, ours, url, requests=requests, connections=connections)
            tell(bench, language, peer, result, (upstream.since(), of_peer.since()))


def same_answers(ours, urls):
    """Fails unless all contestants answer with the same JSON."""
    answers = {}
    for name, url in {"faasw": ours, **urls}.items():
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as told:
                answers[name] = json.load(told)
        except (OSError, ValueError) as why:
            said = why.read(500) if isinstance(why, urllib.error.HTTPError) else b""
            raise Failed(f"{name} at {url}: {why} {said.decode(errors='replace')}") from why
    for name, answer in answers.items():
        if answer != answers["faasw"]:
            raise Failed(f"{name} answers {answer}, faasw {answers['faasw']}")


def tell(bench, language, peer, result, counts):
    report, name, many = bench.report, LANGUAGES[language], result.connections > 1
    own, others = result.ours, result.peer
    for who, one, (_, calls) in zip(("faasw", peer), (own, others), counts):
        if calls < one["count"]:
            raise Failed(f"{who} gave {one['count']} answers with {calls} calls")
    fresh = [100 * opened / calls for opened, calls in counts]
    report.row(
        name, result.connections, peer, result.latency.told(digits=3), f"{own['p50']:.0f}",
        f"{others['p50']:.0f}", result.throughput.told(), f"{own['per_second']:.0f}",
        f"{others['per_second']:.0f}", own["errors"], others["errors"],
        *(f"{value:.1f}" for value in fresh),
    )  # fmt: skip
    report.keep(
        "outbound", f"{language} to {peer}, {result.connections}", latency=result.latency,
        throughput=result.throughput, ours=own, peer=others, ours_connections=fresh[0],
        peer_connections=fresh[1],
    )  # fmt: skip
    if result.why:
        print(f"{name}, {peer}: {result.why}", file=sys.stderr)
    if many and peer == SERVE:
        title = f"{name}: one call, {result.connections} connections"
        report.goal(f"{title}, failed requests", Figure([own["errors"]]), 0)
        report.goal(
            f"{title}, answers to {SERVE}'s",
            result.throughput,
            ANSWERS[language],
            " ×",
            at_least=True,
        )
    elif not many:
        limit = TO_SERVE[language] if peer == SERVE else TO_NATIVE[language]
        report.goal(f"{name}: one call, to that of {peer}", result.latency, limit)
