"""C47: every format is read with what is installed; nothing opens a connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support import workbooks as make

from suimon.read import extras

PROGRAM = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event.startswith("socket.") else None)
from suimon.read import open_source
for path in sys.argv[1:]:
    rows = list(open_source(path, None, {"encoding": "auto"} if path.endswith(".csv") else {}))
    assert rows and list(rows[0].values()) == ["表"], (path, rows)
assert not seen, seen
print("all read")
"""


def test_c47_all_formats_are_read_without_any_network(tmp_path: Path) -> None:
    """In a network namespace of its own where that is allowed, and under an audit hook."""
    (tmp_path / "utf8.csv").write_text("a\n表\n", encoding="utf-8")
    (tmp_path / "cp932.csv").write_text("a\n表\n", encoding="cp932")
    (tmp_path / "a.jsonl").write_text('{"a":"表"}\n', encoding="utf-8")
    make.write_book(tmp_path / "a.xlsx", make.table(["a"], ["表"]))
    pq.write_table(pa.table({"a": ["表"]}), tmp_path / "a.parquet")
    alone = ["unshare", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []
    done = subprocess.run(
        [*alone, sys.executable, "-c", PROGRAM, *sorted(map(str, tmp_path.iterdir()))],
        env={**os.environ, "HOME": str(tmp_path / "nowhere")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == "all read\n", done.stderr


def test_c47_what_is_missing_is_known_before_a_run_meets_it() -> None:
    assert extras.missing() == {}
