"""``suimon status``: does it move? Exit code 1 when something needs somebody."""

from __future__ import annotations

from typing import Any

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import EXIT_NEGATIVE


@click.command()
@json_option
@database_options
def status(as_json: bool, place: Place) -> int:
    """Pools, workers, and what is wrong; exit code 1 when something is."""
    from suimon.run import status as standing

    with place.connect() as conn:
        found = standing.overall(conn)
    if as_json:
        show.as_json(found)
    else:
        _draw(found)
    return 0 if found["ok"] else EXIT_NEGATIVE


def _draw(found: dict[str, Any]) -> None:
    show.lines("OK" if found["ok"] else "NOT OK")
    for problem in found["problems"]:
        show.lines(f"  {problem}")
    show.lines()
    rows = [
        (
            one["pool"],
            one["ready"],
            show.span(one["oldest_s"]) if one["oldest_s"] is not None else "",
            one["running"],
            one["beating"],
            one["slots"],
        )
        for one in found["pools"]
    ]
    show.table(["POOL", "READY", "OLDEST", "RUNNING", "WORKERS", "SLOTS"], rows)
    if found["workers"]:
        show.lines()
        listed = [
            (
                one["name"],
                one["pool"],
                one["slots"],
                one["running"],
                _state(one),
                show.span(one["silent_s"]),
            )
            for one in found["workers"]
        ]
        show.table(["WORKER", "POOL", "SLOTS", "RUNNING", "STATE", "LAST BEAT"], listed)


def _state(one: dict[str, Any]) -> str:
    if one["silent_s"] * 1000 > 3 * one["beat_ms"]:
        return "silent"
    if one["draining"]:
        return "draining"
    return "idle" if one["idle"] else "busy"
