"""Stored secrets, and the one resolver of references: `env:NAME`, `file:/path`, `secret:name`.

A value is encrypted with AES-256-GCM; its name, version and key id are authenticated with it, so a
row that was swapped or changed is refused, not decrypted to something else. A value is written by
`put`, read by whoever resolves it for one use, and never shown: there is no function that lists
values, and no error holds one.

Who has a key proves it at the start (`check`): a wrong key is one clear error before anything is
claimed. Rotation: every process gets both keys, `rotate` encrypts all values anew in batches (it
may be broken off and called again), then the old key is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from suimon.core import secret_names
from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import (
    InputRefused,
    SecretError,
    SecretKeyMissing,
    SecretKeyWrong,
    SecretMissing,
)
from suimon.store.secret_key import KEY, KEY_OLD, Key, KeyRing, read_file

SQL = statements(__package__, "secret.sql")

VALUE_BYTES: Final = 64 * 1024
#: Values that are encrypted anew in one transaction.
BATCH: Final = 100
PAGE: Final = 1000
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Stored:
    """One secret without its value."""

    name: str
    version: int
    key_id: str
    set_by: str
    set_at: Any


# --------------------------------------------------------------------------- references


def resolve(conn: Connection | None, ring: KeyRing, reference: str) -> str:
    """The value that a reference names. Raises SecretError, which names it and holds no value."""
    return resolve_all(conn, ring, [reference])[reference]


def resolve_all(
    conn: Connection | None, ring: KeyRing, references: Iterable[str]
) -> dict[str, str]:
    """The values by reference; one statement for all that are stored."""
    found: dict[str, str] = {}
    stored: dict[str, str] = {}
    for reference in references:
        if secret_names.reference(reference):
            msg = f"a secret {secret_names.reference(reference)}"
            raise SecretMissing(msg)
        kind, _, name = reference.partition(":")
        if kind == "env":
            found[reference] = _of_environment(ring, name)
        elif kind == "file":
            found[reference] = _of_file(name)
        else:
            stored[name] = reference
    if stored:
        assert conn is not None, "a stored secret needs the database"
        values = _of_database(conn, ring, list(stored))
        found |= {reference: values[name] for name, reference in stored.items()}
    return found


def _of_environment(ring: KeyRing, name: str) -> str:
    value = ring.environment.get(name)
    if not value:
        msg = f'the secret "env:{name}" is not set'
        hint = f"Set {name} in the environment of this process and start it again."
        raise SecretMissing(msg, hint=hint)
    return value


def _of_file(path: str) -> str:
    try:
        return checked(read_file(path, VALUE_BYTES + 1)[1], f'"file:{path}"')
    except InputRefused as error:
        raise SecretMissing(error.message) from None
    except OSError as error:
        msg = f'the secret "file:{path}" cannot be read: {error.strerror}'
        raise SecretMissing(msg, hint="It is read where the process runs that needs it.") from None


def _of_database(conn: Connection, ring: KeyRing, names: list[str]) -> dict[str, str]:
    rows = {row[0]: row for row in conn.execute(SQL.one, {"names": names}).fetchall()}
    for name in names:
        if name not in rows:
            msg = f'there is no secret "{name}"'
            known = [str(row[0]) for row in conn.execute(SQL.names, {"n": PAGE}).fetchall()]
            near = did_you_mean(name, known)
            hint = f"suimon secrets set {name}" + (f" ({near})" if near else "")
            raise SecretMissing(msg, hint=hint)
    return {name: _decrypted(ring, *rows[name]) for name in names}


def checked(raw: bytes, what: str) -> str:
    """A value as text, without its last line end. Raises InputRefused, without the value."""
    if len(raw) > VALUE_BYTES:
        msg = f"the value of {what} is longer than {VALUE_BYTES // 1024} KiB"
        raise InputRefused(msg, path="value")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        msg = f"the value of {what} is not UTF-8 text"
        raise InputRefused(msg, path="value", hint="Bytes are kept as base64.") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip() or "\0" in text:
        msg = f"the value of {what} {'holds a NUL' if text.strip() else 'is empty'}"
        raise InputRefused(msg, path="value")
    return text


# --------------------------------------------------------------------------- keys


def check(conn: Connection, ring: KeyRing) -> None:
    """Does this process have the database's key? Called at the start of all that have one."""
    if ring.current is not None:
        _current(conn, ring)


def _current(conn: Connection, ring: KeyRing) -> Key | None:
    """The key that new values are encrypted with; None: the database has none yet."""
    row = conn.execute(SQL.current_key).fetchone()
    if row is None:
        return None
    key = ring.keys().get(row[0])
    if key is None or key.fingerprint != row[1]:
        own = ring.needed()
        msg = "this is not the key that the database's secrets are encrypted with"
        detail = f"{KEY} is key {own.id}, the database has {row[0]}."
        hint = f"Give the right key; while rotating, the key before as {KEY_OLD}."
        raise SecretKeyWrong(msg, detail=detail, hint=hint)
    return key


def _writing_key(conn: Connection, ring: KeyRing) -> Key:
    key = _current(conn, ring)
    if key is None:
        key = ring.needed()
        conn.execute(SQL.first_key, {"id": key.id, "fingerprint": key.fingerprint})
    return key


# --------------------------------------------------------------------------- values


def put(conn: Connection, ring: KeyRing, name: str, value: str, *, by: str) -> int:
    """Store a value under a name, in the caller's transaction; its version."""
    if not secret_names.NAME.fullmatch(name):
        msg = f'the name "{name[:100]}" cannot be used'
        hint = "Lower-case letters, digits, - and _ (at most 100)."
        raise InputRefused(msg, path="name", hint=hint)
    value = checked(value.encode("utf-8", "surrogatepass"), f'"{name}"')
    ring.needed()
    conn.execute(SQL.lock)
    key = _writing_key(conn, ring)
    row = conn.execute(SQL.next_version, {"name": name}).fetchone()
    assert row is not None
    version = int(row[0])
    conn.execute(SQL.put, {**_encrypted(key, name, version, value), "set_by": by})
    return version


def remove(conn: Connection, name: str) -> bool:
    """Forget a secret; False: there is none of this name."""
    return conn.execute(SQL.remove, {"name": name}).fetchone() is not None


def listed(conn: Connection) -> Iterator[Stored]:
    """All of them by name, without values; a page at a time."""
    after = ""
    while True:
        rows = conn.execute(SQL.listed, {"after": after, "n": PAGE}).fetchall()
        yield from (Stored(*row) for row in rows)
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


def unreadable(conn: Connection, ring: KeyRing) -> dict[str, str]:
    """Stored secrets that this process cannot read, and why."""
    found: dict[str, str] = {}
    for one in listed(conn):
        try:
            _of_database(conn, ring, [one.name])
        except SecretError as error:
            found[one.name] = error.message
    return found


# --------------------------------------------------------------------------- rotation


def begin_rotation(conn: Connection, ring: KeyRing) -> bool:
    """Make the ring's current key the database's, in the caller's transaction; False: it is."""
    new = ring.needed()
    conn.execute(SQL.lock)
    before = _current(conn, ring)
    if before is not None and before.id == new.id:
        return False
    known = ring.keys()
    for (key_id,) in conn.execute(SQL.keys_in_use).fetchall():
        if key_id not in known:
            msg = f"some secrets are encrypted with key {key_id}, which this process has not"
            hint = f"Finish the rotation before first: with that key as {KEY_OLD}."
            raise SecretKeyMissing(msg, hint=hint)
    given = {"id": new.id, "fingerprint": new.fingerprint}
    conn.execute(SQL.drop_current, given)
    conn.execute(SQL.make_current, given)
    return True


def rotate(conn: Connection, ring: KeyRing) -> Iterator[int]:
    """Encrypt all values anew under the current key, a batch and a transaction at a time.

    Gives the number of each batch. Broken off it has lost nothing; called again it goes on.
    """
    new = ring.needed()
    while True:
        done = retrying(lambda: _rotate_some(conn, ring, new))
        if done == 0:
            break
        yield done
    conn.execute(SQL.forget_keys)


def _rotate_some(conn: Connection, ring: KeyRing, new: Key) -> int:
    with transaction(conn):
        conn.execute(SQL.lock)
        rows = conn.execute(SQL.under_other_keys, {"id": new.id, "n": BATCH}).fetchall()
        for name, version, key_id, nonce, body in rows:
            value = _decrypted(ring, name, version, key_id, nonce, body)
            again = _encrypted(new, name, version, value)
            conn.execute(SQL.put_again, {**again, "old_id": key_id})
        return len(rows)


def left_over(conn: Connection, ring: KeyRing) -> int:
    """How many values are under another key than the current one."""
    row = conn.execute(SQL.left_over, {"id": ring.needed().id}).fetchone()
    assert row is not None
    return int(row[0])


# --------------------------------------------------------------------------- encryption


def _bound_to(name: str, version: int, key_id: str) -> bytes:
    return f"{name}|{version}|{key_id}".encode()


def _encrypted(key: Key, name: str, version: int, value: str) -> Mapping[str, Any]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    body = AESGCM(key.raw).encrypt(nonce, value.encode(), _bound_to(name, version, key.id))
    return {"name": name, "version": version, "key_id": key.id, "nonce": nonce, "body": body}


def _decrypted(
    ring: KeyRing, name: str, version: int, key_id: str, nonce: bytes, body: bytes
) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    ring.needed()
    key = ring.keys().get(key_id)
    if key is None:
        msg = f'the secret "{name}" is encrypted with key {key_id}, which this process has not'
        hint = f"While rotating every process needs both keys: {KEY} and {KEY_OLD}."
        raise SecretKeyMissing(msg, hint=hint)
    try:
        raw = AESGCM(key.raw).decrypt(bytes(nonce), bytes(body), _bound_to(name, version, key_id))
    except InvalidTag:
        msg = f'the secret "{name}" was changed in the database, or is not the one of this name'
        raise SecretKeyWrong(msg, hint=f"Set it again: suimon secrets set {name}") from None
    return raw.decode("utf-8", "surrogatepass")
