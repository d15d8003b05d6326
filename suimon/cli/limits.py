"""``suimon limits``: destinations with their rates and places; edit, hold and release them live."""

from __future__ import annotations

from typing import Any

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.bound import BOUND
from suimon.cli.options import DURATION, Place, database_options, json_option


@click.group()
def limits() -> None:
    """How often and how many at once a destination is called, by all workers together."""


@limits.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """All destinations."""
    from suimon.run import destinations

    with place.connect() as conn:
        found = destinations.listed(conn)
    if as_json:
        show.as_json({"destinations": found})
        return
    columns = ["DESTINATION", "RATE", "BURST", "AT ONCE", "CALLING", "WAITING", "HELD", "EDITED"]
    rows = [
        (
            one["name"],
            one["rate"] or "unlimited",
            one["burst"],
            one["concurrency"] or "unlimited",
            one["at_once"],
            _waiting(one),
            _held(one),
            "yes" if one["edited"] else "",
        )
        for one in found
    ]
    show.table(columns, rows)


@limits.command("show")
@click.argument("name")
@json_option
@database_options
def show_(name: str, as_json: bool, place: Place) -> None:
    """One destination, and which runs call it, since when."""
    from suimon.run import destinations

    with place.connect() as conn:
        found = destinations.show(conn, name)
    _tell(found, as_json=as_json)


@limits.command("set")
@click.argument("name")
@click.option("--rate", metavar="RATE|none", help="Like 20/s, 100/m or 500/10s.")
@click.option("--burst", type=click.IntRange(1), help="So many may go at once after a pause.")
@click.option("--concurrency", type=BOUND, help="Calls at the same time.")
@click.option("--expect", type=int, metavar="VERSION", help="Refused when it is another by now.")
@audited
@json_option
@database_options
def set_(
    name: str,
    rate: str | None,
    burst: int | None,
    concurrency: int | str | None,
    expect: int | None,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Change its limits, at once; later deploys leave them as they are then."""
    from suimon.run import destinations

    given: dict[str, Any] = {"rate": rate, "burst": burst, "concurrency": concurrency}
    wanted = {key: None if v == "none" else v for key, v in given.items() if v is not None}
    if not wanted:
        msg = "give --rate, --burst or --concurrency"
        raise click.UsageError(msg)
    with place.connect() as conn:
        found = destinations.change(conn, name, wanted, actor=who, why=reason, expected=expect)
    _tell(found, as_json=as_json)


@limits.command()
@click.argument("name")
@click.option("--for", "for_s", type=DURATION, help="So long; else until it is released.")
@audited
@json_option
@database_options
def hold(
    name: str, for_s: float | None, who: str, reason: str, as_json: bool, place: Place
) -> None:
    """Let nobody call it; calls that are being made go on."""
    from suimon.run import destinations

    with place.connect() as conn:
        found = destinations.hold(conn, name, seconds=for_s, actor=who, why=reason)
    _tell(found, as_json=as_json)


@limits.command()
@click.argument("name")
@audited
@json_option
@database_options
def release(name: str, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Let calls go on, also before the time that the far side named."""
    from suimon.run import destinations

    with place.connect() as conn:
        found = destinations.release(conn, name, actor=who, why=reason)
    _tell(found, as_json=as_json)


def _tell(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.as_json(found)
        return
    show.pairs(
        {
            "destination": found["name"],
            "rate": found["rate"] or "unlimited",
            "burst": found["burst"],
            "at once": found["concurrency"] or "unlimited",
            "calling now": found["at_once"],
            "free now": found["calls_now"],
            "waiting": _waiting(found),
            "held": _held(found),
            "address": found["base_url"],
            "secret": found["auth"],
            "time limit": found["timeout"],
            "version": found["version"],
            "edited": show.when(found["edited_at"]),
        }
    )
    if found["holders"]:
        show.lines()
        rows = [
            (one["run_id"], one["pipeline"], one["worker"], show.when(one["since"]))
            for one in found["holders"]
        ]
        show.table(["RUN", "PIPELINE", "WORKER", "CALLS SINCE"], rows)


def _waiting(one: dict[str, Any]) -> str:
    return "10,000 and more" if one["parked"] > 10_000 else str(one["parked"])


def _held(one: dict[str, Any]) -> str:
    if one["paused_by"] is not None:
        return f"paused by {one['paused_by']}"
    if not one["held"]:
        return ""
    until = f"until {show.when(one['held_until'])}" if one["held_until"] else "until released"
    who = one["held_by"] or "the far side"
    why = f": {one['held_why']}" if one["held_why"] else ""
    return f"{until}, by {who}{why}"
