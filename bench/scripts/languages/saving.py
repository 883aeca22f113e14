"""Measures the time from saving a file to the new version's first answer, with `up --watch`."""

import http.client
import os
import time

from figures import Figure, ms
from node import PATIENCE, Failed
from nodes import Up
from scripts import ENDING, LANGUAGES

# In seconds.
GOAL = 0.1
TEXT = {
    "js": "export default {{ fetch: () => new Response('{}') }};\n",
    "python": "def handler(request):\n    return '{}'\n",
}


def measure(bench):
    report = bench.report
    report.say("### Saved and served")
    report.table("language", "saves", "median ms", "least to most ms")
    for language in bench.languages:
        with bench.part_of_scope():
            (folder := bench.folder("saved")).mkdir(parents=True)
            file = folder / f"hello{ENDING[language]}"
            file.write_text(TEXT[language].format("0"))
            node = Up(bench, [file], "--watch")
            took = Figure(saves(bench, node, "/hello/", file, TEXT[language]))
        ends = f"{took.values[0] * 1e3:.0f} to {took.values[-1] * 1e3:.0f}"
        report.row(LANGUAGES[language], bench.saves, ms(took), ends)
        report.keep("saved", language, took=took)
        report.goal(f"{LANGUAGES[language]}: from a save to its answer", took, GOAL, " ms", 1e3)


def saves(bench, node, path, file, text):
    """Saves a file of a watched function. Returns the seconds until each number in it answers."""
    new = bench.folder("new")
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE)

    def asked():
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    took = []
    for number in range(1, bench.saves + 1):
        # Editors also replace the old file with a new one.
        new.write_text(text.format(number))
        # Save while the node is idle, at a random time between two of its checks.
        node.rest()
        begun = time.perf_counter()
        os.rename(new, file)
        while asked() != str(number):
            if time.perf_counter() - begun > PATIENCE:
                raise Failed(f"save {number} is not served")
            time.sleep(0.001)
        took.append(time.perf_counter() - begun)
    connection.close()
    return took
