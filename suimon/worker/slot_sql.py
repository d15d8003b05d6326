"""The SQL vertex: one query over files, by DuckDB, in a slot that the worker may end at any time.

    [{"late": 12}, ...]      the rows in order, at most 10,000 of them and 16 MiB

The inputs are the query's parameters (`$late`); one that a reading function is called with
(`read_parquet($files)`) names files, a relative one below the folder of the pipelines. The query is
one SELECT. It reads below that folder, where FILE triggers watch and where the author's own
constant leads, writes nothing, reaches no network and loads no extension; numbers and times keep
their exact value: a DECIMAL becomes text, a time stamp with a zone its UTC text.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from suimon.core.sql_text import FILE_PARAMETER
from suimon.errors import Fatal, PayloadTooLarge
from suimon.read.fence import Fence

ROWS: Final = 10_000
MEMORY: Final = "1GB"
_GLOB: Final = re.compile(r"[*?\[{]")


def query(definition: dict[str, Any], given: dict[str, Any], ask: Callable[..., Any]) -> list[Any]:
    """Run the query of an SQL vertex; returns its rows. Raises Fatal, FileRefused."""
    try:
        import duckdb
    except ImportError:
        msg = "an SQL vertex needs DuckDB, which is not installed where this worker runs"
        raise Fatal(msg, hint="pip install 'suimon[lake]'") from None
    text = str(definition["query"])
    values, folders = _files(text, given, definition.get("constants") or [], ask)
    with duckdb.connect(":memory:") as conn:
        _lock_in(conn, folders)
        try:
            (statement,) = duckdb.extract_statements(text)
        except ValueError:
            msg = "the query must be one statement"
            raise Fatal(msg) from None
        except duckdb.Error as error:
            raise _refused(error) from None
        if statement.type != duckdb.StatementType.SELECT:
            msg = f"the query must be a SELECT, not {statement.type.name}"
            raise Fatal(msg)
        try:
            cursor = conn.execute(statement, values)
            names = [column[0] for column in cursor.description or []]
            rows = cursor.fetchmany(ROWS + 1)
        except duckdb.Error as error:
            raise _refused(error) from None
    if len(rows) > ROWS:
        msg = f"the query gave more than {ROWS:,} rows"
        raise PayloadTooLarge(msg, hint="Aggregate or limit it; for an item each, READ and spawn.")
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _files(
    text: str, given: dict[str, Any], constants: Sequence[str], ask: Callable[..., Any]
) -> tuple[dict[str, Any], list[str]]:
    """The parameters with their files made absolute, and the folders that may be read."""
    root = os.path.realpath(".")
    fence = Fence(root, lambda real: ask({"op": "folders", "path": real}))
    values, folders = dict(given), [root]
    for name in {match[1] for match in FILE_PARAMETER.finditer(text)}:
        value = given.get(name)
        paths = value if isinstance(value, list) else [value]
        made = []
        for path in paths:
            if not isinstance(path, str) or "\x00" in path or "://" in path:
                msg = f"${name} must name a file, or be a list of files, not {path!r:.200}"
                raise Fatal(msg)
            full = Path(root) / path
            folder = _folder_of(full)
            if name not in constants:
                fence.check(path, folder)
            folders.append(os.path.realpath(folder))
            made.append(str(full))
        values[name] = made if isinstance(value, list) else made[0]
    return values, folders


def _folder_of(full: Path) -> Path:
    """The part of a pattern that is no pattern."""
    fixed: list[str] = []
    for part in full.parts:
        if _GLOB.search(part):
            return Path(*fixed)
        fixed.append(part)
    return full if full.is_dir() else full.parent


def _lock_in(conn: Any, folders: Sequence[str]) -> None:
    listed = ", ".join("'" + folder.replace("'", "''").rstrip("/") + "/'" for folder in folders)
    for setting in (
        f"memory_limit = '{MEMORY}'",
        "threads = 1",
        "temp_directory = ''",
        "TimeZone = 'UTC'",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"allowed_directories = [{listed}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        conn.execute(f"set {setting}")


def _refused(error: Exception) -> Fatal:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    hint = None
    if "disabled by configuration" in str(error):
        hint = "Files are read below the folder of the pipelines, named by a parameter: $files."
    return Fatal(f"the query failed: {lines[0][:1000]}", hint=hint)


def _plain(value: Any) -> Any:
    """JSON of the same value; what has none as a number or word becomes its exact text."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta | Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        msg = "the query gave a BLOB, which is no JSON"
        raise Fatal(msg, hint="Encode it: base64(column) or hex(column).")
    return value
