"""How answers look: JSON with the names the command line prints, pages, and ETags.

A page's cursor is opaque: it holds the place to go on from and a fingerprint of the question, so
that a cursor of another list, or of another filter, is refused rather than misread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from fastapi import Request, Response

from suimon.api.refusals import Malformed, MatchMissing, Stale

#: Rows of a page: what is usual, and the most.
PAGE: Final = 50
MOST: Final = 1000
_CURSOR_CHARS: Final = 1000
_ID_LETTERS: Final = frozenset("0123456789abcdef-")


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer for programs; nothing keeps it."""
    made = {"Cache-Control": "no-store", **(headers or {})}
    return Response(orjson.dumps(value), status, made, "application/json")


def page(
    items: Sequence[Any], question: Mapping[str, Any], next_place: Any, **more: Any
) -> Response:
    """``next_place``: what goes on from here; None: this was the last page."""
    cursor = None if next_place is None else made_cursor(question, next_place)
    return json({"items": list(items), "next_cursor": cursor, **more})


def made_cursor(question: Mapping[str, Any], place: Any) -> str:
    text = orjson.dumps([_fingerprint(question), place])
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(
    cursor: str | None, question: Mapping[str, Any], fits: Callable[[Any], bool]
) -> Any | None:
    """What ``made_cursor`` was given; None without a cursor. Raises Malformed."""
    if cursor is None:
        return None
    try:
        assert len(cursor) <= _CURSOR_CHARS
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        mark, place = orjson.loads(base64.b64decode(padded, b"-_", validate=True))
    except (AssertionError, ValueError, TypeError, UnicodeEncodeError, binascii.Error):
        mark, place = None, None
    if mark != _fingerprint(question) or not fits(place):
        msg = "the cursor does not belong to this list"
        hint = "Use next_cursor as it was given, with the same filter; or begin without one."
        raise Malformed(msg, hint=hint)
    return place


def is_id(place: Any) -> bool:
    """A place that is a whole id."""
    return isinstance(place, str) and len(place) == 36 and not set(place) - _ID_LETTERS


def _fingerprint(question: Mapping[str, Any]) -> str:
    text = orjson.dumps(dict(question), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:12]


def etag(value: Any) -> str:
    """A strong ETag of what can be edited."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.sha256(text).hexdigest()[:16]}"'


def check_match(request: Request, current: str) -> None:
    """``If-Match`` names the current state, or ``*``. Raises MatchMissing, Stale."""
    given = request.headers.getlist("if-match")
    if not given:
        msg = "an edit needs the header If-Match"
        raise MatchMissing(msg, hint="Read it first, and send its ETag as If-Match.")
    marks = [one.strip() for one in ",".join(given).split(",")]
    if "*" not in marks and current not in marks:
        raise stale(current)


def stale(current: str) -> Stale:
    msg = "it has changed since you read it"
    return Stale(msg, current=current, hint="Read it again, and send the new ETag.")
