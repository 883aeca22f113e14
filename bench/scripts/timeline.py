#!/usr/bin/env python3
"""Shows the time of each step of one invocation, by the kernel's trace events.

The events are those of tracefs: sched, raw_syscalls and kvm. Needs root, and no other software.

Starts a node and sends requests to one function over one connection, one after the other. Prints
the median of each step, and the system calls of each process. Tracing makes every step slower: use
the shares, and compare runs of this script only with each other.
"""

import argparse
import bisect
import collections
import contextlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60
KVM_RUN = 0xAE80
PAGEMAP_SCAN = 0xC0606610
# x86-64 system calls that node and sandboxes use (arch/x86/entry/syscalls/syscall_64.tbl).
CALLS = {
    0: "read",
    1: "write",
    3: "close",
    5: "fstat",
    7: "poll",
    8: "lseek",
    9: "mmap",
    16: "ioctl",
    17: "pread64",
    18: "pwrite64",
    20: "writev",
    24: "sched_yield",
    28: "madvise",
    35: "nanosleep",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    98: "getrusage",
    202: "futex",
    228: "clock_gettime",
    232: "epoll_wait",
    271: "ppoll",
    281: "epoll_pwait",
    285: "fallocate",
    318: "getrandom",
    435: "clone3",
}
IOCTLS = {
    KVM_RUN: "KVM_RUN",
    PAGEMAP_SCAN: "PAGEMAP_SCAN",
    0x5000AEA5: "KVM_SET_XSAVE",
    0x4090AE82: "KVM_SET_REGS",
    0x4138AE84: "KVM_SET_SREGS",
    0x4020AE46: "KVM_SET_USER_MEMORY_REGION",
}
EVENTS = [
    "raw_syscalls/sys_enter",
    "raw_syscalls/sys_exit",
    "sched/sched_switch",
    "sched/sched_waking",
    "kvm/kvm_entry",
    "kvm/kvm_exit",
    "kvm/kvm_pio",
    "kvm/kvm_page_fault",
    "exceptions/page_fault_user",
]
LINE = re.compile(r"^.*?-(\d+)\s+\[(\d+)\]\s+\S+\s+(\d+): (\w+): ?(.*)$")

Event = collections.namedtuple("Event", "at pid name text")


class Failed(Exception):
    """The reason why something cannot be measured."""


# The node and its processes


def until(what, is_so):
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        if time.monotonic() > deadline:
            raise Failed(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def node(options):
    """Runs a node that serves the function on a free port. Yields its process and its port."""
    folder = tempfile.mkdtemp(prefix="faasw-timeline-")
    log = open(f"{folder}/log", "w+b")
    command = [
        options.faasw,
        "up",
        options.function,
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        f"{folder}/data",
    ]
    process = subprocess.Popen(
        command + options.node_option, stdout=log, stderr=log, stdin=subprocess.DEVNULL
    )
    try:

        def port():
            if process.poll() is not None:
                raise Failed(f"the node has ended: {Path(log.name).read_text()}")
            found = re.search(r"127\.0\.0\.1:(\d+)", Path(log.name).read_text())
            return found and int(found[1])

        yield process, until("the node listens", port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def below(process):
    """Returns a process and all its descendants."""
    parents = collections.defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = read(f"/proc/{entry.name}/stat").rpartition(")")[2].split()
            if fields:
                parents[int(fields[1])].append(int(entry.name))
    found = [process]
    for pid in found:
        found += parents[pid]
    return found


def threads(process):
    """Returns the role of each thread: of the node, or of a sandbox."""
    roles = {}
    for pid in below(process):
        role = (
            "node" if pid == process else read(f"/proc/{pid}/comm").strip().removeprefix("faasw-")
        )
        with contextlib.suppress(OSError):
            roles.update((int(task), role) for task in os.listdir(f"/proc/{pid}/task"))
    return roles


# Tracing


@contextlib.contextmanager
def tracing():
    """Makes a separate trace instance (tracefs `instances`), to leave other traces undisturbed."""
    mounted = None
    root = Path("/sys/kernel/tracing")
    if not (root / "instances").is_dir():
        mounted = root = Path(tempfile.mkdtemp(prefix="faasw-tracefs-"))
        subprocess.run(["mount", "-t", "tracefs", "tracefs", root], check=True)
    instance = root / "instances" / f"faasw-{os.getpid()}"
    try:
        instance.mkdir()
        try:
            yield instance
        finally:
            put(instance / "tracing_on", "0")
            for name in EVENTS:
                put(instance / "events" / name / "enable", "0")
            instance.rmdir()
    finally:
        if mounted:
            subprocess.run(["umount", mounted], check=True)
            mounted.rmdir()


def put(file, text):
    if file.exists():
        file.write_text(text)


def record(instance, pids, run):
    """Returns the events of these threads during `run`, with times in microseconds."""
    put(instance / "buffer_size_kb", str(64 << 10))
    put(instance / "trace_clock", "x86-tsc")
    put(instance / "options/event-fork", "1")
    put(instance / "set_event_pid", " ".join(map(str, pids)))
    for name in EVENTS:
        put(instance / "events" / name / "enable", "1")
    put(instance / "trace", "")
    marks = []
    for step in (lambda: None, run):
        step()
        put(instance / "trace_marker", "mark")
        marks.append(time.monotonic())
    put(instance / "tracing_on", "0")
    # Each processor has its own buffer.
    lost = [file.read_text() for file in instance.glob("per_cpu/cpu*/stats")]
    if any(re.search(r"^(overrun|dropped events): [1-9]", text, re.MULTILINE) for text in lost):
        raise Failed("the kernel has dropped events: ask for fewer requests")
    events, ticks = [], []
    with open(instance / "trace", errors="replace") as lines:
        for line in lines:
            if found := LINE.match(line):
                pid, _, at, name, text = found.groups()
                if name == "tracing_mark_write":
                    ticks.append(int(at))
                elif not line.startswith("#"):
                    events.append(Event(int(at), int(pid), name, text))
    if len(ticks) < 2:
        raise Failed("the kernel has not kept the marks")
    per_us = (ticks[-1] - ticks[0]) / ((marks[1] - marks[0]) * 1e6)
    events = [event._replace(at=(event.at - ticks[0]) / per_us) for event in events]
    return sorted(events, key=lambda event: event.at)


# Requests


class Client:
    def __init__(self, port, path):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = f"GET {path} HTTP/1.1\r\nHost: timeline\r\n\r\n".encode()

    def ask(self):
        self.connection.send(self.request)
        got = self.connection.recv(1 << 16)
        if not got.startswith(b"HTTP/1.1 200"):
            raise Failed(f"answered {got[:60]!r}")
        while not is_whole(got):
            got += self.connection.recv(1 << 16)


def is_whole(got):
    head, end, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    if length:
        return bool(end) and len(body) >= int(length[1])
    return body.endswith(b"0\r\n\r\n")


def ask_all(client, count, pause):
    for _ in range(count):
        client.ask()
        if pause:
            time.sleep(pause)


# Events


def call(event):
    """Returns name and arguments of the system call that an event begins or ends."""
    found = re.match(r"NR (-?\d+) (?:\((.*)\)|= .*)", event.text)
    if not found:
        return "", []
    number = int(found[1])
    name = CALLS.get(number, str(number))
    arguments = [int(value, 16) for value in (found[2] or "").split(", ") if value]
    if name == "ioctl" and len(arguments) > 1:
        name = IOCTLS.get(arguments[1], f"ioctl {arguments[1]:#x}")
    return name, arguments


def begins(role, *names):
    return lambda event, who: (
        event.name == "sys_enter" and who.get(event.pid) == role and call(event)[0] in names
    )


def ends(role, *names):
    return lambda event, who: (
        event.name == "sys_exit" and who.get(event.pid) == role and call(event)[0] in names
    )


def runs(role):
    def matches(event, who):
        found = event.name == "sched_switch" and re.search(r"next_pid=(\d+)", event.text)
        return bool(found) and who.get(int(found[1])) == role

    return matches


def wakes(role, other):
    """Matches the moment when a thread of one role wakes one of the other."""

    def matches(event, who):
        found = event.name == "sched_waking" and re.search(r" pid=(\d+)", event.text)
        return bool(found) and who.get(event.pid) == role and who.get(int(found[1])) == other

    return matches


def is_event(role, name):
    return lambda event, who: event.name == name and who.get(event.pid) == role


def rings(port):
    """Matches a write of the guest to one of its ports (`guest-vm/abi/src/doorbell.rs`)."""
    return lambda event, who: (
        event.name == "kvm_pio"
        and who.get(event.pid) == "sandbox"
        and f"pio_write at {port:#x} " in event.text
    )


WAITS = ("epoll_wait", "epoll_pwait")
PROGRESS, STOP = 0x54, 0x50
SENDS = ("sendmsg", "sendto", "write", "writev")
# The steps of a request, in order. Steps that did not happen are skipped: a hot instance needs no
# wake, and some versions of KVM have no such events.
UNTIL_ANSWER = [
    ("client writes its request", begins("client", *SENDS)),
    ("node is woken", wakes("client", "node")),
    ("node runs", ends("node", *WAITS)),
    ("node reads the request", begins("node", "recvfrom", "read", "recvmsg")),
    ("node writes to the mailbox", begins("node", "pwrite64")),
    ("sandbox is woken", wakes("node", "sandbox")),
    ("sandbox runs", runs("sandbox")),
    ("sandbox enters KVM_RUN", begins("sandbox", "KVM_RUN")),
    ("guest is entered", is_event("sandbox", "kvm_entry")),
    ("doorbell", rings(PROGRESS)),
    ("node is woken", wakes("sandbox", "node")),
    ("node runs", runs("node")),
    ("node reads the mailbox", begins("node", "pread64")),
    ("node writes the response", begins("node", "sendto", "writev", "sendmsg", "write")),
    ("client is woken", wakes("node", "client")),
    ("client has the response", ends("client", "recvfrom", "read")),
]
# The steps of the sandbox after its answer. A node that was preempted by the sandbox needs no wake.
AFTER_ANSWER = [
    ("doorbell", rings(PROGRESS)),
    ("the guest stops", rings(STOP)),
    ("the vCPU has stopped", ends("sandbox", "ioctl")),
    ("reset begins", begins("sandbox", "getrusage", "PAGEMAP_SCAN")),
    ("mailbox is wiped", ends("sandbox", "fstat")),
    ("vectors are set", ends("sandbox", "ioctl")),
    ("node is told", begins("sandbox", "sendmsg")),
    ("warm", begins("sandbox", "recvmsg")),
]


def times(steps, events, who, start):
    """Returns the time of each step's first event, in order; `None` for a missing step."""
    found, at = [], start
    for _, matches in steps:
        seen = next(
            (place for place in range(at, len(events)) if matches(events[place], who)), None
        )
        found.append(None if seen is None else events[seen].at)
        if seen is not None:
            at = seen + 1
    return found


def requests(events, who):
    """Returns the events of each request, up to the next one that the client writes."""
    is_first = begins("client", *SENDS)
    starts = [place for place, event in enumerate(events) if is_first(event, who)]
    return [events[start:end] for start, end in zip(starts, starts[1:])]


def cut(one, who):
    """Returns the place at which to split a request: after the client received its response."""
    is_last = ends("client", "recvfrom", "read")
    last = next((place for place, event in enumerate(one) if is_last(event, who)), len(one) - 1)
    return last + 1


def spent_in_calls(one, who):
    """Returns the durations of all system calls, by role and name."""
    begun, spent = {}, collections.defaultdict(list)
    for event in one:
        role = who.get(event.pid)
        if event.name == "sys_enter":
            begun[event.pid] = event.at, call(event)[0]
        elif event.name == "sys_exit" and event.pid in begun:
            at, name = begun.pop(event.pid)
            spent[role, name].append(event.at - at)
    return spent


def on_cpu(events, who):
    """Returns the total running time of each role."""
    began, spent = {}, collections.Counter()
    for event in events:
        if event.name == "sched_switch":
            before, after = (
                int(re.search(rf"{which}_pid=(\d+)", event.text)[1]) for which in ("prev", "next")
            )
            if before in began:
                spent[who.get(before)] += event.at - began.pop(before)
            if after in who:
                began[after] = event.at
    return spent


def ran(one, who, role, begin, end):
    """Returns how long the processes of a role ran between two moments."""
    off, spent = None, end - begin
    for event in one:
        if event.name != "sched_switch" or not begin <= event.at <= end:
            continue
        before, after = (
            int(re.search(rf"{which}_pid=(\d+)", event.text)[1]) for which in ("prev", "next")
        )
        if who.get(before) == role:
            off = event.at
        if who.get(after) == role and off is not None:
            spent -= event.at - off
            off = None
    return spent - (0 if off is None else end - off)


def median(values):
    return statistics.median(values) if values else float("nan")


def table(title, steps, samples):
    """Prints the median time of each step since the start, and since the step before it."""
    print(f"\n{title}\n\n| since start us | step us | seen | what |\n| ---: | ---: | ---: | --- |")
    for place, (name, _) in enumerate(steps):
        since, step = [], []
        for sample in samples:
            if sample[place] is None or sample[0] is None:
                continue
            since.append(sample[place] - sample[0])
            before = [at for at in sample[:place] if at is not None]
            step.append(sample[place] - before[-1] if before else 0.0)
        if since:
            print(
                f"| {median(since):.1f} | {median(step):.1f} | {len(since) / len(samples):.0%} | "
                f"{name} |"
            )


def show(one, who):
    """Prints every event of one request."""
    print("\nOne request that took as long as most, event by event\n")
    for event in one:
        names = call(event)[0] if event.name.startswith("sys_") else event.text
        print(
            f"{event.at - one[0].at:9.1f} {who.get(event.pid, '-'):7} {event.pid:7} "
            f"{event.name:14} {names}"
        )


def report(events, who, count, shows):
    all_requests = requests(events, who)
    if len(all_requests) < count // 2:
        raise Failed(f"of {count} requests only {len(all_requests)} were traced")
    answered = [times(UNTIL_ANSWER, one[: cut(one, who)], who, 0) for one in all_requests]
    table("From the request to its response", UNTIL_ANSWER, answered)
    after, with_doorbell = [], []
    for one in all_requests:
        rang = rings(PROGRESS)
        first = next((place for place, event in enumerate(one) if rang(event, who)), None)
        if first is not None:
            after.append(times(AFTER_ANSWER, one, who, first))
            with_doorbell.append(one)
    table("The sandbox, from its doorbell on", AFTER_ANSWER, after)
    names = [name for name, _ in AFTER_ANSWER]
    first, last = names.index("reset begins"), names.index("node is told")
    spent = [
        ran(one, who, "sandbox", sample[first], sample[last])
        for one, sample in zip(with_doorbell, after)
        if sample[first] is not None and sample[last] is not None
    ]
    if spent:
        print(
            f"\nA reset, from its first call until the node is told: {median(spent):.1f} us of "
            f"CPU, median of {len(spent)}"
        )

    calls = collections.defaultdict(list)
    for one in all_requests:
        for key, spent in spent_in_calls(one, who).items():
            calls[key].append(spent)
    print("\nCalls (those that wait take as long as there is nothing to do)\n")
    print("| process | call | a request | us each, median |\n| --- | --- | ---: | ---: |")
    for (role, name), lists in sorted(
        calls.items(), key=lambda entry: (str(entry[0][0]), -sum(map(len, entry[1])))
    ):
        if role in ("node", "sandbox"):
            every = [value for one in lists for value in one]
            number = len(every) / len(all_requests)
            if number >= 0.05:
                print(f"| {role} | {name} | {number:.2f} | {median(every):.1f} |")
    print("\nEvents of the sandbox, a request: ", end="")
    counts = collections.Counter(event.name for event in events if who.get(event.pid) == "sandbox")
    shown = ("kvm_entry", "kvm_exit", "kvm_page_fault", "page_fault_user")
    print(", ".join(f"{name} {counts[name] / len(all_requests):.2f}" for name in shown))
    spent = on_cpu(events, who)
    print("CPU, us a request: ", end="")
    print(
        ", ".join(
            f"{role} {spent[role] / len(all_requests):.1f}"
            for role in ("client", "node", "sandbox")
        )
    )
    if shows:
        by_time = sorted(
            (sample[-1] - sample[0], place) for place, sample in enumerate(answered) if sample[-1]
        )
        show(all_requests[by_time[len(by_time) // 2][1]], who)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--faasw", default=str(ROOT / "target/release/faasw"), help="the program, built optimised"
    )
    parser.add_argument(
        "--function", default=str(ROOT / "examples/hello/hello.wasm"), help="what is asked"
    )
    parser.add_argument("--requests", type=int, default=1000, help="how many are traced")
    parser.add_argument("--warm", type=int, default=1000, help="how many are asked before")
    parser.add_argument(
        "--pause", type=float, default=300.0, help="microseconds between two; 0 for none"
    )
    parser.add_argument("--show", action="store_true", help="every event of one request, too")
    parser.add_argument(
        "--node-option", action="append", default=[], help="a further option of `faasw up`"
    )
    options = parser.parse_args()
    pause = options.pause / 1e6
    path = f"/{Path(options.function).stem}/"
    try:
        if os.geteuid() != 0:
            raise Failed("the kernel's events are for root")
        with node(options) as (process, port), tracing() as instance:
            client = Client(port, path)
            ask_all(client, options.warm, pause)
            who = threads(process.pid)
            who[os.getpid()] = "client"
            run = lambda: ask_all(client, options.requests, pause)
            events = record(instance, who, run)
            # Adds sandboxes that were made during the trace.
            who = {**threads(process.pid), **who}
        report(events, who, options.requests, options.show)
    except Failed as failed:
        sys.exit(f"timeline: {failed}")


if __name__ == "__main__":
    main()
