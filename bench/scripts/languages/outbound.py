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
NATIVE = {"js": "Node.js", "python": "CPython, uvicorn"}
# The clients of each language's scripts with the entry file and the peers that they are compared
# with. Natively, Python uses httpx, too. The component can only use the bindings of wasi:http.
CLIENTS = {
    "js": {"fetch": ("handler.js", ("serve", "native"))},
    "python": {
        "http.client": ("plain.py", ("serve",)),
        "httpx": ("handler.py", ("serve", "native")),
    },
}
SERVE = "wasmtime serve"


def measure(bench):
    report = bench.report
    report.say("### One outbound call")
    report.table(
        "language", "client", "connections", "peer", "p50, to the peer's", "µs", "peer's µs",
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
    urls = {}
    for client, (entry, _) in CLIENTS[language].items():
        grant = f"http://127.0.0.1:{upstream.port}"
        name = entry.partition(".")[0]
        node.deploy(source, name, "--entry", entry, "--allow-outbound", grant)
        urls[client] = f"http://127.0.0.1:{node.port}/{name}/{upstream.port}"
    peers = {
        "serve": (SERVE, bench.tools.peer(bench, component)),
        "native": (NATIVE[language], bench.tools.native(bench, language, folder)),
    }
    peers = {kind: (name, f"{url}/{of_peer.port}") for kind, (name, url) in peers.items()}
    same_answers(urls | dict(peers.values()))
    for connections, requests in LOADS.items():
        for client, (_, kinds) in CLIENTS[language].items():
            for kind in kinds:
                name, url = peers[kind]
                upstream.since()
                of_peer.since()
                result = compare(
                    bench, urls[client], url, requests=requests, connections=connections
                )
                counts = upstream.since(), of_peer.since()
                tell(bench, language, client, name, result, counts)


def same_answers(urls):
    """Fails unless all contestants answer with the same JSON."""
    answers = {}
    for name, url in urls.items():
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as told:
                answers[name] = json.load(told)
        except (OSError, ValueError) as why:
            said = why.read(500) if isinstance(why, urllib.error.HTTPError) else b""
            raise Failed(f"{name} at {url}: {why} {said.decode(errors='replace')}") from why
    first, *others = answers.values()
    if any(other != first for other in others):
        raise Failed(f"the answers differ: {answers}")


def tell(bench, language, client, peer, result, counts):
    report, many = bench.report, result.connections > 1
    own, others = result.ours, result.peer
    for who, one, (_, calls) in zip(("faasw", peer), (own, others), counts):
        if calls < one["count"]:
            raise Failed(f"{who} gave {one['count']} answers with {calls} calls")
    fresh = [100 * opened / calls for opened, calls in counts]
    report.row(
        LANGUAGES[language], client, result.connections, peer, result.latency.told(digits=3),
        f"{own['p50']:.0f}", f"{others['p50']:.0f}", result.throughput.told(),
        f"{own['per_second']:.0f}", f"{others['per_second']:.0f}", own["errors"], others["errors"],
        *(f"{value:.1f}" for value in fresh),
    )  # fmt: skip
    report.keep(
        "outbound", f"{client} to {peer}, {result.connections}", latency=result.latency,
        throughput=result.throughput, ours=own, peer=others, ours_connections=fresh[0],
        peer_connections=fresh[1],
    )  # fmt: skip
    if result.why:
        print(f"{client}, {peer}: {result.why}", file=sys.stderr)
    title = f"{LANGUAGES[language]}, {client}: one call"
    if many and peer == SERVE:
        title = f"{title}, {result.connections} connections"
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
        report.goal(f"{title}, to that of {peer}", result.latency, limit)
