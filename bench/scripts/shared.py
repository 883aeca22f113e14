#!/usr/bin/env python3
"""Measures `faasw pod` from its start to the first answer: alone, and with the host's shared entry.

Each round starts each file in both ways, in random order, on new ports. A client tries to connect
until the pod accepts, sends one request and waits for the complete answer. Run it as root, on a
quiet machine.

    bench/scripts/shared.py --faasw target/release/faasw --rounds 11 \\
        examples/hello/hello.wasm app.js --request /
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

# Maximum seconds until a pod answers.
PATIENCE = 60


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def first_answer(program, file, more):
    """Returns the seconds to the first answer, the answer, and the pod's output."""
    port = free_port()
    words = [
        program,
        "pod",
        file,
        "--listen",
        f"127.0.0.1:{port}",
        "--health-listen",
        "127.0.0.1:0",
    ]
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        pod = subprocess.Popen(words + ["--drain-delay", "0"] + more, stdout=said, stderr=said)
        try:
            while True:
                try:
                    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                    break
                except ConnectionRefusedError:
                    if pod.poll() is not None or time.perf_counter() - begun > PATIENCE:
                        said.seek(0)
                        raise SystemExit(f"{file} does not serve: {said.read().decode()}")
                    time.sleep(0.0005)
            with client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                answer = b""
                while piece := client.recv(1 << 16):
                    answer += piece
            took = time.perf_counter() - begun
        finally:
            pod.send_signal(signal.SIGTERM)
            pod.wait()
        said.seek(0)
        return took, answer, said.read().decode()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("files", nargs="+")
    arguments.add_argument("--faasw", default="target/release/faasw")
    arguments.add_argument("--rounds", type=int, default=11)
    arguments.add_argument("--request", action="append", default=[], help="as of `share add`")
    arguments.add_argument(
        "--seed-memory", metavar="MIB", help="as of `pod`: what scripts in Python need"
    )
    arguments.add_argument(
        "--drop", action="store_true", help="drop the system's page cache before each start"
    )
    asked = arguments.parse_args()
    program = str(pathlib.Path(asked.faasw).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("FAASW_BENCH_DIR", "/var/tmp")))
    try:
        print("| function | entry MiB | `share add` s | alone ms | shared ms | read |")
        print("| --- | --- | --- | --- | --- | --- |")
        for file in asked.files:
            row(program, file, folder / "store", asked)
    finally:
        shutil.rmtree(folder)


def row(program, file, store, asked):
    requests = [word for path in asked.request for word in ("--request", path)]
    words = [program, "share", "add", file, "--store", str(store), "--namespace", "bench", "--json"]
    begun = time.perf_counter()
    added = json.loads(subprocess.run(words + requests, check=True, stdout=subprocess.PIPE).stdout)
    adding = time.perf_counter() - begun
    given = ["--shared", added["folder"], "--shared-key", added["key"]]
    size = sum(
        path.stat().st_size for path in pathlib.Path(added["folder"]).rglob("*") if path.is_file()
    )
    more = ["--seed-memory", asked.seed_memory] if asked.seed_memory else []
    taken = {False: [], True: []}
    read = 0
    for _ in range(asked.rounds):
        for is_shared in random.sample([False, True], 2):
            if asked.drop:
                os.sync()
                pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            took, answer, said = first_answer(program, file, (given if is_shared else []) + more)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{file}: {answer!r}")
            read += is_shared and "the shared entry is used" in said
            taken[is_shared].append(took * 1e3)
    told = (f"{statistics.median(of):.0f} ({min(of):.0f}–{max(of):.0f})" for of in taken.values())
    print(
        f"| {pathlib.Path(file).name} | {size / 2**20:.1f} | {adding:.1f} | {' | '.join(told)} | "
        f"{read} of {asked.rounds} |"
    )


if __name__ == "__main__":
    main()
