"""Stored secrets: bound to their name, refused with a wrong key, encrypted anew in batches."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from suimon.db.connect import Connection
from suimon.errors import (
    InputRefused,
    SecretKeyMissing,
    SecretKeyWrong,
    SecretMissing,
)
from suimon.store import secret
from suimon.store.secret_key import KeyRing

ONE, TWO, THREE = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


def ring(current: str | None = ONE, old: str | None = None, **more: str) -> KeyRing:
    given = {"SUIMON_SECRET_KEY": current, "SUIMON_SECRET_KEY_OLD": old, **more}
    return KeyRing.of({name: value for name, value in given.items() if value is not None})


def test_a_value_comes_back_and_lies_encrypted(conn: Connection) -> None:
    assert secret.put(conn, ring(), "crm", "p@ss wörd\nzwei", by="me") == 1
    assert secret.resolve(conn, ring(), "secret:crm") == "p@ss wörd\nzwei"
    assert secret.put(conn, ring(), "crm", "other value", by="me") == 2
    assert secret.resolve(conn, ring(), "secret:crm") == "other value"
    row = conn.execute("select s::text, encode(body, 'escape') from suimon.secrets s").fetchone()
    assert row is not None
    assert "other" not in row[0] + row[1]
    (listed,) = secret.listed(conn)
    assert (listed.name, listed.version, listed.set_by) == ("crm", 2, "me")


def test_a_swapped_row_is_refused(conn: Connection) -> None:
    for name in ("low", "high"):
        secret.put(conn, ring(), name, f"value of {name}", by="me")
    conn.execute(
        "update suimon.secrets s set nonce = o.nonce, body = o.body"
        " from suimon.secrets o where s.name = 'high' and o.name = 'low'"
    )
    with pytest.raises(SecretKeyWrong, match='"high" was changed'):
        secret.resolve(conn, ring(), "secret:high")
    assert secret.resolve(conn, ring(), "secret:low") == "value of low"


def test_a_row_of_an_earlier_version_is_refused(conn: Connection) -> None:
    secret.put(conn, ring(), "crm", "first value", by="me")
    conn.execute("create temporary table before as select * from suimon.secrets")
    secret.put(conn, ring(), "crm", "second value", by="me")
    conn.execute("update suimon.secrets s set nonce = b.nonce, body = b.body from before b")
    with pytest.raises(SecretKeyWrong, match="was changed"):
        secret.resolve(conn, ring(), "secret:crm")


def test_a_wrong_key_is_one_clear_error(conn: Connection) -> None:
    secret.check(conn, ring(TWO))  # the database has no key yet
    secret.put(conn, ring(), "crm", "some value", by="me")
    secret.check(conn, ring())
    secret.check(conn, ring(None))
    for act in (
        lambda: secret.check(conn, ring(TWO)),
        lambda: secret.put(conn, ring(TWO), "crm", "another value", by="me"),
        lambda: secret.begin_rotation(conn, ring(TWO)),
    ):
        with pytest.raises(SecretKeyWrong, match="not the key") as caught:
            act()
        assert TWO not in caught.value.render()


def test_without_a_key_only_stored_ones_are_missing(conn: Connection, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    none = ring(None, HOOK="from the environment")
    assert secret.resolve(conn, none, "env:HOOK") == "from the environment"
    assert secret.resolve(None, none, f"file:{file}") == "from a file"
    secret.put(conn, ring(), "crm", "some value", by="me")
    with pytest.raises(SecretKeyMissing) as caught:
        secret.resolve(conn, none, "secret:crm")
    assert "SUIMON_SECRET_KEY" in caught.value.render()


def test_what_is_not_there_is_named_with_what_to_do(conn: Connection, tmp_path: Path) -> None:
    secret.put(conn, ring(), "crm_token", "some value", by="me")
    wanted = {
        "secret:crm_tokn": ["suimon secrets set crm_tokn", 'did you mean "crm_token"'],
        "env:HOOK": ["Set HOOK"],
        f"file:{tmp_path}/no": ["No such file"],
        f"file:{tmp_path}": ["no regular file"],
        "env:SUIMON_SECRET_KEY": ["no task may have it"],
        "a literal": ["must name a secret"],
    }
    for reference, words in wanted.items():
        with pytest.raises(SecretMissing) as caught:
            secret.resolve(conn, ring(), reference)
        for word in words:
            assert word in caught.value.render()
        assert "a literal" not in caught.value.render()


@pytest.mark.parametrize("value", ["", " \n", "a\0b", "x" * 65537, "\ud800"])
def test_a_value_that_cannot_be_one_is_refused(conn: Connection, value: str) -> None:
    with pytest.raises(InputRefused):
        secret.put(conn, ring(), "crm", value, by="me")
    with pytest.raises(InputRefused):
        secret.put(conn, ring(), "No Name", "some value", by="me")


def test_rotation_goes_on_where_it_was_broken_off(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "BATCH", 2)
    for number in range(5):
        secret.put(conn, ring(), f"s{number}", f"value {number}", by="me")
    both = ring(TWO, old=ONE)
    secret.put(conn, both, "s5", "value 5", by="me")  # under the database's key, not our newer one
    assert secret.resolve(conn, ring(), "secret:s5") == "value 5"
    assert secret.begin_rotation(conn, both)
    assert next(secret.rotate(conn, both)) == 2
    assert secret.left_over(conn, both) == 4
    everything = [f"secret:s{number}" for number in range(6)]
    assert len(secret.resolve_all(conn, both, everything)) == 6  # while it goes on
    assert not secret.begin_rotation(conn, both)
    assert list(secret.rotate(conn, both)) == [2, 2]
    assert secret.left_over(conn, both) == 0
    only = ring(TWO)
    secret.check(conn, only)
    assert secret.resolve(conn, only, "secret:s3") == "value 3"
    assert conn.execute("select count(*) from suimon.secret_keys").fetchone() == (1,)
    with pytest.raises(SecretKeyWrong):
        secret.check(conn, ring())


def test_a_second_rotation_waits_for_the_first(conn: Connection) -> None:
    secret.put(conn, ring(), "crm", "some value", by="me")
    secret.begin_rotation(conn, ring(TWO, old=ONE))
    with pytest.raises(SecretKeyMissing, match="which this process has not"):
        secret.begin_rotation(conn, ring(THREE, old=TWO))


def test_a_key_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{ONE}\n{TWO}\n")
    file.chmod(0o600)
    found = KeyRing.of({"SUIMON_SECRET_KEY_FILE": str(file)})
    assert found.current is not None
    assert found.old is not None
    assert len(found.keys()) == 2
    file.chmod(0o604)
    with pytest.raises(SecretKeyWrong, match="read by everybody"):
        KeyRing.of({"SUIMON_SECRET_KEY_FILE": str(file)})


@pytest.mark.parametrize(
    "given",
    [
        {"SUIMON_SECRET_KEY": "too short"},
        {"SUIMON_SECRET_KEY": base64.b64encode(bytes(16)).decode()},
        {"SUIMON_SECRET_KEY": ONE, "SUIMON_SECRET_KEY_FILE": "there"},
        {"SUIMON_SECRET_KEY": ONE, "SUIMON_SECRET_KEY_OLD": "no"},
        {"SUIMON_SECRET_KEY_OLD": ONE},
        {"SUIMON_SECRET_KEY_FILE": "nowhere/at all"},
    ],
)
def test_a_key_that_cannot_be_one_is_told_without_it(given: dict[str, str]) -> None:
    with pytest.raises((SecretKeyWrong, SecretKeyMissing)) as caught:
        KeyRing.of(given)
    assert ONE not in caught.value.render()
    assert "too short" not in caught.value.render()


def test_a_ring_shows_nothing_of_its_keys() -> None:
    assert "\\x01" not in repr(ring(X="hidden"))
    assert "hidden" not in repr(ring(X="hidden"))
