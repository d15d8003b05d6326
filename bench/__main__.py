"""`python -m bench [SCENARIO ...]`: measure, and print a table. Without a name: all of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from bench import report
from bench.place import LateError, Server, WrongResultError, say, server
from bench.report import Measured
from bench.scenarios import QUICK, SCENARIOS, Scenario, Size
from suimon.errors import SuimonError


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser().error(f"no scenario {unknown[0]!r}; there are: {', '.join(SCENARIOS)}")
    names = options.scenarios or list(SCENARIOS)
    size = QUICK if options.quick else Size()
    if options.children:
        size = replace(size, children=options.children)
    if options.minutes:
        size = replace(size, minutes=options.minutes)
    facts = report.machine() | {"sizes": "a tenth (--quick)" if options.quick else "full"}
    measured: list[Measured] = []
    with server(options.folder) as place:
        facts |= place.facts()
        for name in names:
            scenario = SCENARIOS[name]
            repeats = options.repeat or (1 if options.quick else scenario.repeats)
            measured.append(measure(place, name, scenario, size, repeats))
    form = report.as_json if options.json else report.markdown if options.markdown else report.table
    print(form(facts, measured))
    return 1 if any(one.problem for one in measured) else 0


def measure(place: Server, name: str, scenario: Scenario, size: Size, repeats: int) -> Measured:
    """One scenario, as often as asked; a problem ends it and is told beside what there is."""
    result = Measured(name, scenario.about)
    began = time.monotonic()
    for repeat in range(repeats):
        say(f"{name} {repeat + 1}/{repeats}: {scenario.about}")
        try:
            with place.place() as fresh:
                fresh.bound(scenario.bound_s)
                result.repeats.append(scenario.measure(fresh, size))
        except (LateError, WrongResultError, SuimonError) as error:
            result.problem = str(error)
            say(f"  {error}")
            break
    result.seconds = time.monotonic() - began
    return result


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<16}{one.about}" for name, one in SCENARIOS.items())
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the engine on this machine: ordinary tasks, slot processes, one "
        "worker, a PostgreSQL that syncs.",
        epilog=f"scenarios:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all, if none is named")
    made.add_argument("--quick", action="store_true", help="a tenth of the sizes, once each")
    made.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    made.add_argument("--markdown", action="store_true", help="the table of docs/performance.md")
    made.add_argument("--repeat", type=int, metavar="N", help="so often, not as the scenario says")
    made.add_argument("--children", type=int, metavar="N", help="instead of 100,000")
    made.add_argument("--minutes", type=float, metavar="N", help="snapshot-starts: for so long")
    made.add_argument("--folder", metavar="DIR", help="where the embedded server keeps its files")
    return made


if __name__ == "__main__":
    sys.exit(main())
