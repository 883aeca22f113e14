"""Compares requests to scripts with `wasmtime serve`, native servers, and Rust on the same node."""

import scripts
from nodes import against
from scripts import LANGUAGES, ROOT, WORKS

# Maximum ratios to Rust's hello and to the peer's.
TO_RUST = {"js": 1.3, "python": 2.0}
HELLO_TO_PEER = 0.3
# Maximum ratios to the native server, by language and work.
TO_NATIVE = {("js", "api"): 1.5, ("js", "page"): 2.5}
NATIVE = {"js": "Node.js", "python": "CPython, uvicorn"}


def measure(bench):
    report = bench.report
    report.say("### Requests")
    report.table("language", "work", "peer", "p50, to the peer's", "µs", "peer's µs")
    for language in bench.languages:
        for work, told in WORKS.items():
            with bench.part_of_scope():
                beside_peers(bench, language, work, told)
    report.say(
        f"The JSON that is sent has {bench.post.stat().st_size} bytes; all at one connection."
    )


def beside_peers(bench, language, work, told):
    component = bench.tools.component(language, work)
    source = scripts.script(bench.tools, bench.folder(work), language, work)
    folder = bench.folder("peers")
    scripts.for_peers(bench.tools, folder, language, work)
    node = bench.node()
    name = f"{language}-{work}"
    node.deploy(source, name)
    ours = f"http://127.0.0.1:{node.port}/{name}/"
    body = {"post": bench.post} if work == "api" else {}

    def beside(peer, url, **options):
        ratio, own, others = against(bench, ours, url, **options)
        bench.report.row(
            LANGUAGES[language], told, peer, ratio.told(digits=3), f"{own:.0f}", f"{others:.0f}"
        )
        bench.report.keep("requests", f"{name} to {peer}", ratio=ratio, ours_us=own, peer_us=others)
        return ratio

    ratio = beside("wasmtime serve", bench.tools.peer(bench, component) + "/", **body)
    of_peer = f"{LANGUAGES[language]}: {told}, to wasmtime serve's"
    if work in ("api", "page"):
        bench.report.goal(of_peer, ratio, 1.0)
    if work == "hello":
        bench.report.goal(of_peer, ratio, HELLO_TO_PEER)
        node.deploy(ROOT / "examples/hello/hello.wasm", "rust")
        ratio = beside("Rust on the same node", f"http://127.0.0.1:{node.port}/rust/")
        bench.report.goal(f"{LANGUAGES[language]}: {told}, to Rust's", ratio, TO_RUST[language])
    ratio = beside(NATIVE[language], bench.tools.native(bench, language, folder) + "/", **body)
    if limit := TO_NATIVE.get((language, work)):
        title = f"{LANGUAGES[language]}: {told}, to that of {NATIVE[language]}"
        bench.report.goal(title, ratio, limit)
