"""``suimon db``: migrate the database, compare it with this version, open it."""

from __future__ import annotations

import os
import shutil
from typing import Final

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import EXIT_NEGATIVE, SuimonError

#: What libpq calls the parts of a URL, as environment variables.
_VARIABLES: Final = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "options": "PGOPTIONS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


@click.group()
def db() -> None:
    """Migrate the database, or open it."""


@db.command()
@json_option
@database_options
def migrate(as_json: bool, place: Place) -> None:
    """Bring the database to this version's schema. Doing it again does nothing."""
    from suimon.db import migrate as migrations

    with place.connect(checked=False) as conn:
        applied = migrations.migrate(conn)
    if as_json:
        names = [one.title for one in applied]
        show.as_json({"applied": names, "schema_version": migrations.schema_version()})
        return
    for one in applied:
        show.lines(f"applied {one.title}")
    show.lines(f"the schema is at version {migrations.schema_version()}")


@db.command()
@json_option
@database_options
def status(as_json: bool, place: Place) -> int:
    """Every migration with when it was applied; exit code 1 while one is missing."""
    from suimon.db import migrate as migrations

    with place.connect(checked=False) as conn:
        found = migrations.status(conn)
    pending = [one for one in found if one.applied_at is None]
    if as_json:
        listed = [
            {
                "number": one.number,
                "name": one.name,
                "applied_at": one.applied_at.isoformat() if one.applied_at else None,
            }
            for one in found
        ]
        show.as_json({"migrations": listed, "pending": len(pending)})
    else:
        rows = [(f"{m.number:04}", m.name, show.when(m.applied_at) or "pending") for m in found]
        show.table(["NUMBER", "NAME", "APPLIED"], rows)
        if pending:
            show.lines("apply them: suimon db migrate")
    return EXIT_NEGATIVE if pending else 0


@db.command()
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@database_options
def shell(arguments: tuple[str, ...], place: Place) -> None:
    """Open psql on the database; ARGUMENTS after -- go to psql."""
    from psycopg.conninfo import conninfo_to_dict

    program = shutil.which("psql") or _embedded_psql()
    if program is None:
        msg = "psql was not found"
        raise SuimonError(msg, hint="Install PostgreSQL's client with your package manager.")
    parts = {name: value for name, value in os.environ.items() if not name.startswith("SUIMON_")}
    for name, value in conninfo_to_dict(place.url).items():
        if value is not None and name in _VARIABLES:
            parts[_VARIABLES[name]] = str(value)
    os.execve(program, ["psql", *arguments], parts)  # noqa: S606  (the URL is not on its command line)


def _embedded_psql() -> str | None:
    """The one beside the embedded server's programs, if it ships one."""
    from suimon.db import embedded_binaries

    try:
        found = embedded_binaries.find(None).program("psql")
    except SuimonError:
        return None
    return str(found) if found.exists() else None
