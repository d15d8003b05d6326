"""Files of every kind as items and as inputs in a slot: what a child gets is plain JSON."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from support.reading import HANDED
from support.slot_harness import SlotHarness

from suimon.worker import wire


def spawned(
    slot: SlotHarness, path: str, kind: str | None = None, **options: Any
) -> tuple[list[Any], list[bytes], str]:
    """The items, the last line, and what was logged on the way."""
    source = {"kind": "read", "path": path, "format": kind, "options": options}
    (token,) = slot.begin(slot.spawner(source), {"inputs": {}})
    items: list[Any] = []
    logged = ""
    while (line := slot.next_line())[0] in (b"C", b"L"):
        if line[0] == b"C":
            chunk = wire.chunk(line[1], line[2])
            items += [orjson.loads(item) for item in chunk.items]
            slot.send(wire.acknowledge(token, chunk.seq, go_on=True))
        else:
            logged += line[-1].decode()
    return items, line, logged


def test_dates_and_decimals_become_text_in_items(slot: SlotHarness, slot_root: Path) -> None:
    shutil.copy(HANDED / "xlsx_mixed_dates.xlsx", slot_root)
    items, end, _ = spawned(slot, "xlsx_mixed_dates.xlsx")
    assert end[0] == b"E"
    assert [item["date"] for item in items[:3]] == ["2002-03-04", "22/05/2000", 37319]
    shutil.copy(HANDED / "parquet_timestamps.parquet", slot_root)
    items, end, _ = spawned(slot, "parquet_timestamps.parquet")
    assert items == [{"naive": "2024-12-06T00:00:00", "aware": "2024-12-06T00:00:00+00:00"}]
    columns = {"price": pa.array(["0.10"]).cast(pa.decimal128(5, 2)), "n": [2**62]}
    pq.write_table(pa.table(columns), slot_root / "b.parquet")
    assert spawned(slot, "b.parquet")[0] == [{"price": "0.10", "n": 2**62}]


def test_c44_a_refused_file_is_not_tried_again(slot: SlotHarness, slot_root: Path) -> None:
    """Kind "items": the worker ends the spawner with the sentence, without another try."""
    shutil.copytree(HANDED / "not_excel", slot_root / "not_excel")
    for path in sorted((slot_root / "not_excel").iterdir()):
        _, end, _ = spawned(slot, f"not_excel/{path.name}")
        error = orjson.loads(end[3])
        assert (end[0], error["kind"], error["code"]) == (b"F", "items", "SUI-4003")
        assert error["message"].startswith(f'"not_excel/{path.name}" is ')


def test_notes_of_a_reader_are_in_the_runs_log(slot: SlotHarness, slot_root: Path) -> None:
    shutil.copy(HANDED / "xlsx_mixed_dates.xlsx", slot_root)
    items, end, logged = spawned(
        slot, "xlsx_mixed_dates.xlsx", schema={"date": "date"}, onBadValue="skip"
    )
    assert [item["id"] for item in items] == [1, 5, 6]
    assert end[0] == b"E"
    assert "3 rows were left out" in logged


def test_a_folder_is_a_list_of_items(slot: SlotHarness, slot_root: Path) -> None:
    (slot_root / "in").mkdir()
    for name in ("b.csv", "a.csv", "~$a.csv"):
        (slot_root / "in" / name).write_text("n\n1\n")
    items, _, logged = spawned(slot, "in", "files", match="*.csv")
    assert [item["path"] for item in items] == ["in/a.csv", "in/b.csv"]
    assert "~$a.csv" in logged
