"""Object stores by URL: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`.

Which account is used is for the environment of each process to say, as the store's own tools do: a
URL holds no credentials, and one that does is refused. Needs the extra `stores` (obstore).

A folder must be there, and holds a mark from the day it was named: a share that is not mounted is a
store that is away, never a new one.

A store that does not answer is asked for at most ``ANSWER_SECONDS`` and then, by this process, not
again for ``REST_SECONDS``: until then it is away at once, so that nobody waits for it again and
again.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from suimon.core import clock
from suimon.errors import InputRefused, StoreUnavailable

T = TypeVar("T")

SCHEMES: Final = ("s3", "gs", "az", "file")
#: Objects of one call that are under way at the same time.
AT_ONCE: Final = 8
ANSWER_SECONDS: Final = 20
REST_SECONDS: Final = 15.0
_CONNECT_SECONDS: Final = 5
#: The file in a folder by which it is known as a store.
MARK: Final = "suimon-store"
#: Writers of one object of a folder at the same moment whose leavings are removed.
_BEGUN: Final = 8

_away: dict[str, tuple[float, str]] = {}
_lock = threading.Lock()


def checked(url: str) -> str:
    """The URL as it is kept, without an end slash. Raises InputRefused.

    Tries it: a small object is written, read and deleted again. Raises StoreUnavailable. A folder
    gets its mark.
    """
    plain = url.strip().rstrip("/")
    parts = urlsplit(plain)
    if parts.scheme not in SCHEMES:
        msg = (
            f'"{parts.scheme}" is no object store' if parts.scheme else "this is no URL of a store"
        )
        raise InputRefused(msg, path="objects", hint="One of s3://, gs://, az://, file:///folder")
    if "@" in parts.netloc or parts.query or parts.fragment:
        msg = "the URL of an object store holds no credentials and no options"
        hint = "Give them in the environment of each process, as the store's own tools read them."
        raise InputRefused(msg, path="objects", hint=hint)
    is_file = parts.scheme == "file"
    where = parts.path.strip("/") if is_file else parts.netloc
    if not where or (is_file and parts.netloc) or not plain.isprintable():
        msg = "the URL names no bucket and no folder"
        raise InputRefused(msg, path="objects", hint="s3://bucket/prefix, or file:///folder")
    if is_file:
        _mark(plain)
    probe = f"{plain}/suimon-check"
    put({probe: b"suimon"})
    if get([probe])[probe] != b"suimon":
        raise unavailable(plain, "it gives back something else than was put")
    delete([probe])
    return plain


def _mark(url: str) -> None:
    folder = _path(url)
    if not folder.is_dir():
        msg, hint = f'"{folder}" is no folder on this machine', "Make it, or mount it, then again"
        raise InputRefused(msg, path="objects", hint=hint)
    try:
        (folder / MARK).write_text("Suimon puts large contents here. Do not delete this file.\n")
    except OSError as error:
        raise unavailable(url, first_line(error)) from None


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def opened(url: str) -> Any:
    """The store below a URL, opened once a process. Raises StoreUnavailable."""
    with _lock:
        return _opened(url)


@functools.lru_cache(maxsize=64)
def _opened(url: str) -> Any:
    try:
        from obstore import store
    except ImportError:
        msg = f'"{url}" lies in an object store, and "obstore" is not installed'
        raise StoreUnavailable(
            msg, hint='Install the extra: pip install "suimon[stores]"'
        ) from None
    options: dict[str, Any] = {
        "client_options": {
            "timeout": f"{ANSWER_SECONDS}s", "connect_timeout": f"{_CONNECT_SECONDS}s",
        },
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=ANSWER_SECONDS)},
    }  # fmt: skip
    if url.startswith(("file:", "memory:")):
        options = {}
    try:
        return store.from_url(url, **options)
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        raise unavailable(url, first_line(error)) from None


def put(objects: Mapping[str, bytes]) -> None:
    """Write objects by their whole URL, ``AT_ONCE`` at a time. Raises StoreUnavailable."""
    _each(objects, lambda store, name, url: store.put(name, objects[url]))


def get(places: Sequence[str]) -> dict[str, bytes]:
    """Read objects by their whole URL. Raises StoreUnavailable, also for one that is not there."""
    return _each(places, lambda store, name, _: bytes(store.get(name).bytes()))


def delete(places: Sequence[str]) -> None:
    """Delete objects by their whole URL; one that is not there is none. Raises StoreUnavailable."""

    def act(store: Any, name: str, url: str) -> None:
        _delete_unfinished(url)
        try:
            store.delete(name)
        except FileNotFoundError:
            return

    _each(places, act)


def _delete_unfinished(url: str) -> None:
    """A folder keeps what a killed writer had begun, beside the object, as `NAME#1`, `NAME#2`, …"""
    if url.startswith("file:"):
        object_ = _path(url)
        for number in range(1, _BEGUN + 1):
            object_.with_name(f"{object_.name}#{number}").unlink(missing_ok=True)


def _each(
    places: Sequence[str] | Mapping[str, bytes], act: Callable[[Any, str, str], T]
) -> dict[str, T]:
    """Do it for each, in parallel; the first that fails is raised when all have been tried."""

    def one(url: str) -> T:
        base, _, name = url.rpartition("/")
        _refuse_if_away(base)
        try:
            return act(opened(base), name, url)
        except StoreUnavailable:
            raise
        except FileNotFoundError as error:  # it answers: this one object is not there
            raise unavailable(url, first_line(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            why = first_line(error)
            _away[base] = (clock.monotonic() + REST_SECONDS, why)
            raise unavailable(base, why) from None

    listed = list(places)
    if len(listed) == 1:
        return {listed[0]: one(listed[0])}
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, max(1, len(listed)))) as pool:
        under_way = {url: pool.submit(one, url) for url in listed}
    return {url: future.result() for url, future in under_way.items()}


def _refuse_if_away(base: str) -> None:
    until, why = _away.get(base, (0.0, ""))
    if until > clock.monotonic():
        raise unavailable(base, why)
    if base.startswith("file:") and not (_path(base) / MARK).exists():
        raise unavailable(base, f'the folder has no "{MARK}": it is gone, or not mounted')


def unavailable(url: str, why: str) -> StoreUnavailable:
    msg = f'the object store "{url}" does not do what it was asked'
    hint = "Credentials come from the environment of this process. What is there is not lost."
    return StoreUnavailable(msg, detail=why, hint=hint)


def first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def is_whole(body: bytes, sha256: bytes) -> bool:
    """Is this what was kept? Asked of what comes from outside the database."""
    return hashlib.sha256(body).digest() == sha256
