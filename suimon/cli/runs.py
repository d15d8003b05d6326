"""``suimon runs``: list, show, explain, retry and cancel runs.

Ids may be shortened to a unique beginning of six digits or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from suimon.cli import acts, drawing, pools, show
from suimon.cli import artifacts as published
from suimon.cli import logs as reading
from suimon.cli.options import Place, database_options, json_option
from suimon.core.states import RunStatus

STATUS: Final = click.Choice([one.value for one in RunStatus])


@click.group()
def runs() -> None:
    """List, show, explain, retry and cancel runs."""


@runs.command("list")
@click.option("--pipeline", help="Of this pipeline only.")
@click.option("--status", "statuses", multiple=True, type=STATUS, help="In this state; repeatable.")
@click.option("--label", "labels", multiple=True, help="With this label; repeatable.")
@click.option("--reason", metavar="REASON", help="That wait for it: limit:crm; children too.")
@click.option("--waiting", is_flag=True, help="How many wait for each reason, instead of a list.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", metavar="ID", help="Older than this run: the next page.")
@json_option
@database_options
def list_(
    pipeline: str | None,
    statuses: Sequence[str],
    labels: Sequence[str],
    reason: str | None,
    waiting: bool,
    limit: int,
    before: str | None,
    as_json: bool,
    place: Place,
) -> None:
    """Runs that nobody spawned, newest first."""
    from suimon.run import by_reason, pages, pressure, read, submit

    if (reason is not None or waiting) and statuses:
        msg = "--status goes neither with --reason nor with --waiting"
        raise click.UsageError(msg)
    if waiting:
        _groups(as_json=as_json, place=place)
        return
    with place.connect() as conn:
        if pipeline is not None:
            submit.target(conn, pipeline)  # a misspelt name is told, not an empty list
        start = read.resolve(conn, before) if before else None
        where: dict[str, Any] = {"pipeline": pipeline, "before": start, "limit": limit}
        if reason is not None:
            found = by_reason.runs(conn, reason, **where)
        else:
            found = pages.runs(conn, statuses=statuses, labels=labels, **where)
        deferred = any(one["reason"] == "storage" for one in found)
        said = {"storage": pressure.state(conn)["text"]} if deferred else {}
    if as_json:
        show.as_json({"runs": found, "next": found[-1]["id"] if len(found) == limit else None})
        return
    rows = [
        (
            show.short_id(one["id"]),
            one["pipeline"],
            one["status"],
            show.when(one["created_at"]),
            show.first_line(said.get(one["reason"], one["reason"]) or one["error"]),
        )
        for one in found
    ]
    more = f"{limit} shown; more: --before {rows[-1][0]}" if len(rows) == limit else None
    show.table(["ID", "PIPELINE", "STATUS", "CREATED", "WHY"], rows, footer=more)


def _groups(*, as_json: bool, place: Place) -> None:
    from suimon.run import by_reason

    with place.connect() as conn:
        found = by_reason.groups(conn)
    if as_json:
        show.as_json({"reasons": found})
        return
    rows = [
        (one["reason"], f"{one['runs']:,}{'+' if one['more'] else ''}", one["until"])
        for one in found
    ]
    show.table(["REASON", "RUNS", ""], rows)


@runs.command("show")
@click.argument("run_id", metavar="ID")
@json_option
@database_options
def show_(run_id: str, as_json: bool, place: Place) -> None:
    """One run: counts, grouped errors, durations, the slowest children now, steps and tries."""
    from suimon.run import read, why

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        document = read.show(conn, full)
        short = why.short(read.run(conn, full))
    if as_json:
        show.as_json(document)
    else:
        drawing.run(document, short)


@runs.command("why")
@click.argument("run_id", metavar="ID")
@json_option
@database_options
def why_(run_id: str, as_json: bool, place: Place) -> None:
    """Why a run does not run, or how it ended."""
    from suimon.run import read, why

    with place.connect() as conn:
        answer = why.why(conn, read.resolve(conn, run_id))
    if as_json:
        show.as_json(answer)
    else:
        reason = f" ({answer['reason']})" if answer["reason"] else ""
        show.lines(f"{answer['status']}{reason}: {answer['text']}")


@runs.command()
@click.argument("run_id", metavar="ID")
@click.option("--vertex", help="The spawner, when a run has several.")
@click.option("--status", "statuses", multiple=True, type=STATUS, help="In this state; repeatable.")
@click.option("--position", type=click.IntRange(0), help="Only the child at this position.")
@click.option("--from", "first", type=click.IntRange(0), default=0, help="Begin at this position.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
@database_options
def children(
    run_id: str,
    vertex: str | None,
    statuses: Sequence[str],
    position: int | None,
    first: int,
    limit: int,
    as_json: bool,
    place: Place,
) -> None:
    """The children of a run's fan-out, in item order."""
    from suimon.run import pages, read

    if position is not None:
        first, limit = position, 1
    with place.connect() as conn:
        fanout = pages.fanout_of(conn, read.resolve(conn, run_id), vertex)
        whole = position is not None
        page = pages.children(
            conn, fanout, first=first, statuses=statuses, limit=limit, whole=whole
        )
    found = [one for one in page.rows if position in (None, one["position"])]
    more = page.next if position is None else None
    if as_json:
        show.as_json({"children": found, "counts": fanout.counts.to_json(), "next": more})
        return
    rows = [
        (
            one["position"],
            one["item_key"],
            one["status"],
            one["attempt"],
            show.microseconds(one["duration_us"]),
            one["id"],
            drawing.why_of_child(one),
        )
        for one in found
    ]
    footer = f"more: --from {more}" if more is not None else None
    columns = ["POSITION", "KEY", "STATUS", "TRIES", "TOOK", "ID", "WHY"]
    show.table(columns, rows, footer=footer)


runs.add_command(reading.logs)
runs.add_command(published.artifacts)
runs.add_command(published.artifact)
for command in (acts.retry, acts.cancel, acts.rerun, acts.skip, acts.priority, pools.limit):
    runs.add_command(command)
