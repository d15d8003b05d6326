"""``suimon approvals``: what waits for a person, and the person's answer. Decided once."""

from __future__ import annotations

from typing import Any

import click

from suimon.cli import show
from suimon.cli.actor import as_option
from suimon.cli.options import Place, database_options, json_option


@click.group()
def approvals() -> None:
    """List approvals, approve, reject."""


@approvals.command("list")
@click.option("--run", "run_id", metavar="ID", help="Of this run only.")
@click.option("--all", "all_", is_flag=True, help="Those that are decided too.")
@json_option
@database_options
def list_(run_id: str | None, all_: bool, as_json: bool, place: Place) -> None:
    """What waits for somebody to decide, oldest first."""
    from suimon.run import approvals as asked
    from suimon.run import read

    with place.connect() as conn:
        full = read.resolve(conn, run_id) if run_id else None
        found = asked.listed(conn, run_id=full, all_=all_)
    listed = [{name: read.as_json(value) for name, value in one.items()} for one in found]
    if as_json:
        show.as_json({"approvals": listed})
        return
    rows = [
        (
            one["run_id"],
            one["vertex"],
            one["pipeline"],
            one["title"],
            one["decision"] or f"{len(one['votes'])} of {one['quorum']} votes",
            one["decided_by"],
            show.when(one["asked_at"]),
            show.when(one["expires_at"]),
        )
        for one in listed
    ]
    columns = ["RUN", "VERTEX", "PIPELINE", "QUESTION", "STANDS", "BY", "ASKED", "EXPIRES"]
    show.table(columns, rows)


@approvals.command()
@click.argument("run_id", metavar="RUN")
@click.argument("vertex")
@as_option
@click.option("--comment", help="Kept with the decision.")
@json_option
@database_options
def approve(
    run_id: str, vertex: str, who: str, comment: str | None, as_json: bool, place: Place
) -> None:
    """Approve; the vote that completes the quorum decides."""
    _decide(place, run_id, vertex, who, comment, approve=True, as_json=as_json)


@approvals.command()
@click.argument("run_id", metavar="RUN")
@click.argument("vertex")
@as_option
@click.option("--comment", help="Kept with the decision.")
@json_option
@database_options
def reject(
    run_id: str, vertex: str, who: str, comment: str | None, as_json: bool, place: Place
) -> None:
    """Reject; one rejection decides."""
    _decide(place, run_id, vertex, who, comment, approve=False, as_json=as_json)


def _decide(
    place: Place,
    run_id: str,
    vertex: str,
    who: str,
    comment: str | None,
    *,
    approve: bool,
    as_json: bool,
) -> None:
    from suimon.run import operate, read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        decision, votes = operate.decide(
            conn, full, vertex, approve=approve, actor=who, comment=comment
        )
    answer: dict[str, Any] = {"run": full, "vertex": vertex, "decision": decision, "votes": votes}
    if as_json:
        show.as_json(answer)
    elif decision is None:
        show.lines(f'"{vertex}" of run {full} has {votes} votes; it needs more')
    else:
        show.lines(f'"{vertex}" of run {full} is {decision}')
