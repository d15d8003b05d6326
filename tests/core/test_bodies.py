"""What a webhook brought becomes exactly that, or is refused with a reason."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from suimon.core import bodies
from suimon.core.bodies import BodyRefused

JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"
ORDER = {"order": "東京", "n": 1}
ORDER_TEXT = '{"order": "東京", "n": 1}'


def read(raw: bytes, *types: bytes, **more: Any) -> Any:
    encodings = more.pop("encodings", [])
    return bodies.decode(raw, types, encodings, **{"limit": 1000, **more})


def refused(raw: bytes, *types: bytes, **more: Any) -> tuple[int, str]:
    with pytest.raises(BodyRefused) as caught:
        read(raw, *types, **more)
    assert caught.value.why
    return caught.value.status, caught.value.why


@pytest.mark.parametrize(
    ("content_type", "raw", "value"),
    [
        (JSON, ORDER_TEXT.encode(), ORDER),
        (b"application/json; charset=utf-8", ORDER_TEXT.encode(), ORDER),
        (b'Application/JSON;CHARSET="UTF-8"', ORDER_TEXT.encode("utf-8-sig"), ORDER),
        (b"application/vnd.x+json", ORDER_TEXT.encode(), ORDER),
        (b"application/json; charset=Shift_JIS", ORDER_TEXT.encode("shift_jis"), ORDER),
        (b"application/json; charset=utf-16", ORDER_TEXT.encode("utf-16"), ORDER),
        (JSON, b"[1, [], {}]", [1, [], {}]),
        (JSON, b"7", 7),
        (JSON, b"null", None),
        (JSON, b'"text"', "text"),
        (FORM, b"a=1&b=&a=2&c=%E6%9D%B1+x", {"a": ["1", "2"], "b": "", "c": "東 x"}),
        (FORM, b"a=1&d&&c&c=2&", {"a": "1", "d": "", "c": ["", "2"]}),
        (FORM, b"=1&[x]={y}", {"": "1", "[x]": "{y}"}),
        (FORM, b"[x]={y}&z", {"[x]": "{y}", "z": ""}),
        (JSON, b'{"a": [0.1, 1.10, 1e5]}', {"a": [0.1, 1.1, 1e5]}),
        (FORM + b"; charset=shift_jis", b"a=%93%8C", {"a": "東"}),
        (b"text/plain", ORDER_TEXT.encode(), ORDER_TEXT),
        (b"text/plain; charset=latin-1", b"\xe9", "é"),
        (b"text/plain", b"", ""),
        (b"application/xml", b"<a>1</a>", "<a>1</a>"),
        (b"application/soap+xml", b"<a/>", "<a/>"),
        (None, b'{"a": 1}', {"a": 1}),
        (None, b"", None),
    ],
)
def test_a_body_is_what_was_sent(content_type: bytes | None, raw: bytes, value: Any) -> None:
    assert read(raw, *([content_type] if content_type else [])) == value


@pytest.mark.parametrize(
    ("content_type", "raw", "status"),
    [
        (JSON, b"", 400),
        (JSON, b'{"a": ', 400),
        (JSON, b"{} {}", 400),
        (JSON, b'{"a": NaN}', 400),
        (JSON, b"[Infinity]", 400),
        (JSON, b"[1e999]", 400),
        (JSON, b'["\\u0000"]', 400),
        (JSON, b'["\\ud800"]', 400),
        (JSON, b'{"\\u0000": 1}', 400),
        (JSON, b"[" * 3000, 400),
        (JSON, b"99999999999999999999999", 400),
        (JSON, b"12345678901234567.89", 400),
        (None, b'{"a": 1e-400}', 400),
        (JSON, b"\xff\xfe", 400),
        (JSON, ORDER_TEXT.encode("shift_jis"), 400),
        (b"application/json; charset=utf-7", b"{}", 415),
        (b"application/json; charset=idna", b"{}", 415),
        (b"application/json; charset=zip", b"{}", 415),
        (FORM, b"", 400),
        (FORM, b"no pairs here", 400),
        (FORM, b"a=%FF", 400),
        (FORM, b"a=%00", 400),
        (FORM, b"&".join(b"a=1" for _ in range(1001)), 400),
        (b"text/plain", b"a\x00b", 400),
        (b"text/plain", b"\xff", 400),
        (b"multipart/form-data; boundary=x", b"--x--", 415),
        (b"application/octet-stream", b"{}", 415),
        (b"image/png", b"x", 415),
        (b"\xe9", b"x", 415),
        (b";", b"not json", 415),
        (None, b"not json", 415),
        (None, b'{"a": NaN}', 415),
    ],
)
def test_what_cannot_be_read_for_certain_is_refused(
    content_type: bytes | None, raw: bytes, status: int
) -> None:
    given = [content_type] if content_type else []
    assert refused(raw, *given, limit=10_000)[0] == status


def test_json_that_comes_as_a_form_is_told_which_type_it_needs() -> None:
    """`curl -d` says that it sends a form unless it is told otherwise."""
    for raw in (b'{"order": 1}', b' {"url": "?a=1&b=2"}', b"[1,", b'["=", 1e400]'):
        with pytest.raises(BodyRefused, match="JSON needs Content-Type: application/json"):
            read(raw, FORM)


def test_a_form_that_cannot_be_decoded_says_where() -> None:
    assert refused(b"a=1&b=%E6%9D%B1&c=x%FFy", FORM) == (
        400,
        "the form cannot be read: field 3 is not utf-8 (0xff is no text)",
    )
    assert "more than 1,000 fields" in refused(b"a=&" * 1000, FORM, limit=10_000)[1]


def test_a_number_that_would_change_is_named_with_its_place() -> None:
    status, why = refused(b'{"a": [1, 12345678901234567.89]}')
    assert status == 400
    assert "at $.a[1], 12345678901234567.89 cannot be kept exactly" in why


def test_several_content_types_are_none() -> None:
    assert refused(b"{}", JSON, b"text/plain") == (400, "there are several content types")


@pytest.mark.parametrize("name", [b"gzip", b"x-gzip", b"GZIP", b"deflate"])
def test_a_packed_body_is_unpacked(name: bytes) -> None:
    pack = zlib.compress if name == b"deflate" else gzip.compress
    assert read(pack(b'{"a": 1}'), JSON, encodings=[name]) == {"a": 1}
    assert read(b"{}", JSON, encodings=[b"identity"]) == {}


def test_a_gzip_body_may_have_several_members_but_not_any_number() -> None:
    two = gzip.compress(b'{"a":') + gzip.compress(b" 1}", mtime=0)
    assert read(two, JSON, encodings=[b"gzip"]) == {"a": 1}
    many = gzip.compress(b"", mtime=0) * 200
    assert "more than 100 members" in refused(many, JSON, encodings=[b"gzip"])[1]


def test_unpacking_stops_at_the_limit() -> None:
    bomb = gzip.compress(b" " * 100_000_000)
    assert refused(bomb, JSON, encodings=[b"gzip"])[0] == 413
    exact = gzip.compress(b'"' + b"x" * 998 + b'"')
    assert read(exact, JSON, encodings=[b"gzip"]) == "x" * 998


@pytest.mark.parametrize(
    ("raw", "encodings", "status"),
    [
        (b"{}", [b"gzip"], 400),
        (gzip.compress(b"{}", mtime=0)[:-4], [b"gzip"], 400),
        (gzip.compress(b"{}", mtime=0) + b"rest", [b"gzip"], 400),
        (b"{}", [b"br"], 415),
        (b"{}", [b"gzip", b"gzip"], 415),
        (b"{}", [b"\xff"], 415),
    ],
)
def test_what_is_not_packed_as_it_says_is_refused(
    raw: bytes, encodings: list[bytes], status: int
) -> None:
    assert refused(raw, JSON, encodings=encodings)[0] == status


@pytest.mark.parametrize(
    ("expects", "content_type", "fine"),
    [
        ("json", JSON, True),
        ("json", b"text/plain", True),
        ("json", b"application/octet-stream", True),
        ("json", FORM, False),
        ("json", b"application/xml", False),
        ("json", None, True),
        ("form", FORM, True),
        ("form", JSON, False),
        ("form", None, True),
        ("text", b"text/html", True),
        ("text", None, True),
        ("text", JSON, False),
    ],
)
def test_a_trigger_can_say_what_it_expects(
    expects: str, content_type: bytes | None, fine: bool
) -> None:
    raw = b"a=1" if expects == "form" else b'{"a": 1}'
    given = [content_type] if content_type else []
    if fine:
        wanted = {"json": {"a": 1}, "form": {"a": "1"}, "text": '{"a": 1}'}[expects]
        assert read(raw, *given, expects=expects) == wanted
    else:
        assert refused(raw, *given, expects=expects)[0] == 415
