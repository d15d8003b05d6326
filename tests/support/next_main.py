"""The next version of Suimon, for tests: this one and one more migration.

    python next_main.py migrate [GATE]   migrates the database that standard input names
    python next_main.py FOLDER           is a worker, as worker_main.py

With GATE the migration waits in its middle for the advisory lock of that number; it is meant to be
killed there.
"""

from __future__ import annotations

import sys

from suimon.db import migrate
from suimon.db.connect import connect

ALTERED = "alter table suimon.runs add column next_note text;"
GATE = "select pg_advisory_xact_lock({gate});"
MADE = "create table suimon.next_things (id bigint primary key);"


def become_next(gate: int | None = None) -> None:
    """What differs from this version."""
    text = "\n".join([ALTERED, "" if gate is None else GATE.format(gate=gate), MADE])
    fixed = migrate.Migration(migrate.schema_version() + 1, "next", text)
    made = (*migrate.migrations(), fixed)
    migrate.migrations = lambda: made  # type: ignore[assignment]
    migrate.schema_version = lambda: len(made)


def main() -> int:
    if sys.argv[1] != "migrate":
        become_next()
        from support import worker_main

        return worker_main.main()
    become_next(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    with connect(sys.stdin.readline().strip(), name="migrate") as conn:
        applied = migrate.migrate(conn)
    print("applied:", *(one.title for one in applied), flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, __file__.rsplit("/", 2)[0])
    sys.exit(main())
