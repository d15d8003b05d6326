"""Numbers of a JSON text: those that a float keeps are taken, all others are named."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import jsonsafe, numbers
from suimon.errors import InvalidJson

KEPT = [
    "0", "-0", "0.1", "1.10", "-1.0", "100.00", "1e5", "1E+5", "1e22", "0.10000000000000000000",
    "5e-324", "1.7976931348623157e308", "1.7976931348623157E+308", "9007199254740992.0",
    "0.30000000000000004", "18446744073709551615", "-9223372036854775808", "0e999", "1e-0000000005",
    "123456789012345.6", "0.000000000000000000000000123", "100000000000000000000000.0",
]  # fmt: skip
CHANGED = [
    "12345678901234567.89", "0.1234567890123456789012", "9007199254740993.0", "1e-400", "1e400",
    "-1e400", "123456789012345678901.5", "18446744073709551616", "-9223372036854775809",
    "1e99999999999999999999", "0.3000000000000000444", "9" * 5_000, "0." + "3" * 5_000,
    "9007199254740993e0", "1.00000000000000000001", "12345678901234567E1",
]  # fmt: skip


@pytest.mark.parametrize("number", KEPT)
def test_a_number_that_its_float_prints_is_taken(number: str) -> None:
    found = jsonsafe.loads(f'{{"a":[{number}]}}')["a"][0]
    assert found == json.loads(number)
    assert Decimal(repr(found)) == Decimal(number)


@pytest.mark.parametrize("number", CHANGED)
@pytest.mark.parametrize("text", ['{"a":[%s]}', ' { "x" : "1\\"", "a" :\n[ %s ] }'])
def test_a_number_that_would_change_is_refused_with_its_path(number: str, text: str) -> None:
    with pytest.raises(InvalidJson, match="send it as text") as caught:
        jsonsafe.loads(text % number, what="input")
    assert caught.value.path == "$.a[0]"
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("number", CHANGED)
def test_the_same_digits_in_a_text_or_a_key_are_text(number: str) -> None:
    value = {f":{number}": f'"\\, {number}', "b": [number, "\\"]}
    assert jsonsafe.loads(json.dumps(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_prints_is_taken(number: float) -> None:
    assert jsonsafe.loads(json.dumps([number])) == [number]
    assert jsonsafe.loads(jsonsafe.dumps([number])) == [number]


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
)
def test_what_is_taken_is_what_was_written(text: str) -> None:
    """The search for suspects lets nothing through: whatever is read prints as it was written."""
    try:
        found = jsonsafe.loads(text)
    except InvalidJson:
        assert not numbers.kept(text)
    else:
        assert Decimal(repr(found)) == Decimal(text)


@pytest.mark.parametrize("text", ['{"a":1e400', '"1e400', "[1e400,]", "1e400 1", "[NaN,1e400]"])
def test_what_is_no_json_stays_no_json(text: str) -> None:
    with pytest.raises(InvalidJson, match="not valid JSON"):
        jsonsafe.loads(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_that_postgres_writes_out_is_read_back(number: float) -> None:
    """In jsonb 1e22 is a numeric, whose text has 23 digits and no exponent."""
    written = f"{Decimal(repr(number)):f}"
    (found,) = jsonsafe.loads_stored(f'{{"a":[{written}]}}')["a"]
    assert float(found) == number
    assert Decimal(repr(found)) == Decimal(repr(number))


@pytest.mark.parametrize("number", ["18446744073709551616", "0.1234567890123456789", "9" * 400])
def test_what_sql_told_is_not_rounded_either(number: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        jsonsafe.loads_stored(f'{{"b":1e22,"a":{number}}}')
    assert caught.value.path == "$.a"
