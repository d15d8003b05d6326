"""Parquet: every value as it was written, the same in every time zone, batch by batch."""

# ruff: noqa: DTZ001  (times without a zone are what is tested)

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suimon.errors import FileChanged, FileRefused
from suimon.read import extras, open_source

HANDED = Path(__file__).parents[1] / "data" / "handed"
TRUTH = {
    entry["file"]: entry["truth"]
    for entry in json.loads((HANDED / "MANIFEST.json").read_text("utf-8"))["files"]
}


def written(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    return list(open_source(path, None, options, root=HANDED))


def test_c46_times_do_not_depend_on_the_machine() -> None:
    """Two processes in two zones print the same rows; the aware time carries its offset."""
    program = (
        "import sys\nfrom suimon.core import jsonsafe\nfrom suimon.read import open_source\n"
        "for row in open_source(sys.argv[1]): print(jsonsafe.dumps(row).decode())"
    )
    path = HANDED / "parquet_timestamps.parquet"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program, path],
            env={**os.environ, "TZ": zone}, check=True, capture_output=True, text=True,
        ).stdout
        for zone in ("UTC", "Asia/Tokyo", "America/St_Johns")
    }  # fmt: skip
    (line,) = printed
    row = json.loads(line)
    truth = TRUTH["parquet_timestamps.parquet"]
    assert row["naive"] == truth["naive"].replace(" ", "T")
    aware = dt.datetime.fromisoformat(row["aware"])
    assert aware == dt.datetime.fromisoformat(truth["aware_utc"])
    assert row["aware"].endswith("+00:00")


def test_a_zone_gives_its_offset_of_that_day(tmp_path: Path) -> None:
    moments = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC), None]
    columns = {
        "berlin": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
        "fixed": pa.array(moments, pa.timestamp("ms", "+09:00")),
        "minus": pa.array(moments, pa.timestamp("s", "-03:30")),
        "old": pa.array(
            [dt.datetime(1880, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "Asia/Tokyo")
        ),
    }
    first, second, third = read(written(tmp_path / "a.parquet", columns))
    assert first["berlin"].isoformat() == "2024-01-01T01:00:00+01:00"
    assert second["berlin"].isoformat() == "2024-07-01T02:00:00+02:00"
    assert first["fixed"].isoformat() == "2024-01-01T09:00:00+09:00"
    assert first["minus"].isoformat() == "2023-12-31T20:30:00-03:30"
    assert first["old"].isoformat() == "1880-01-01T00:00:00+00:00"
    assert third["berlin"] is None


def test_an_unknown_zone_is_refused(tmp_path: Path) -> None:
    columns = {"t": pa.array([0], pa.timestamp("us", "Mars/Base"))}
    with pytest.raises(FileRefused, match="Mars/Base"):
        read(written(tmp_path / "a.parquet", columns))


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([2**63 + 1], pa.uint64()), 2**63 + 1),
        (pa.array([True]), True),
        (pa.array(["日本語"], pa.large_string()), "日本語"),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array([0.1], pa.float32()), 0.10000000149011612),
        (pa.array([Decimal("0.10")], pa.decimal128(5, 2)), Decimal("0.10")),
        (pa.array([Decimal("1" * 40)], pa.decimal256(50, 0)), Decimal("1" * 40)),
        (pa.array([dt.date(1, 1, 1)], pa.date32()), dt.date(1, 1, 1)),
        (pa.array([dt.date(9999, 12, 31)], pa.date64()), dt.date(9999, 12, 31)),
        (pa.array([dt.time(23, 59, 59, 1)], pa.time64("us")), dt.time(23, 59, 59, 1)),
        (pa.array([1], pa.time64("ns")), "00:00:00.000000001"),
        (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
        (pa.array([1000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (pa.array([-1], pa.timestamp("ns", "UTC")), "1969-12-31T23:59:59.999999999+00:00"),
        (pa.array([-1500], pa.duration("ms")), "-PT1.5S"),
        (pa.array([None], pa.string()), None),
        (pa.nulls(1), None),
        (pa.array([[1, None], None, []], pa.list_(pa.int8())), [1, None]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [1, 2]),
        (pa.array([{"a": 1, "t": 0}], pa.struct({"a": pa.int8(), "t": pa.timestamp("s")})),
         {"a": 1, "t": dt.datetime(1970, 1, 1)}),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), {"k": 1}),
    ],
)  # fmt: skip
def test_a_value_is_what_was_written(tmp_path: Path, array: pa.Array, value: Any) -> None:
    found = read(written(tmp_path / "a.parquet", {"a": array}))
    assert len(found) == len(array)
    assert found[0]["a"] == value
    assert type(found[0]["a"]) is type(value)


def test_bytes_are_refused_unless_declared_text(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"n": [1], "b": pa.array(["é".encode()], pa.binary())})
    with pytest.raises(FileRefused, match='column "b": its values are bytes'):
        read(path)
    assert read(path, schema={"b": "text"}) == [{"n": 1, "b": "é"}]
    path = written(tmp_path / "b.parquet", {"b": pa.array([b"\xff"], pa.binary())})
    with pytest.raises(FileRefused, match='row 1, column "b": the bytes are no UTF-8'):
        read(path, schema={"b": "text"})


def test_nan_and_days_that_are_none_are_bad_values(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.parquet", {"x": [1.5, float("nan"), None], "l": [[1.0], [1.0], []]}
    )
    with pytest.raises(FileRefused, match='row 2, column "x": nan is no number') as caught:
        read(path)
    assert caught.value.row == 2
    assert [row["x"] for row in read(path, onBadValue="skip")] == [1.5, None]
    assert [row["x"] for row in read(path, onBadValue="text")] == [1.5, "nan", None]
    for array in (
        pa.array([[1.0, float("inf")]]),
        pa.array([3_000_000], pa.date32()),
        pa.array([2**62], pa.timestamp("us")),
        pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8())),
    ):
        with pytest.raises(FileRefused, match='row 1, column "a"'):
            read(written(tmp_path / "b.parquet", {"a": array}))


def test_old_96_bit_times_hold_all_years_and_all_digits(tmp_path: Path) -> None:
    """In 64 bits of nanoseconds the year 9999 silently becomes another one."""
    moments = [dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(2024, 2, 29, 1, 2, 3, 4), None]
    columns = {"n": [1, 2, 3], "t": pa.array(moments, pa.timestamp("us"))}
    path = written(tmp_path / "a.parquet", columns, use_deprecated_int96_timestamps=True)
    assert [row["t"] for row in read(path)] == moments
    columns = {"t": pa.array([1_700_000_000_000_000_007], pa.timestamp("ns"))}
    path = written(tmp_path / "b.parquet", columns, use_deprecated_int96_timestamps=True)
    assert read(path) == [{"t": "2023-11-14T22:13:20.000000007"}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"id,name\n1,a\n", "is no Parquet file"),
        (b"PAR1 cut off", "the end of the Parquet file is missing"),
        (b"PAR1" + b"\xff" * 40 + b"\x10\x00\x00\x00PAR1", "is damaged"),
        (b"PARE" + b"\0" * 40 + b"PARE", "is an encrypted Parquet file"),
    ],
)
def test_what_is_no_parquet_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(FileRefused) as caught:
        read(tmp_path / "a.parquet")
    assert said in caught.value.message


def test_a_damaged_page_is_refused_not_read(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.parquet", {"n": list(range(20_000))},
        write_page_checksum=True, compression="none", use_dictionary=False,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    data[60_000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(FileRefused, match="is damaged"):
        read(path)


def test_names_that_are_there_twice_are_refused_and_no_rows_are_fine(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FileRefused, match='names the column "a" twice'):
        read(tmp_path / "a.parquet")
    assert read(written(tmp_path / "b.parquet", {"a": pa.array([], pa.int8())})) == []


def test_rows_come_in_batches_and_memory_is_flat(tmp_path: Path) -> None:
    """One row group of 40 MB: what Arrow holds at a time is a small part of it."""
    columns = {"n": list(range(40_000)), "text": [f"{n:01000d}" for n in range(40_000)]}
    path = written(
        tmp_path / "a.parquet", columns, row_group_size=40_000, use_dictionary=False,
        compression="none",
    )  # fmt: skip
    del columns
    before = pa.total_allocated_bytes()
    peak = 0
    for number, row in enumerate(open_source(path)):
        assert row["n"] == number
        peak = max(peak, pa.total_allocated_bytes() - before) if number % 500 == 0 else peak
    assert number == 39_999
    assert path.stat().st_size > 40_000_000
    assert peak < 12_000_000


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"n": list(range(5_000))})
    stream = open_source(path)
    next(stream)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChanged):
        list(stream)


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.parquet", {"n": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FileRefused) as caught:
        read(path)
    assert "suimon[files]" in (caught.value.hint or "")
    monkeypatch.setitem(extras.NEEDED, "parquet", ("no_such_module", "pyarrow"))
    assert extras.missing() == {"parquet": "pyarrow"}


ZONES = st.sampled_from(["UTC", "Asia/Tokyo", "Europe/London", "America/New_York", "Asia/Kolkata"])


@settings(max_examples=25, deadline=None)
@given(
    zone=ZONES,
    moments=st.lists(
        st.none() | st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1)), max_size=8
    ),
)
def test_any_moment_is_the_same_moment(
    tmp_path_factory: pytest.TempPathFactory, zone: str, moments: list[dt.datetime | None]
) -> None:
    aware = [None if m is None else m.replace(tzinfo=dt.UTC) for m in moments]
    columns = {
        "naive": pa.array(moments, pa.timestamp("us")),
        "aware": pa.array(aware, pa.timestamp("us", zone)),
        "list": pa.array([[m, None] for m in moments], pa.list_(pa.timestamp("us"))),
    }
    found = read(written(tmp_path_factory.mktemp("p") / "a.parquet", columns))
    assert [row["naive"] for row in found] == moments
    assert [row["aware"] for row in found] == aware
    assert [row["list"] for row in found] == [[m, None] for m in moments]
    for row in found:
        if row["aware"] is not None:
            wanted = row["aware"].astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
            assert row["aware"].utcoffset() == wanted


LATIN = [b"fine", b"caf\xe9", None]


@pytest.mark.parametrize(
    ("binary", "text"),
    [(pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())],
)
@pytest.mark.parametrize("dictionary", [True, False])
def test_text_that_is_no_utf_8_is_a_bad_value(
    tmp_path: Path, binary: Any, text: Any, dictionary: bool
) -> None:
    """A program may write any bytes as text: the file does not say that they were looked at."""
    lying = pa.array(LATIN, binary).view(text)
    path = written(tmp_path / "a.parquet", {"t": lying, "n": [1, 2, 3]}, use_dictionary=dictionary)
    with pytest.raises(FileRefused, match=r'row 2, column "t": the bytes are no UTF-8') as caught:
        read(path)
    assert caught.value.row == 2
    assert [row["n"] for row in read(path, onBadValue="skip")] == [1, 3]
    assert [row["t"] for row in read(path, onBadValue="text")] == ["fine", "caf\\xe9", None]


def test_text_inside_that_is_no_utf_8_is_a_bad_value_too(tmp_path: Path) -> None:
    lying = pa.array(LATIN, pa.binary()).view(pa.string())
    columns = {
        "l": pa.ListArray.from_arrays([0, 1, 2, 3], lying),
        "s": pa.StructArray.from_arrays([lying], ["x"]),
        "d": lying.dictionary_encode(),
        "m": pa.MapArray.from_arrays([0, 1, 2, 2], lying.slice(0, 2), pa.array([1, 2])),
    }
    for name, column in columns.items():
        path = written(tmp_path / f"{name}.parquet", {name: column, "n": [1, 2, 3]})
        with pytest.raises(FileRefused, match=rf'row 2, column "{name}"'):
            read(path)
        assert [row["n"] for row in read(path, onBadValue="skip")] == [1, 3]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([[1], [2]]),
        pa.array([1, 2]),
        pa.array(["same", "same"]),
    ],
)
def test_a_map_whose_keys_are_no_names_is_a_bad_value(tmp_path: Path, keys: Any) -> None:
    column = pa.MapArray.from_arrays([0, 2, 2], keys, pa.array(["x", "y"]))
    path = written(tmp_path / "a.parquet", {"m": column, "n": [1, 2]})
    with pytest.raises(FileRefused, match=r'row 1, column "m": the keys of the map'):
        read(path)
    assert read(path, onBadValue="skip") == [{"m": {}, "n": 2}]


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "Factory"])
def test_a_zone_that_is_the_machines_own_is_none(tmp_path: Path, zone: str) -> None:
    moment = pa.array([dt.datetime(2024, 1, 1)]).cast(pa.timestamp("us", tz=zone))
    with pytest.raises(FileRefused, match="time zone"):
        read(written(tmp_path / "a.parquet", {"a": moment}))
