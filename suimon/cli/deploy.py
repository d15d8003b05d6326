"""``suimon deploy``: what was written becomes what new runs use.

The code below PATH is read in a child process that has no database URL; this process checks what
comes back, and stores all of it in one transaction or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import DefinitionError, Mistake

if TYPE_CHECKING:
    from suimon.run.deploy import Definition


def definitions(path: str, tell: Callable[[str], None] | None = None) -> list[Definition]:
    """The checked pipelines below PATH. Raises DefinitionError with all mistakes, LoadFailed.

    ``tell`` gets each file that was left out; without one it goes to standard error.
    """
    from suimon.load import load_path
    from suimon.run.deploy import Definition

    loaded = load_path(path)
    for warning in loaded.left_out:
        if tell is None:
            show.error_lines(f"warning: {warning}")
        else:
            tell(warning)
    loaded.check()
    beside = loaded.destinations
    return [Definition(one.name, one.hash, one.graph, beside) for one in loaded.pipelines]


def folder_of(path: str) -> str:
    """What relative paths of triggers are relative to: PATH itself, or the folder of a file."""
    here = Path(path).absolute()
    return str(here if here.is_dir() else here.parent)


@click.command()
@click.argument("path", type=click.Path())
@json_option
@database_options
def deploy(path: str, as_json: bool, place: Place) -> None:
    """Make the pipelines below PATH what new runs use, and say what changed."""
    from suimon.run import deploy as deploying

    with place.connect() as conn:  # before the code is read: a wrong address is told at once
        made = definitions(path)
        if not made:
            message = f'there is no pipeline below "{path}"'
            hint = "Make one at the top of a module: p = Pipeline(...), or @pipeline on a function."
            raise DefinitionError([Mistake(None, None, message, hint)])
        answers = deploying.deploy(conn, made, folder=folder_of(path))
    if as_json:
        found = [{"name": one.name, "hash": one.hash, "what": one.what} for one in answers]
        show.as_json({"pipelines": found})
        return
    show.table(["PIPELINE", "VERSION", ""], [(a.name, a.hash[:12], a.what) for a in answers])
