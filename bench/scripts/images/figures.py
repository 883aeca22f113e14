"""Medians with intervals, goals, and tables."""

import json
import os
import platform
import random
import statistics
from pathlib import Path

# Bootstrap samples: enough for a stable third digit.
RESAMPLES = 1000
# Confidence of an interval.
SURE = 0.95


class Figure:
    """The median of measured values, with its 95 % confidence interval."""

    def __init__(self, values):
        self.values = sorted(values)
        self.median = self.low = self.high = None
        if not self.values:
            return
        self.median = statistics.median(self.values)
        # A fixed seed gives equal intervals for equal values.
        dice = random.Random(len(self.values))
        count = len(self.values)
        medians = sorted(
            statistics.median(dice.choices(self.values, k=count)) for _ in range(RESAMPLES)
        )
        beyond = int(RESAMPLES * (1 - SURE) / 2)
        self.low, self.high = medians[beyond], medians[-1 - beyond]

    def __bool__(self):
        return bool(self.values)

    def part(self, fraction):
        """Returns the value that this fraction of all values does not exceed."""
        return self.values[min(len(self.values) - 1, int(len(self.values) * fraction))]

    def told(self, scale=1.0, digits=2):
        if not self.values:
            return "–"
        median, low, high = (
            f"{value * scale:.{digits}f}" for value in (self.median, self.low, self.high)
        )
        return median if len(self.values) == 1 else f"{median} ({low} to {high})"

    def as_json(self):
        return {"median": self.median, "low": self.low, "high": self.high, "values": self.values}


def ms(figure):
    """Formats seconds as milliseconds."""
    return figure.told(1e3, 2)


def mib(count):
    return f"{count / (1 << 20):.2f}"


class Report:
    """Prints tables as they are measured, and all goals and figures at the end."""

    def __init__(self):
        self.goals = []
        self.figures = {"host": host()}
        self.columns = 0

    def say(self, text):
        print(f"\n{text}\n" if text else "", flush=True)

    def table(self, *columns):
        self.columns = len(columns)
        print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)

    def row(self, *cells):
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)

    def keep(self, part, name, **figures):
        told = {
            key: value.as_json() if isinstance(value, Figure) else value
            for key, value in figures.items()
        }
        self.figures.setdefault(part, {})[name] = told

    def goal(self, what, figure, limit, unit="", scale=1.0, at_least=False):
        """Records a goal: met if the whole interval meets it, missed if no part of it does."""
        sign = "≥" if at_least else "≤"
        if not figure:
            met = "not measured"
        else:
            good = [
                value >= limit if at_least else value <= limit
                for value in (figure.low, figure.high)
            ]
            met = "yes" if all(good) else "**no**" if not any(good) else "too noisy to tell"
        told = figure.told(scale, 2) if figure else "–"
        self.goals.append((what, f"{told}{unit}", f"{sign} {limit * scale:g}{unit}", met))
        return met

    def end(self, path):
        if self.goals:
            self.say("### Goals")
            self.table("figure", "came to", "goal", "met")
            for goal in self.goals:
                self.row(*goal)
        if path:
            self.figures["goals"] = [
                dict(zip(("figure", "value", "goal", "met"), goal)) for goal in self.goals
            ]
            path.write_text(json.dumps(self.figures, indent=1) + "\n")


def host():
    """Describes the machine on which the figures were measured."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    names = [
        line.split(":", 1)[1].strip()
        for line in cpuinfo.splitlines()
        if line.startswith("model name")
    ]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) >> 10
    kinds = [
        kind for kind in ("kvm_intel", "kvm_amd", "kvm_pvm") if Path("/sys/module", kind).is_dir()
    ]
    return {
        "cpu": names[0] if names else "unknown",
        "processors": len(os.sched_getaffinity(0)),
        "memory_mib": memory,
        "kernel": platform.release(),
        "kvm": kinds[0] if kinds else "unknown",
        "load": os.getloadavg()[0],
    }
