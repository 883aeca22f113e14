"""Nodes, requests to them, and their own statistics."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import disk

# Maximum wait of any step, in seconds.
PATIENCE = 60
TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """The reason why something cannot be measured."""


def until(what, is_so, patience=PATIENCE, pause=0.004):
    """Waits until a condition returns a true value. Returns that value."""
    deadline = time.monotonic() + patience
    while True:
        found = is_so()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Failed(f"not within {patience} s: {what}")
        time.sleep(pause)


class Answer:
    """A response with its time, and the stages of that time as the node reports them."""

    def __init__(self, status, head, body, seconds):
        self.status, self.body, self.seconds = status, body, seconds
        self.served, self.stages = "", {}
        for line in head.decode("latin-1").split("\r\n"):
            if line.lower().startswith("server-timing:"):
                for entry in line.split(":", 1)[1].split(","):
                    name, _, value = entry.strip().partition(";")
                    kind, _, value = value.partition("=")
                    if kind == "dur":
                        self.stages[name] = float(value) / 1e3
                    elif name == "served":
                        self.served = value.strip('"')


def ask(port, path, patience=PATIENCE):
    """Sends a request on a new connection. The time begins when the connection is open."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return exchange(connection, path)


def exchange(connection, path):
    request = (
        f"GET {path} HTTP/1.1\r\nHost: bench\r\nX-Faasw-Timing: 1\r\nTE: trailers\r\n\r\n".encode()
    )
    begun = time.perf_counter()
    connection.sendall(request)
    got = b""
    while b"\r\n\r\n" not in got:
        got += received(connection)
    head, _, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    if length:
        while len(body) < int(length[1]):
            body += received(connection)
    elif b"\r\ntransfer-encoding: chunked" in head.lower():
        while (whole := unchunked(body)) is None:
            body += received(connection)
        body, behind = whole
        head += b"\r\n" + behind
    taken = time.perf_counter() - begun
    return Answer(int(head.split()[1]), head, body, taken)


def unchunked(framed):
    """Returns the body and trailers of a chunked message; `None` if it is incomplete."""
    body, at = b"", 0
    while (end := framed.find(b"\r\n", at)) >= 0:
        size = int(framed[at:end].split(b";")[0], 16)
        at = end + 2
        if not size:
            behind = framed[at:]
            return (body, behind) if behind == b"\r\n" or behind.endswith(b"\r\n\r\n") else None
        body += framed[at : at + size]
        at += size + 2
    return None


def received(connection):
    got = connection.recv(1 << 16)
    if not got:
        raise ConnectionError("the connection was closed in the middle of an answer")
    return got


class Admin(http.client.HTTPConnection):
    """A connection to a node's admin socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def copy_data(source, target, *without):
    """Copies a data directory.

    Files that a node only replaces are hard links; files that it writes to are copies.
    """
    target.mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        if path.name in ("lock", "faasw.sock", "logs", *without) or path.is_socket():
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, copy_function=os.link)
        else:
            shutil.copy2(path, target)
    for folder in ("images", "logs"):
        (target / folder).mkdir(mode=0o700, exist_ok=True)
    return target


def processes_below(pid):
    """Returns a process and all its descendants, with the CPU seconds of each."""
    parents, times = {}, {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        times[int(entry.name)] = sum(map(int, fields[11:15])) / TICK
    found, left = {}, [pid]
    while left:
        one = left.pop()
        if one in times:
            found[one] = times[one]
        left += parents.get(one, [])
    return found


def memory_of(pids, field):
    """Returns the sum of a field of `smaps_rollup` of these processes, in bytes."""
    total = 0
    for pid in pids:
        try:
            told = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(rf"^{field}: +(\d+) kB", told, re.MULTILINE)
        total += int(found[1]) << 10 if found else 0
    return total


def shared_memory():
    """Returns the bytes of memory files, such as seeds and code, of the whole machine."""
    told = Path("/proc/meminfo").read_text()
    return int(re.search(r"^Shmem: +(\d+) kB", told, re.MULTILINE)[1]) << 10


class Node:
    """A node on a data directory. It ends with the scope in which it was started."""

    number = 0

    def __init__(self, bench, data, *options, port=0):
        Node.number += 1
        self.bench, self.data, self.options = bench, Path(data), options
        self.log = bench.logs / f"{Node.number:03}-{self.data.name}.log"
        self.pins = []
        command = [
            bench.faasw,
            "serve",
            "--listen",
            f"127.0.0.1:{port}",
            "--data-dir",
            self.data,
            "--timing",
            *options,
        ]
        with open(self.log, "wb") as log:
            self.begun = time.perf_counter()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.port = port
        bench.scope.callback(self.stop)
        if not port:
            told = until(f"{self.log.name} has an address", self.address)
            self.port = int(told[1])

    def address(self):
        if self.process.poll() is not None:
            raise Failed(f"the node has ended:\n{self.said()}")
        return re.search(r"ready on 127\.0\.0\.1:(\d+)", self.log.read_text(errors="replace"))

    def said(self):
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self):
        """Closes all pins and ends the node if it still runs."""
        for pin in self.pins:
            pin.close()
        self.pins = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def command(self, *words):
        command = [self.bench.faasw, *words, "--data-dir", self.data]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise Failed(f"{' '.join(map(str, words))}: {done.stderr[-1000:]}")
        return done.stdout

    def deploy(self, path, name, *options):
        self.command("deploy", path, "--name", name, *options)

    def admin(self, what):
        connection = Admin(self.data / "faasw.sock")
        try:
            connection.request("GET", f"/v1/{what}")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def ask(self, name, end="/"):
        answer = ask(self.port, f"/{name}{end}")
        if answer.status != 200:
            raise Failed(f"{name} answers {answer.status}: {answer.body[:300]!r}")
        return answer

    def chain(self, name):
        """Returns the ancestors of a function's seed, and the seed itself last."""
        above = []
        for seed in self.admin("tree"):
            above = above[: seed["level"]] + [seed]
            # An engine may have a function's name.
            if seed["name"] == name and seed["level"] >= 2 and not seed["is_shared"]:
                return above
        raise Failed(f"{name} is not in the tree")

    def pin(self, name):
        """Keeps a function busy until the node ends, and so all its seeds in memory.

        The request waits for the rest of its body, which is never sent.
        """
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sendall(
            f"POST /{name}/ HTTP/1.1\r\nHost: bench\r\nContent-Length: 100000\r\n\r\n.".encode()
        )
        self.pins.append(connection)
        until(f"{name} is at work", lambda: any(seed["busy"] for seed in self.seeds_of(name)))

    def let_go(self):
        for pin in self.pins:
            pin.close()
        self.pins = []

    def images(self):
        """Returns the inode and size of each image, by name."""
        found = {}
        for entry in os.scandir(self.data / "images"):
            try:
                told = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found[entry.name] = (told.st_ino, told.st_size)
        return found

    def working_set(self, name):
        """Returns the working set of `image inspect`; `None` if the program has no such command."""
        command = [self.bench.faasw, "image", "inspect", name, "--json", "--data-dir", self.data]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return json.loads(done.stdout).get("working_set") if done.returncode == 0 else None

    def settle(self, still=0.15, patience=PATIENCE):
        """Waits until no image has been written for `still` seconds."""
        before, since = self.images(), time.monotonic()
        deadline = since + patience
        while time.monotonic() - since < still or any(name.startswith(".") for name in before):
            time.sleep(0.01)
            now = self.images()
            if now != before:
                before, since = now, time.monotonic()
            if time.monotonic() > deadline:
                raise Failed("images are written for ever")

    def cpu_seconds(self):
        return sum(processes_below(self.process.pid).values())

    def rest(self, patience=PATIENCE, still=0.3, part=0.1):
        """Waits until the node is idle: it uses at most `part` of a processor."""
        deadline = time.monotonic() + patience
        while True:
            before = self.cpu_seconds()
            time.sleep(still)
            if self.cpu_seconds() - before <= part * still:
                return
            if time.monotonic() > deadline:
                raise Failed(f"{self.data.name} does not come to rest")

    def is_in_memory(self, name):
        """Returns whether a function's seed is in memory. The tree may lack unused functions."""
        return any(seed["is_in_memory"] for seed in self.seeds_of(name))

    def seeds_of(self, name):
        return [
            seed for seed in self.admin("tree") if seed["name"] == name and not seed["is_shared"]
        ]

    def drop_pages(self):
        """Drops images and code from the page cache. Returns the number of pages that stayed."""
        return disk.drop(
            path for folder in ("images", "artifacts") for path in disk.files_of(self.data / folder)
        )


def free_port():
    """Returns a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
