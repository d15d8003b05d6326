"""The keys with which stored secrets are encrypted, and where a process has them from.

    SUIMON_SECRET_KEY       base64 of 32 bytes (openssl rand -base64 32)
    SUIMON_SECRET_KEY_FILE  a file with the same in its first line; nobody else may read it
    SUIMON_SECRET_KEY_OLD   the key before, while rotating (or the file's second line)

A key never leaves its process: the database knows its fingerprint, from which nothing of the key
can be computed. A process without a key has a ring without keys; it reads `env:` and `file:`
references all the same, and says which setting is missing when a stored secret is asked for.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from suimon.errors import SecretKeyMissing, SecretKeyWrong

KEY: Final = "SUIMON_SECRET_KEY"
KEY_FILE: Final = "SUIMON_SECRET_KEY_FILE"
KEY_OLD: Final = "SUIMON_SECRET_KEY_OLD"
#: Variables that no task may be given.
VARIABLES: Final = (KEY, KEY_FILE, KEY_OLD)

_BYTES: Final = 32
_FILE_BYTES: Final = 4096
_ID_CHARS: Final = 12
_MAKE: Final = "Make one: openssl rand -base64 32"
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `id` stands beside what it has encrypted, `fingerprint` tells it from others."""

    id: str
    fingerprint: str
    raw: bytes = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> Key:
        print_ = hmac.new(raw, b"suimon secret key", hashlib.sha256).hexdigest()
        return cls(print_[:_ID_CHARS], print_, raw)

    @classmethod
    def parse(cls, text: str, where: str) -> Key:
        """From base64. Raises SecretKeyWrong, which does not repeat the text."""
        try:
            raw = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != _BYTES:
            msg = f"{where} is no key: it must be base64 of {_BYTES} bytes"
            raise SecretKeyWrong(msg, hint=_MAKE)
        return cls.of(raw)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """What one process can resolve references with: its keys, and the environment it was given.

    A worker runs with a clean environment; then `environment` is the one that it was started with.
    """

    current: Key | None = None
    old: Key | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> KeyRing:
        """As the settings say. Raises SecretKeyWrong for a key that cannot be one."""
        text, path, old = (environment.get(name) for name in (KEY, KEY_FILE, KEY_OLD))
        if text and path:
            msg = f"{KEY} and {KEY_FILE} are both set"
            raise SecretKeyWrong(msg, hint="Set one of them.")
        current = before = None
        if path:
            lines = _lines(path)
            current = Key.parse(lines[0], f'the first line of "{path}"')
            if len(lines) > 1:
                before = Key.parse(lines[1], f'the second line of "{path}"')
        elif text:
            current = Key.parse(text, KEY)
        if old:
            before = Key.parse(old, KEY_OLD)
        if before is not None and current is None:
            msg = f"{KEY_OLD} is set and {KEY} is not"
            raise SecretKeyMissing(msg, hint=f"The key that is used is {KEY}; {KEY_OLD} is beside.")
        return cls(current, before, environment)

    def keys(self) -> dict[str, Key]:
        """By id."""
        return {one.id: one for one in (self.old, self.current) if one is not None}

    def needed(self) -> Key:
        """The current key, or SecretKeyMissing with the setting to make."""
        if self.current is None:
            msg = "this process has no key for stored secrets"
            hint = (
                f"Set {KEY} (or {KEY_FILE}) and start it again; a first key is made by: "
                "openssl rand -base64 32"
            )
            raise SecretKeyMissing(msg, hint=hint)
        return self.current


def read_file(path: str, limit: int) -> tuple[int, bytes]:
    """Mode and first bytes of a regular file; a pipe or a device is not waited for: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return mode, os.read(fd, limit)
    finally:
        os.close(fd)


def _lines(path: str) -> list[str]:
    """The keys of a file that only its owner (and its group) can read."""
    try:
        mode, raw = read_file(path, _FILE_BYTES)
    except OSError as error:
        msg = f'the key file "{path}" cannot be read: {error.strerror}'
        raise SecretKeyMissing(msg, hint=f"{KEY_FILE} names it.") from None
    if mode & _OTHERS:
        msg = f'the key file "{path}" can be read by everybody'
        raise SecretKeyWrong(msg, hint=f"chmod 600 {path}; then think about a new key.")
    lines = [line for line in raw.decode("ascii", "replace").splitlines() if line.strip()]
    if not 1 <= len(lines) <= 2:
        msg = f'the key file "{path}" has {len(lines)} lines'
        hint = "One line with the key; while rotating a second one with the key before."
        raise SecretKeyWrong(msg, hint=hint)
    return lines
