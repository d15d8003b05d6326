"""Secrets in any spelling are taken out of text, whole or in pieces, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import shlex
import urllib.parse
from collections.abc import Callable

import pytest

from suimon.core.redact import Redactor

SECRET = 'p@ss/w%rd+\n"zwei'
MARK = "[secret crm]"


def quoted(value: str) -> str:
    return urllib.parse.quote(value, safe="")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": urllib.parse.quote,
    "url, nothing safe": quoted,
    "url, form": urllib.parse.quote_plus,
    "url, lower case": lambda v: re.sub("%..", lambda m: m[0].lower(), quoted(v)),
    "url, as browsers do": lambda v: urllib.parse.quote(v, safe="!'()*~"),
    "json": lambda v: json.dumps(v)[1:-1],
    "json in json": lambda v: json.dumps(json.dumps(v))[1:-1],
    "repr": lambda v: repr(v)[1:-1],
    "repr of bytes": lambda v: repr(v.encode())[2:-1],
    "repr in a list": lambda v: str([v]),
    "html": html.escape,
    "shell": shlex.quote,
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64, url-safe": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
    "basic auth": lambda v: base64.b64encode(f"user:{v}".encode()).decode(),
    "base64, in the middle": lambda v: base64.b64encode(f"ab{v}cd".encode()).decode(),
    "hex": lambda v: v.encode().hex(),
    "hex, upper": lambda v: v.encode().hex().upper(),
    "windows lines": lambda v: v.replace("\n", "\r\n"),
}


def leaks(value: str, shown: str) -> bool:
    """Whether four characters in a row of a line can still be read, or of its encodings."""
    lines = value.splitlines()
    coded = [base64.b64encode(value.encode()).decode()[4:-8], value.encode().hex()]
    parts = [*(one for one in lines if len(one) >= 4), *(one for one in coded if one)]
    return any(part in shown or part.upper() in shown for part in parts)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_secret_is_found_in_this_spelling(name: str) -> None:
    hidden = Redactor({"crm": SECRET})
    text = f"before {SPELLINGS[name](SECRET)} after"
    shown = hidden.text(text)
    assert MARK in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert not leaks(SECRET, shown)
    for word in ("p@ss", "p%40ss", "zwei"):
        assert word not in shown


@pytest.mark.parametrize("value", ["Pä55wörd €", "x'y\"z\\w", "<&>'\"", "tab\tand more"])
def test_odd_characters_are_found_too(value: str) -> None:
    hidden = Redactor({"crm": value})
    for name, spell in SPELLINGS.items():
        if name not in ("json in json", "windows lines"):
            assert MARK in hidden.text(f"({spell(value)})"), name


def test_each_line_of_four_characters_is_one() -> None:
    hidden = Redactor({"key": "-----BEGIN-----\nabcdefgh\nxyz\n-----END-----"})
    assert hidden.text("got abcdefgh here") == "got [secret key] here"
    assert hidden.text("got xyz here") == "got xyz here"


@pytest.mark.parametrize("seed", range(20))
def test_pieces_show_the_same_as_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    hidden = Redactor({"crm": SECRET, "other": "abcabd"})
    parts = [
        *(spell(SECRET) for spell in SPELLINGS.values()),
        "abcabd",
        "abcab",
        "p@s",
        "text ",
        "\n",
    ]
    text = "".join(rng.choice(parts) for _ in range(60))
    stream, shown, at = hidden.stream(), "", 0
    while at < len(text):
        size = rng.choice((1, 2, 3, 7, 40))
        shown += stream.feed(text[at : at + size])
        at += size
    shown += stream.end()
    assert shown == hidden.text(text)
    assert not leaks(SECRET, shown)
    assert "abcabd" not in shown


def test_what_is_no_secret_is_shown_at_once() -> None:
    stream = Redactor({"crm": "geheim!"}).stream()
    assert stream.feed("a line\n") == "a line\n"
    assert stream.feed("my ge") == "my "
    assert stream.feed("nius\n") == "genius\n"
    assert stream.end() == ""


def test_json_stays_json() -> None:
    hidden = Redactor({"crm": "nfoo", "pin": "12345"})
    given = {"a": "x\nfoo", "nfoo": ["nfoo", 12345, 1.5, None, True], "b": {"c": "it is nfoo!"}}
    text = json.dumps(given).encode()
    cleaned = json.loads(hidden.json(text))
    assert cleaned == {
        "a": "x\nfoo",
        "[secret crm]": ["[secret crm]", "[secret pin]", 1.5, None, True],
        "b": {"c": "it is [secret crm]!"},
    }
    clean = b'{"a": 1}'
    assert hidden.json(clean) is clean


def test_a_redactor_without_values_changes_nothing() -> None:
    hidden = Redactor()
    assert not hidden
    text = b'{"a": "nfoo"}'
    assert hidden.json(text) is text
    assert hidden.stream().feed("nfoo") == "nfoo"
    assert "value" not in repr(Redactor({"a": "value"})).replace("1 values", "")


def test_bytes_are_seen_as_latin_characters() -> None:
    hidden = Redactor({"crm": "Pä55wörd"}, raw=True)
    data = b"\xff " + "Pä55wörd".encode() + b" \xfe"
    assert hidden.text(data.decode("latin-1")).encode("latin-1") == b"\xff [secret crm] \xfe"
