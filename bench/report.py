"""Medians, the machine they were measured on, and three ways to print them."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.meter import Figure


@dataclass(slots=True)
class Measured:
    """One scenario: its repeats, and what went wrong when something did."""

    name: str
    about: str
    repeats: list[list[Figure]] = field(default_factory=list)
    problem: str | None = None
    seconds: float = 0.0

    def rows(self) -> list[tuple[Figure, float, float]]:
        """(median, least, largest) of each figure, in the order of the first repeat."""
        made = []
        for one in self.repeats[0] if self.repeats else []:
            values = [f.value for r in self.repeats for f in r if f.label == one.label]
            middle = Figure(one.label, statistics.median(values), one.unit)
            made.append((middle, min(values), max(values)))
        return made


def machine() -> dict[str, Any]:
    """Cores, system, and how busy the machine was before anything was measured."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x for x in cpuinfo.read_text("utf-8").splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    load = os.getloadavg()
    return {
        "cores": os.cpu_count(),
        "processor": model or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load at start": " ".join(f"{x:.2f}" for x in load),
    }


def written(value: float, unit: str) -> str:
    """A number with as many digits as mean something."""
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"
    return f"{text}{unit}" if unit in ("/s", "x") else f"{text} {unit}".rstrip()


def _span(low: float, high: float, unit: str, repeats: int) -> str:
    return "" if repeats < 2 else f"{written(low, '')} to {written(high, unit)}"


def table(facts: dict[str, Any], measured: list[Measured]) -> str:
    """For a terminal."""
    lines = [", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    for one in measured:
        times = f", median of {len(one.repeats)}" if len(one.repeats) > 1 else ""
        lines.append(f"{one.name}: {one.about}{times} ({one.seconds:.0f} s)")
        for figure, low, high in one.rows():
            span = _span(low, high, figure.unit, len(one.repeats))
            lines.append(
                f"  {figure.label:<76}{written(figure.value, figure.unit):>14}  {span}".rstrip()
            )
        if one.problem:
            lines.append("  PROBLEM " + one.problem.replace("\n", "\n  "))
        lines.append("")
    return "\n".join(lines)


def markdown(facts: dict[str, Any], measured: list[Measured]) -> str:
    """For docs/performance.md; figures of processor time stay out of it."""
    lines = ["Measured on: " + ", ".join(f"{k} {v}" for k, v in facts.items()) + ".", ""]
    lines += ["| scenario | figure | median | least to largest |", "|---|---|---:|---:|"]
    for one in measured:
        for figure, low, high in one.rows():
            if not figure.label.startswith("cpu, "):
                span = _span(low, high, figure.unit, len(one.repeats))
                label = figure.label.strip().replace("|", "\\|")
                value = written(figure.value, figure.unit)
                lines.append(f"| {one.name} | {label} | {value} | {span} |")
        if one.problem:
            lines.append(f"| {one.name} | **did not end**: {one.problem.splitlines()[0]} | | |")
    return "\n".join(lines)


def as_json(facts: dict[str, Any], measured: list[Measured]) -> str:
    """For programs: every repeat, nothing rounded."""
    made = {
        one.name: {
            "about": one.about,
            "problem": one.problem,
            "seconds": round(one.seconds, 1),
            "figures": [
                {"label": f.label, "unit": f.unit, "median": f.value, "least": low, "largest": high}
                for f, low, high in one.rows()
            ],
        }
        for one in measured
    }
    return json.dumps({"machine": facts, "scenarios": made}, indent=2)
