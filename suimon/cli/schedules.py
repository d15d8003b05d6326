"""``suimon triggers next`` and ``run``: when a schedule comes next, and now instead of then."""

from __future__ import annotations

from datetime import UTC

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import NotThere


@click.command("next")
@click.argument("pipeline", required=False)
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True)
@json_option
@database_options
def next_(pipeline: str | None, count: int, as_json: bool, place: Place) -> None:
    """The next instants of each schedule, of PIPELINE or of all: in its own zone, and in UTC.

    Worked out as the scheduler does it, daylight saving included; without jitter.
    """
    from suimon.run import submit
    from suimon.triggers import schedules

    with place.connect() as conn:
        if pipeline is not None:
            submit.target(conn, pipeline)  # says so when there is none
        found = schedules.planned(conn, pipeline, count=count)
    if as_json:
        show.as_json({"schedules": [one.to_json() for one in found]})
        return
    if not found:
        show.lines("there are no schedules")
    for one in found:
        show.lines(f"{one.pipeline}, trigger {one.trigger_id} ({one.name})")
        if one.paused:
            show.lines(f"  paused ({one.paused}): what passes is caught up with at its end")
        if one.note:
            show.lines(f"  its note: {one.note}")
        if not one.next:
            show.lines("  never")
        for instant in one.next:
            there = f"{instant:%a %Y-%m-%d %H:%M:%S} {instant.tzname()} ({instant:%z})"
            show.lines(f"  {there}  {instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z")


@click.command("run")
@click.argument("trigger", type=int, metavar="ID")
@click.option("--queue", is_flag=True, help="Wait behind an unfinished run of a limited pipeline.")
@json_option
@database_options
def run_now(trigger: int, queue: bool, as_json: bool, place: Place) -> None:
    """Start the pipeline of a schedule now, as if its instant had come; its plan stays as it is."""
    from suimon.triggers import schedules

    with place.connect() as conn:
        run = schedules.start_now(conn, trigger, queue=queue)
    if run is None:
        msg = f"there is no schedule {trigger}"
        raise NotThere(msg, hint="suimon triggers list shows their numbers.")
    if as_json:
        show.as_json({"id": run})
        return
    show.lines(run)
