"""SQL files are read by name, and a mistake in one is seen at import."""

from __future__ import annotations

import pytest

from suimon.db.statements import parse

TEXT = """
-- A file's story.

-- name: first
-- why it is so
select 1   -- kept: it stands behind code
from t
where a = %(a)s;

-- name: second
select '--name: not_a_heading';
"""


def test_blocks_are_found_by_attribute_and_by_key() -> None:
    """A block is the text between its name and the next, without lines that only comment."""
    sql = parse("p/f.sql", TEXT)
    assert sql.first == "select 1   -- kept: it stands behind code\nfrom t\nwhere a = %(a)s"
    assert sql["second"] == "select '--name: not_a_heading'"
    assert list(sql) == ["first", "second"]


def test_an_unknown_name_says_what_was_meant() -> None:
    """A misspelt statement names the nearest one."""
    sql = parse("p/f.sql", TEXT)
    with pytest.raises(AttributeError, match=r'no statement "frist" in p/f.sql; did you .*"first"'):
        _ = sql.frist
    with pytest.raises(KeyError, match="it has first, second"):
        _ = sql["zzz"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "-- name: a\nselect 1;\n-- name: a\nselect 2;",
            'f.sql:3: a second statement is named "a"',
        ),
        ("select 1;", 'f.sql:1: text before the first "-- name:" line'),
        ("-- name: a\n-- nothing\n", 'f.sql: statement "a" is empty'),
        ("-- name: A-b\nselect 1", 'f.sql:1: "A-b" is no statement name'),
    ],
)
def test_a_wrong_file_is_refused_at_import(text: str, message: str) -> None:
    """Twice a name, text before a name, no text, a strange name."""
    with pytest.raises(ValueError, match=r"f\.sql") as caught:
        parse("f.sql", text)
    assert message in str(caught.value)
