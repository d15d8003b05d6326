"""Parquet: rows batch by batch, each value as it was written.

A batch is cut so that it holds about 8 MiB (at most 2,048 rows), columns are read through small
buffers instead of whole row groups, and one batch is in memory at a time. What each type becomes is
in `parquet_values`; nothing depends on the time zone of the machine.

Refused before the first row: what is no Parquet or is encrypted, columns with the same name, types
with no JSON form. Refused at the place: damaged pages (checksums are verified where there are any).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from suimon.errors import FileRefused
from suimon.read import extras
from suimon.read.checks import Numbered
from suimon.read.parquet_values import converter, kind_of, unwrapped
from suimon.read.table import Table, header_names

_BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCH_ROWS: Final = 2_048
_BUFFER_BYTES: Final = 64 * 1024
_THRIFT_BYTES: Final = 64 * 1024 * 1024
_THRIFT_ITEMS: Final = 1_000_000

Convert = Callable[[Any], list[Any]]


def read_parquet(file: BinaryIO, name: str, schema: Mapping[str, str]) -> Table:
    """An open file as a table. `schema` matters here for bytes only: as text, or refused."""
    _refuse_other_files(file, name)
    opened = _open(file, name, unit="ns")
    arrow = opened.schema_arrow
    columns = header_names([column.name for column in arrow], name)
    converters: list[Convert] = []
    for column in arrow:
        try:
            converters.append(converter(column.type, declared=schema.get(column.name)))
        except TypeError as error:
            msg = f'"{name}", column "{column.name}": {error}'
            hint = 'bytes that are UTF-8 text can be declared: schema={"column": "text"}'
            raise FileRefused(msg, path=name, hint=hint) from None
    coarse = _int96_columns(opened, columns, name)
    others = None
    if coarse:
        second = _open(file, name, unit="us")
        others = _batches(second, name, [columns[index] for index in coarse])
    rows = _rows(_batches(opened, name, None), others, coarse, columns, converters)
    return Table(columns, rows, {column.name: kind_of(column.type) for column in arrow})


def _refuse_other_files(file: BinaryIO, name: str) -> None:
    file.seek(0)
    head = file.read(4)
    size = file.seek(0, 2)
    file.seek(max(size - 4, 0))
    tail = file.read(4)
    if size == 0:
        msg = f'"{name}" is empty: it has not even the frame of a Parquet file'
    elif b"PARE" in (head, tail):
        msg = f'"{name}" is an encrypted Parquet file and cannot be read'
    elif head != b"PAR1":
        msg = f'"{name}" is no Parquet file'
    elif tail != b"PAR1":
        msg = f'"{name}" is damaged: the end of the Parquet file is missing'
    else:
        return
    raise FileRefused(msg, path=name, hint="ask the sender for the file again, complete and open")


def _open(file: BinaryIO, name: str, *, unit: str) -> Any:
    parquet = extras.need("pyarrow.parquet", what="Parquet", name=name)
    try:
        return parquet.ParquetFile(
            file,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            coerce_int96_timestamp_unit=unit,
            thrift_string_size_limit=_THRIFT_BYTES,
            thrift_container_size_limit=_THRIFT_ITEMS,
            page_checksum_verification=True,
        )
    except Exception as error:  # noqa: BLE001 - the library raises many kinds for damaged files
        raise _damaged(name, error) from None


def _damaged(name: str, error: Exception, row: int | None = None) -> FileRefused:
    place = "" if row is None else f" after row {row}"
    msg = f'"{name}" is damaged{place}: its Parquet data cannot be read'
    return FileRefused(msg, path=name, row=row, detail=str(error)[:500])


def _int96_columns(opened: Any, columns: list[str], name: str) -> list[int]:
    """The positions of columns with the old 96-bit times.

    Nanoseconds in 64 bits hold the years 1677 to 2262 only and silently wrap beyond; microseconds
    hold all years. Such columns are read twice; where the two differ the microseconds are right.
    """
    found = []
    for index in range(len(opened.schema)):
        leaf = opened.schema.column(index)
        if leaf.physical_type == "INT96":
            if leaf.path not in columns:
                msg = f'"{name}", column "{leaf.path}": 96-bit times inside lists are not read'
                raise FileRefused(msg, path=name)
            found.append(columns.index(leaf.path))
    return found


def _rows(
    batches: Iterator[Any],
    others: Iterator[Any] | None,
    coarse: list[int],
    columns: list[str],
    converters: list[Convert],
) -> Numbered:
    row = 0
    for batch in batches:
        values = [
            [] if index in coarse else convert(batch.column(index))
            for index, convert in enumerate(converters)
        ]
        if others is not None:
            other = next(others)
            for place, index in enumerate(coarse):
                values[index] = unwrapped(batch.column(index), other.column(place))
        for cells in zip(*values, strict=True):
            row += 1
            yield row, dict(zip(columns, cells, strict=True))


def _batches(opened: Any, name: str, columns: list[str] | None) -> Iterator[Any]:
    try:
        yield from opened.iter_batches(
            batch_size=_rows_per_batch(opened.metadata), columns=columns, use_threads=False
        )
    except FileRefused:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises many kinds for damaged files
        raise _damaged(name, error) from None


def _rows_per_batch(metadata: Any) -> int:
    """Rows that hold about 8 MiB, by what the widest row group says of itself."""
    widest = 1
    for index in range(min(metadata.num_row_groups, 1_000)):
        group = metadata.row_group(index)
        if group.num_rows > 0:
            widest = max(widest, group.total_byte_size // group.num_rows)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(widest, 1)))
