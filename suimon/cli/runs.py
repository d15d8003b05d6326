"""``suimon runs``: list, show, explain, retry and cancel runs.

Ids may be shortened to a unique beginning of six digits or more.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Final

import click

from suimon.cli import drawing, follow, show
from suimon.cli.options import Place, database_options, json_option
from suimon.core.states import RunStatus
from suimon.errors import EXIT_PARTLY, InputRefused

STATUS: Final = click.Choice([one.value for one in RunStatus])
_FOLLOW_SECONDS: Final = 0.5


@click.group()
def runs() -> None:
    """List, show, explain, retry and cancel runs."""


@runs.command("list")
@click.option("--pipeline", help="Of this pipeline only.")
@click.option("--status", "statuses", multiple=True, type=STATUS, help="In this state; repeatable.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", metavar="ID", help="Older than this run: the next page.")
@json_option
@database_options
def list_(
    pipeline: str | None,
    statuses: Sequence[str],
    limit: int,
    before: str | None,
    as_json: bool,
    place: Place,
) -> None:
    """Runs that nobody spawned, newest first."""
    from suimon.run import pages, read, submit

    with place.connect() as conn:
        if pipeline is not None:
            submit.target(conn, pipeline)  # a misspelt name is told, not an empty list
        start = read.resolve(conn, before) if before else None
        found = pages.runs(conn, pipeline=pipeline, statuses=statuses, before=start, limit=limit)
    if as_json:
        show.as_json({"runs": found, "next": found[-1]["id"] if len(found) == limit else None})
        return
    rows = [
        (
            one["id"],
            one["pipeline"],
            one["status"],
            show.when(one["created_at"]),
            show.first_line(one["reason"] or one["error"]),
        )
        for one in found
    ]
    more = f"{limit} shown; more: --before {rows[-1][0]}" if len(rows) == limit else None
    show.table(["ID", "PIPELINE", "STATUS", "CREATED", "WHY"], rows, footer=more)


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
@click.option("--follow", "following", is_flag=True, help="Go on until the run has ended.")
@json_option
@database_options
def logs(run_id: str, following: bool, as_json: bool, place: Place) -> None:
    """What a run has logged and printed, oldest first."""
    from suimon.run import doors, pages, read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        after, shown = (-1, -1), []
        while True:  # ends with the run, or at the last piece
            over = not following or doors.wait(conn, full, timeout_s=0) is not None
            pieces = pages.logs(conn, full, after=after)
            for piece in pieces:
                after = (piece["claim_no"], piece["seq"])
                if as_json and not following:
                    shown.append(piece)
                elif as_json:
                    show.as_json(piece)
                else:
                    click.echo(piece["text"].rstrip("\n"))
            if over and len(pieces) < pages.PAGE:
                break
            if not over and not pieces:
                doors.wait(conn, full, timeout_s=_FOLLOW_SECONDS)
    if as_json and not following:
        show.as_json({"logs": shown})


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
        page = pages.children(conn, fanout, first=first, statuses=statuses, limit=limit)
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


@runs.command()
@click.argument("run_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--failed-children", is_flag=True, help="Its children that ended badly, not itself.")
@click.option("--dry-run", is_flag=True, help="Say what would run again; change nothing.")
@click.option("--why", "reason", default="", help="Kept in the audit record.")
@click.option("--wait", is_flag=True, help="Wait until the (first) run has ended again.")
@json_option
@database_options
def retry(
    run_ids: Sequence[str],
    failed_children: bool,
    dry_run: bool,
    reason: str,
    wait: bool,
    as_json: bool,
    place: Place,
) -> int:
    """Run again what ended badly; merges above it run again too."""
    from suimon.run import read
    from suimon.run import retry as retrying

    code = 0
    with place.connect() as conn:
        full = list(dict.fromkeys(read.resolve(conn, one) for one in run_ids))
        plan = retrying.plan(conn, full, failed_children=failed_children)
        answer = {**plan.to_json(), "dry_run": dry_run}
        if not dry_run:
            answer["retried"] = retrying.apply(conn, plan, actor=actor(), why=reason)
        if as_json:
            show.as_json(answer)
        else:
            drawing.retry(answer)
        if wait and not dry_run:
            code = follow.until_end(conn, full[0])
            if not as_json:
                follow.result(read.run(conn, full[0]).to_json())
    return code


@runs.command()
@click.argument("run_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--why", "reason", default="cancelled by an operator", help="Kept as its error.")
@json_option
@database_options
def cancel(run_ids: Sequence[str], reason: str, as_json: bool, place: Place) -> int:
    """Ask runs to stop, with all that is below them."""
    from suimon.errors import Conflict
    from suimon.run import cancel as cancelling
    from suimon.run import read

    if len(run_ids) > 1000:
        msg = "at most 1,000 runs are cancelled at once"
        raise InputRefused(msg, path="id")
    with place.connect() as conn:
        full = list(dict.fromkeys(read.resolve(conn, one) for one in run_ids))
        asked = cancelling.request(conn, full, why=reason)
        if asked.asked == 0:
            status = read.run(conn, full[0]).status
            msg = f"run {full[0]} is over already: {status}"
            raise Conflict(msg, run_id=full[0])
        states = [{"id": one, "status": read.run(conn, one).status} for one in full]
    if as_json:
        show.as_json({"asked": asked.asked, "over": asked.over, "runs": states})
    else:
        for one in states:
            show.lines(f"{one['id']}  {one['status']}")
    return EXIT_PARTLY if asked.over else 0


def actor() -> str:
    """Who asks, for the audit record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return "cli"
