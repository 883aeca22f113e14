#!/usr/bin/env python3
"""Measures requests of a client that pauses between two requests, to several servers in turn.

There is one connection to each server, with one request at a time. If a client sends the next
request immediately, the instance is still being reset; `faasw-bench http` measures that. With a
pause, the reset has finished.

    bench/scripts/paced.py http://127.0.0.1:8080/hello/ http://127.0.0.1:8081/
"""

import argparse
import random
import socket
import statistics
import time
from urllib.parse import urlsplit


class Server:
    """A connection to a server, and the times of its requests."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.url = url
        self.socket = socket.create_connection((parts.hostname, parts.port or 80))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        self.request = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        self.rounds = []

    def ask(self):
        """Returns the microseconds from the request's first byte to the response's last."""
        begun = time.perf_counter_ns()
        self.socket.sendall(self.request)
        response = self.socket.recv(65536)
        while not is_whole(response):
            more = self.socket.recv(65536)
            if not more:
                raise SystemExit(f"{self.url} hung up")
            response += more
        took = (time.perf_counter_ns() - begun) / 1000
        if not response.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{self.url} answered {response[:200]!r}")
        return took


def is_whole(response):
    """Returns whether a response is complete, by its length or its last chunk."""
    head, end, body = response.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return body.endswith(b"0\r\n\r\n")


def share(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def interval(ratios):
    """Returns the median and its 95 % interval (bootstrap)."""
    draw = random.Random(1)
    medians = [statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000)]
    return statistics.median(ratios), share(medians, 0.025), share(medians, 0.975)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("url", nargs="+", help="each is compared with the first")
    parser.add_argument("--pause", type=float, default=100, help="microseconds before each request")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=300, help="to each, in each round")
    arguments = parser.parse_args()
    servers = [Server(url) for url in arguments.url]
    for nth in range(arguments.rounds + 1):
        for server in servers:
            took = []
            for _ in range(arguments.requests):
                time.sleep(arguments.pause / 1e6)
                took.append(server.ask())
            # The first round warms up.
            if nth > 0:
                server.rounds.append(took)
    first = servers[0]
    print("| server | p50 us | p99 us | the first one's p50 to it | 95 % interval |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for server in servers:
        all_of_them = [took for took_in in server.rounds for took in took_in]
        ratios = [
            statistics.median(ours) / statistics.median(theirs)
            for ours, theirs in zip(first.rounds, server.rounds)
        ]
        median, low, high = interval(ratios)
        print(
            f"| {server.url} | {share(all_of_them, 0.5):.1f} | {share(all_of_them, 0.99):.1f} "
            f"| {median:.3f} | {low:.3f} to {high:.3f} |"
        )


if __name__ == "__main__":
    main()
