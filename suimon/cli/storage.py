"""``suimon storage`` and ``suimon prune``: where the bytes are, and what may go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.options import SIZE, Place, database_options, json_option
from suimon.core import clock, durations, words
from suimon.core.sizes import text_of as size
from suimon.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from suimon.duties.prune import Pruned

_TELL_SECONDS: Final = 2.0
_NONE: Final = (
    "no pipeline says how long its runs are kept, so nothing is pruned; "
    'a pipeline says it with "keep": {"age": "30d"}'
)


@click.group(invoke_without_command=True)
@json_option
@database_options
@click.pass_context
def storage(ctx: click.Context, as_json: bool, place: Place) -> None:
    """Where the bytes are, how full the store is, and its marks."""
    if ctx.invoked_subcommand is None:
        _show(as_json, place)


@storage.command("show")
@json_option
@database_options
def show_(as_json: bool, place: Place) -> None:
    """The store and its marks, sizes of tables and pipelines, what a prune would remove."""
    _show(as_json, place)


@storage.command("set")
@click.option("--high", type=SIZE, metavar="SIZE|none", help="Fan-outs are deferred from here on.")
@click.option(
    "--low", type=SIZE, metavar="SIZE", help="They go on below it; else 80 % of the high."
)
@click.option("--disk-min", type=SIZE, metavar="SIZE", help="The same while less disk is free.")
@click.option("--expect", type=int, metavar="VERSION", help="Refused when it is another by now.")
@audited
@json_option
@database_options
def set_(
    high: int | str | None,
    low: int | str | None,
    disk_min: int | str | None,
    expect: int | None,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Change the marks of the payload store and of the free disk, at once."""
    from suimon.run import pressure

    given = {"high_bytes": high, "low_bytes": low, "disk_min_bytes": disk_min}
    wanted = {key: None if v == "none" else v for key, v in given.items() if v is not None}
    if not wanted:
        msg = "give --high, --low or --disk-min"
        raise click.UsageError(msg)
    with place.connect() as conn:
        found = pressure.change(conn, wanted, actor=who, why=reason, expected=expect)
    if as_json:
        show.as_json(found)
    else:
        _draw_store(found)


@storage.command("objects")
@click.argument("url", metavar="URL|none")
@audited
@json_option
@database_options
def objects(url: str, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Name the object store for contents of 64 KiB and more; none: they stay in the database.

    Like s3://bucket/prefix, gs://..., az://... or file:///folder; credentials come from the
    environment. It is tried from here first; what is stored stays where it is, and readable.
    """
    from suimon.run import storage as looking

    with place.connect() as conn:
        wanted = None if url == "none" else url
        found = looking.set_objects(conn, wanted, actor=who, why=reason)
    if as_json:
        show.as_json(found)
    else:
        show.pairs(_contents(found))


def _show(as_json: bool, place: Place) -> None:
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
    _draw_store(found["store"])
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
        show.lines(f"{words.count(done.roots, 'run')} went, {done.runs:,} with children")
        if done.waits:
            marked = words.count(done.waits, "other is", "others are")
            show.lines(f"{marked} marked; something below still runs")
        if silent and not done.runs:
            show.lines(_NONE)
    return EXIT_PARTLY if done.waits else 0


def _draw_store(found: dict[str, Any]) -> None:
    high, low, free = found["high_bytes"], found["low_bytes"], found["disk_free"]
    used = size(found["bytes"])
    if high is not None:
        used += f", {found['percent']:.0f} % of {size(high)}"
    disk = "unknown" if free is None else f"{size(free)} of {size(found['disk_total'])}"
    since = found["above_since"] or found["scarce_since"]
    show.pairs(
        {
            "store": used,
            "marks": "none" if high is None else f"{size(high)}, over below {size(low)}",
            "disk free": f"{disk}; the mark is {size(found['disk_min_bytes'])}",
            "pressure": f"since {show.when(since)}" if since else "none",
            "deferred runs": f"{found['deferred']:,}",
            "calls refused": f"{found['refused']:,}" if found["refused"] else None,
            "version": str(found["version"]),
        }
    )


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
            sys.stderr.write(f"{words.count(done.runs, 'run')} went\n")
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
