"""``suimon pools``: who serves which pool, and how many of its runs may be claimed at once.

``suimon pipelines set-pool`` and ``suimon runs limit`` are here too: which pool a pipeline's runs
are for, and how many children of a running spawn may live at once.
"""

from __future__ import annotations

from typing import Any

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.bound import BOUND
from suimon.cli.options import Place, database_options, json_option
from suimon.core import words


@click.group()
def pools() -> None:
    """Groups of workers: who serves them, and how much of each may run at once."""


@pools.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """All pools that a worker, a pipeline or a vertex names."""
    from suimon.run import pools as bounds

    with place.connect() as conn:
        found = bounds.listed(conn)
    if as_json:
        show.as_json({"pools": found})
        return
    rows = [
        (
            one["name"],
            _cap(one),
            one["held"],
            _ready(one),
            one["workers"],
            one["slots"],
            f"by {one['paused_by']}" if one["paused_by"] else "",
        )
        for one in found
    ]
    show.table(["POOL", "CAP", "HELD", "READY", "WORKERS", "SLOTS", "PAUSED"], rows)


@pools.command("show")
@click.argument("name")
@json_option
@database_options
def show_(name: str, as_json: bool, place: Place) -> None:
    """One pool, and the pipelines whose runs are for it."""
    from suimon.run import pools as bounds

    with place.connect() as conn:
        found = bounds.show(conn, name)
    _tell(found, as_json=as_json)


@pools.command("set-cap")
@click.argument("name")
@click.argument("cap", type=BOUND)
@click.option("--expect", type=int, metavar="VERSION", help="Refused when it is another by now.")
@audited
@json_option
@database_options
def set_cap(
    name: str,
    cap: int | str,
    expect: int | None,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """At most CAP of its runs are claimed at once, over all its workers; none: any number.

    In force at once; a lowered cap takes nobody's place.
    """
    from suimon.run import pools as bounds

    number = cap if isinstance(cap, int) else None
    with place.connect() as conn:
        found = bounds.set_cap(conn, name, number, actor=who, why=reason, expected=expect)
    _tell(found, as_json=as_json)


@click.command("set-pool")
@click.argument("name")
@click.argument("pool", required=False)
@click.option("--declared", is_flag=True, help="The pool of its definition again.")
@audited
@json_option
@database_options
def set_pool(
    name: str,
    pool: str | None,
    declared: bool,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Its runs are for POOL from now on, also those that wait already; deploys leave it so.

    Runs that are at work end where they are. Children whose spawner names a pool stay there.
    """
    from suimon.run import moving

    if declared == (pool is not None):
        msg = "give a POOL, or --declared"
        raise click.UsageError(msg)
    with place.connect() as conn:
        found = moving.set_pool(conn, name, pool, actor=who, why=reason)
    if as_json:
        show.as_json(found)
        return
    whose = "set by hand" if found["pool_edited"] else "as declared"
    show.lines(
        f"{name}: pool {found['pool']} ({whose}); {words.count(found['moved'], 'run')} moved"
    )
    if found["warning"]:
        show.error_lines(f"warning: {found['warning']}")


@click.command("limit")
@click.argument("run_id", metavar="ID")
@click.argument("vertex")
@click.argument("number", type=BOUND)
@audited
@json_option
@database_options
def limit(
    run_id: str,
    vertex: str,
    number: int | str,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Let at most NUMBER children of a running spawn live at once; none: any number."""
    from suimon.run import limits, read

    wanted = number if isinstance(number, int) else None
    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        before = limits.change_spawn(conn, full, vertex, wanted, actor=who, why=reason)
    if as_json:
        show.as_json({"id": full, "vertex": vertex, "concurrency": wanted, "before": before})
        return
    most = words.count(number, "child", "children") if isinstance(number, int) else "any number"
    show.lines(f"{vertex}: at most {most} at a time (before: {before or 'none'})")


def _tell(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.as_json(found)
        return
    show.pairs(
        {
            "pool": found["name"],
            "cap": _cap(found),
            "held now": found["held"],
            "ready": _ready(found),
            "live workers": found["workers"],
            "slots": found["slots"],
            "paused": f"by {found['paused_by']}" if found["paused_by"] else "",
            "pipelines": ", ".join(found["pipelines"]),
            "version": found["version"],
            "edited": show.when(found["edited_at"]),
        }
    )


def _cap(one: dict[str, Any]) -> str:
    return "none" if one["cap"] is None else str(one["cap"])


def _ready(one: dict[str, Any]) -> str:
    return "10,000 and more" if one["ready"] > 10_000 else str(one["ready"])
