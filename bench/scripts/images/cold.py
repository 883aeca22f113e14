"""Functions whose seeds are only on disk, and the size of their working sets."""

import disk
from disk import PAGE
from node import Node, until

# Makes every unused seed leave memory.
NOTHING_STAYS = ("--seed-memory", "0", "--max-warm", "0")
# A request that pins an engine may wait as long as a part of the benchmark takes.
PATIENT = ("--body-rate", "0", "--idle-client", "1h")


class Cold:
    """A node in which only pinned seeds stay in memory, and the requests to it."""

    def __init__(self, bench, data, function, *options):
        self.bench, self.function = bench, function
        self.node = Node(bench, data, *NOTHING_STAYS, *PATIENT, *options)
        self.is_pinned = False
        # Without a request, the tree of the node may not have the function.
        for name in (bench.other, function.name):
            self.node.ask(name)

    def pin(self):
        if self.function.pin:
            self.node.pin(self.function.pin)
            self.is_pinned = True

    def must_go(self, chain):
        """Returns the seeds to evict: the function's, and its engine's unless that is pinned."""
        return [
            seed
            for seed in chain
            if seed["level"] >= 2 and not (self.is_pinned and seed["is_shared"])
        ]

    def evict(self):
        """Waits until the seeds have left memory. Returns the function's chain of seeds."""

        def is_gone():
            chain = self.node.chain(self.function.name)
            if not any(seed["is_in_memory"] for seed in self.must_go(chain)):
                return chain
            # The node evicts a seed only when it loads another one.
            self.node.ask(self.bench.other)
            return None

        chain = until(f"{self.function.name} is evicted", is_gone, pause=0.01)
        self.node.settle()
        return chain

    def ask(self, drop=True):
        """Returns the first answer of a seed that is not in memory."""
        before = self.evict()
        stayed = self.node.drop_pages() if drop else 0
        read = disk.bytes_read(self.node.data)
        answer = self.node.ask(self.function.name)
        answer.read = disk.bytes_read(self.node.data) - read
        answer.stayed = stayed
        after = self.node.chain(self.function.name)
        answer.is_restored = answer.served != "ancestor" and not has_forked(before[:-1], after[:-1])
        return answer


def has_forked(before, after):
    """Returns whether one of these seeds was forked.

    A fork means that the node made a seed below it again, or served the request without one.
    """
    return any(seed["forks"] > before[place]["forks"] for place, seed in enumerate(after))


class WorkingSet:
    """The pages of some levels' layers that a request uses, as far as they are known."""

    def __init__(self, bench, node, function, chain, cold_levels):
        is_deep = len(cold_levels) > 1
        image = bench.images[function.name]
        cold = [seed for seed in chain if seed["level"] in cold_levels]
        self.pages_of_layers = sum(seed["layer_bytes"] for seed in cold) // PAGE
        # Code that stays in memory is not reported.
        self.all_code = sum(seed.get("code_bytes", 0) for seed in cold)
        # A script runs its engine's code. If the used part is unknown, as with older programs, all
        # of it counts as used.
        own = chain[-1]
        is_known = own in cold and own.get("code_pages", 0)
        self.code = min(self.all_code, own["code_pages"] * PAGE) if is_known else self.all_code
        told, small = node.working_set(chain[-1]["name"]), node.working_set(bench.other)
        if told and small:
            # Every function uses as many shared pages as a small one; the rest are the engine's.
            of_engine = min(image["engine"] // PAGE, max(0, told["ancestors"] - small["ancestors"]))
            self.pages = max(1, told["stored"] + (of_engine if is_deep else 0))
            self.together = told["used"] / max(1, told["runs"])
            self.is_exact = not is_deep
            return
        # The tree counts pages of the whole guest: an upper bound.

        def recorded(seed):
            return seed["written_pages"] + seed["read_pages"]

        small = node.chain(bench.other)[-1]
        shared = max(0, recorded(small) - small["layer_bytes"] // PAGE)
        stored = image["own"] + (image["engine"] if is_deep else 0)
        self.pages = max(1, min(self.pages_of_layers, stored // PAGE, recorded(chain[-1]) - shared))
        self.together, self.is_exact = disk.TOGETHER, False
