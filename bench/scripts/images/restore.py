"""A function whose seed is on disk alone: from its request to its response, beside the least that
this can take, beside paging the same memory in as it is touched, and beside making the seed anew.
"""

import contextlib
import threading
import time

import disk
from disk import MIB, PAGE
from figures import Figure, mib, ms
from node import Failed, Node, copy_data, until

# Has every seed leave memory that no request uses.
NOTHING_STAYS = ("--seed-memory", "0", "--max-parked", "0")
# A request that pins an engine waits for as long as a part takes.
PATIENT = ("--body-rate", "0", "--idle-client", "1h")
# A generic shell for each request.
SHELLS = ("--max-reuse", "1")
NO_IMAGES = ("--image-disk", "0")

# Reads that tell the disk's bandwidth in a round.
READS = 32
# How often what takes long is measured.
FEW = 5

# What is read round a fault of the mapped dump.
READ_AHEADS = (("as this disk is set", None), ("128 KiB", disk.USUAL_READ_AHEAD), ("none", 0))

# From this much on the disk has to be the limit, in bytes; below it, a time is.
LARGE = 4 << 20
IDEAL_FACTOR, IDEAL_BEYOND, LAZY_FACTOR, READ_FACTOR = 1.5, 1e-3, 3.7, 1.3
# The node's parts of a request's time, and what is told of them.
STAGES = ("queue", "fork", "init", "exec")


class Cold:
    """A node in which nothing stays in memory but what is pinned, and what it is asked."""

    def __init__(self, bench, data, function, *options):
        self.bench, self.function = bench, function
        self.node = Node(bench, data, *NOTHING_STAYS, *PATIENT, *options)
        self.is_pinned = False

    def pin(self):
        if self.function.pin:
            self.node.pin(self.function.pin)
            self.is_pinned = True

    def must_go(self, chain):
        """What is to be on disk alone: the function's seed, and its engine's unless that is pinned."""
        return [seed for seed in chain if seed["level"] >= 2 and not (self.is_pinned and seed["is_shared"])]

    def evict(self):
        """Has it leave memory; gives back what it is made of."""

        def is_gone():
            chain = self.node.chain(self.function.name)
            if not any(seed["is_in_memory"] for seed in self.must_go(chain)):
                return chain
            # Whose turn it is to go is looked at when another one has come.
            self.node.ask(self.bench.other)
            return None

        chain = until(f"{self.function.name} is evicted", is_gone, pause=0.01)
        self.node.settle()
        return chain

    def ask(self, drop=True):
        """The first answer of a seed that is not in memory."""
        before = self.evict()
        stayed = self.node.drop_images() if drop else 0
        read = disk.bytes_read(self.node.data)
        answer = self.node.ask(self.function.name)
        answer.read = disk.bytes_read(self.node.data) - read
        answer.stayed = stayed
        after = self.node.chain(self.function.name)
        answer.chain = after
        forks = [[seed["forks"] for seed in chain[:-1]] for chain in (before, after)]
        # Making it, and doing without it, forks what it is made of.
        answer.is_restored = answer.served != "ancestor" and not any(new > old for old, new in zip(*forks))
        return answer


def working_set(bench, node, function, chain, cold_levels):
    """Pages that a request uses of the layers of these levels, at most: what is recorded is of the
    whole guest. Of what all share any function uses what a small one does; and none uses more
    than there is.
    """

    def recorded(of):
        return of[-1]["written_pages"] + of[-1]["read_pages"]

    small = node.chain(bench.other)
    shared = max(0, recorded(small) - small[-1]["layer_bytes"] // PAGE)
    layers = sum(seed["layer_bytes"] for seed in chain if seed["level"] in cold_levels)
    # Pages of zeroes, and those that are as the parent's, are not read.
    images = bench.images[function.name]
    stored = images["own"] + (images["engine"] if len(cold_levels) > 1 else 0)
    return max(1, min(layers // PAGE, stored // PAGE, recorded(chain) - shared))


class Variant:
    """What of a function is cold."""

    def __init__(self, name, is_pinned):
        self.name, self.is_pinned = name, is_pinned


def variants(function):
    if not function.pin:
        return [Variant(function.name, False)]
    return [Variant(f"{function.name}, its engine in memory", True), Variant(f"{function.name} and its engine", False)]


def measure(bench):
    report = bench.report
    report.say(
        "## A cold restore\n\n"
        "The node runs, the function's code is in memory, its seed is not; no page of an image is in the "
        "system's memory. *warm*: the same request in a generic shell forked from the seed in memory. *ideal*: "
        "warm, and the working set at the bandwidth of that round. *used*: the working set in the layers that were "
        "cold, at most. *read*: bytes that were read of the disk until the answer, by anybody. *restored*: rounds in which "
        "the seed came from its image before the request was answered, instead of being done without."
    )
    columns = ("function", "cold ms", "warm ms", "used MiB", "read MiB", "ideal ms", "cold ÷ ideal")
    report.table(*columns, "cold − ideal ms", "restored", "goal", "met")
    lazily = []
    for function in bench.functions:
        for variant in variants(function):
            try:
                with bench.part_of_scope(), bench.time_for(45):
                    lazily.append(one(bench, function, variant))
            except (Failed, OSError) as why:
                report.row(variant.name, f"failed: {why}".replace("\n", " "))
                report.goal(f"cold restore, {variant.name}", None, IDEAL_FACTOR)
    tell_stages(report, lazily)
    tell_lazy(report, lazily)


def tell_stages(report, measured):
    report.say(
        "Where the time goes, by `Server-Timing`: medians. A seed is read in *queue*; *rest* is what is left of the "
        "client's time."
    )
    report.table("function", "", *(f"{stage} ms" for stage in STAGES), "rest ms", "client ms")
    for name, *_, stages in measured:
        for kind, told in stages.items():
            of = {stage: [one.get(stage, 0.0) for one in told] for stage in (*STAGES, "client")}
            of["rest"] = [one["client"] - sum(one.get(stage, 0.0) for stage in STAGES) for one in told]
            cells = (f"{Figure(of[stage]).median * 1e3:.2f}" for stage in (*STAGES, "rest", "client"))
            report.row(name, kind, *cells)


def one(bench, function, variant):
    rounds, dice = bench.rounds, bench.dice
    data = bench.data_of(function)
    cold = Cold(bench, copy_data(data, bench.folder("cold")), function)
    anew = Cold(bench, copy_data(data, bench.folder("anew"), "images"), function, *NO_IMAGES)
    warm = Node(bench, copy_data(data, bench.folder("warm")), *SHELLS)
    for node in (cold.node, anew.node, warm):
        node.rest()
    if variant.is_pinned:
        cold.pin()
        anew.pin()
    for _ in range(4):
        warm.ask(function.name)
        warm.ask(bench.other)
    # What requests use is in the image, and it is not written any more.
    for _ in range(3):
        cold.ask(drop=False)
    chain = warm.chain(function.name)
    cold_levels = {seed["level"] for seed in cold.must_go(chain)}
    used = working_set(bench, warm, function, chain, cold_levels)
    pages = sum(seed["layer_bytes"] for seed in chain if seed["level"] in cold_levels) // PAGE
    dump = disk.Dump(bench.folder("dump"), pages, used, bench.seed)
    taken = {name: [] for name in ("cold", "warm", "ideal", "ratio", "beyond", "read", "anew", "bandwidth", "by_anew")}
    paging = {name: [] for name, _ in READ_AHEADS}
    factors = {name: [] for name, _ in READ_AHEADS}
    restored, stages, stayed = 0, {"cold": [], "warm": []}, 0
    for turn in range(rounds):
        if bench.is_late():
            break
        told = {}

        def take_cold():
            told["cold"] = cold.ask()

        def take_warm():
            told["warm"] = from_shell(warm, function)

        def take_lazy():
            told["lazy"] = {name: dump.paging(ahead) for name, ahead in READ_AHEADS}

        def take_anew():
            if turn < max(FEW, rounds // 3):
                told["anew"] = anew.ask(drop=False)

        def take_bandwidth():
            told["bandwidth"] = bench.big.bandwidth(bench.big.some(READS, dice))

        turns = [take_cold, take_warm, take_lazy, take_anew, take_bandwidth]
        dice.shuffle(turns)
        for take in turns:
            take()
        answer, shell, speed = told["cold"], told["warm"].seconds, told["bandwidth"]
        ideal = shell + used * PAGE / speed
        restored += answer.is_restored
        stayed += answer.stayed
        for kind in stages:
            stages[kind].append({"client": told[kind].seconds, **told[kind].stages})
        for name, value in (
            ("cold", answer.seconds),
            ("warm", shell),
            ("ideal", ideal),
            ("ratio", answer.seconds / ideal),
            ("beyond", answer.seconds - ideal),
            ("read", answer.read),
            ("bandwidth", speed),
        ):
            taken[name].append(value)
        for name, seconds in told["lazy"].items():
            paging[name].append(seconds)
            factors[name].append((seconds + shell) / answer.seconds)
        if "anew" in told:
            taken["anew"].append(told["anew"].seconds)
            taken["by_anew"].append(told["anew"].seconds / answer.seconds)
    figures = {name: Figure(values) for name, values in taken.items()}
    count = len(taken["cold"])
    if not count:
        raise Failed("there was no time for a round")
    is_large = used * PAGE > LARGE
    what = f"cold restore, {variant.name}"
    report = bench.report
    if is_large:
        goal, met = f"≤ {IDEAL_FACTOR} ×", report.goal(f"{what}, to ideal", figures["ratio"], IDEAL_FACTOR, " ×")
    else:
        goal = f"≤ {IDEAL_BEYOND * 1e3:g} ms"
        met = report.goal(f"{what}, beyond ideal", figures["beyond"], IDEAL_BEYOND, " ms", 1e3)
    wasted = Figure([read / (used * PAGE) for read in taken["read"]])
    report.goal(f"{what}, read to used", wasted, READ_FACTOR, " ×")
    report.row(
        variant.name,
        ms(figures["cold"]),
        ms(figures["warm"]),
        mib(used * PAGE),
        mib(figures["read"].median),
        ms(figures["ideal"]),
        figures["ratio"].told(),
        ms(figures["beyond"]),
        f"{restored} of {count}",
        goal,
        met if restored == count else f"{met}, but not restored",
    )
    report.keep(
        "restore",
        variant.name,
        used_pages=used,
        dump_pages=pages,
        restored=restored,
        stayed_pages=stayed,
        stages=stages,
        chain=chain,
        **figures,
        **{f"lazy, read-ahead {name}": Figure(values) for name, values in paging.items()},
    )
    told_of = {name: (Figure(paging[name]), Figure(factors[name])) for name in paging}
    is_judged = function.is_of_language and not variant.is_pinned
    return variant.name, is_judged, pages, used, figures, told_of, stages


def from_shell(node, function):
    """An answer of a generic shell."""
    for _ in range(20):
        answer = node.ask(function.name)
        # One that was made ahead, as a cold request finds it.
        if answer.served == "shell":
            return answer
        time.sleep(0.05)
    raise Failed(f"no shell is ready for {function.name}: {answer.served}")


def tell_lazy(report, lazily):
    report.say(
        "## Beside paging in as it is touched, and beside making it anew\n\n"
        "*lazily*: the pages of the layers that were cold, written to a file in the order of their addresses and "
        "mapped by one thread, with nothing of it in memory; as many of them touched as are in the working set, in "
        "runs of one to four at random places and in no order; and the warm request. Columns differ in what the "
        "system reads round a fault. *anew*: the same node without images. Factors are of the same round."
    )
    names = [f"lazily, read-ahead {name}: ms" for name, _ in READ_AHEADS]
    report.table("function", "dump MiB", "touched MiB", "cold ms", *names, "factors", "anew ms", "factor")
    for name, is_judged, pages, used, figures, told, _ in lazily:
        report.row(
            name,
            mib(pages * PAGE),
            mib(used * PAGE),
            ms(figures["cold"]),
            *(ms(told[ahead][0]) for ahead, _ in READ_AHEADS),
            "; ".join(told[ahead][1].told() for ahead, _ in READ_AHEADS),
            ms(figures["anew"]),
            figures["by_anew"].told(),
        )
        if is_judged:
            for ahead, _ in READ_AHEADS[:2]:
                what = f"lazy paging to cold restore, {name}, read-ahead {ahead}"
                report.goal(what, told[ahead][1], LAZY_FACTOR, " ×", at_least=True)


def crowd(bench):
    """Many cold functions at once."""
    report = bench.report
    report.say(
        "## Several cold functions at once\n\n"
        "Copies of one function, each a seed and an image of its own, asked at the same moment with nothing in "
        "memory: the median of the rounds' means and of their last answers. *divided*: what one alone takes, and the "
        "working sets of the others at the disk's bandwidth. The goal is that the last answer takes at most as many "
        "times one alone as there are."
    )
    report.table("function", "at once", "mean ms", "last ms", "divided ms", "last ÷ one alone", "restored", "met")
    for function in bench.all:
        if function.name in bench.crowds:
            try:
                with bench.part_of_scope(), bench.time_for(100):
                    crowd_of(bench, function)
            except (Failed, OSError) as why:
                report.row(function.name, f"failed: {why}".replace("\n", " "))


def crowd_of(bench, function):
    report, sizes = bench.report, (1, 8, 16)
    data = copy_data(bench.data_of(function), bench.folder("crowd"))
    names = [f"copy-{number}" for number in range(max(sizes))]
    with contextlib.ExitStack() as scope:
        node = Node(bench, data)
        scope.callback(node.stop)
        for name in names:
            node.deploy(function.path, name, *function.options)
            node.ask(name)
            node.ask(name)
        node.settle(0.5)
        chain = node.chain(names[0])
        used = working_set(bench, node, function, chain, {chain[-1]["level"]})
    node = Node(bench, data, *NOTHING_STAYS, *PATIENT)
    node.rest()
    if function.pin:
        node.pin(function.pin)
    alone = None
    for size in sizes:
        means, lasts, restored, speeds = [], [], 0, []
        for _ in range(max(3, bench.rounds // 2)):
            if bench.is_late():
                break
            chosen = bench.dice.sample(names, size)

            def in_memory():
                of = {seed["name"]: seed for seed in node.admin("tree")}
                return [name for name in names if of[name]["is_in_memory"]]

            def are_gone():
                if not in_memory():
                    return True
                node.ask(bench.other)
                return False

            until("all are evicted", are_gone, pause=0.02)
            node.settle()
            speeds.append(bench.big.bandwidth(bench.big.some(READS, bench.dice)))
            shared = node.chain(names[0])[-2]["forks"]
            node.drop_images()
            answers, together = {}, threading.Barrier(size)

            def asker(name):
                together.wait()
                try:
                    answers[name] = node.ask(name).seconds
                except (Failed, OSError) as why:
                    answers[name] = why

            threads = [threading.Thread(target=asker, args=(name,)) for name in chosen]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wrong = [str(why) for why in answers.values() if not isinstance(why, float)]
            if wrong:
                raise Failed(wrong[0])
            restored += size - min(size, node.chain(names[0])[-2]["forks"] - shared)
            means.append(sum(answers.values()) / size)
            lasts.append(max(answers.values()))
        mean, last = Figure(means), Figure(lasts)
        if not last:
            raise Failed("there was no time")
        alone = alone or last
        divided = alone.median + (size - 1) * used * PAGE / Figure(speeds).median
        ratio = Figure([value / alone.median for value in lasts])
        met = "–"
        if size > 1:
            met = report.goal(f"{size} cold at once to one, {function.name}", ratio, size, " ×")
        cells = (ms(mean), ms(last), f"{divided * 1e3:.2f}", ratio.told(), f"{restored} of {size * len(lasts)}", met)
        report.row(function.name, size, *cells)
        report.keep("crowd", f"{function.name} {size}", mean=mean, last=last, divided=divided, used_pages=used)


def disk_itself(bench):
    """What the disk gives, to files of this folder."""
    report, dice, big = bench.report, bench.dice, bench.big
    report.say(
        "## The disk\n\n"
        f"Direct reads of {mib(big.size)} MiB of random bytes in the work folder, and of the largest image; "
        "whatever is beneath a virtual disk may keep what was read."
    )
    report.table("file", "1 MiB, four deep: MiB/s", "1 MiB, one by one: MiB/s", "4 KiB, one by one: µs")
    largest = max(disk.files_of(bench.base / "images"), key=lambda path: path.stat().st_size)
    with disk.Direct(largest) as image:
        for name, file in (("random bytes", big), (f"an image of {mib(image.size)} MiB", image)):
            deep, shallow, latencies = [], [], []
            for _ in range(bench.rounds):
                deep.append(file.bandwidth(file.some(READS, dice)) / MIB)
                shallow.append(file.bandwidth(file.some(READS, dice), depth=1) / MIB)
                latencies += file.latencies(50, dice)
            figures = Figure(deep), Figure(shallow), Figure(latencies)
            report.row(name, figures[0].told(digits=0), figures[1].told(digits=0), figures[2].told(1e6, 0))
            report.keep("disk", name, deep=figures[0], shallow=figures[1], latency=figures[2])
