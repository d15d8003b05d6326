"""Large contents in an object store: intent first, then the object, then the reference."""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import pytest
from support.contents import ObjectStore, keep, read_payload, text_of, wrong_counts
from support.lab import Lab

from suimon.db.connect import connect
from suimon.duties import contents
from suimon.errors import InputRefused, StoreUnavailable
from suimon.run import storage
from suimon.store import objects, payload

RUN = str(UUID(int=1))
LARGE = text_of(1, 80_000)
NAME = hashlib.sha256(LARGE.encode()).hexdigest()


def an_hour_later(lab: Lab) -> int:
    lab.sql("update suimon.contents set touched_at = touched_at - interval '61 minutes'")
    return contents.duty(lab.conn)


def test_a_large_content_goes_there_and_a_smaller_one_does_not(
    lab: Lab, store: ObjectStore
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE), (RUN, "output", text_of(2, 60_000)))
    assert store.names() == {NAME}
    places = lab.sql("select place, body is null from suimon.contents order by size desc")
    assert places == [(f"{store.url}/{NAME}", True), (None, False)]
    assert read_payload(lab.conn, RUN, "input") == LARGE.encode()
    assert wrong_counts(lab.conn) == []
    assert lab.one("select sum(object_bytes) from suimon.store_usage") == len(
        (store.folder / NAME).read_bytes()
    )


def test_a_store_in_memory_does_the_same(lab: Lab) -> None:
    lab.sql("update suimon.store set object_url = 'memory:///p'")
    several = [(RUN, f"step:{i}", text_of(i, 70_000)) for i in range(20)]
    keep(lab.conn, *several)
    assert lab.one("select count(*) from suimon.contents where body is null") == 20
    for _, name, text in several:
        assert read_payload(lab.conn, RUN, name) == text.encode()


def test_what_is_referred_to_is_not_put_again(
    lab: Lab, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))

    def put(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(objects, "put", put)
    keep(lab.conn, (RUN, "output", LARGE))
    assert lab.one("select refs from suimon.contents") == 2


def test_contents_stay_readable_where_they_are_when_the_url_changes(
    lab: Lab, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    other = ObjectStore(tmp_path_factory.mktemp("other") / "objects")
    other.use(lab.conn)
    keep(lab.conn, (RUN, "output", text_of(3, 80_000)))
    lab.sql("update suimon.store set object_url = null")
    keep(lab.conn, (RUN, "step:x", text_of(4, 80_000)))
    assert (len(store.names()), len(other.names())) == (1, 1)
    for name, text in (("input", LARGE), ("output", text_of(3, 80_000)),
                       ("step:x", text_of(4, 80_000))):  # fmt: skip
        assert read_payload(lab.conn, RUN, name) == text.encode()


# ------------------------------------------------------------------------------- who dies


def test_an_object_whose_last_reference_went_goes_after_an_hour(
    lab: Lab, store: ObjectStore
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    assert an_hour_later(lab) == 0
    assert store.names() == {NAME}
    lab.sql("delete from suimon.payloads")
    assert contents.duty(lab.conn) == 0
    assert store.names() == {NAME}
    assert an_hour_later(lab) == 1
    assert store.names() == set()
    assert lab.one("select count(*) from suimon.contents") == 0
    assert lab.one("select suimon.store_bytes()") == 0


@pytest.mark.parametrize("is_put", [False, True])
def test_who_dies_before_its_reference_leaves_a_row_by_which_the_object_goes(
    lab: Lab, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, is_put: bool
) -> None:
    class DiedError(BaseException):
        pass

    put = objects.put

    def dies(wanted: dict[str, bytes]) -> None:
        if is_put:
            put(wanted)
        raise DiedError

    store.use(lab.conn)
    monkeypatch.setattr(objects, "put", dies)
    with pytest.raises(DiedError):
        keep(lab.conn, (RUN, "input", LARGE))
    assert store.names() == ({NAME} if is_put else set())
    assert lab.sql("select refs from suimon.contents") == [(0,)]
    assert an_hour_later(lab) == 1
    assert store.names() == set()


def test_what_a_killed_writer_had_begun_beside_an_object_goes_with_it(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A folder is written through a file beside the object, which a kill -9 leaves there."""
    store = ObjectStore(tmp_path_factory.mktemp("with a blank") / "objects")
    store.use(lab.conn)
    payload.ready(lab.conn, [LARGE])
    for left in (f"{NAME}#1", f"{NAME}#3"):
        (store.folder / left).write_text("half")
    (store.folder / "another#1").write_text("half")
    assert an_hour_later(lab) == 1
    assert store.names() == {"another#1"}


def test_an_intent_that_was_never_put_is_not_believed(lab: Lab, store: ObjectStore) -> None:
    """By SQL, which cannot put, the text is stored beside it; by Python the object is put."""
    store.use(lab.conn)
    payload.ready(lab.conn, [LARGE])
    (store.folder / NAME).unlink()
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " values (%s, 'input', suimon.keep_text(%s))", RUN, LARGE)  # fmt: skip
    assert read_payload(lab.conn, RUN, "input") == LARGE.encode()
    assert wrong_counts(lab.conn) == []
    second = text_of(2, 80_000)
    payload.ready(lab.conn, [second])
    for file in store.folder.iterdir():
        file.unlink()
    keep(lab.conn, (RUN, "output", second))
    assert read_payload(lab.conn, RUN, "output") == second.encode()


def test_a_writer_whose_intent_was_removed_meanwhile_keeps_it_again(
    lab: Lab, store: ObjectStore, db_url: str
) -> None:
    """It slept for an hour between its put and its reference, and the duty came by."""
    store.use(lab.conn)
    tries: list[int] = []

    def act(kept: payload.Kept) -> None:
        tries.append(1)
        if len(tries) == 1:
            with connect(db_url, name="duty") as other:
                assert an_hour_later(Lab(other)) == 1
            assert store.names() == set()
        with lab.conn.transaction():
            kept.write(lab.conn)
            payload.refer(lab.conn, [(RUN, "input", kept[LARGE])])

    payload.keeping(lab.conn, [LARGE], act)
    assert len(tries) == 2
    assert store.names() == {NAME}
    assert read_payload(lab.conn, RUN, "input") == LARGE.encode()


def test_the_duty_passes_over_what_somebody_is_about_to_refer_to(
    lab: Lab, store: ObjectStore, db_url: str
) -> None:
    store.use(lab.conn)
    kept = payload.ready(lab.conn, [LARGE])
    lab.sql("update suimon.contents set touched_at = touched_at - interval '61 minutes'")
    with connect(db_url, name="writer") as other:
        with other.transaction():
            payload.refer(other, [(RUN, "input", kept[LARGE])])
            assert contents.duty(lab.conn) == 0
        assert contents.duty(lab.conn) == 0
    assert read_payload(lab.conn, RUN, "input") == LARGE.encode()


# ------------------------------------------------------------------------------- when it is away


def test_when_the_store_is_away_large_contents_stay_in_the_database(
    lab: Lab, store: ObjectStore
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    store.go()
    keep(lab.conn, (RUN, "output", text_of(2, 80_000)))
    assert read_payload(lab.conn, RUN, "output") == text_of(2, 80_000).encode()
    with pytest.raises(StoreUnavailable, match="object store"):
        read_payload(lab.conn, RUN, "input")
    store.come_back()
    assert read_payload(lab.conn, RUN, "input") == LARGE.encode()
    assert wrong_counts(lab.conn) == []


def test_nothing_is_written_or_deleted_below_a_share_that_is_not_mounted(
    lab: Lab, store: ObjectStore
) -> None:
    """An empty folder in its place looks like a store with nothing in it, and is none."""
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    lab.sql("delete from suimon.payloads")
    store.go()
    keep(lab.conn, (RUN, "output", text_of(2, 80_000)))
    assert an_hour_later(lab) == 0
    assert list(store.folder.iterdir()) == []
    store.come_back()
    assert store.names() == {NAME}


def test_the_duty_keeps_the_rows_of_a_store_that_is_away(lab: Lab, store: ObjectStore) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    lab.sql("delete from suimon.payloads")
    store.go()
    assert an_hour_later(lab) == 0
    store.come_back()
    assert contents.duty(lab.conn) == 0
    assert an_hour_later(lab) == 1
    assert store.names() == set()


@pytest.mark.parametrize(
    "damage",
    [
        b"something else",
        payload.pack(bytes(80_000)).body,
        pytest.param(payload.pack(bytes(100_000_000)).body, id="a hundred megabytes"),
    ],
)
def test_a_damaged_object_is_told_and_not_given(
    lab: Lab, store: ObjectStore, damage: bytes
) -> None:
    store.use(lab.conn)
    keep(lab.conn, (RUN, "input", LARGE))
    (store.folder / NAME).write_bytes(damage)
    with pytest.raises(StoreUnavailable) as told:
        read_payload(lab.conn, RUN, "input")
    assert told.value.detail == "what is there is not what was put"


def test_a_claim_whose_input_cannot_be_read_brings_the_others(lab: Lab, store: ObjectStore) -> None:
    store.use(lab.conn)
    lab.pipeline("p")
    far = lab.submit("p", json.loads(LARGE))
    near = lab.submit("p", 1)
    store.go()
    worker = lab.worker()
    outcome = lab.end(worker, [], want=2)
    found = {row.id: (row.input is None, row.unreadable) for row in outcome.claimed}
    assert found == {far: (True, True), near: (False, False)}


# ------------------------------------------------------------------------------- the URL


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:secret@bucket/x", "no credentials"),
        ("s3://bucket/x?secret_access_key=y", "no credentials"),
        ("memory:///x", "no object store"),
        ("/plain/folder", "no URL"),
        ("https://example.com/x", "no object store"),
        ("s3://", "names no bucket"),
        ("file://folder", "names no bucket"),
        ("file:///", "names no bucket"),
    ],
)
def test_a_url_with_credentials_or_of_another_kind_is_refused(
    lab: Lab, url: str, says: str
) -> None:
    with pytest.raises(InputRefused, match=says) as told:
        storage.set_objects(lab.conn, url, actor="ann")
    assert "secret" not in str(told.value)
    assert lab.one("select object_url from suimon.store") is None
    assert lab.one("select count(*) from suimon.audit") == 0


def test_a_store_that_cannot_be_written_is_not_taken(lab: Lab, store: ObjectStore) -> None:
    (store.folder / objects.MARK).unlink()
    (store.folder / objects.MARK).mkdir()
    with pytest.raises(StoreUnavailable):
        storage.set_objects(lab.conn, store.url, actor="ann")
    assert lab.one("select object_url from suimon.store") is None


def test_a_folder_that_is_not_there_is_refused_and_not_made(lab: Lab, store: ObjectStore) -> None:
    with pytest.raises(InputRefused, match="is no folder"):
        storage.set_objects(lab.conn, store.url + "-typo", actor="ann")
    assert not store.folder.with_name("objects-typo").exists()


def test_setting_it_is_recorded_and_leaves_nothing_behind(lab: Lab, store: ObjectStore) -> None:
    found = storage.set_objects(lab.conn, store.url + "/", actor="ann", why="room")
    assert found["objects"] == store.url
    storage.set_objects(lab.conn, None, actor="ann")
    details = [row[0] for row in lab.sql("select detail from suimon.audit order by id")]
    assert details == [
        {"why": "room", "before": None, "after": store.url},
        {"why": "", "before": store.url, "after": None},
    ]
    assert store.names() == set()
