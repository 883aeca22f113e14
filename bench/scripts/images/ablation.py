"""Measures the effect of each mechanism of func-images.

Nodes without one mechanism run in the same rounds as the complete node (like Spice fig. 11 and REAP
fig. 7).
"""

import subprocess

from cold import Cold
from disk import MIB
from figures import Figure, ms
from node import Failed, Node, copy_data, until
from restore import variants


class Without:
    """A node without some mechanisms, by their names in the feature `ablation`."""

    def __init__(self, name, *mechanisms):
        self.name, self.options = name, []
        for mechanism in mechanisms:
            self.options += ["--without", mechanism]
        # Without such a mechanism, the node must write its images itself.
        self.writes = any(mechanism in ("image-order", "image-gaps") for mechanism in mechanisms)


WHOLE = Without("nothing: the whole node")
ALL = (
    WHOLE,
    Without("the working set in front: pages by address", "image-order"),
    Without("leaving out zeroes and what the parent has", "image-gaps"),
    Without("beginning before all memory is there", "image-parts"),
    Without("beginning before all code is there", "code-parts"),
    Without("beginning before all of both is there", "image-parts", "code-parts"),
    Without(
        "these four: all by address, then the guest",
        "image-order",
        "image-gaps",
        "image-parts",
        "code-parts",
    ),
    Without("what is written apart from what is read", "set-split"),
    Without("filling either in at the fork", "prefill"),
)


def has_feature(bench):
    told = subprocess.run(
        [bench.faasw, "serve", "--help"], capture_output=True, text=True, check=False
    )
    return "--without" in told.stdout


def measure(bench):
    report = bench.report
    report.say(
        "## What each part of it is worth\n\n"
        "Cold requests as in *A cold restore*, to nodes that do without something, one after the "
        "other in each round "
        "in changing order. *ratio*: to the whole node's of the same round. *read*: of the disk "
        "until the answer. "
        "*restored*: as there."
    )
    if not has_feature(bench):
        report.say("Not measured: it takes a program that was built with `--features ablation`.")
        return
    report.table("function", "without", "cold ms", "ratio", "read MiB", "restored")
    for function in bench.functions:
        for variant in variants(function):
            try:
                with bench.part_of_scope():
                    contest = Contest(bench, function, variant)
                    with bench.time_for(120):
                        contest.run().tell()
            except (Failed, OSError) as why:
                report.row(variant.name, f"failed: {why}".replace("\n", " "))


class Contestant:
    """A node without some mechanisms, in which the function is cold."""

    def __init__(self, bench, function, variant, without):
        self.without, self.function = without, function
        data = copy_data(
            bench.data_of(function),
            bench.folder("ablation"),
            *(["images"] if without.writes else []),
        )
        if without.writes:
            self.write_images(bench, data)
        self.cold = Cold(bench, data, function, *without.options)
        self.cold.node.rest()
        if variant.is_pinned:
            self.cold.pin()
        # Afterwards the image has the working set and is not written again.
        for _ in range(3):
            self.cold.ask(drop=False)
        self.taken, self.ratios, self.read = [], [], []
        self.restored = 0

    def write_images(self, bench, data):
        """Makes the node write all images that the function needs."""
        node = Node(bench, data, *self.without.options)
        names = [name for name in (bench.other, self.function.pin, self.function.name) if name]

        def is_known():
            # The first requests may be served without a seed, or not be recorded.
            for name in names:
                node.ask(name)
            return node.working_set(self.function.name)

        until(
            f"without {self.without.name}: what requests use is in its image", is_known, pause=0.1
        )
        node.rest()
        node.settle(0.5)
        node.stop()

    def ask(self):
        answer = self.cold.ask()
        self.taken.append(answer.seconds)
        self.read.append(answer.read / MIB)
        self.restored += answer.is_restored
        return answer.seconds


class Contest:
    """Rounds in which every node is measured."""

    def __init__(self, bench, function, variant):
        self.bench, self.variant = bench, variant
        self.all = [Contestant(bench, function, variant, without) for without in ALL]

    def run(self):
        for _ in range(self.bench.rounds):
            if self.bench.is_late():
                break
            order = list(self.all)
            self.bench.dice.shuffle(order)
            seconds = {one.without: one.ask() for one in order}
            for one in self.all:
                one.ratios.append(seconds[one.without] / seconds[WHOLE])
        if not self.all[0].ratios:
            raise Failed("there was no time for a round")
        return self

    def tell(self):
        report = self.bench.report
        for one in self.all:
            figures = {
                "cold": Figure(one.taken),
                "ratio": Figure(one.ratios),
                "read": Figure(one.read),
            }
            report.row(
                self.variant.name,
                one.without.name,
                ms(figures["cold"]),
                figures["ratio"].told(),
                f"{figures['read'].median:.2f}",
                f"{one.restored} of {len(one.taken)}",
            )
            report.keep("ablation", f"{self.variant.name}, without {one.without.name}", **figures)
