"""Every airport of the world, checked one by one: a real file that nobody here wrote.

The file is `airports.csv` of the PyPI package `airportsdata`: 28,298 rows. Each row becomes a child
run that validates it with a pydantic model. What an airport may look like is written in a rules
file; the first version of it was made at a desk, by somebody who believed that no airport lies
below the sea, so that Amsterdam's is rejected. One per cent of failures is tolerated, and the
report is written all the same; then the rule is corrected and only the failed children run again.

The input is `{"csv": FILE, "rules": FILE, "out": FOLDER}`; the rules file holds
`{"lowest_elevation_ft": 0, "highest_elevation_ft": 30000}`.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator

from suimon import Context, Fatal, MergeResult, Pipeline, task


class Airport(BaseModel):
    """One row. `elevation` is in feet above the sea."""

    icao: Annotated[str, Field(pattern=r"^[A-Z0-9_]{4}$")]
    iata: Annotated[str, Field(pattern=r"^([A-Z]{3})?$")]
    name: Annotated[str, Field(min_length=1)]
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")]
    elevation: float
    lat: Annotated[float, Field(ge=-90, le=90)]
    lon: Annotated[float, Field(ge=-180, le=180)]
    tz: str

    @field_validator("elevation")
    @classmethod
    def legal_elevation(cls, feet: float, info: ValidationInfo) -> float:
        """The rule that changes: its bounds come from the rules file."""
        rules = info.context or {}
        lowest, highest = rules["lowest_elevation_ft"], rules["highest_elevation_ft"]
        if not lowest <= feet <= highest:
            msg = f"{feet:g} ft is not between {lowest} and {highest} ft"
            raise ValueError(msg)
        return feet


class Rejected(Fatal):
    """A row that breaks a rule: trying again without a change would be useless."""


@task(timeout="10s")
def check_airport(row: dict[str, Any], rules: str) -> dict[str, Any]:
    """Validate one row by the rules as they stand now."""
    try:
        airport = Airport.model_validate(row, context=_rules(rules))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        msg = f"{field}: {first['msg'].removeprefix('Value error, ')}"
        raise Rejected(msg) from None
    return {"country": airport.country, "elevation": airport.elevation}


@task(timeout="2m")
def write_report(outcome: MergeResult, out: str, ctx: Context) -> dict[str, Any]:
    """Write `airports.md` and `rejected.csv`; read the results in a stream, not as one list."""
    per_country: Counter[str] = Counter()
    highest, lowest = ("", float("-inf")), ("", float("inf"))
    for child in outcome.succeeded:
        per_country[child.value["country"]] += 1
        here = (str(child.key), child.value["elevation"])
        highest, lowest = max(highest, here, key=_second), min(lowest, here, key=_second)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    rejected = _write_rejected(folder / "rejected.csv", outcome)
    report = folder / "airports.md"
    rows = [f"| {country} | {count:,} |" for country, count in per_country.most_common(10)]
    counts = outcome.counts
    lines = [
        "# Airports of the world",
        "",
        f"{counts.succeeded:,} of {counts.total:,} airports are valid, {rejected:,} were rejected.",
        f"The highest is {highest[0]} at {highest[1]:,.0f} ft.",
        f"The lowest is {lowest[0]} at {lowest[1]:,.0f} ft.",
        "",
        "| country | airports |",
        "| --- | ---: |",
        *rows,
        "",
    ]
    report.write_text("\n".join(lines), encoding="utf-8")
    ctx.log(f"wrote {report}", airports=counts.succeeded, rejected=rejected)
    return {"report": str(report), "valid": counts.succeeded, "rejected": rejected}


def _write_rejected(file: Path, outcome: MergeResult) -> int:
    count = 0
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["icao", "why"])
        for child in outcome.failed:
            writer.writerow([child.key, child.error.message if child.error else child.state])
            count += 1
    return count


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


_known_rules: dict[str, tuple[int, dict[str, float]]] = {}


def _rules(path: str) -> dict[str, float]:
    """The rules file, read again when it has changed: a retry must see the correction."""
    changed = Path(path).stat().st_mtime_ns
    if path not in _known_rules or _known_rules[path][0] != changed:
        _known_rules[path] = (changed, json.loads(Path(path).read_text(encoding="utf-8")))
    return _known_rules[path][1]


airports = Pipeline("airports")
rows = airports.read("rows", airports.input.csv)
checks = airports.spawn("checks", check_airport, rows, key="icao", rules=airports.input.rules)
outcome = airports.merge("outcome", checks, tolerate=["FAILED"], max_failure_ratio=0.01)
airports.run("report", write_report, outcome, out=airports.input.out)
