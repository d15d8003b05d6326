"""JSON: what cannot be stored is refused with its path, and never repaired silently."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections import namedtuple
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import jsonsafe
from suimon.errors import InvalidJson, PayloadTooLarge

DATA = pathlib.Path(__file__).parents[1] / "data" / "handed"

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc \\u0"), inner),
    max_leaves=20,
)


@given(plain)
def test_storable_values_survive_unchanged(value: Any) -> None:
    text = jsonsafe.dumps(value)
    assert json.loads(text) == value
    assert jsonsafe.loads(text) == value
    assert jsonsafe.dumps(jsonsafe.loads(text)) == text


@given(plain, st.sampled_from([math.nan, math.inf, "a\x00b", "\ud83d", 2**64, -(2**63) - 1]))
def test_one_bad_value_anywhere_is_found(good: Any, bad: Any) -> None:
    """Whatever stands around it, the path leads to the value."""
    with pytest.raises(InvalidJson) as caught:
        jsonsafe.dumps({"first": good, "a": [good, 1, {"b c": bad}]})
    assert caught.value.path == '$.a[2]["b c"]'


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"a": [0, 1, 2, {"b": math.nan}]}, "$.a[3].b", "nan is no JSON number"),
        ({"a": None, "b": -math.inf}, "$.b", "-inf"),
        ({"a\x00": 1}, "$", "NUL"),
        ({"x": {1: 2}}, "$.x", "the key 1 is int"),
        ({"x": {"s", "t"}}, "$.x", "sorted"),
        ({"x": b"s"}, "$.x", "base64"),
        ([object()], "$[0]", "no JSON form"),
        ((i for i in ()), "$", "list"),
    ],
)
def test_a_refusal_names_the_path_and_the_reason(value: Any, path: str, words: str) -> None:
    with pytest.raises(InvalidJson, match="cannot be stored") as caught:
        jsonsafe.dumps(value, what="result")
    assert caught.value.path == path
    assert words in caught.value.message
    assert caught.value.message.startswith("the result ")


def test_nesting_that_never_ends_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InvalidJson, match="nested deeper"):
        jsonsafe.dumps(ring)


def test_a_backslash_before_u0000_is_ordinary_text() -> None:
    """The text \\u0000 typed by a person is six characters, not a NUL."""
    assert jsonsafe.loads(jsonsafe.dumps("\\u0000")) == "\\u0000"


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    y: float
    x: Any
    _hidden: int = 3


class Model(pydantic.BaseModel):
    when: dt.date
    price: decimal.Decimal


Pair = namedtuple("Pair", "a b")  # noqa: PYI024


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1.5, None), b'{"_hidden":3,"x":null,"y":1.5}'),
        (
            Model(when=dt.date(2024, 2, 29), price=decimal.Decimal("1.10")),
            b'{"price":"1.10","when":"2024-02-29"}',
        ),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), b'"2024-01-01T00:00:00+00:00"'),
        (decimal.Decimal("0.10"), b'"0.10"'),
        (pathlib.Path("a/b"), b'"a/b"'),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, b'"red"'),
        (Pair(1, None), b"[1,null]"),
        ({"b": 1, "a": (1, 2)}, b'{"a":[1,2],"b":1}'),
    ],
)
def test_common_python_values_have_a_form(value: Any, text: bytes) -> None:
    assert jsonsafe.dumps(value) == text


def test_nan_inside_a_dataclass_is_found() -> None:
    with pytest.raises(InvalidJson) as caught:
        jsonsafe.dumps([Point(0.0, {"deep": math.nan})])
    assert caught.value.path == "$[0].x.deep"


def test_too_large_names_size_and_limit() -> None:
    with pytest.raises(PayloadTooLarge, match="1,002 bytes") as caught:
        jsonsafe.dumps("x" * 1000, limit=1000)
    assert (caught.value.size, caught.value.limit) == (1002, 1000)


@pytest.mark.parametrize("name", ["json_nul.json", "json_lone_surrogate.json", "json_nan.json"])
def test_c48_c49_files_are_refused_when_read(name: str) -> None:
    """Valid for some parser, poison for jsonb: refused at the door."""
    with pytest.raises(InvalidJson):
        jsonsafe.loads((DATA / name).read_bytes(), what="input")


def test_long_integers_are_refused_not_rounded() -> None:
    assert jsonsafe.loads("9223372036854775807") == 2**63 - 1
    with pytest.raises(InvalidJson, match="64 bits"):
        jsonsafe.loads('{"n": 123456789012345678901234567890}')


def test_the_manifest_hash_is_signed_64_bit_and_stable() -> None:
    """Stored beside children for years: it must never change."""
    assert jsonsafe.content_hash(b'{"a":1}') == jsonsafe.content_hash(b'{"a":1}')
    assert jsonsafe.content_hash(b"1") == -649571662916077706
    assert -(2**63) <= jsonsafe.content_hash(b"x") < 2**63
