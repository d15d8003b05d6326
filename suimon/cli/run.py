"""``suimon run``: a person starts a run.

A pipeline that has a limit and as many unfinished runs is not started over them: one is named, and
``--queue`` starts another behind it. A pipeline without a limit starts always.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from suimon.cli import follow, show
from suimon.cli.options import DURATION, Place, database_options, json_option
from suimon.core import jsonsafe
from suimon.errors import InputRefused


@click.command()
@click.argument("pipeline")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The input; - reads standard input.")
@click.option("--idempotency-key", "key", help="The same key again gives the same run.")
@click.option("--label", "labels", multiple=True, help="Like tenant:acme; may be given again.")
@click.option("--queue", is_flag=True, help="Wait behind an unfinished run of a limited pipeline.")
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code tells how it ended.")
@click.option("--timeout", type=DURATION, help="Give up waiting (the run goes on).")
@json_option
@database_options
def run(
    pipeline: str,
    given: str | None,
    key: str | None,
    labels: tuple[str, ...],
    queue: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    place: Place,
) -> int:
    """Start a run of PIPELINE.

    \b
    suimon run nightly --input '{"day": "2026-01-31"}' --wait
    suimon run import-orders --input @order.json --idempotency-key order-17
    """
    value = read_input(given)
    from suimon.run import doors, read

    with place.connect() as conn:
        started = doors.start(conn, pipeline, value, key=key, queue=queue, labels=labels)
        code = 0
        if started.duplicate and not as_json:
            _say_duplicate(started.id, same_input=started.same_input, pruned=started.pruned)
        if wait and not started.pruned:
            code = follow.until_end(conn, started.id, timeout_s=timeout)
        if started.pruned:
            document: dict[str, Any] = {"id": started.id, "pipeline": pipeline, "status": "pruned"}
        else:
            document = read.run(conn, started.id).to_json()
        if as_json:
            duplicate = {"duplicate": started.duplicate, "same_input": started.same_input}
            show.as_json({**document, **duplicate, "pruned": started.pruned})
        elif wait and document["finished_at"]:
            follow.result(document)
        elif not wait:
            show.lines(started.id)
    return code


def read_input(given: str | None) -> Any:
    """The value of ``--input``; without it an empty object. Refuses what cannot be stored."""
    if given is None:
        return {}
    text: bytes | str = given
    if given == "-":
        text = sys.stdin.buffer.read(jsonsafe.MAX_BYTES + 1)
    elif given.startswith("@"):
        text = _read_file(Path(given[1:]))
    return jsonsafe.loads(text, what="input")


def _read_file(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > jsonsafe.MAX_BYTES:
            raise jsonsafe.too_large(size, what="input", limit=jsonsafe.MAX_BYTES)
        with file.open("rb") as stream:
            return stream.read(jsonsafe.MAX_BYTES + 1)
    except OSError as error:
        msg = f'the input file "{file}" cannot be read: {error.strerror}'
        raise InputRefused(msg, path="input") from None


def _say_duplicate(run_id: str, *, same_input: bool, pruned: bool) -> None:
    text = f"this key has its run already: {run_id}"
    if pruned:
        text += " (which was pruned)"
    if not same_input:
        text += "; it was started with another input"
    sys.stderr.write(text + "\n")
