"""``suimon runs artifacts`` and ``suimon runs artifact``: the files that tasks published."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.core.sizes import text_of as size


@click.command()
@click.argument("run_id", metavar="ID")
@json_option
@database_options
def artifacts(run_id: str, as_json: bool, place: Place) -> None:
    """The files that a run's tasks have published."""
    from suimon.run import artifacts as published
    from suimon.run import read

    with place.connect() as conn:
        found = published.listed(conn, read.resolve(conn, run_id))
    if as_json:
        show.as_json({"artifacts": [one.to_json() for one in found]})
        return
    rows = [(one.vertex, one.name, size(one.size), show.when(one.at)) for one in found]
    show.table(["VERTEX", "NAME", "SIZE", "WRITTEN"], rows)


@click.command()
@click.argument("run_id", metavar="ID")
@click.argument("name")
@click.option("--vertex", help="Whose, when several vertices have one of this name.")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Into this file, which must not exist; else to standard output.",
)
@database_options
def artifact(run_id: str, name: str, vertex: str | None, target: Path | None, place: Place) -> None:
    """Get one of them out, part by part."""
    from suimon.errors import Conflict
    from suimon.run import artifacts as published
    from suimon.run import read

    with place.connect() as conn:
        found = published.one(conn, read.resolve(conn, run_id), name, vertex)
        parts = published.pieces(conn, found)
        if target is None:
            _write(sys.stdout.buffer, parts)
            return
        try:
            file = target.open("xb")
        except FileExistsError:
            msg = f'"{target}" exists already'
            raise Conflict(msg, hint="Nothing was written; give another name.") from None
        try:
            with file:
                _write(file, parts)
        except BaseException:
            target.unlink(missing_ok=True)  # half a file is none
            raise


def _write(to: BinaryIO, parts: Iterator[bytes]) -> None:
    to.writelines(parts)
    to.flush()
