"""What may be said about reading: formats, their options, and what each option may hold.

The same rules serve a READ vertex when it is checked and a file when it is opened. A rule answers
with None when the value is fine, else with the end of the sentence "`header` ...".
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

from suimon.core.suggest import one_of

#: What a value can be declared as.
TYPES: Final = (
    "text", "integer", "number", "decimal", "boolean", "date", "datetime", "time",
)  # fmt: skip
#: What happens to a value that does not fit: the file is refused, the row is left out and noted, or
#: the value is given as the text it is.
POLICIES: Final = ("stop", "skip", "text")

#: File endings and the format they mean when none is named.
ENDINGS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
}

_VALUES: Final = ("schema", "onBadValue")
_CHOICE: Final = ("match", "ignore", "recursive")
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": ("encoding", "delimiter", "header", "skip", *_VALUES, *_CHOICE),
    "jsonl": ("encoding", "skip", *_VALUES, *_CHOICE),
    "parquet": (*_VALUES, *_CHOICE),
    "excel": ("sheet", "header", "skip", "fillMerged", "formulas", *_VALUES, *_CHOICE),
    "files": _CHOICE,
}
FORMATS: Final = tuple(OPTIONS)
MAX_HEADER_LINES: Final = 10
#: Codecs of Python from text to text or for names of hosts, and UTF-7, which hides characters.
NO_CHARACTER_SETS: Final = frozenset(
    {"punycode", "idna", "utf-7", "unicode-escape", "raw-unicode-escape", "undefined", "charmap"}
)

Rule = Callable[[Any], str | None]


def format_of(name: str) -> str | None:
    """The format that the ending of a file's name means."""
    return ENDINGS.get(PurePath(name).suffix.lower())


def problem(format: str, option: str, value: Any) -> str | None:  # noqa: A002
    """Why this option cannot have this value in this format; None when it can."""
    if option not in OPTIONS[format]:
        return f"is no option of reading {format}; {one_of(option, OPTIONS[format])}"
    wrong = RULES[option](value)
    if wrong is None and option == "header" and format == "csv" and type(value) is int:
        return f"must be true, false or a list of column names for CSV, not {value!r}"
    return wrong


def encoding(value: Any) -> str | None:
    if value == "auto":
        return None
    try:
        known = isinstance(value, str) and codecs.lookup(value).name not in NO_CHARACTER_SETS
        "".encode(value)  # refuses codecs that are not text encodings, like "base64"
    except (LookupError, TypeError, ValueError):
        known = False
    return None if known else f'must be "auto" or the name of an encoding, not {value!r}'


def delimiter(value: Any) -> str | None:
    if value == "auto" or (isinstance(value, str) and len(value) == 1 and value not in '"\r\n\0'):
        return None
    return f'must be "auto" or one character, not {value!r}'


def header(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if type(value) is int and 1 <= value <= MAX_HEADER_LINES:
        return None
    names = (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(name, str) and name for name in value)
    )
    if not names:
        lines = f"a number of lines (at most {MAX_HEADER_LINES}, Excel only)"
        return f"must be true, false, {lines} or a list of column names, not {value!r}"
    return None if len(set(value)) == len(value) else "names a column twice"


def schema(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return f'must be an object of columns and types, like {{"qty": "integer"}}, not {value!r}'
    for column, kind in value.items():
        if not isinstance(column, str) or kind not in TYPES:
            listed = ", ".join(TYPES)
            return f"gives the column {column!r} the type {kind!r}; types: {listed}"
    return None


def sheet(value: Any) -> str | None:
    fine = (isinstance(value, str) and value) or (type(value) is int and 1 <= value <= 10_000)
    return None if fine else f"must be the name of a sheet or its number from 1, not {value!r}"


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, not {value!r}"


def pattern(value: Any) -> str | None:
    fine = isinstance(value, str) and value and "/" not in value and "\0" not in value
    return None if fine else f'must be a pattern of a file\'s name, like "*.csv", not {value!r}'


def patterns(value: Any) -> str | None:
    if isinstance(value, list | tuple) and all(pattern(one) is None for one in value):
        return None
    return f'must be a list of patterns, like ["*.part"], not {value!r}'


def whole(value: Any) -> str | None:
    fine = type(value) is int and 0 <= value <= 10_000
    return None if fine else f"must be a whole number from 0 to 10000, not {value!r}"


def choice(*choices: str) -> Rule:
    def check(value: Any) -> str | None:
        listed = ", ".join(f'"{one}"' for one in choices)
        return None if value in choices else f"must be one of {listed}, not {value!r}"

    return check


RULES: Final[Mapping[str, Rule]] = {
    "encoding": encoding,
    "delimiter": delimiter,
    "header": header,
    "skip": whole,
    "schema": schema,
    "onBadValue": choice(*POLICIES),
    "sheet": sheet,
    "fillMerged": flag,
    "formulas": choice("stop", "stored", "text"),
    "match": pattern,
    "ignore": patterns,
    "recursive": flag,
}

DEFAULTS: Final[Mapping[str, Any]] = {
    "encoding": "utf-8",
    "delimiter": "auto",
    "header": True,
    "skip": 0,
    "onBadValue": "stop",
    "fillMerged": False,
    "formulas": "stop",
    "match": "*",
    "recursive": False,
}
