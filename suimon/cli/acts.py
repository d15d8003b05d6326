"""``suimon runs retry|cancel|rerun|skip|priority``: what operators do to runs, with who and why.

Retry and cancel take ids, or a filter; a filter's preview is ``--dry-run``. Exit code 8: some of
what was asked for was done, and some could not be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import drawing, follow, show
from suimon.cli.actor import audited
from suimon.cli.options import Place, database_options, json_option
from suimon.core import clock, words
from suimon.errors import EXIT_PARTLY, InputRefused

if TYPE_CHECKING:
    from suimon.db.connect import Connection

_FILTER: Final = "Instead of ids, like pipeline=nightly,status=failed,since=2h"
_TELL_SECONDS: Final = 2.0
filter_option: Final = click.option("--filter", "wanted", metavar="FIELD=VALUE,...", help=_FILTER)
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Say what; change nothing.")


@click.command()
@click.argument("run_ids", metavar="ID...", nargs=-1)
@filter_option
@click.option("--failed-children", is_flag=True, help="Its children that ended badly, not itself.")
@click.option("--step", metavar="VERTEX", help="This step and all after it, whatever its end.")
@dry_run_option
@audited
@click.option("--wait", is_flag=True, help="Wait until the (first) run has ended again.")
@json_option
@database_options
def retry(
    run_ids: Sequence[str],
    wanted: str | None,
    failed_children: bool,
    step: str | None,
    dry_run: bool,
    who: str,
    reason: str,
    wait: bool,
    as_json: bool,
    place: Place,
) -> int:
    """Run again what ended badly; merges above it run again too.

    \b
    suimon runs retry ID --failed-children --dry-run
    suimon runs retry ID --step load          the step, and all that needs it
    suimon runs retry --filter pipeline=nightly,status=failed,since=2h
    """
    from suimon.run import acts, many

    _ids_or_filter(run_ids, wanted)
    if wanted is not None and (failed_children or step or wait):
        msg = "--filter chooses whole runs"
        raise InputRefused(msg, path="filter", hint="Children: --filter parent=RUN,status=failed")
    with place.connect() as conn:
        if wanted is not None:
            act = Many(conn, wanted, acts.BAD, dry_run=dry_run, as_json=as_json)
            return act.do(many.retry_all, who, reason, "retried")
        full = acts.whole_ids(conn, run_ids)
        answer = acts.retry(
            conn, full, actor=who, why=reason, failed_children=failed_children, step=step,
            dry_run=dry_run,
        )  # fmt: skip
        if as_json:
            show.as_json(answer)
        elif step is not None:
            _draw_steps(answer)
        else:
            drawing.retry(answer)
        return _until_end(conn, full[0], as_json=as_json) if wait and not dry_run else 0


def _draw_steps(answer: dict[str, Any]) -> None:
    verb = "would run again" if answer["dry_run"] else "run again"
    show.lines(f"{', '.join(answer['steps'])} of run {answer['run']} {verb}")
    for vertex in answer["lists_read_again"]:
        show.lines(f'the children of "{vertex}" are made anew; the old ones are put aside')
    for merge in answer["merges_again"]:
        steps = ", ".join(sorted(merge["steps"]))
        show.lines(f"after it, of {merge['pipeline']} {merge['run']}: {steps}")


def _until_end(conn: Connection, run_id: str, *, as_json: bool) -> int:
    from suimon.run import read

    code = follow.until_end(conn, run_id)
    if not as_json:
        follow.result(read.run(conn, run_id).to_json())
    return code


@click.command()
@click.argument("run_ids", metavar="ID...", nargs=-1)
@filter_option
@dry_run_option
@audited
@json_option
@database_options
def cancel(
    run_ids: Sequence[str],
    wanted: str | None,
    dry_run: bool,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> int:
    """Ask runs to stop, with all that is below them."""
    from suimon.run import acts, many

    _ids_or_filter(run_ids, wanted)
    with place.connect() as conn:
        if wanted is not None:
            act = Many(conn, wanted, acts.LIVE, dry_run=dry_run, as_json=as_json)
            return act.do(many.cancel_all, who, reason, "asked to stop")
        full = acts.whole_ids(conn, run_ids)
        answer = acts.cancel(conn, full, actor=who, why=reason, dry_run=dry_run)
    if as_json:
        show.as_json(answer)
    else:
        for one in answer["runs"]:
            show.lines(f"{one['id']}  {one['status']}")
    return EXIT_PARTLY if answer.get("over") else 0


@click.command()
@click.argument("run_id", metavar="ID")
@click.option("--same-graph", is_flag=True, help="The version the old run had, not today's.")
@audited
@click.option("--wait", is_flag=True, help="Wait until the new run has ended.")
@json_option
@database_options
def rerun(
    run_id: str, same_graph: bool, who: str, reason: str, wait: bool, as_json: bool, place: Place
) -> int:
    """Start a new run with the input of an old one, which stays as it is."""
    from suimon.run import operate, read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        made = operate.rerun(conn, full, actor=who, why=reason, same_graph=same_graph)
        code = follow.until_end(conn, made) if wait else 0
        document = read.run(conn, made).to_json()
    if as_json:
        show.as_json({**document, "rerun_of": full})
    elif wait:
        follow.result(document)
    else:
        show.lines(made)
    return code


@click.command()
@click.argument("run_id", metavar="ID")
@audited
@json_option
@database_options
def skip(run_id: str, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Go on without a failed run: its lane opens, or its merge does not count it any more.

    The run stays failed. The merge and what follows run again when nothing bad is left to count.
    """
    from suimon.run import read
    from suimon.run import skip as skipping

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        done = skipping.skip(conn, full, actor=who, why=reason)
    if as_json:
        show.as_json({"id": full, **asdict(done)})
        return
    if done.lane is not None:
        show.lines(f'lane "{done.lane}" goes on without run {full}')
    if done.merges_again:
        show.lines(f'the merge of "{done.vertex}" runs again without run {full}')
    elif done.vertex is not None:
        others = words.count(done.bad, "other still does", "others still do")
        show.lines(f'the merge of "{done.vertex}" does not count run {full}; {others}')


@click.command()
@click.argument("run_id", metavar="ID")
@click.argument("priority", type=click.IntRange(0, 3))
@click.option("--only", is_flag=True, help="The run itself, without what is below it.")
@audited
@json_option
@database_options
def priority(
    run_id: str, priority: int, only: bool, who: str, reason: str, as_json: bool, place: Place
) -> None:
    """Move a run, with all that is below it, to the head of another priority (0 goes first)."""
    from suimon.run import operate, read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        moved = operate.set_priority(
            conn, full, priority, actor=who, why=reason, below=not only
        )  # fmt: skip
    if as_json:
        given = {"id": full, "priority": priority}
        show.as_json({**given, "runs": moved.runs, "queued": moved.queued})
    else:
        text = f"{words.count(moved.runs, 'run has', 'runs have')} priority {priority}"
        show.lines(f"{text}; {words.count(moved.queued, 'of them is', 'of them are')} next in it")


def _ids_or_filter(run_ids: Sequence[str], wanted: str | None) -> None:
    if bool(run_ids) == (wanted is not None):
        msg = "give ids, or a filter" if not run_ids else "give ids or a filter, not both"
        raise InputRefused(msg, path="id", hint="A filter: --filter pipeline=nightly,since=2h")


class Many:
    """A filter's runs: shown, or acted on in batches with progress."""

    def __init__(
        self, conn: Connection, text: str, only: Sequence[str], *, dry_run: bool, as_json: bool
    ) -> None:
        from suimon.run import many

        self._conn, self._dry_run, self._as_json = conn, dry_run, as_json
        self._chosen = many.choose(conn, many.parse(conn, text), only=only)
        self._told = clock.monotonic()

    def do(self, act: Callable[..., Any], who: str, reason: str, verb: str) -> int:
        answer = {**self._chosen.to_json(), "dry_run": self._dry_run}
        if not self._as_json:
            self._preview(answer)
        partly = False
        if not self._dry_run:
            done = act(self._conn, self._chosen, actor=who, why=reason, each=self._each)
            answer |= done.to_json()
            partly = bool(done.refused or self._chosen.more)
            if not self._as_json:
                self._result(answer, verb)
        if self._as_json:
            show.as_json(answer)
        return EXIT_PARTLY if partly else 0

    def _each(self, done: int, total: int) -> None:
        now = clock.monotonic()
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            sys.stderr.write(f"{done:,} of {total:,}\n")
            sys.stderr.flush()

    def _preview(self, answer: dict[str, Any]) -> None:
        rows = [(one["pipeline"], one["status"], f"{one['runs']:,}") for one in answer["by"]]
        show.table(["PIPELINE", "STATUS", "RUNS"], rows)
        if answer["more"]:
            show.lines(f"{answer['runs']:,} at once, and there are more; ask again for those")

    def _result(self, answer: dict[str, Any], verb: str) -> None:
        text = f"{answer['done']:,} {verb}"
        show.lines(text + (f", {answer['refused']:,} refused" if answer["refused"] else ""))
        for one in answer["why"]:
            show.lines(f"  {one['id']}  {one['message']}")
