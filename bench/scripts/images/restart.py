"""Measures a restart: the first answer after the program's start, and after the node is ready."""

import socket
import time

import disk
from figures import Figure, ms
from node import PATIENCE, Failed, Node, copy_data, exchange, free_port

# Maximum seconds after the program's start, and after the first answer of /healthz.
GOALS = {"hello": (0.060, 0.005), "python": (0.150, 0.025)}


def measure(bench):
    report = bench.report
    report.say(
        "## A restart\n\n"
        "A node with this function alone is started, asked for `/healthz` until it answers, and "
        "then for the "
        "function. Nothing of the data directory is in the system's memory; of the program, "
        "either all or nothing. "
        "*restored*: starts in which no seed was made."
    )
    columns = (
        "function",
        "program",
        "start to ready ms",
        "start to answer ms",
        "ready to answer ms",
        "queue ms",
    )
    report.table(*columns, "read MiB", "restored", "met")
    for function in bench.functions:
        try:
            with bench.part_of_scope(), bench.time_for(75):
                restarts(bench, function)
        except (Failed, OSError) as why:
            report.row(function.name, f"failed: {why}".replace("\n", " "))


def restarts(bench, function):
    report = bench.report
    data = copy_data(bench.data_of(function), bench.folder("restart"))
    alone(bench, data, function)
    names = ("ready", "answer", "first", "queue", "read")
    taken = {kind: {name: [] for name in names} for kind in ("in memory", "dropped")}
    restored = {kind: 0 for kind in taken}
    for _ in range(bench.rounds):
        if bench.is_late():
            break
        kinds = list(taken)
        bench.dice.shuffle(kinds)
        for kind in kinds:
            found = restart(bench, data, function, kind == "dropped")
            restored[kind] += found.pop("restored")
            for name, value in found.items():
                taken[kind][name].append(value)
    goals = GOALS.get(function.goal)
    for kind, values in taken.items():
        figures = {name: Figure(of) for name, of in values.items()}
        if not figures["answer"]:
            raise Failed("there was no time for a round")
        met = "–"
        if goals:
            what = f"restart of {function.name}, program {kind}"
            met = " and ".join(
                (
                    report.goal(f"{what}, from its start", figures["answer"], goals[0], " ms", 1e3),
                    report.goal(f"{what}, from ready", figures["first"], goals[1], " ms", 1e3),
                )
            )
        times = (ms(figures[name]) for name in ("ready", "answer", "first", "queue"))
        count = f"{restored[kind]} of {len(values['answer'])}"
        report.row(
            function.name, kind, *times, f"{figures['read'].median / disk.MIB:.1f}", count, met
        )
        report.keep("restart", f"{function.name}, program {kind}", **figures)


def alone(bench, data, function):
    """Removes all other functions from a data directory, and makes the images of this one."""
    node = Node(bench, data)
    for other in node.admin("functions"):
        if other["name"] != function.name:
            node.command("rm", other["name"])
    for _ in range(4):
        node.ask(function.name)
    node.settle(0.5)
    node.stop()


def restart(bench, data, function, drops_program):
    disk.drop(disk.files_of(data))
    disk.drop([bench.faasw]) if drops_program else bench.faasw.read_bytes()
    port, read = free_port(), disk.bytes_read(data)
    node = Node(bench, data, port=port)
    try:
        ready = first_health(node)
        answer = node.ask(function.name)
        done = time.perf_counter()
        made = sum(seed["forks"] for seed in node.chain(function.name)[:-1])
        return {
            "ready": ready - node.begun,
            "answer": done - node.begun,
            "first": done - ready,
            "queue": answer.stages.get("queue", 0.0),
            "read": disk.bytes_read(data) - read,
            "restored": made == 0,
        }
    finally:
        node.settle()
        node.stop()


def first_health(node):
    """Returns the time of the node's first answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if node.process.poll() is not None:
            raise Failed(f"the node has ended:\n{node.said()}")
        try:
            with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE) as connection:
                # If the port is open but the node does not answer yet, this waits.
                if exchange(connection, "/healthz").status == 200:
                    return time.perf_counter()
        except ConnectionError:
            time.sleep(0.0005)
    raise Failed("the node does not answer")
