"""The disk below a folder: its properties and bandwidth, and dropping files from the page cache."""

import ctypes
import mmap
import os
import random
import threading
import time
from pathlib import Path

from figures import Figure, mib

PAGE = mmap.PAGESIZE
MIB = 1 << 20
# Concurrent reads, and the number of reads for one bandwidth measurement.
DEPTH, READS = 4, 32
# Linux's default read-ahead at a page fault, in bytes.
USUAL_READ_AHEAD = 128 << 10
# Average length of runs of pages in a working set, if it is unknown: REAP's figure 3 has 2 to 3.
TOGETHER = 2.5

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def device_of(folder):
    """Returns the device number of the disk, and its folder in /sys."""
    number = os.stat(folder).st_dev
    return number, Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")


def describe(folder):
    """Describes the disk of a folder."""
    number, system = device_of(folder)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    of_it = [line for line in mounts if line.split()[2] == f"{os.major(number)}:{os.minor(number)}"]
    kind = of_it[0].split(" - ")[1].split()[0] if of_it else "a file system of no device"
    try:
        name = system.resolve().name
        queue = system if (system / "queue").is_dir() else system.resolve().parent
        read_ahead = int((queue / "queue/read_ahead_kb").read_text())
        scheduler = (queue / "queue/scheduler").read_text().strip()
    except OSError:
        return {"name": "none", "file_system": kind, "read_ahead_kib": None, "scheduler": ""}
    return {"name": name, "file_system": kind, "read_ahead_kib": read_ahead, "scheduler": scheduler}


def bytes_read(folder):
    """Returns the bytes that all processes have read from the disk since the system started."""
    number, _ = device_of(folder)
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == (os.major(number), os.minor(number)):
            return int(fields[5]) * 512
    return 0


def write_random(path, size):
    """Writes a file of incompressible bytes to the disk."""
    with open(path, "wb") as file:
        file.writelines(os.urandom(min(MIB, size - start)) for start in range(0, size, MIB))
        file.flush()
        os.fsync(file.fileno())


def drop(paths):
    """Drops these files from the page cache. Returns the number of pages that stayed."""
    stayed = 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            # The file was removed, or cannot be opened.
            continue
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            stayed += resident(file)
        except OSError:
            pass
        finally:
            os.close(file)
    return stayed


def resident(file):
    """Returns how many pages of an open file are in memory."""
    size = os.fstat(file).st_size
    if not size:
        return 0
    with mmap.mmap(file, size, access=mmap.ACCESS_COPY) as mapped:
        count = (size + PAGE - 1) // PAGE
        told = (ctypes.c_ubyte * count)()
        first = ctypes.c_char.from_buffer(mapped)
        failed = LIBC.mincore(ctypes.addressof(first), size, told)
        # The reference would keep the mapping from being closed.
        del first
        return 0 if failed else sum(byte & 1 for byte in told)


def files_of(folder):
    return [Path(base, name) for base, _, names in os.walk(folder) for name in names]


class Direct:
    """Direct reads of a file, past the page cache."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.size = os.fstat(self.file).st_size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)

    def bandwidth(self, offsets, depth=DEPTH):
        """Returns the bytes per second of 1 MiB reads at these offsets, with `depth` at once."""
        turns, lock, read = iter(offsets), threading.Lock(), [0] * depth
        start = threading.Barrier(depth + 1)

        def reader(number):
            # Direct reads need an aligned buffer.
            with mmap.mmap(-1, MIB) as into:
                start.wait()
                while True:
                    with lock:
                        offset = next(turns, None)
                    if offset is None:
                        return
                    read[number] += os.preadv(self.file, [into], offset)

        threads = [threading.Thread(target=reader, args=(number,)) for number in range(depth)]
        for thread in threads:
            thread.start()
        start.wait()
        begun = time.perf_counter()
        for thread in threads:
            thread.join()
        return sum(read) / (time.perf_counter() - begun)

    def some(self, count, dice):
        """Returns the offsets of up to `count` different 1 MiB reads, in random order."""
        places = range(max(1, self.size // MIB))
        return [place * MIB for place in dice.sample(places, min(count, len(places)))]

    def latencies(self, count, dice):
        """Returns the seconds of 4 KiB reads, one after the other."""
        taken = []
        with mmap.mmap(-1, PAGE) as into:
            for _ in range(count):
                offset = dice.randrange(self.size // PAGE) * PAGE
                begun = time.perf_counter()
                os.preadv(self.file, [into], offset)
                taken.append(time.perf_counter() - begun)
        return taken


class Dump:
    """A model of a plain snapshot: all pages in address order, of which a guest touches some.

    Only the number of touched pages and the average length of their runs are known. Runs of about
    that length therefore lie at random places and are touched in random order.
    """

    def __init__(self, path, pages, used, together, seed):
        self.path, self.pages, self.used = path, max(1, pages), max(1, min(used, pages))
        write_random(path, self.pages * PAGE)
        dice, chosen, order = random.Random(seed), set(), []
        longest = max(1, round(2 * together - 1))
        while len(chosen) < self.used:
            start = dice.randrange(self.pages)
            run = range(start, min(self.pages, start + dice.randint(1, longest)))
            fresh = [page for page in run if page not in chosen][: self.used - len(chosen)]
            chosen.update(fresh)
            order.append(fresh)
        dice.shuffle(order)
        self.order = [page * PAGE for run in order for page in run]

    def paging(self, read_ahead):
        """Returns the seconds to touch these pages in a mapping without pages in memory.

        `read_ahead` is in bytes: `None` uses the disk's setting, 0 reads only the page.
        """
        drop([self.path])
        file = os.open(self.path, os.O_RDONLY)
        try:
            with mmap.mmap(
                file, self.pages * PAGE, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED
            ) as mapped:
                if read_ahead is not None:
                    mapped.madvise(mmap.MADV_RANDOM)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
                around, there = bytearray(read_ahead or 1), set()
                begun = time.perf_counter()
                for offset in self.order:
                    if read_ahead and offset // read_ahead not in there:
                        # Reads the block like a page fault with this read-ahead.
                        there.add(offset // read_ahead)
                        os.preadv(file, [around], offset // read_ahead * read_ahead)
                    mapped[offset]
                return time.perf_counter() - begun
        finally:
            os.close(file)


def measure(bench):
    """Measures the disk with files of this folder."""
    report, dice, big = bench.report, bench.dice, bench.big
    report.say(
        "## The disk\n\n"
        f"Direct reads of {mib(big.size)} MiB of random bytes in the work folder, and of the "
        "largest image; "
        "whatever is beneath a virtual disk may keep what was read."
    )
    report.table(
        "file", "1 MiB, four deep: MiB/s", "1 MiB, one by one: MiB/s", "4 KiB, one by one: µs"
    )
    largest = max(files_of(bench.base / "images"), key=lambda path: path.stat().st_size)
    with Direct(largest) as image:
        for name, file in (("random bytes", big), (f"an image of {mib(image.size)} MiB", image)):
            deep, shallow, latencies = [], [], []
            for _ in range(bench.rounds):
                deep.append(file.bandwidth(file.some(READS, dice)) / MIB)
                shallow.append(file.bandwidth(file.some(READS, dice), depth=1) / MIB)
                latencies += file.latencies(50, dice)
            figures = Figure(deep), Figure(shallow), Figure(latencies)
            report.row(
                name, figures[0].told(digits=0), figures[1].told(digits=0), figures[2].told(1e6, 0)
            )
            report.keep("disk", name, deep=figures[0], shallow=figures[1], latency=figures[2])
