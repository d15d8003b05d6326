"""``suimon deliveries``: what arrived at the doors, what became of it, and dead letters.

Exit code 8: a requeue by cause has taken its most, and there are more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.options import DURATION, Place, database_options, json_option
from suimon.core import words
from suimon.errors import EXIT_PARTLY, InputRefused

if TYPE_CHECKING:
    from suimon.db.connect import Connection

STATE: Final = click.Choice(
    ["waiting", "delivered", "folded", "missed", "refused", "dead", "discarded"]
)


@click.group()
def deliveries() -> None:
    """What arrived at the doors; dead letters: requeue, discard, restore."""


@deliveries.command("list")
@click.option("--state", "states", multiple=True, type=STATE, help="In this state; repeatable.")
@click.option("--pipeline", help="For this pipeline only.")
@click.option("--trigger", help='Of this trigger, like "event:order.*".')
@click.option("--since", type=DURATION, help="Of so long ago or later: 2h.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", metavar="ID", help="Older than this delivery: the next page.")
@click.option("--groups", is_flag=True, help="Dead letters by cause.")
@json_option
@database_options
def list_(
    states: Sequence[str],
    pipeline: str | None,
    trigger: str | None,
    since: float | None,
    limit: int,
    before: str | None,
    groups: bool,
    as_json: bool,
    place: Place,
) -> None:
    """Deliveries, newest first; --groups: dead letters by cause."""
    from suimon.outbox import dead_letter

    with place.connect() as conn:
        if groups:
            _groups(conn, pipeline, as_json=as_json)
            return
        start = dead_letter.resolve(conn, before) if before else None
        found = dead_letter.listed(
            conn, states=states, pipeline=pipeline, trigger=trigger, since_s=since, before=start,
            limit=limit,
        )  # fmt: skip
    last = found[-1]["id"] if len(found) == limit else None
    if as_json:
        show.as_json({"deliveries": found, "next": last})
        return
    rows = [
        (
            one["id"],
            one["pipeline"],
            one["trigger"],
            one["state"],
            show.when(one["arrived_at"]),
            one["source"],
            one["run_id"],
            show.first_line(one["why"]),
        )
        for one in found
    ]
    columns = ["ID", "PIPELINE", "TRIGGER", "STATUS", "ARRIVED", "SOURCE", "RUN", "WHY"]
    more = f"{limit} shown; more: --before {last}" if last else None
    show.table(columns, rows, footer=more)


def _groups(conn: Connection, pipeline: str | None, *, as_json: bool) -> None:
    from suimon.outbox import dead_letter

    found = dead_letter.groups(conn, pipeline=pipeline)
    if as_json:
        show.as_json({"groups": [one.to_json() for one in found]})
        return
    rows = [(one.count, one.pipeline, one.code, one.cause, one.first) for one in found]
    show.table(["COUNT", "PIPELINE", "CODE", "CAUSE", "FIRST"], rows)


@deliveries.command("show")
@click.argument("delivery", metavar="ID")
@json_option
@database_options
def show_(delivery: str, as_json: bool, place: Place) -> None:
    """One delivery, with what it brought and why it waits or died."""
    from suimon.outbox import dead_letter

    with place.connect() as conn:
        found = dead_letter.show(conn, dead_letter.resolve(conn, delivery))
    if as_json:
        show.as_json(found)
        return
    plain = {
        name: show.when(one) or None if name.endswith("_at") else _plain(one)
        for name, one in found.items()
        if name not in ("input", "detail")
    }
    show.pairs({**plain, "input": None if found["input"] is None else show.value(found["input"])})
    if found["detail"]:
        show.pairs({"detail": show.value(found["detail"])})


def _plain(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else value


@deliveries.command()
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--group", "code", metavar="CODE", help="All dead letters with this code.")
@click.option("--pipeline", help="With --group or --all: of this pipeline only.")
@click.option("--all", "all_", is_flag=True, help="All dead letters.")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="With another input (one ID).")
@click.option("--dry-run", is_flag=True, help="Say how many; change nothing.")
@audited
@json_option
@database_options
def requeue(
    ids: Sequence[str],
    code: str | None,
    pipeline: str | None,
    all_: bool,
    given: str | None,
    dry_run: bool,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> int:
    """Try dead letters again, each at the place of its arrival.

    \b
    suimon deliveries requeue ID...
    suimon deliveries requeue --group SUI-3003 --pipeline orders --dry-run
    suimon deliveries requeue ID --input '{"order": 17}'
    """
    from suimon.outbox import dead_letter

    by_cause = code is not None or all_
    if bool(ids) == by_cause or (given is not None and len(ids) != 1) or (pipeline and ids):
        msg = "give ids, or --group CODE, or --all; --input goes with one id"
        raise InputRefused(msg, path="id", hint="See the causes: suimon deliveries list --groups")
    value = None
    if given is not None:
        from suimon.cli.run import read_input

        value = read_input(given)
    with place.connect() as conn:
        if by_cause:
            return _requeue_all(conn, code, pipeline, who, reason, dry_run=dry_run, as_json=as_json)
        full = [dead_letter.resolve(conn, one) for one in ids]
        if not dry_run and given is not None:
            dead_letter.requeue_edited(conn, full[0], value, actor=who, why=reason)
        elif not dry_run:
            dead_letter.requeue(conn, full, actor=who, why=reason)
    _answer({"requeued": 0 if dry_run else len(full), "dry_run": dry_run, "ids": full}, as_json)
    return 0


def _requeue_all(
    conn: Connection,
    code: str | None,
    pipeline: str | None,
    who: str,
    reason: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    from suimon.outbox import dead_letter

    count = dead_letter.count_dead(conn, code=code, pipeline=pipeline)
    if not as_json:
        show.lines(words.count(count, "dead letter"))
    done = 0
    if not dry_run and count:

        def each(n: int) -> None:
            if not as_json:
                sys.stderr.write(f"{n:,} of {count:,}\n")

        done = dead_letter.requeue_all(
            conn, code=code, pipeline=pipeline, actor=who, why=reason, each=each
        )
    more = count >= dead_letter.MANY
    _answer({"requeued": done, "dry_run": dry_run, "dead": count, "more": more}, as_json)
    return EXIT_PARTLY if more else 0


def _answer(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.as_json(answer)
    elif answer["dry_run"]:
        show.lines("nothing was changed (--dry-run)")
    else:
        show.lines(f"{answer['requeued']:,} requeued")


@deliveries.command()
@click.argument("delivery", metavar="ID")
@audited
@json_option
@database_options
def again(delivery: str, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Process a delivered or refused one once more: a new delivery, with a run of its own."""
    from suimon.outbox import dead_letter
    from suimon.triggers import again as once_more

    with place.connect() as conn:
        full = dead_letter.resolve(conn, delivery)
        new = once_more.again(conn, full, actor=who, why=reason)
    if as_json:
        show.as_json({"id": new, "again_of": full})
    else:
        show.lines(new)


@deliveries.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@audited
@json_option
@database_options
def discard(ids: Sequence[str], who: str, reason: str, as_json: bool, place: Place) -> None:
    """Give dead letters up; for seven days they can be restored, then they are pruned."""
    from suimon.outbox import dead_letter

    with place.connect() as conn:
        full = [dead_letter.resolve(conn, one) for one in ids]
        done = dead_letter.discard(conn, full, actor=who, why=reason)
    _say(done, "discarded", as_json)


@deliveries.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@audited
@json_option
@database_options
def restore(ids: Sequence[str], who: str, reason: str, as_json: bool, place: Place) -> None:
    """Take a discard back."""
    from suimon.outbox import dead_letter

    with place.connect() as conn:
        full = [dead_letter.resolve(conn, one) for one in ids]
        done = dead_letter.restore(conn, full, actor=who, why=reason)
    _say(done, "restored", as_json)


def _say(done: Sequence[str], verb: str, as_json: bool) -> None:
    if as_json:
        show.as_json({verb: list(done)})
    else:
        show.lines(f"{len(done):,} {verb}")
