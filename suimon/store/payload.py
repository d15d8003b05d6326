"""Contents: what is too large for a row, kept once by its SHA-256, compressed, counted.

A payload (an input, a result) and a part of an artifact are references; the database counts them
and removes a content nobody refers to (db/schema.sql). Here contents are made and opened, and
nowhere else. Writers say what they will refer to before their transaction, and write it inside:

    def act(kept: Kept) -> ...:
        with transaction(conn):
            kept.write(conn)
            refer(conn, [(run, "output", kept[text])])
    keeping(conn, [text], act)

Where the operator has named an object store, contents of ``OBJECT_BYTES`` and more go there. First
the intent, a row without a reference, is committed; then the object is put; then the writer's
transaction refers to it, and is repeated when the row has gone meanwhile. So there is never an
object without a row. When the store does not answer the content stays in the database: nobody waits
and nothing is lost.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import psycopg
import zstandard
from psycopg.pq import TransactionStatus

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import StoreUnavailable
from suimon.store import objects

log = logging.getLogger("suimon.store")

SQL = statements(__package__, "payload.sql")
T = TypeVar("T")

#: Raw bytes from which on a content goes to the object store, where there is one.
OBJECT_BYTES: Final = 64 * 1024
LEVEL: Final = 3
#: Contents of one statement that reads.
READ: Final = 100
#: Raw bytes of contents that a page of several rows brings; at least one row comes.
PAGE_BYTES: Final = 16 * 1024 * 1024
GONE: Final = "SUI41"
_TRIES: Final = 5

_contexts = threading.local()


@dataclass(frozen=True, slots=True)
class Content:
    """One content, ready to be kept. ``body`` None: its row and its object are there already."""

    sha256: bytes
    size: int
    codec: str
    body: bytes | None


class Kept:
    """The contents that one transaction will refer to, by what was given (text or bytes)."""

    def __init__(self, contents: Mapping[str | bytes, Content]) -> None:
        self._contents = contents

    def __bool__(self) -> bool:
        return bool(self._contents)

    def __getitem__(self, given: str | bytes) -> bytes:
        return self._contents[given].sha256

    def get(self, given: str | bytes) -> bytes | None:
        """The digest, or None for what was not kept because it is small."""
        found = self._contents.get(given)
        return None if found is None else found.sha256

    def write(self, conn: Connection) -> None:
        """Before the first reference, in the same transaction; sends nothing where nothing is."""
        here = {c.sha256: c for c in self._contents.values() if c.body is not None}
        if here:
            conn.execute(SQL.keep, _columns([here[key] for key in sorted(here)]))

    def drop_unused(self, conn: Connection) -> None:
        """After all references, in the same transaction: drop what nobody refers to.

        An object stays for the duty: it may be another writer's intent.
        """
        digests = sorted({c.sha256 for c in self._contents.values() if c.body is not None})
        if digests:
            conn.execute(SQL.drop_unused, {"sha256": digests})


NOTHING: Final = Kept({})


def known(contents: Mapping[str | bytes, bytes]) -> Kept:
    """What is referred to already, and will be by this transaction too: its digest by its text."""
    return Kept({given: Content(digest, 0, "none", None) for given, digest in contents.items()})


def keeping(conn: Connection, given: Sequence[str | bytes], act: Callable[[Kept], T]) -> T:
    """Make contents of these ready and call ``act`` (whole transactions), again if one has gone."""
    if not given:
        return act(NOTHING)
    for left in range(_TRIES - 1, -1, -1):
        kept = ready(conn, given)
        try:
            return act(kept)
        except psycopg.Error as error:
            if error.diag.sqlstate != GONE or left == 0:
                raise
    raise AssertionError


def refer(conn: Connection, references: Sequence[tuple[str, str, bytes]]) -> None:
    """Write references (run id, name, digest); an earlier one of that name is replaced."""
    ids, names, digests = zip(*references, strict=True)
    conn.execute(SQL.refer, {"run_ids": list(ids), "names": list(names), "contents": list(digests)})


# ------------------------------------------------------------------------------------- making


def pack(raw: bytes) -> Content:
    """Compressed, where that makes it smaller."""
    if not hasattr(_contexts, "compressor"):
        _contexts.compressor = zstandard.ZstdCompressor(level=LEVEL)
    small = _contexts.compressor.compress(raw)
    codec, body = ("zstd", small) if len(small) < len(raw) else ("none", raw)
    return Content(hashlib.sha256(raw).digest(), len(raw), codec, body)


def ready(conn: Connection, given: Sequence[str | bytes]) -> Kept:
    """Contents of these, to be written; inside a transaction they stay in the database.

    Who calls it outside of one calls ``keeping``.
    """
    packed = {
        one: pack(one.encode() if isinstance(one, str) else one) for one in dict.fromkeys(given)
    }
    large = {c.sha256: c for c in packed.values() if c.size >= OBJECT_BYTES}
    # (inside somebody's transaction an intent would not be there before the object is)
    if large and conn.info.transaction_status == TransactionStatus.IDLE:
        url = object_url(conn)
        if url is not None:
            moved = _put(conn, url, large)
            packed = {one: moved.get(c.sha256, c) for one, c in packed.items()}
    return Kept(packed)


def object_url(conn: Connection) -> str | None:
    """Where large contents go now; None: into the database."""
    row = conn.execute(SQL.object_url).fetchone()
    return None if row is None else row[0]


def _put(conn: Connection, url: str, large: Mapping[bytes, Content]) -> dict[bytes, Content]:
    """Those that are in the store now, or wherever they were already."""
    listed = list(large.values())
    places = [f"{url}/{c.sha256.hex()}" for c in listed]
    rows = conn.execute(SQL.intend, {**_columns(listed), "places": places}).fetchall()
    waiting = {
        to: _with_codec(large[digest], codec) for digest, codec, to in rows if to is not None
    }
    try:
        if waiting:
            objects.put(waiting)
    except StoreUnavailable as error:
        log.warning("%s (%s); large contents stay in the database", error.message, error.detail)
        away = {digest for digest, _, to in rows if to is not None}
    else:
        away = set()
    return {digest: replace(c, body=None) for digest, c in large.items() if digest not in away}


def _with_codec(content: Content, codec: str) -> bytes:
    """Its bytes as the row says that they are kept: whoever wrote the row chose the codec."""
    assert content.body is not None
    if codec == content.codec:
        return content.body
    raw = unpack(content.codec, content.body, content.size)
    return raw if codec == "none" else zstandard.ZstdCompressor(level=LEVEL).compress(raw)


def _columns(contents: Sequence[Content]) -> dict[str, Any]:
    return {
        "sha256": [c.sha256 for c in contents],
        "sizes": [c.size for c in contents],
        "stored": [len(c.body or b"") for c in contents],
        "codecs": [c.codec for c in contents],
        "bodies": [c.body for c in contents],
    }


# ------------------------------------------------------------------------------------- opening


def unpack(codec: str, body: bytes, size: int) -> bytes:
    """The raw bytes; ZstdError for a damaged body, which never becomes more than ``size``."""
    if codec == "none":
        return body
    if zstandard.frame_content_size(body) != size:
        msg = "the body does not hold as many bytes as its row says"
        raise zstandard.ZstdError(msg)
    return zstandard.ZstdDecompressor().decompress(body)


def read(conn: Connection, digests: Iterable[bytes | None]) -> dict[bytes, bytes]:
    """Digest → raw bytes of those that are there, wherever that is. Raises StoreUnavailable."""
    return {digest: raw for digest, raw in _opened(conn, digests, patient=False) if raw is not None}


def read_each(conn: Connection, digests: Iterable[bytes | None]) -> dict[bytes, bytes | None]:
    """The same; None for those whose object store does not answer now."""
    return dict(_opened(conn, digests, patient=True))


def text(conn: Connection, inline: str | None, digest: bytes | None) -> str | None:
    """What stands on the row, or its content as text; None where neither is."""
    if inline is not None or digest is None:
        return inline
    found = read(conn, [digest]).get(digest)
    return None if found is None else found.decode()


def _opened(
    conn: Connection, digests: Iterable[bytes | None], *, patient: bool
) -> Iterator[tuple[bytes, bytes | None]]:
    wanted = sorted({digest for digest in digests if digest is not None})
    for start in range(0, len(wanted), READ):
        rows = conn.execute(SQL.read, {"sha256": wanted[start : start + READ]}).fetchall()
        far: dict[str, tuple[bytes, str, int]] = {}
        for digest, codec, place, body, size in rows:
            if body is None:
                far[place] = (digest, codec, size)
            else:
                yield digest, unpack(codec, body, size)
        if far:
            yield from _fetched(far, patient=patient)


def _fetched(
    far: Mapping[str, tuple[bytes, str, int]], *, patient: bool
) -> Iterator[tuple[bytes, bytes | None]]:
    try:
        bodies = objects.get(list(far))
    except StoreUnavailable:
        if not patient:
            raise
        bodies = {}
    for place, (digest, codec, size) in far.items():
        body = bodies.get(place)
        if body is None:
            yield digest, None
            continue
        try:
            raw = unpack(codec, body, size)
        except zstandard.ZstdError:
            raw = b""
        if not objects.is_whole(raw, digest):
            if patient:
                yield digest, None
                continue
            raise objects.unavailable(place, "what is there is not what was put")
        yield digest, raw


def within_page(sizes: Iterable[int]) -> int:
    """How many rows of a page fit ``PAGE_BYTES``, by what each brings; one does in any case."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > PAGE_BYTES:
            break
        count += 1
    return count
