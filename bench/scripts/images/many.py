"""Nodes with more functions than fit in memory, and with very many."""

import os
import random
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import disk
from cold import NOTHING_STAYS, PATIENT
from figures import Figure, mib, ms
from node import (
    Failed,
    Node,
    ask,
    copy_data,
    free_port,
    memory_of,
    processes_below,
    shared_memory,
    until,
)
from restart import first_health

MIB = disk.MIB
# Concurrent deployments: the number that a node runs at once.
AT_ONCE = 2
# Maximum growth of any sample from the middle to the end.
GROWTH = 1.1

JS = """// Number {number}.
const table = Array.from({{ length: 300 }}, (_, at) => `entry ${{at}} of {number}: ${{"x".repeat(at % 50)}}`);
export default {{
  fetch: (request) => new Response(`{number} ${{table[request.url.length % 300]}}\\n`),
}};
"""
PYTHON = '''"""Number {number}."""

TABLE = [f"entry {{at}} of {number}: {{'x' * (at % 50)}}" for at in range(300)]


def handler(request):
    return f"{number} {{TABLE[len(request.url) % 300]}}\\n"
'''
# A command with one page of memory that prints its number.
WAT = """(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\\10\\00\\00\\00" "\\22\\00\\00\\00")
  (data (i32.const 16) "Content-Type: text/plain\\n\\n{number:08}")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
"""


def deploy_all(bench, node, names, source):
    """Deploys these functions, `AT_ONCE` at a time. Returns the seconds of each deployment."""
    folder = bench.folder("sources")
    folder.mkdir()

    def deploy(numbered):
        number, name = numbered
        path = folder / f"{name}{source(number)[0]}"
        path.write_text(source(number)[1])
        begun = time.perf_counter()
        node.deploy(path, name)
        path.unlink()
        return time.perf_counter() - begun

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(deploy, enumerate(names)))


def script(number):
    return (
        (".js", JS.format(number=number)) if number % 2 else (".py", PYTHON.format(number=number))
    )


def samples_of(node, count=5):
    """Samples a node's resources: medians of some samples, because sandboxes come and go."""
    looks = []
    for _ in range(count):
        looks.append(look_at(node))
        time.sleep(0.3)
    return {name: statistics.median(look[name] for look in looks) for name in looks[0]}


def look_at(node):
    pids = processes_below(node.process.pid)
    stats = node.admin("stats")
    return {
        "tree": memory_of(pids, "Pss"),
        "node": memory_of([node.process.pid], "Rss"),
        "seeds": stats["memory"].get("seeds", 0),
        "files": len(os.listdir(f"/proc/{node.process.pid}/fd")),
        "processes": len(pids),
        "images": sum(size for _, size in node.images().values()),
    }


def measure(bench):
    report, count = bench.report, bench.scripts
    report.say(
        f"## {count} scripts of which {bench.fit} fit in memory\n\n"
        "Half in JavaScript, half in Python, asked at random by two clients that each wait for "
        "their answer; a node "
        "whose seeds have room for the engines and so many scripts, and one with the defaults, in "
        "which all are in "
        f"memory. Both keep {bench.fit} instances at most."
    )
    with bench.part_of_scope(), bench.time_for(bench.minutes * 120 + 400):
        try:
            many(bench)
        except (Failed, OSError) as why:
            report.say(f"failed: {why}")


def many(bench):
    report = bench.report
    data = copy_data(bench.base, bench.folder("many"))
    node = Node(bench, data)
    for function in node.admin("functions"):
        node.command("rm", function["name"])
    names = [f"script-{number}" for number in range(bench.scripts)]
    begun = time.perf_counter()
    deploy_all(bench, node, names, script)
    deployed = time.perf_counter() - begun
    for name in names:
        node.ask(name)
    node.settle(1, patience=300)
    tree = node.admin("tree")
    of_engines = sum(bytes_of(seed) for seed in tree if seed["level"] == 2)
    of_scripts = [bytes_of(seed) for seed in tree if seed["level"] == 3]
    room = of_engines + bench.fit * sum(of_scripts) // len(of_scripts)
    node.stop()
    images = [path.stat().st_size for path in disk.files_of(data / "images")]
    report.say(
        f"Deployed in {deployed:.1f} s, two at once. A script's seed has "
        f"{mib(sum(of_scripts) / len(of_scripts))} MiB, "
        f"the engines' {mib(of_engines)} MiB, all {len(images)} images {mib(sum(images))} MiB."
    )
    warm = ("--max-warm", str(bench.fit))
    report.table(
        "node", "requests", "errors", "p50 ms", "p99 ms", "longest ms", "warm, restored %"
    )
    held = {}
    for kind, options in (
        ("all in memory", warm),
        (f"{bench.fit} in memory", (*warm, "--seed-memory", str(room // MIB + 1))),
    ):
        node = Node(bench, data, *options)
        if kind == "all in memory":
            for name in names:
                node.ask(name)
            if not all(seed["is_in_memory"] for seed in node.admin("tree")):
                raise Failed("what was asked is not in memory")
        node.rest(120)
        held[kind] = under_load(bench, node, names, kind)
        node.stop()
    (_, all_there), (_, few_there) = held.values()
    ratios = (f"{part} {few_there[part] / all_there[part]:.2f} ×" for part in ("p50", "p99"))
    report.say(f"{bench.fit} in memory to all in memory: {', '.join(ratios)}.")
    report.say(
        "What the node had: memory of its processes (PSS), of it its own process's (RSS), its "
        "seeds by account."
    )
    columns = (
        "processes' MiB",
        "the node's MiB",
        "seeds MiB",
        "images MiB",
        "processes",
        "open files",
    )
    report.table("node", "when", *columns)
    for kind, (samples, answers) in held.items():
        for when, told in zip(("before", "middle", "end"), samples):
            sizes = (f"{told[name] / MIB:.1f}" for name in ("tree", "node", "seeds", "images"))
            report.row(kind, when, *sizes, told["processes"], told["files"])
        _, middle, end = samples
        for name in ("tree", "node", "seeds", "files"):
            grown = Figure([end[name] / max(1, middle[name])])
            report.goal(f"{kind}: {name}, end to middle", grown, GROWTH, " ×")
        report.goal(f"{kind}: errors", Figure([answers["errors"]]), 0)
        report.keep("many", kind, samples=samples, **answers)


def bytes_of(seed):
    """Returns the bytes of a seed in the seed memory, with its code if that is counted."""
    return seed["layer_bytes"] + seed.get("code_bytes", 0)


def under_load(bench, node, names, kind):
    """Sends random requests. Samples the node before, in the middle and at the end."""
    seconds = bench.minutes * 60
    samples, answers, wrong = [samples_of(node)], [], []
    served = {}
    stop = threading.Event()

    def client(seed):
        dice = random.Random(seed)
        while not stop.is_set():
            name = dice.choice(names)
            try:
                answer = ask(node.port, f"/{name}/")
            except OSError as why:
                wrong.append(str(why))
                continue
            if answer.status != 200 or not answer.body.startswith(
                name.removeprefix("script-").encode() + b" "
            ):
                wrong.append(f"{name} {answer.status} {answer.body[:100]!r}")
            answers.append(answer.seconds)
            served[answer.served] = served.get(answer.served, 0) + 1

    clients = [threading.Thread(target=client, args=(bench.seed + number,)) for number in range(2)]
    for thread in clients:
        thread.start()
    try:
        for _ in range(2):
            time.sleep(seconds / 2)
            samples.append(samples_of(node))
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    figure = sorted(answers)
    if not figure:
        raise Failed(f"nothing was answered: {wrong[:3]}")
    p50, p99 = (figure[int(len(figure) * part)] for part in (0.5, 0.99))
    warm = 100 * served.get("warm", 0) / len(figure)
    cells = (f"{value * 1e3:.2f}" for value in (p50, p99, figure[-1]))
    bench.report.row(kind, len(figure), len(wrong), *cells, f"{warm:.0f}, {100 - warm:.0f}")
    for why in wrong[:3]:
        bench.report.say(f"error: {why}")
    return samples, {
        "requests": len(figure),
        "errors": len(wrong),
        "p50": p50,
        "p99": p99,
        "served": served,
    }


def counts(bench):
    """Measures start, listing, deployment and restore with different numbers of functions."""
    report = bench.report
    report.say(
        "## Many functions\n\n"
        "Modules of one page, each of another content. *ready*: from the program's start to "
        "`/healthz`, with "
        "nothing of the data directory in memory; *first*: from there to the answer of one "
        "function; *CPU*: what "
        "the node has used 10 s after it was ready, and what it had then: its own process's "
        "memory (RSS), seeds by "
        "account, and how much more the machine's files in memory took, seeds and code among "
        "them. *restore*: of a "
        "seed that is not in memory, on a node that keeps none."
    )
    columns = (
        "functions",
        "deployed in s",
        "ready ms",
        "first ms",
        "CPU s",
        "RSS MiB",
        "seeds MiB",
        "files MiB",
    )
    report.table(*columns, "`ls` ms", "a deployment ms", "a restore ms", "images MiB")
    with bench.part_of_scope(), bench.time_for(150 + sum(bench.counts) * 0.25):
        data = bench.folder("count")
        data.mkdir(mode=0o700)
        there, taken = 0, {}
        for count in sorted(bench.counts):
            try:
                taken[count] = count_of(bench, data, there, count)
            except (Failed, OSError) as why:
                report.row(count, f"failed: {why}".replace("\n", " "))
                return
            there = count
        least, most = min(taken), max(taken)
        # `ls` is left out, because it has one line per function.
        for name in ("ready", "deploy", "restore") if most > least else ():
            ratio = Figure(
                [value / taken[least][name].median for value in taken[most][name].values]
            )
            report.goal(f"{most} functions to {least}: {name}", ratio, 2.0, " ×")


def count_of(bench, data, there, count):
    report = bench.report
    node = Node(bench, data)
    begun = time.perf_counter()
    names = [f"number-{number}" for number in range(there, count)]
    deploy_all(bench, node, names, lambda number: (".wat", WAT.format(number=there + number)))
    deployed = time.perf_counter() - begun
    some = bench.dice.sample(range(count), min(20, count))
    for number in some:
        node.ask(f"number-{number}")
    node.settle(1, patience=300)
    node.stop()
    disk.drop(disk.files_of(data))
    ready, first = [], []
    for turn in range(3):
        disk.drop(disk.files_of(data))
        shared = shared_memory()
        node = Node(bench, data, port=free_port())
        at = first_health(node)
        ready.append(at - node.begun)
        begun = time.perf_counter()
        node.ask(f"number-{some[turn % len(some)]}")
        first.append(time.perf_counter() - begun)
        if turn < 2:
            node.stop()
    time.sleep(max(0, 10 - (time.perf_counter() - at)))
    cpu, resident = node.cpu_seconds(), memory_of([node.process.pid], "Rss")
    seeds = node.admin("stats")["memory"].get("seeds", 0)
    files = max(0, shared_memory() - shared)
    node.rest(300)
    listing = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([bench.faasw, "ls", "--data-dir", data], check=True, capture_output=True)
        listing.append(time.perf_counter() - begun)
    extra = bench.folder("extra")
    extra.mkdir()
    deploying = []
    for turn in range(5):
        path = extra / "one-more.wat"
        path.write_text(WAT.format(number=90_000_000 + 10 * count + turn))
        begun = time.perf_counter()
        node.deploy(path, "one-more")
        deploying.append(time.perf_counter() - begun)
    node.command("rm", "one-more")
    node.settle(1)
    node.stop()
    node = Node(bench, data, *NOTHING_STAYS, *PATIENT)
    node.rest(300)
    restoring = [restored(node, number, count) for number in some[:10]]
    images = sum(size for _, size in node.images().values())
    node.stop()
    taken = {
        "ready": Figure(ready),
        "first": Figure(first),
        "ls": Figure(listing),
        "deploy": Figure(deploying),
        "restore": Figure(restoring),
    }
    after_ten = (f"{cpu:.2f}", *(f"{size / MIB:.1f}" for size in (resident, seeds, files)))
    times = {name: ms(figure) for name, figure in taken.items()}
    cells = (
        times["ready"],
        times["first"],
        *after_ten,
        times["ls"],
        times["deploy"],
        times["restore"],
    )
    report.row(count, f"{deployed:.1f}", *cells, mib(images))
    report.keep(
        "count",
        str(count),
        cpu=cpu,
        rss=resident,
        seeds=seeds,
        files=files,
        images=images,
        deployed=deployed,
        **taken,
    )
    return taken


def restored(node, number, count):
    """Returns the seconds until the answer of a function whose seed is only on disk."""
    name = f"number-{number}"

    def is_gone():
        if not node.is_in_memory(name):
            return True
        node.ask(f"number-{(number + 1) % count}")
        return False

    until(f"{name} is evicted", is_gone, pause=0.02)
    node.settle()
    node.drop_pages()
    return node.ask(name).seconds
