"""What a webhook brought, as a JSON value that keeps every bit of it, or a refusal. Pure.

    content type                      the body becomes
    application/json, anything+json   the value (charset as named, otherwise UTF-8)
    x-www-form-urlencoded             an object: text, or a list of texts where a name comes twice
    text/*, XML                       the text (charset as named, otherwise UTF-8)
    none                              JSON; null when there is no body at all
    multipart and all others          refused with 415

`expects` narrows it: `json` reads text/plain and octet-streams as JSON too and refuses the rest,
`form` and `text` take nothing else. gzip and deflate are undone, up to the same limit as the body
itself. NaN, NUL and half surrogates are refused here, not found by the database later.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus

from suimon.core import jsonsafe
from suimon.errors import InvalidJson, PayloadTooLarge

EXPECTS: Final = ("any", "json", "form", "text")
MAX_FIELDS: Final = 1_000
MAX_MEMBERS: Final = 100
FORM: Final = "application/x-www-form-urlencoded"

# Only these: some of Python's codecs are no character sets, and some take quadratic time.
_CHARSETS: Final = frozenset(
    [
        "utf-8", "utf8", "us-ascii", "ascii", "latin1", "latin-1", "koi8-r", "koi8-u",
        "utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be",
        "shift_jis", "shift-jis", "sjis", "cp932", "windows-31j", "ms932", "euc-jp", "iso-2022-jp",
        "gb2312", "gbk", "gb18030", "big5", "euc-kr",
        *(f"iso-8859-{n}" for n in (*range(1, 12), 13, 14, 15, 16)),
        *(f"{name}{n}" for name in ("windows-", "cp") for n in range(1250, 1259)),
    ]
)  # fmt: skip
_WINDOWS_31J: Final = frozenset({"shift_jis", "shift-jis", "sjis", "windows-31j", "ms932"})


class BodyRefused(Exception):  # noqa: N818  (it says what happened)
    """The answer's status, a stable code for the log, and the reason that the sender is told."""

    def __init__(self, status: int, code: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.code = code
        self.why = why


@dataclass(frozen=True, slots=True)
class Media:
    """A content type: `application/json`, and its charset in lower case."""

    type: str = ""
    charset: str | None = None


def decode(
    raw: bytes,
    content_type: Sequence[bytes],
    content_encoding: Sequence[bytes],
    *,
    limit: int,
    expects: str = "any",
) -> Any:
    """The body as a JSON value; `limit` is also that of the inflated body. Raises BodyRefused."""
    plain = inflate(raw, content_encoding, limit)
    media = parse(content_type)
    kind = _kind(media, expects)
    if not plain and kind is None:
        return None
    if not plain and kind != "text":
        raise BodyRefused(400, "body", f"the body is empty, and {kind} cannot be")
    if kind == "text":
        return _checked(_text(plain, media))
    if kind == "form":
        return _form(plain, media)
    return _json(plain, media, guessed=kind is None)


def parse(values: Sequence[bytes]) -> Media:
    """The one content type of a call."""
    if not values:
        return Media()
    if len(values) > 1:
        raise BodyRefused(400, "media_type", "there are several content types")
    name, *parameters = values[0].decode("latin-1").split(";")
    charset = None
    for parameter in parameters[:20]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            charset = value.strip().strip("\"'").lower()
    return Media(name.strip().lower()[:200], charset)


def inflate(raw: bytes, encodings: Sequence[bytes], limit: int) -> bytes:
    """gzip and deflate undone, never more than `limit` bytes of it in memory."""
    named = b",".join(encodings).decode("latin-1").strip().lower()
    if named in ("", "identity"):
        return raw
    windows = {"gzip": 31, "x-gzip": 31, "deflate": 15}.get(named)
    if windows is None:
        known = "gzip, deflate and identity are"
        raise BodyRefused(415, "media_type", f"this content encoding is not known; {known}")
    unpacked, left = b"", raw
    try:
        for _ in range(MAX_MEMBERS):  # a gzip body may have several
            if not left:
                return unpacked
            inflater = zlib.decompressobj(windows)
            unpacked += inflater.decompress(left, limit + 1 - len(unpacked))
            if len(unpacked) > limit:
                raise BodyRefused(413, "too_large", f"inflated, the body exceeds {limit:,} bytes")
            if not inflater.eof:
                raise BodyRefused(400, "body", f"the {named} body breaks off")
            left = inflater.unused_data
    except zlib.error:
        raise BodyRefused(400, "body", f"the body is not {named}") from None
    raise BodyRefused(400, "body", f"the {named} body has more than {MAX_MEMBERS} members")


def _kind(media: Media, expects: str) -> str | None:
    """json, form or text; None where nothing is said about it."""
    name = media.type
    if expects == "json" and name in ("", "text/plain", "application/octet-stream"):
        return "json"
    if not name:
        found = None if expects == "any" else expects
    elif name == "application/json" or name.endswith("+json"):
        found = "json"
    elif name == FORM:
        found = "form"
    elif name.startswith("text/") or name == "application/xml" or name.endswith("+xml"):
        found = "text"
    else:
        told = "files cannot be sent here" if name.startswith("multipart/") else "not read here"
        raise BodyRefused(415, "media_type", f"content type {name[:100]!r}: {told}; send JSON")
    if expects not in ("any", found):
        why = f"content type {name[:100]!r}: {expects} is expected here"
        raise BodyRefused(415, "media_type", why)
    return found


def _text(plain: bytes, media: Media) -> str:
    charset = media.charset or "utf-8"
    if charset not in _CHARSETS:
        raise BodyRefused(415, "media_type", f"the charset {charset[:100]!r} is not known")
    # what calls itself Shift-JIS is Windows-31J in the field: a superset
    name = "cp932" if charset in _WINDOWS_31J else charset
    try:
        return plain.decode("utf-8-sig" if name in ("utf-8", "utf8") else name)
    except UnicodeDecodeError as error:
        place = f"byte {error.start:,}"
        raise BodyRefused(400, "body", f"the body is not {charset} at {place}") from None


def _json(plain: bytes, media: Media, *, guessed: bool) -> Any:
    try:
        return jsonsafe.loads(_text(plain, media), what="body")
    except PayloadTooLarge as error:
        raise BodyRefused(413, "too_large", error.message) from None
    except InvalidJson as error:
        if guessed and error.detail:  # (what the parser said: it is no JSON at all)
            why = "there is no content type, and the body is not JSON"
            raise BodyRefused(415, "media_type", why) from None
        why = f"{error.message} ({error.detail})" if error.detail else error.message
        raise BodyRefused(400, "body", why[:500]) from None


def _form(plain: bytes, media: Media) -> dict[str, Any]:
    text = _text(plain, media)
    if _is_json(text):  # what `curl -d` says unless it is told
        why = "the form cannot be read: it is JSON; JSON needs Content-Type: application/json"
        raise BodyRefused(400, "body", why)
    if "=" not in text:
        raise BodyRefused(400, "body", "the form cannot be read: no field of it has a value")
    if text.count("&") >= MAX_FIELDS:
        raise BodyRefused(400, "body", f"the form has more than {MAX_FIELDS:,} fields")
    found: dict[str, Any] = {}
    for number, pair in enumerate(text.split("&"), start=1):
        if not pair:
            continue
        name, _, value = (_unquoted(part, media, number) for part in pair.partition("="))
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return dict(_checked(found))


def _is_json(text: str) -> bool:
    """A browser writes no bare bracket: it is JSON, or was meant to be, unless fields follow."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    if "=" not in text:
        return True
    try:
        jsonsafe.loads(text)
    except (InvalidJson, PayloadTooLarge) as error:
        return not error.detail
    return True


def _unquoted(part: str, media: Media, number: int) -> str:
    charset = media.charset or "utf-8"
    encoding = "cp932" if charset in _WINDOWS_31J else charset
    try:
        return unquote_plus(part, encoding=encoding, errors="strict")
    except UnicodeDecodeError as error:
        found = error.object[error.start : error.start + 1].hex()
        why = f"the form cannot be read: field {number} is not {charset} (0x{found} is no text)"
        raise BodyRefused(400, "body", why) from None


def _checked(value: Any) -> Any:
    """Text can hold what JSON in PostgreSQL cannot: NUL."""
    try:
        jsonsafe.dumps(value, what="body")
    except PayloadTooLarge as error:
        raise BodyRefused(413, "too_large", error.message) from None
    except InvalidJson as error:
        raise BodyRefused(400, "body", error.message) from None
    return value
