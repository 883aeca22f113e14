"""Measures the first answer of a function whose seed is only on disk.

It is compared with the ideal time, with lazy paging of the same memory, and with making the seed
again.
"""

import time

import disk
from cold import Cold, WorkingSet
from disk import PAGE, READS
from figures import Figure, mib, ms
from node import Failed, Node, copy_data

# Every request gets a generic zygote.
FORKS = ("--max-reuse", "1")
NO_IMAGES = ("--image-disk", "0")

# Minimum number of rounds of slow measurements.
FEW = 5

# Read-ahead at a page fault of the mapped dump.
READ_AHEADS = (("as this disk is set", None), ("128 KiB", disk.USUAL_READ_AHEAD), ("none", 0))
# Read-ahead settings with a goal for lazy paging.
JUDGED = ("as this disk is set", "128 KiB")

# Above this working set, in bytes, the goal is a factor of the ideal; below, it is a time.
LARGE = 4 << 20
IDEAL_FACTOR, IDEAL_BEYOND, LAZY_FACTOR, READ_FACTOR = 1.5, 1e-3, 3.7, 1.3
# Stages of a request's time in `Server-Timing`.
STAGES = ("queue", "fork", "init", "exec")


class Variant:
    """A function with the cold part of its seeds."""

    def __init__(self, name, is_pinned):
        self.name, self.is_pinned = name, is_pinned


def variants(function):
    if not function.pin:
        return [Variant(function.name, False)]
    return [
        Variant(f"{function.name}, its engine in memory", True),
        Variant(f"{function.name} and its engine", False),
    ]


def measure(bench):
    report = bench.report
    report.say(
        "## A cold restore\n\n"
        "The node runs, the function's seed is not in memory, and no page of an image or of code "
        "is in the "
        "system's. *warm*: the same request in a generic zygote forked from the seed in memory. "
        "*used*: the working "
        "set in the layers that were cold. *code*: of compiled code that was cold, what is used "
        "of it, as far as that "
        "is known, and all of it. *ideal*: "
        "warm, and what is used of memory and of code at the bandwidth of that round. *read*: "
        "bytes that were read of the disk until the answer, by anybody. *restored*: rounds in "
        "which the seed came "
        "from its image before the request was answered, instead of being done without."
    )
    columns = (
        "function",
        "cold ms",
        "warm ms",
        "used MiB",
        "code MiB",
        "of MiB",
        "read MiB",
        "ideal ms",
    )
    report.table(*columns, "cold ÷ ideal", "cold − ideal ms", "restored", "goal", "met")
    measured = []
    for function in bench.functions:
        for variant in variants(function):
            try:
                with bench.part_of_scope(), bench.time_for(45):
                    contest = Contest(bench, function, variant).run()
                    measured.append((variant, contest, contest.tell(variant)))
            except (Failed, OSError) as why:
                report.row(variant.name, f"failed: {why}".replace("\n", " "))
                report.goal(f"cold restore, {variant.name}", None, IDEAL_FACTOR)
    tell_stages(report, measured)
    tell_lazy(report, measured)


def tell_stages(report, measured):
    report.say(
        "Where the time goes, by `Server-Timing`: medians. A seed is read in *queue*; *rest* is "
        "what is left of the "
        "client's time."
    )
    report.table("function", "", *(f"{stage} ms" for stage in STAGES), "rest ms", "client ms")
    for variant, contest, _ in measured:
        for kind, told in contest.stages.items():
            of = {stage: [one.get(stage, 0.0) for one in told] for stage in (*STAGES, "client")}
            of["rest"] = [
                one["client"] - sum(one.get(stage, 0.0) for stage in STAGES) for one in told
            ]
            cells = (
                f"{Figure(of[stage]).median * 1e3:.2f}" for stage in (*STAGES, "rest", "client")
            )
            report.row(variant.name, kind, *cells)


class Contest:
    """Rounds in which all ways to the same answer are measured, in random order."""

    def __init__(self, bench, function, variant):
        self.bench, self.function = bench, function
        data = bench.data_of(function)
        self.cold = Cold(bench, copy_data(data, bench.folder("cold")), function)
        self.anew = Cold(
            bench, copy_data(data, bench.folder("anew"), "images"), function, *NO_IMAGES
        )
        self.warm = Node(bench, copy_data(data, bench.folder("warm")), *FORKS)
        for node in (self.cold.node, self.anew.node, self.warm):
            node.rest()
        if variant.is_pinned:
            self.cold.pin()
            self.anew.pin()
        for _ in range(4):
            self.warm.ask(function.name)
            self.warm.ask(bench.other)
        # Afterwards the image has the working set and is not written again.
        for _ in range(3):
            self.cold.ask(drop=False)
        self.chain = self.warm.chain(function.name)
        levels = {seed["level"] for seed in self.cold.must_go(self.chain)}
        self.used = WorkingSet(bench, self.warm, function, self.chain, levels)
        used, layers = self.used.pages, self.used.pages_of_layers
        self.dump = disk.Dump(bench.folder("dump"), layers, used, self.used.together, bench.seed)
        self.taken = {}
        self.stages = {"cold": [], "warm": []}
        self.restored = self.stayed = 0

    def from_zygote(self):
        """Returns an answer of a generic zygote, which is what a cold request gets."""
        for _ in range(20):
            answer = self.warm.ask(self.function.name)
            if answer.served == "zygote":
                return answer
            time.sleep(0.05)
        raise Failed(f"no zygote is ready for {self.function.name}: {answer.served}")

    def run(self):
        few = max(FEW, self.bench.rounds // 3)
        for turn in range(self.bench.rounds):
            if self.bench.is_late():
                break
            self.round(has_anew=turn < few)
        if not self.taken:
            raise Failed("there was no time for a round")
        return self

    def round(self, has_anew):
        big, dice = self.bench.big, self.bench.dice
        ways = {
            "cold": self.cold.ask,
            "warm": self.from_zygote,
            "lazy": lambda: {name: self.dump.paging(ahead) for name, ahead in READ_AHEADS},
            "bandwidth": lambda: big.bandwidth(big.some(READS, dice)),
        }
        if has_anew:
            ways["anew"] = lambda: self.anew.ask(drop=False)
        order = list(ways)
        dice.shuffle(order)
        told = {way: ways[way]() for way in order}
        cold, warm = told["cold"].seconds, told["warm"].seconds
        used, code = self.used.pages * PAGE, self.used.code
        ideal = warm + (used + code) / told["bandwidth"]
        found = {
            "cold": cold,
            "warm": warm,
            "bandwidth": told["bandwidth"],
            "ideal": ideal,
            "ratio": cold / ideal,
            "beyond": cold - ideal,
            "read": told["cold"].read,
            "wasted": told["cold"].read / (used + code),
        }
        for name, seconds in told["lazy"].items():
            found[f"lazy, {name}"] = seconds + warm
            found[f"by lazy, {name}"] = (seconds + warm) / cold
        if has_anew:
            found |= {"anew": told["anew"].seconds, "by anew": told["anew"].seconds / cold}
        for name, value in found.items():
            self.taken.setdefault(name, []).append(value)
        for kind, of in self.stages.items():
            of.append({"client": told[kind].seconds, **told[kind].stages})
        self.restored += told["cold"].is_restored
        self.stayed += told["cold"].stayed

    def tell(self, variant):
        """Prints the row and records the goals."""
        report, bytes_used = self.bench.report, self.used.pages * PAGE
        all_used = bytes_used + self.used.code
        figures = {name: Figure(values) for name, values in self.taken.items()}
        count = len(self.taken["cold"])
        what = f"cold restore, {variant.name}"
        if all_used > LARGE:
            goal = f"≤ {IDEAL_FACTOR} ×"
            met = report.goal(f"{what}, to ideal", figures["ratio"], IDEAL_FACTOR, " ×")
        else:
            goal = f"≤ {IDEAL_BEYOND * 1e3:g} ms"
            met = report.goal(f"{what}, beyond ideal", figures["beyond"], IDEAL_BEYOND, " ms", 1e3)
        report.goal(f"{what}, read to used", figures["wasted"], READ_FACTOR, " ×")
        report.row(
            variant.name,
            ms(figures["cold"]),
            ms(figures["warm"]),
            f"{'' if self.used.is_exact else '≤ '}{mib(bytes_used)}",
            mib(self.used.code),
            mib(self.used.all_code),
            mib(figures["read"].median),
            ms(figures["ideal"]),
            figures["ratio"].told(),
            ms(figures["beyond"]),
            f"{self.restored} of {count}",
            goal,
            met if self.restored == count else f"{met}, but not restored",
        )
        report.keep(
            "restore",
            variant.name,
            used=vars(self.used),
            restored=self.restored,
            stayed_pages=self.stayed,
            stages=self.stages,
            chain=self.chain,
            **figures,
        )
        return figures


def tell_lazy(report, measured):
    report.say(
        "## Beside paging in as it is touched, and beside making it anew\n\n"
        "*lazily*: the pages of the layers that were cold, written to a file in the order of "
        "their addresses and "
        "mapped by one thread, with nothing of it in memory; as many of them touched as are in "
        "the working set, in "
        "runs of its average length at random places and in no order; and the warm request. "
        "Columns differ in what "
        "the system reads round a fault; code is not in the file. *anew*: the same node without "
        "images. Factors "
        "are of the same round."
    )
    names = [f"lazily, read-ahead {name}: ms" for name, _ in READ_AHEADS]
    report.table(
        "function", "dump MiB", "touched MiB", "cold ms", *names, "factors", "anew ms", "factor"
    )
    for variant, contest, figures in measured:
        report.row(
            variant.name,
            mib(contest.dump.pages * PAGE),
            mib(contest.dump.used * PAGE),
            ms(figures["cold"]),
            *(ms(figures[f"lazy, {name}"]) for name, _ in READ_AHEADS),
            "; ".join(figures[f"by lazy, {name}"].told() for name, _ in READ_AHEADS),
            ms(figures["anew"]),
            figures["by anew"].told(),
        )
        # A script without its engine is too small for this goal.
        for name in JUDGED if contest.function.is_of_language and not variant.is_pinned else ():
            what = f"lazy paging to cold restore, {variant.name}, read-ahead {name}"
            report.goal(what, figures[f"by lazy, {name}"], LAZY_FACTOR, " ×", at_least=True)
