"""``suimon quotas``: how many runs may be created in a day and in a month."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.bound import Bound
from suimon.cli.options import Place, database_options, json_option

if TYPE_CHECKING:
    from suimon.db.connect import Connection

RUNS: Final = Bound(least=0)
COLUMNS: Final = ["QUOTA", "PER", "LIMIT", "USED", "OF IT RESERVED", "LEFT", "RENEWS", "WAITING"]


@click.group()
def quotas() -> None:
    """Runs per day and per month: all together, of a pipeline, or with a label."""


@quotas.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """All quotas: used, reserved by fan-outs, left, and when they renew."""
    from suimon.run import quotas as counted

    with place.connect() as conn:
        found = counted.listed(conn)
    if as_json:
        show.as_json({"quotas": found})
        return
    show.table(COLUMNS, [row for one in found for row in _rows(one)])


@quotas.command("set")
@click.argument("name", metavar="all|pipeline:NAME|label:KEY:VALUE")
@click.option("--per-day", type=RUNS, help="Runs of a day (UTC).")
@click.option("--per-month", type=RUNS, help="Runs of a calendar month (UTC).")
@click.option("--remove", is_flag=True, help="Count no more.")
@click.option("--expect", type=int, metavar="VERSION", help="Refused when it is another by now.")
@audited
@json_option
@database_options
def set_(
    name: str,
    per_day: int | str | None,
    per_month: int | str | None,
    remove: bool,
    expect: int | None,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Make a quota, change it or remove it, at once; who waits for it goes on when it is raised.

    A new one counts what the database still holds of this day and month.
    """
    from suimon.run import quotas as counted

    given: dict[str, Any] = {"per_day": per_day, "per_month": per_month}
    wanted = {key: None if v == "none" else v for key, v in given.items() if v is not None}
    if bool(wanted) == remove:
        msg = "give --per-day or --per-month (or both), or --remove"
        raise click.UsageError(msg)
    with place.connect() as conn:
        if remove:
            counted.remove(conn, name, actor=who, why=reason, expected=expect)
            found: dict[str, Any] = {"name": name, "removed": True}
        else:
            found = counted.change(conn, name, wanted, actor=who, why=reason, expected=expect)
            _warn_of_unknown(conn, name)
    if as_json:
        show.as_json(found)
    elif remove:
        show.lines(f"{name} is removed")
    else:
        show.table(COLUMNS, _rows(found))


def _warn_of_unknown(conn: Connection, name: str) -> None:
    """A quota may come before its pipeline; more often the name is misspelt."""
    from suimon.errors import UnknownPipeline
    from suimon.run import submit

    kind, _, pipeline = name.partition(":")
    if kind == "pipeline":
        try:
            submit.target(conn, pipeline)
        except UnknownPipeline as error:
            sys.stderr.write(f"warning: {error.message}; {error.hint}\n")


def _rows(one: dict[str, Any]) -> list[tuple[Any, ...]]:
    waiting = "10,000 and more" if one["waiting"] > 10_000 else str(one["waiting"])
    return [
        (
            one["name"],
            period,
            f"{one[f'per_{period}']:,}",
            f"{one[f'{period}_used']:,}",
            f"{one['reserved']:,}",
            f"{one[f'{period}_left']:,}",
            show.when(one[f"{period}_renews_at"]),
            waiting,
        )
        for period in ("day", "month")
        if one[f"per_{period}"] is not None
    ]
