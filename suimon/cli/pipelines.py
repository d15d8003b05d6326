"""``suimon pipelines``: what is written below a PATH, and what is deployed."""

from __future__ import annotations

from typing import Any

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import UnknownPipeline


@click.group()
def pipelines() -> None:
    """Check, list and show pipelines."""


@pipelines.command()
@click.argument("path", type=click.Path())
@json_option
def check(path: str, as_json: bool) -> None:
    """Read the code below PATH and report every mistake; stores nothing, needs no database."""
    from suimon.load import load_path

    loaded = load_path(path).check()
    if as_json:
        found = [{"name": p.name, "hash": p.hash, "file": p.source_file} for p in loaded.pipelines]
        show.as_json({"pipelines": found, "tasks": sorted(loaded.tasks), "mistakes": []})
        return
    rows = [
        (p.name, p.hash[:12], len(p.graph["vertices"]), p.source_file) for p in loaded.pipelines
    ]
    show.table(["PIPELINE", "VERSION", "VERTICES", "FILE"], rows)
    show.lines(f"{len(rows)} pipelines, {len(loaded.tasks)} tasks, no mistakes")


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
            "pool": found["pool"],
            "at a time": _limit(found["concurrency"]),
            "deployed": show.when(found["deployed_at"]),
        }
    )
    show.lines()
    show.table(["VERTEX", "TYPE", "DOES", "AFTER"], _vertices(found["graph"]))


@pipelines.command()
@click.argument("name")
@json_option
@database_options
def graph(name: str, as_json: bool, place: Place) -> None:
    """The graph of a pipeline as text; with --json its canonical JSON."""
    found = _find(place, name)["graph"]
    if as_json:
        show.as_json(found)
        return
    from suimon.core import shape

    before = shape.dependencies(found)
    for vertex in shape.order(found):
        needs = sorted(before.get(vertex, ()))
        arrow = f"  <- {', '.join(needs)}" if needs else ""
        show.lines(f"{vertex} [{shape.kind(found, vertex)}]{arrow}")


def _find(place: Place, name: str) -> dict[str, Any]:
    from suimon.run import pages, submit

    with place.connect() as conn:
        found = pages.pipeline(conn, name)
        if found is None:
            submit.target(conn, name)  # says so, with "did you mean"
            msg = f'there is no pipeline "{name}"'
            raise UnknownPipeline(msg)
    return found


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


def _limit(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
