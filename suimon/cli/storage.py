"""``suimon storage`` and ``suimon prune``: where the bytes are, and what may go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.options import Place, database_options, json_option
from suimon.core import clock, durations
from suimon.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from suimon.duties.prune import Pruned

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_TELL_SECONDS: Final = 2.0
_NONE: Final = (
    "no pipeline says how long its runs are kept, so nothing is pruned; "
    'a pipeline says it with "keep": {"age": "30d"}'
)


@click.group(invoke_without_command=True)
@json_option
@database_options
@click.pass_context
def storage(context: click.Context, as_json: bool, place: Place) -> None:
    """Sizes of tables, of each pipeline's large things, and what a prune would remove."""
    if context.invoked_subcommand is None:
        _overview(place, as_json=as_json)


@storage.command("set")
@click.option(
    "--objects",
    "url",
    metavar="URL|none",
    required=True,
    help="Contents of 64 KiB and more go there; none: they stay in the database.",
)
@audited
@json_option
@database_options
def set_(url: str, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Name the object store for large contents; credentials come from the environment.

    Like s3://bucket/prefix, gs://..., az://... or file:///folder. It is tried from here first; what
    is stored stays where it is, and readable.
    """
    from suimon.run import storage as looking

    with place.connect() as conn:
        wanted = None if url == "none" else url
        found = looking.set_objects(conn, wanted, actor=who, why=reason)
    if as_json:
        show.as_json(found)
    else:
        show.pairs(_contents(found))


def _overview(place: Place, *, as_json: bool) -> None:
    from suimon.duties import prune as pruning
    from suimon.run import storage as looking

    with place.connect() as conn:
        found = looking.overview(conn)
        found["prune"] = pruning.preview(conn)
        found["kept_for_ever"] = pruning.unlimited(conn)
    if as_json:
        show.as_json(found)
        return
    show.lines(f"database  {size(found['database'])}")
    show.lines()
    show.pairs(_contents(found["contents"]))
    show.lines()
    columns = ["TABLE", "ALL", "ROWS", "LARGE VALUES", "INDEXES", "LIVE", "DEAD"]
    show.table(columns, [_table(one) for one in found["tables"]])
    show.lines()
    columns = ["PIPELINE", "PAYLOADS", "LOGS", "ARTIFACTS"]
    show.table(columns, [_pipeline(one) for one in found["pipelines"]])
    if found["estimated"]:
        show.lines(f"estimated from a sample: {', '.join(found['estimated'])}")
    show.lines()
    _leaving(found["prune"])


@click.command()
@click.option("--pipeline", help="Of this pipeline only.")
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@json_option
@database_options
def prune(pipeline: str | None, dry_run: bool, as_json: bool, place: Place) -> int:
    """Remove finished runs that their pipeline does not keep any longer, to the last one.

    Workers do the same every five minutes. A pipeline says what it keeps: "keep": {"age": "30d"},
    {"count": 1000}, or both (a run goes when one of them says so). Without it, nothing goes.
    """
    from suimon.duties import prune as pruning
    from suimon.run import submit

    with place.connect() as conn:
        if pipeline is not None:
            submit.target(conn, pipeline)  # a misspelt name is told
        if dry_run:
            found = pruning.preview(conn, pipeline)
            if as_json:
                show.as_json({"prune": found, "dry_run": True})
            else:
                _leaving(found)
            return 0
        done = pruning.prune(conn, pipeline=pipeline, each=_Tell())
        silent = not pruning.policies(conn, pipeline)
    if as_json:
        parts = {"roots": done.roots, "runs": done.runs, "waits": done.waits}
        show.as_json({**parts, "by_pipeline": done.by_pipeline})
    else:
        show.lines(f"{done.roots:,} runs went, {done.runs:,} with their children")
        if done.waits:
            show.lines(f"{done.waits:,} others are marked; something below them still runs")
        if silent and not done.runs:
            show.lines(_NONE)
    return EXIT_PARTLY if done.waits else 0


def _leaving(found: list[dict[str, Any]]) -> None:
    rows = [
        (
            one["pipeline"],
            durations.text_of(round(one["keep_s"] * 1000)) if one["keep_s"] is not None else "",
            one["keep_count"],
            f"{one['roots']:,}",
            f"{one['children']:,}",
        )
        for one in found
    ]
    if rows:
        show.table(["PIPELINE", "KEEP AGE", "KEEP COUNT", "WOULD GO", "CHILDREN"], rows)
    else:
        show.lines(_NONE)


class _Tell:
    """A line on stderr every two seconds."""

    def __init__(self) -> None:
        self._next = clock.monotonic() + _TELL_SECONDS

    def __call__(self, done: Pruned) -> None:
        if clock.monotonic() >= self._next:
            self._next = clock.monotonic() + _TELL_SECONDS
            sys.stderr.write(f"{done.runs:,} runs went\n")
            sys.stderr.flush()


def _contents(found: dict[str, Any]) -> dict[str, Any]:
    ratio = "" if found["ratio"] is None else f" ({found['ratio']} times smaller)"
    shared = "" if found["shared"] is None else f", each used {found['shared']} times"
    return {
        "contents": f"{found['count']:,}{shared}",
        "raw": size(found["raw_bytes"]),
        "stored": f"{size(found['stored_bytes'])}{ratio}",
        "in the database": size(found["db_bytes"]),
        "in object stores": f"{size(found['object_bytes'])}, {found['in_objects']:,} contents",
        "large ones go to": found["objects"] or "the database",
    }


def _table(one: dict[str, Any]) -> tuple[Any, ...]:
    sizes = [size(one[name]) for name in ("total", "rows", "large", "indexes")]
    return (one["name"], *sizes, f"{one['live']:,}", f"{one['dead']:,}")


def _pipeline(one: dict[str, Any]) -> tuple[Any, ...]:
    names = ("payloads", "logs", "artifacts")
    return (one["pipeline"], *(size(one[f"{name}_bytes"]) for name in names))


def size(count: float) -> str:
    """``1.4 MB``"""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
