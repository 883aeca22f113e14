"""Measures functions with a slow initialisation: the effect of seeds, Wizer and warm-up requests.

A function's request is timed in four ways, in alternating rounds:

- *Warm*: a warm instance of its seed serves the request.
- *Level 2*: a fork of its seed does.
- *Level 1*: a fork of a function that evaluates the script in its handler does, so that only the
  engine is seeded.
- *Nothing*: the node keeps no seed in memory or on disk. A fork of the linked runtime becomes the
  engine, and that becomes the function. The node freezes both, as it always does.
"""

import scripts
from figures import Figure, ms
from node import until
from nodes import Up, against
from scripts import HEAVY, LANGUAGES, ROOT

# Goal: how many times faster level 2 is than nothing.
SAVES = 30
# Few rounds and requests, because these requests are slow.
FEW = {"rounds": 10, "requests": 5}
# Requests before the measured ones.
WARM_UPS = 40
# A request may import a large library.
LIMITS = ("--memory", "256", "--timeout", "60s", "--cpu-time", "60s")


def measure(bench):
    report = bench.report
    report.say("### Functions whose beginning takes long")
    report.table(
        "language", "its top level", "warm ms", "level 2 ms", "level 1 ms", "nothing ms",
        "nothing to level 1", "level 1 to level 2", "nothing to level 2",
    )  # fmt: skip
    for language in bench.languages:
        with bench.part_of_scope():
            levels(bench, language)
    warm_up(bench)
    wizer(bench)


def levels(bench, language):
    works = [work for of, work in HEAVY if of == language]
    warm, forking = bench.node(), bench.node("--max-reuse", "1")
    folders = []
    for work in works:
        early = scripts.script(bench.tools, bench.folder("early") / work, language, work)
        late = scripts.script(
            bench.tools, bench.folder("late") / work, language, work, is_late=True
        )
        warm.deploy(early, work, *LIMITS)
        forking.deploy(early, work, *LIMITS)
        forking.deploy(late, f"{work}-late", *LIMITS)
        folders.append(early)
    bare = Up(
        bench, [*folders, bench.other_module], "--seed-memory", "0", "--max-warm", "0", *LIMITS
    )
    for work in works:
        ways = {"warm": [], "level 2": [], "level 1": [], "nothing": []}
        order = list(ways)
        # Afterwards the working sets are recorded.
        for _ in range(WARM_UPS):
            warm.ask(work)
            forking.ask(work)
        # The first round is not counted.
        for number in range(bench.slow_rounds + 1):
            bench.dice.shuffle(order)
            for way in order:
                if way == "nothing":
                    is_gone(bare, work)
                    answer = bare.ask(work)
                elif way == "warm":
                    answer = warm.ask(work)
                else:
                    answer = forking.ask(work if way == "level 2" else f"{work}-late")
                if number:
                    ways[way].append(answer.seconds)
        tell(bench, language, work, ways)


def is_gone(node, name):
    """Waits until neither the function nor its engine is in memory."""

    def gone():
        if not any(seed["is_in_memory"] for seed in node.chain(name) if seed["level"] >= 2):
            return True
        # The node evicts a seed only when it loads another one.
        node.ask("hello")
        return False

    until(f"{name} is evicted", gone)


def tell(bench, language, work, ways):
    def ratio(of, to):
        return Figure([one / other for one, other in zip(ways[of], ways[to])])

    report, saved = bench.report, ratio("nothing", "level 2")
    times = {way: Figure(values) for way, values in ways.items()}
    title = HEAVY[language, work]
    cells = [ratio("nothing", "level 1"), ratio("level 1", "level 2"), saved]
    report.row(
        LANGUAGES[language],
        title,
        *map(ms, times.values()),
        *(cell.told(digits=1) for cell in cells),
    )
    report.keep("initialised", f"{language}-{work}", **times, saved=saved)
    report.goal(
        f"{LANGUAGES[language]}: {title}, nothing seeded to level 2",
        saved,
        SAVES,
        " ×",
        at_least=True,
    )


def warm_up(bench):
    if "python" not in bench.languages:
        return
    with bench.part_of_scope():
        node, shop = bench.node(), scripts.shop(bench.tools, bench.folder("shop"))
        node.deploy(shop, "warm", "--warmup-request", "/")
        node.deploy(shop, "cold")
        url = f"http://127.0.0.1:{node.port}"
        ratio, warm, cold = against(bench, f"{url}/warm/", f"{url}/cold/")
    bench.report.say(
        f"Flask's page with `--warmup-request` to without: {ratio.told(digits=3)}, "
        f"{warm / 1e3:.2f} to {cold / 1e3:.2f} ms."
    )
    bench.report.keep("initialised", "warm-up", ratio=ratio, warm_us=warm, cold_us=cold)


def wizer(bench):
    with bench.part_of_scope():
        node = bench.node()
        module = ROOT / "examples/index-rust/index.wasm"
        node.deploy(module, "ready", "--init", "prepare")
        node.deploy(module, "anew")
        url = f"http://127.0.0.1:{node.port}"
        ratio, ready, anew = against(bench, f"{url}/ready/bananana", f"{url}/anew/bananana", **FEW)
    bench.report.say(
        f"A Rust component whose initialisation takes {anew / 1e3:.0f} ms "
        "(`examples/index-rust`), deployed with `--init` "
        f"to without: {ratio.told(digits=4)}, {ready / 1e3:.2f} to {anew / 1e3:.1f} ms."
    )
    bench.report.keep("initialised", "wizer", ratio=ratio, ready_us=ready, anew_us=anew)
