"""FILE triggers on object stores: `s3://bucket/in/*.csv`, `gs://…`, `az://…`, `file:///…`.

A store tells nobody when an object arrives, so it is listed; the version of an object is what the
store says of it (size, time, ETag). The input's `path` is the object's URL. Which account is used
is for the environment of the process to say, as the store's own tools do; none of it passes here.

Needs the extra `stores` (obstore). Listing is by prefix: everything before the first pattern.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from suimon.errors import SuimonError
from suimon.triggers import file_rules
from suimon.triggers.file_rules import Rules
from suimon.triggers.files import CONTENT
from suimon.triggers.listing import EMPTY, Report, Seen

_PAGE: Final = 1_000
_FEWEST: Final = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bucket:
    """One trigger's objects. `url` is what the store is opened with, without an end slash."""

    url: str
    rules: Rules
    store: Any

    def look(self, report: Report) -> Iterator[Seen]:
        """The objects that are meant. A store that does not answer is a trouble, not an end."""
        try:
            for page in self.store.list(chunk_size=_PAGE):
                for meta in page:
                    seen = self._judged(meta, report)
                    if seen is not None:
                        yield seen
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            report.vanished = True
            report.trouble(self.url.encode(), _first_line(error))

    def content_key(self, seen: Seen) -> str | None:
        """The key of what is in the object; None when it is not that version any more."""
        got = self.store.get(seen.path.decode()[len(self.url) + 1 :])
        if _tag(got.meta) != seen.tag:
            return None
        digest = hashlib.sha256()
        for piece in got.stream(min_chunk_size=_FEWEST):
            digest.update(piece)
        return CONTENT + digest.hexdigest()

    def _judged(self, meta: Mapping[str, Any], report: Report) -> Seen | None:
        below = str(meta["path"])
        names = below.split("/")
        states = self.rules.start
        for name in names:
            states = self.rules.step(states, name)
        if not self.rules.is_whole(states):
            return None
        path = f"{self.url}/{below}".encode("utf-8", "surrogatepass")
        for end in range(1, len(names) + 1):
            ignored = self.rules.ignored_by("/".join(names[:end]))
            if ignored is not None:
                report.leave(path, f'ignored by "{ignored}"')
                return None
        if not meta["size"] and not self.rules.take_empty:
            report.leave(path, EMPTY)
            return None
        changed = meta["last_modified"]
        mtime_ns = int(changed.timestamp()) * 10**9 + changed.microsecond * 1000
        return Seen(path, int(meta["size"]), mtime_ns, 0, 0, _tag(meta))


def bucket(spec: Mapping[str, Any], *, store: Any = None) -> Bucket:
    """The objects of a stored FILE trigger whose path is an address."""
    url, parts = split(str(spec["path"]))
    rules = file_rules.with_options(spec, url, parts)
    return Bucket(url, rules, store if store is not None else _opened(url))


def split(pattern: str) -> tuple[str, tuple[str, ...]]:
    """(URL of the prefix, parts): `s3://b/in/*.csv` is `s3://b/in` and `*.csv`."""
    scheme, _, rest = pattern.partition(":")
    slashes = rest[: len(rest) - len(rest.lstrip("/"))]
    base, parts = file_rules.split(rest)
    plain = base.strip("/")
    if len(slashes) == 2 and not plain:  # no bucket's name can be a pattern
        plain, parts = parts[0], parts[1:] or ("*",)
    return f"{scheme}:{slashes}{plain}".rstrip("/"), parts


def _opened(url: str) -> Any:
    try:
        from obstore import store
    except ImportError:
        msg = f'"{url}" lies in an object store, and "obstore" is not installed'
        raise SuimonError(msg, hint='Install the extra: pip install "suimon[stores]"') from None
    try:
        return store.from_url(url)
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        msg = f'the object store "{url}" cannot be opened'
        raise SuimonError(msg, detail=_first_line(error)) from None


def _tag(meta: Mapping[str, Any]) -> str:
    return str(meta.get("e_tag") or meta.get("version") or "")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
