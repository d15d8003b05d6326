"""Real files, read as streams: CSV, JSONL, Parquet, Excel and folders.

`open_source` is the one door; `local_path` turns the path of a listed file (format="files") into a
path that `open()` takes, also when its name is no UTF-8. What each format promises is written in
docs/reading-files.md.
"""

from __future__ import annotations

from suimon.read.names import local_path
from suimon.read.source import open_source

__all__ = ["local_path", "open_source"]
