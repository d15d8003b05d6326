"""``suimon doctor``: what is wrong with database, server and queue; exit code 1 if something is."""

from __future__ import annotations

import click

from suimon.cli import show
from suimon.cli.options import DURATION, Place, database_options, json_option
from suimon.errors import EXIT_NEGATIVE


@click.command()
@click.option(
    "--held",
    type=DURATION,
    default="5m",
    show_default=True,
    help="Name sessions and prepared transactions that hold back vacuum for longer.",
)
@json_option
@database_options
def doctor(held: float, as_json: bool, place: Place) -> int:
    """Who holds back vacuum, which index is broken, what is stuck: with names and what to do.

    Run it on a worker's machine to compare its clock with the database's, too.
    """
    from suimon.run import doctor as examining

    with place.connect(checked=False) as conn:
        found = examining.report(conn, held_s=held)
    if as_json:
        show.as_json(found)
        return 0 if found["ok"] else EXIT_NEGATIVE
    for problem in found["problems"]:
        show.lines(f"bad   status: {problem}")
    for one in found["findings"]:
        show.lines(f"{one['level']:<4}  {one['check']}: {one['text']}")
        if one.get("hint") and one["level"] != "ok":
            show.lines(f"      {one['hint']}")
    return 0 if found["ok"] else EXIT_NEGATIVE
