"""The text of an SQL vertex's query: which parameters it has, and which of them name files.

No parser: quoted texts and comments are left out, then `$name` is looked for. What the query means
is judged by the engine that runs it.
"""

from __future__ import annotations

import re
from typing import Final

QUERY_BYTES: Final = 64 * 1024

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PARAMETER: Final = re.compile(r"(?<![\w$])\$([A-Za-z_]\w*)", re.ASCII)
#: `read_parquet($files, ...)`, `read_csv_auto([$a])`, `glob($files)`: a parameter that names files.
FILE_PARAMETER: Final = re.compile(
    r"\b(?:read_\w+|parquet_\w+|glob|sniff_csv)\s*\(\s*\$([A-Za-z_]\w*)", re.ASCII | re.IGNORECASE
)


def parameters(query: str) -> list[str]:
    """The names of its parameters, each once, in the order of their first use."""
    return list(dict.fromkeys(_PARAMETER.findall(_QUOTED.sub(" ", query))))
