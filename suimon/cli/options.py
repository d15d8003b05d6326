"""What all commands share: the database they speak to, ``--json``, and times that people write.

The database is, in this order: ``--db``, ``SUIMON_DATABASE_URL``, and the one that a ``suimon
dev`` runs in ``--home`` (it leaves its address there in a file that only its owner can read). Each
command checks first that the schema is this version's: no half answer from a database of another
one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from suimon.core import durations, settings, sizes
from suimon.core.settings import Settings
from suimon.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from suimon.db.connect import Connection

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")


def database_options(function: F) -> F:
    """``--db`` and ``--home``; the function gets ``place``, which opens the connection."""

    @click.option("--db", metavar="URL", help="PostgreSQL; else SUIMON_DATABASE_URL.")
    @click.option(
        "--home", metavar="DIR", help="Folder of `suimon dev`; else SUIMON_HOME or .suimon."
    )
    @functools.wraps(function)
    def wrapped(*args: Any, db: str | None, home: str | None, **named: Any) -> Any:
        found = settings.load(os.environ, {"database_url": db, "home": home})
        return function(*args, place=Place(found), **named)

    return wrapped  # type: ignore[return-value]


class Place:
    """Which database is meant."""

    def __init__(self, found: Settings) -> None:
        self.settings = found

    @property
    def url(self) -> str:
        """The URL, or DatabaseUnavailable with what to do."""
        address = settings.address_of(self.settings)
        if address is not None:
            return address
        home = Path(self.settings.home).absolute()
        msg = "no database is known"
        hint = (
            "Set SUIMON_DATABASE_URL=postgresql://user@host/database or give --db. A `suimon dev` "
            f"is found while it runs, by its folder: {home} (SUIMON_HOME names another)."
        )
        raise DatabaseUnavailable(msg, hint=hint)

    @contextmanager
    def connect(self, name: str = "cli", *, checked: bool = True) -> Iterator[Connection]:
        """A connection; ``checked``: its schema is this version's, else SchemaMismatch."""
        from suimon.db import connect, migrate

        with connect.connect(self.url, name=name) as conn:
            if checked:
                migrate.check_version(conn)
            yield conn


class Duration(click.ParamType[Any]):
    """``500ms``, ``30s``, ``5m``, ``2h``; the value is in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return float(value) if isinstance(value, int | float) else durations.seconds(value)
        except Exception:  # noqa: BLE001 - whatever it is, it is no duration
            self.fail(f'"{value}" is no duration; write 500ms, 30s, 5m or 2h', param, ctx)


DURATION = Duration()


class Size(click.ParamType[Any]):
    """``20MB``, ``10GB``, ``512MiB``, or ``none``; the value is in bytes."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        try:
            return "none" if value == "none" else sizes.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Size()
