"""Secrets are taken out of text: plain, and in the spellings in which programs print them.

    hidden = Redactor(); hidden.add({"crm_token": "p@ss"})
    hidden.text("password=p%40ss")               # "password=[secret crm_token]"
    stream = hidden.stream(); stream.feed("p@")  # "": it may be the beginning of one
    stream.feed("ss\\n"); stream.end()

Found are each value, and each of its lines of four characters or more: as it is, URL-encoded (four
dialects, either case), JSON-escaped, as Python's `repr`, HTML-escaped, shell-quoted, in base64 (any
alignment, URL-safe too, wrapped at 64 or 76 columns) and in hexadecimal. Not found is what nobody
can list: a value in pieces with something between, reversed, compressed, encrypted, encoded twice.

A redactor that knows nothing costs one look at an empty list. Bounds: a value has at most 64 KiB
and some fifty lines are looked for (of a longer one the first fifty, and the whole).
"""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from suimon.core import jsonsafe

#: Shorter pieces are ordinary words of any text.
SHORTEST: Final = 4
LINES: Final = 50
_WRAPS: Final = (57, 48)  # bytes of a base64 line of 76 and of 64 columns
_URL_SAFE: Final = ("", "/", "!'()*~", ";,/?:@&=+$#!'()*~-_.")


def spellings(value: str) -> set[str]:
    """Every text by which this value, or one of its lines, may be seen."""
    lines = [line.strip() for line in value.splitlines()]
    parts = {value, value.strip(), *lines[:LINES]}
    found: set[str] = set()
    for part in parts:
        found |= set(_spelled(part))
        found |= set(_coded(part.encode("utf-8", "surrogatepass")))
    return {one for one in found if len(one) >= SHORTEST}


def _spelled(part: str) -> Iterator[str]:
    if len(part) < SHORTEST:
        return
    yield part
    yield json.dumps(part)[1:-1]
    yield json.dumps(part, ensure_ascii=False)[1:-1]
    yield json.dumps(part)[1:-1].replace("/", "\\/")
    for quoted in (repr(part), ascii(part)):
        yield quoted[1:-1]
        yield repr(quoted)[1:-1]
    yield repr(part.encode("utf-8", "surrogatepass"))[2:-1]
    yield html.escape(part)
    yield html.escape(part, quote=False)
    yield html.escape(part).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield part.replace("'", "'\"'\"'")
    yield part.replace("'", "'\\''")
    raw = part.encode("utf-8", "surrogatepass")
    for safe in _URL_SAFE:
        for text in (urllib.parse.quote(raw, safe), urllib.parse.quote_plus(raw, safe)):
            yield text
            yield _lower_percent(text)
    if "\n" in part:
        yield part.replace("\n", "\r\n")


def _lower_percent(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join([first, *(one[:2].lower() + one[2:] for one in rest)])


def _coded(raw: bytes) -> Iterator[str]:
    if len(raw) < SHORTEST:
        return
    yield raw.hex()
    yield raw.hex().upper()
    texts = [base64.b64encode(raw).decode()]
    for before in range(3):
        # what depends on neighbours is cut away at both ends: 6 bits a character
        whole = base64.b64encode(bytes(before) + raw).decode()
        texts.append(whole[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6])
    for width in _WRAPS:
        pieces = [raw[at : at + width] for at in range(0, len(raw), width)]
        texts += [base64.b64encode(piece).decode() for piece in pieces if len(pieces) > 1]
    for text in texts:
        yield text
        yield text.rstrip("=")
        yield text.replace("+", "-").replace("/", "_")


class Redactor:
    """The values that one process holds, and how to take them out. Values are only ever added.

    `raw`: for bytes that are shown as the characters of their numbers (Latin-1).
    """

    __slots__ = ("_raw", "_values", "marks", "names")

    def __init__(self, values: Mapping[str, str] | None = None, *, raw: bool = False) -> None:
        self._raw = raw
        self._values: set[str] = set()
        #: Spelling to what stands in its place; the spellings, longest first.
        self.marks: dict[str, str] = {}
        self.names: tuple[str, ...] = ()
        self.add(values or {})

    def __bool__(self) -> bool:
        return bool(self.names)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Redactor({len(self._values)} values)"

    def add(self, values: Mapping[str, str]) -> None:
        """From now on these are taken out, too. A value that is known costs nothing."""
        fresh = {value: name for name, value in values.items() if value not in self._values}
        if not fresh:
            return
        self._values |= set(fresh)
        marks = dict(self.marks)
        for value, name in fresh.items():
            for text in spellings(value):
                seen = (
                    text.encode("utf-8", "surrogatepass").decode("latin-1") if self._raw else text
                )
                marks.setdefault(seen, f"[secret {name}]")
        # the marks first: another thread that goes through the names finds the mark of each
        self.marks = marks
        self.names = tuple(sorted(marks, key=len, reverse=True))

    def text(self, text: str) -> str:
        """The text without them."""
        return _replaced(text, self.names, self.marks, len(text))[0] if self.names else text

    def value(self, value: Any) -> Any:
        """JSON as Python has it, keys included; a number that reads like a secret is one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            cleaned: dict[Any, Any] = {}
            for key, inner in value.items():
                shown = self.text(key) if isinstance(key, str) else key
                while shown in cleaned:
                    shown = f"{shown}+"
                cleaned[shown] = self.value(inner)
            return cleaned
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self.marks.get(str(value), value)
        return value

    def json(self, text: bytes) -> bytes:
        """JSON text without them; the very same bytes when there are none in it."""
        if not self.names:
            return text
        value = orjson.loads(text)
        cleaned = self.value(value)
        return text if cleaned == value else jsonsafe.dumps(cleaned)

    def stream(self) -> Stream:
        """For text that comes in pieces: a secret may begin in one and end in the next."""
        return Stream(self)


class Stream:
    """Text in pieces. What may be the beginning of a secret is held back until it is known."""

    __slots__ = ("_held", "_of")

    def __init__(self, of: Redactor) -> None:
        self._of = of
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be shown by now."""
        names = self._of.names
        if not names:
            return text
        text = self._held + text
        shown, self._held = _replaced(text, names, self._of.marks, _begins_at(text, names, 0))
        return shown

    def end(self) -> str:
        """The rest: nothing follows."""
        text, self._held = self._held, ""
        return self._of.text(text)


def _latin(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _replaced(
    text: str, names: tuple[str, ...], marks: Mapping[str, str], until: int
) -> tuple[str, str]:
    """What lies before `until`, replaced leftmost and longest first; and the rest as it is.

    A secret that begins before `until` and ends behind it is replaced as a whole.
    """
    places = {name: at for name in names if (at := text.find(name)) >= 0}
    shown: list[str] = []
    done = 0
    while places:
        for name, at in list(places.items()):
            if at < done:
                again = text.find(name, done)
                if again < 0:
                    del places[name]
                else:
                    places[name] = again
        if not places:
            break
        name = min(places, key=lambda one: (places[one], -len(one)))
        start = places[name]
        if start >= until:
            break
        shown += (text[done:start], marks[name])
        done = start + len(name)
        if done > until:
            until = _begins_at(text, names, done)
    shown.append(text[done:until])
    return "".join(shown), text[until:]


def _begins_at(text: str, names: tuple[str, ...], low: int) -> int:
    """Where, from `low` on, the end of the text begins to look like a spelling; else its length."""
    best = size = len(text)
    for name in names:
        at = text.find(name[0], max(low, size - len(name) + 1), best)
        while at >= 0:
            if name.startswith(text[at:]):
                best = at
                break
            at = text.find(name[0], at + 1, best)
    return best
