"""Measures requests to several cold functions at once."""

import threading

from cold import NOTHING_STAYS, PATIENT, WorkingSet
from disk import PAGE, READS
from figures import Figure, ms
from node import Failed, Node, copy_data, until

SIZES = (1, 8, 16)


def measure(bench):
    report = bench.report
    report.say(
        "## Several cold functions at once\n\n"
        "Copies of one function, each a seed and an image of its own, asked at the same moment "
        "with nothing in "
        "memory: the median of the rounds' means and of their last answers. *divided*: what one "
        "alone takes, and "
        "the working sets of the others, and what they use of code where that was cold, too, at "
        "the disk's "
        "bandwidth. The goal is that the last answer takes at most as many times one alone as "
        "there are."
    )
    report.table(
        "function",
        "at once",
        "mean ms",
        "last ms",
        "divided ms",
        "last ÷ one alone",
        "restored",
        "met",
    )
    for function in bench.all:
        if function.name in bench.crowds:
            try:
                with bench.part_of_scope(), bench.time_for(100):
                    crowd_of(bench, function)
            except (Failed, OSError) as why:
                report.row(function.name, f"failed: {why}".replace("\n", " "))


class Crowd:
    """Copies of a function on a node in which nothing stays in memory."""

    def __init__(self, bench, function):
        self.bench = bench
        data = copy_data(bench.data_of(function), bench.folder("crowd"))
        self.names = [f"copy-{number}" for number in range(max(SIZES))]
        node = Node(bench, data)
        for name in self.names:
            node.deploy(function.path, name, *function.options)
            node.ask(name)
            node.ask(name)
        node.ask(bench.other)
        node.ask(bench.other)
        node.settle(0.5)
        chain = node.chain(self.names[0])
        used = WorkingSet(bench, node, function, chain, {chain[-1]["level"]})
        self.bytes_read = used.pages * PAGE + used.code
        node.stop()
        self.node = Node(bench, data, *NOTHING_STAYS, *PATIENT)
        for name in (bench.other, *self.names):
            self.node.ask(name)
        self.node.rest()
        if function.pin:
            self.node.pin(function.pin)

    def evict(self):
        def are_gone():
            if not any(
                seed["is_in_memory"]
                for seed in self.node.admin("tree")
                if seed["name"] in self.names
            ):
                return True
            self.node.ask(self.bench.other)
            return False

        until("all are evicted", are_gone, pause=0.02)
        self.node.settle()

    def forks(self):
        """Returns the parent's number of forks: one for each function that was not restored."""
        return self.node.chain(self.names[0])[-2]["forks"]

    def ask(self, count):
        """Returns the times of `count` concurrent requests, and how many seeds were restored."""
        self.evict()
        before = self.forks()
        self.node.drop_pages()
        answers, together = [], threading.Barrier(count)

        def asker(name):
            together.wait()
            try:
                answers.append(self.node.ask(name).seconds)
            except (Failed, OSError) as why:
                answers.append(why)

        chosen = self.bench.dice.sample(self.names, count)
        threads = [threading.Thread(target=asker, args=(name,)) for name in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wrong = [str(answer) for answer in answers if not isinstance(answer, float)]
        if wrong:
            raise Failed(wrong[0])
        return answers, count - min(count, self.forks() - before)


def crowd_of(bench, function):
    report, crowd, alone = bench.report, Crowd(bench, function), None
    for size in SIZES:
        means, lasts, speeds, restored = [], [], [], 0
        for _ in range(max(3, bench.rounds // 2)):
            if bench.is_late():
                break
            speeds.append(bench.big.bandwidth(bench.big.some(READS, bench.dice)))
            answers, from_images = crowd.ask(size)
            restored += from_images
            means.append(sum(answers) / size)
            lasts.append(max(answers))
        if not lasts:
            raise Failed("there was no time")
        mean, last = Figure(means), Figure(lasts)
        alone = alone or last
        divided = alone.median + (size - 1) * crowd.bytes_read / Figure(speeds).median
        ratio = Figure([value / alone.median for value in lasts])
        met = "–"
        if size > 1:
            met = report.goal(f"{size} cold at once to one, {function.name}", ratio, size, " ×")
        cells = (
            ms(mean),
            ms(last),
            f"{divided * 1e3:.2f}",
            ratio.told(),
            f"{restored} of {size * len(lasts)}",
            met,
        )
        report.row(function.name, size, *cells)
        report.keep(
            "crowd",
            f"{function.name} {size}",
            mean=mean,
            last=last,
            divided=divided,
            bytes_read=crowd.bytes_read,
        )
