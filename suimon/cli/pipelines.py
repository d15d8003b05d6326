"""``suimon pipelines``: what is written below a PATH, and what is deployed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.bound import BOUND
from suimon.cli.options import Place, database_options, json_option
from suimon.cli.pools import set_pool
from suimon.core import words
from suimon.core.suggest import one_of
from suimon.errors import EXIT_NEGATIVE, UnknownPipeline

if TYPE_CHECKING:
    from suimon.errors import Mistake


@click.group()
def pipelines() -> None:
    """Check, list and show pipelines."""


@pipelines.command()
@click.argument("path", type=click.Path())
@json_option
def check(path: str, as_json: bool) -> int:
    """Read the code below PATH and report every mistake; stores nothing, needs no database.

    Python, JSON and YAML; each mistake with file, line, vertex, field and what to do. Exit code 1
    when there is one; warnings do not change it.
    """
    from suimon.load import load_path

    loaded = load_path(path)
    code = EXIT_NEGATIVE if loaded.mistakes else 0
    if as_json:
        found = [{"name": p.name, "hash": p.hash, "file": p.source_file} for p in loaded.pipelines]
        mistakes = [mistake.to_json() for mistake in loaded.mistakes]
        answer = {"pipelines": found, "tasks": sorted(loaded.tasks), "mistakes": mistakes}
        show.as_json({**answer, "warnings": list(loaded.warnings)})
        return code
    for mistake in loaded.mistakes:
        show.error_lines(_mistake(mistake))
    for warning in loaded.warnings:
        show.error_lines(f"warning: {warning}")
    rows = [
        (p.name, p.hash[:12], len(p.graph["vertices"]), p.source_file) for p in loaded.pipelines
    ]
    show.table(["PIPELINE", "VERSION", "VERTICES", "FILE"], rows)
    count = len(loaded.mistakes)
    said = {0: "no mistakes", 1: "1 mistake"}.get(count, f"{count} mistakes")
    show.lines(
        f"{words.count(len(rows), 'pipeline')}, {words.count(len(loaded.tasks), 'task')}, {said}"
    )
    return code


def _mistake(mistake: Mistake) -> str:
    """`file:line: pipeline p, vertex v, field f`, below it what is wrong and what to do."""
    place = f"{mistake.file}:{mistake.line}" if mistake.line else mistake.file
    named = {"pipeline": mistake.pipeline, "vertex": mistake.vertex, "field": mistake.field}
    where = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    lines = [": ".join(part for part in (place, where) if part), f"  {mistake.message}"]
    lines += [f"  hint: {mistake.hint}"] if mistake.hint else []
    return "\n".join(lines)


@pipelines.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """What is deployed."""
    from suimon.run import pages

    with place.connect() as conn:
        found = pages.pipelines(conn)
    if as_json:
        show.as_json({"pipelines": found})
        return
    rows = [
        (
            one["name"],
            one["hash"][:12],
            one["pool"],
            _limit(one["concurrency"]),
            one["last_status"],
            show.when(one["last_at"]),
        )
        for one in found
    ]
    show.table(["PIPELINE", "VERSION", "POOL", "AT A TIME", "LAST RUN", "STARTED"], rows)


@pipelines.command("show")
@click.argument("name")
@json_option
@database_options
def show_(name: str, as_json: bool, place: Place) -> None:
    """One pipeline and its vertices."""
    found = _find(place, name)
    if as_json:
        show.as_json(found)
        return
    show.pairs(
        {
            "pipeline": found["name"],
            "version": f"{found['hash'][:12]} (one of {found['versions']})",
            "deployed": show.when(found["deployed_at"]),
        }
    )
    show.lines()
    declared = found["declared"]
    bounds = ("concurrency", "max_queued", "pause_after")
    rows = [("pool", found["pool"], declared["pool"])]
    rows += [(n.replace("_", " "), _limit(found[n]), _limit(declared[n])) for n in bounds]
    for one in found["destinations"]:
        rows += [
            (f"{one['name']}: {n}", _limit(one[n]), _limit(one["declared_limits"][n]))
            for n in ("rate", "burst", "concurrency")
        ]
    show.table(["SETTING", "NOW", "DECLARED"], rows)
    show.lines()
    show.table(["VERTEX", "TYPE", "DOES", "AFTER"], _vertices(found["graph"]))


@pipelines.command()
@click.argument("target", metavar="NAME|PATH")
@click.option("--pipeline", metavar="NAME", help="Which one, if there are several below PATH.")
@click.option("--svg", type=click.Path(allow_dash=True), metavar="FILE", help="SVG; - prints it.")
@json_option
@database_options
def graph(target: str, pipeline: str | None, svg: str | None, as_json: bool, place: Place) -> None:
    """The graph of a deployed pipeline, or of one below PATH, as text.

    What holds a slash or a dot is a PATH (./work for a folder), and needs no database. --svg draws
    it; --json gives its canonical JSON.
    """
    from suimon import draw

    if os.sep in target or "." in target:
        found = _written(target, pipeline)
    else:
        found = _deployed(place, target)["graph"]
    if as_json:
        show.as_json(found)
    elif svg == "-":
        show.lines(draw.svg(found).rstrip("\n"))
    elif svg is not None:
        Path(svg).write_text(draw.svg(found), encoding="utf-8")
        show.lines(f"{svg}: {found['pipeline']}")
    else:
        show.lines(draw.text(found))


@pipelines.command()
@click.argument("name")
@click.option("--concurrency", type=BOUND, help="Runs at a time.")
@click.option("--max-queued", type=BOUND, help="Runs that may wait.")
@click.option("--pause-after", type=BOUND, help="Bad ends in a row that pause its triggers.")
@audited
@json_option
@database_options
def limits(
    name: str, who: str, reason: str, as_json: bool, place: Place, **given: int | str | None
) -> None:
    """Show a pipeline's limits, or change them live: a number, or none.

    What was changed here, a deploy does not take back.
    """
    from suimon.run import limits as bounds

    wanted = {n: v if isinstance(v, int) else None for n, v in given.items() if v is not None}
    with place.connect() as conn:
        if wanted:
            found = bounds.change(conn, name, wanted, actor=who, why=reason)
        else:
            found = bounds.current(conn, name)
    if as_json:
        show.as_json({"name": name, **found.to_json()})
        return
    show.pairs({n.replace("_", " "): _limit(v) for n, v in found.to_json().items()})


def _written(path: str, name: str | None) -> dict[str, Any]:
    """The graph of the pipeline `name`, or of the only one, below a path."""
    from suimon.load import load_path

    loaded = load_path(path)
    found = {one.name: one.graph for one in loaded.pipelines}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    loaded.check()  # its mistakes may be why it is not there
    if name is None:
        msg = f'there are {len(found)} pipelines below "{path}"'
        raise UnknownPipeline(msg, hint=f"Give --pipeline: {', '.join(sorted(found)) or 'none'}")
    msg = f'there is no pipeline "{name}" below "{path}"'
    raise UnknownPipeline(msg, hint=one_of(name, found))


def _find(place: Place, name: str) -> dict[str, Any]:
    from suimon.run import pages

    with place.connect() as conn:
        return pages.pipeline(conn, name)


def _deployed(place: Place, name: str) -> dict[str, Any]:
    """What is deployed; a name that is a folder or file here was probably meant as a PATH."""
    try:
        return _find(place, name)
    except UnknownPipeline as error:
        if not Path(name).exists():
            raise
        kind = "folder" if Path(name).is_dir() else "file"
        hint = f"For the {kind} here: suimon pipelines graph ./{name}"
        raise UnknownPipeline(error.message, detail=error.detail, hint=hint) from None


def _vertices(graph: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    from suimon.core import shape

    before = shape.dependencies(graph)
    found = []
    for name in shape.order(graph):
        config = shape.vertices(graph)[name].get("config") or {}
        does = config.get("task") or config.get("pipeline") or ""
        needs = ", ".join(sorted(before.get(name, ())))
        found.append((name, shape.kind(graph, name), str(does), needs))
    return found


def _limit(limit: int | str | None) -> str:
    return "unlimited" if limit is None else str(limit)


pipelines.add_command(set_pool)
