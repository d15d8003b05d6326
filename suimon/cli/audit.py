"""``suimon audit``: who did what by hand, when and why."""

from __future__ import annotations

import click
import orjson

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option


@click.group()
def audit() -> None:
    """Who did what, when and why."""


@audit.command("list")
@click.option("--run", "run_id", metavar="ID", help="What was done to this run.")
@click.option("--as", "who", metavar="NAME", help="What this person did.")
@click.option("--action", help="Only this: retry, cancel, rerun, skip, priority, approve, ...")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=int, metavar="NUMBER", help="Older than this record: the next page.")
@json_option
@database_options
def list_(
    run_id: str | None,
    who: str | None,
    action: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
    place: Place,
) -> None:
    """The records, newest first. They outlive the runs."""
    from suimon.run import audit as recorded

    with place.connect() as conn:
        target = None if run_id is None else recorded.target_of(conn, run_id)
        found = recorded.listed(
            conn, target=target, actor=who, action=action, before=before, limit=limit
        )
    if as_json:
        show.as_json({"audit": found, "next": found[-1]["id"] if len(found) == limit else None})
        return
    rows = [
        (
            one["id"],
            show.when(one["at"]),
            one["actor"],
            one["action"],
            one["target"],
            (one["detail"] or {}).get("why"),
            orjson.dumps({k: v for k, v in (one["detail"] or {}).items() if k != "why"}).decode(),
        )
        for one in found
    ]
    more = f"{limit} shown; more: --before {rows[-1][0]}" if len(rows) == limit else None
    columns = ["NUMBER", "AT", "WHO", "DID", "TO", "WHY", "DETAIL"]
    show.table(columns, rows, footer=more)
