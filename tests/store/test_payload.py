"""Contents: one row for equal bytes, compressed, counted by the database whoever writes."""

from __future__ import annotations

import random
import threading
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies as st
from support.contents import keep, read_payload, text_of, wrong_counts
from support.lab import Lab

from suimon.db.connect import Connection, connect, retrying
from suimon.store import payload

RUN = str(UUID(int=1))
OTHER = str(UUID(int=2))
ZEROS = '"' + "0" * 20_000 + '"'


def test_equal_contents_are_one_row_but_for_what_sql_keeps(lab: Lab) -> None:
    """A transaction of SQL may stay open: nobody else shall wait for its row."""
    keep(lab.conn, (RUN, "input", ZEROS), (OTHER, "input", ZEROS))
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " values (%s, 'x', suimon.keep_text(%s))", RUN, ZEROS)  # fmt: skip
    found = lab.sql("select refs, size, codec from suimon.contents order by refs")
    assert found == [(1, len(ZEROS), "none"), (2, len(ZEROS), "zstd")]
    assert read_payload(lab.conn, RUN, "x") == ZEROS.encode()
    assert wrong_counts(lab.conn) == []


def test_what_does_not_get_smaller_is_kept_as_it_is(lab: Lab) -> None:
    noise = random.Random(1).randbytes(9000)
    found = payload.pack(noise)
    assert (found.codec, found.body) == ("none", noise)
    packed = payload.pack(ZEROS.encode())
    assert packed.codec == "zstd"
    assert packed.body is not None
    assert len(packed.body) < 100
    assert payload.unpack("zstd", packed.body, packed.size) == ZEROS.encode()


def test_text_that_sql_keeps_is_read_like_any_other(lab: Lab) -> None:
    text = '"' + "öß漢" * 3000 + '"'
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " values (%s, 'input', suimon.keep_text(%s))", RUN, text)  # fmt: skip
    assert lab.one("select codec from suimon.contents") == "none"
    assert read_payload(lab.conn, RUN, "input") == text.encode()


def test_a_content_goes_with_its_last_reference_in_the_same_transaction(lab: Lab) -> None:
    keep(lab.conn, (RUN, "input", ZEROS), (OTHER, "input", ZEROS))
    lab.sql("delete from suimon.payloads where run_id = %s", RUN)
    assert lab.one("select refs from suimon.contents") == 1
    assert lab.one("select suimon.store_bytes()") > 0
    lab.sql("delete from suimon.payloads")
    assert lab.one("select count(*) from suimon.contents") == 0
    assert lab.one("select suimon.store_bytes()") == 0


def test_a_reference_that_is_replaced_lets_the_earlier_content_go(lab: Lab) -> None:
    keep(lab.conn, (RUN, "input", ZEROS))
    keep(lab.conn, (RUN, "input", text_of(1, 9000)))
    assert lab.sql("select size, refs from suimon.contents") == [(9000, 1)]
    keep(lab.conn, (RUN, "input", text_of(1, 9000)))
    assert wrong_counts(lab.conn) == []


def test_a_reference_to_nothing_is_refused(lab: Lab) -> None:
    insert = "insert into suimon.payloads (run_id, name, sha256) values (%s, 'x', %s)"
    with pytest.raises(Exception, match="has gone before its reference"):
        lab.sql(insert, RUN, bytes(32))
    assert lab.one("select count(*) from suimon.payloads") == 0


# ------------------------------------------------------------------------------- random lives

ACT = st.tuples(
    st.sampled_from(["keep", "sql", "pair", "drop", "drop all", "artifact", "shorter", "move"]),
    st.integers(0, 3),
    st.integers(0, 4),
)


@hypothesis.settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(st.lists(ACT, max_size=25))
def test_after_random_lives_every_count_is_the_number_of_references(
    lab: Lab, acts: list[tuple[str, int, int]]
) -> None:
    lab.sql("delete from suimon.payloads")
    lab.sql("delete from suimon.artifacts")
    lab.sql("delete from suimon.contents")
    for act, who, what in acts:
        run, text = str(UUID(int=who + 1)), text_of(what, 9000 + what)
        match act:
            case "keep":
                keep(lab.conn, (run, "input", text))
            case "pair":
                keep(lab.conn, (run, "output", text), (RUN, f"step:{who}", text_of(0, 9000)))
            case "sql":
                lab.sql(
                    "insert into suimon.payloads (run_id, name, sha256) values (%s, 'event',"
                    " suimon.keep_text(%s)) on conflict (run_id, name)"
                    " do update set sha256 = excluded.sha256", run, text,
                )  # fmt: skip
            case "drop":
                lab.sql("delete from suimon.payloads where run_id = %s", run)
            case "drop all":
                lab.sql("delete from suimon.payloads")
            case "artifact":
                lab.sql(
                    "insert into suimon.artifacts (run_id, vertex, name, part, sha256, claim_no)"
                    " select %s, 'v', 'n', g, suimon.keep_text(%s), 1 from generate_series(0, 1) g"
                    " on conflict (run_id, vertex, name, part)"
                    " do update set sha256 = excluded.sha256", run, text,
                )  # fmt: skip
            case "shorter":
                lab.sql("delete from suimon.artifacts where run_id = %s and part = 1", run)
            case "move":
                lab.sql(
                    "update suimon.payloads set sha256 = (select sha256 from suimon.contents"
                    " order by sha256 limit 1) where run_id = %s", run,
                )  # fmt: skip
        assert wrong_counts(lab.conn) == []
    assert lab.one("select count(*) from suimon.contents where refs = 0") == 0


def test_writers_and_removers_at_once_leave_true_counts(lab: Lab, db_url: str) -> None:
    """Four connections, ten contents in common: no deadlock is left over, no count is wrong."""
    failures: list[BaseException] = []

    def live(number: int) -> None:
        dice = random.Random(number)
        try:
            with connect(db_url, name="writer") as mine:
                for _ in range(20):
                    run = str(UUID(int=dice.randrange(12)))
                    if dice.random() < 0.4:
                        retrying(lambda mine=mine, run=run: mine.execute(
                            "delete from suimon.payloads where run_id = %s", (run,)))  # fmt: skip
                        continue
                    several = [
                        (run, f"step:{i}", text_of(dice.randrange(10), 9000)) for i in range(3)
                    ]
                    retrying(lambda mine=mine, several=several: keep(mine, *several))
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=live, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert wrong_counts(lab.conn) == []


# ------------------------------------------------------------------------------------- runs


def ended(lab: Lab, worker: int, run: str, text: str, *, claim_no: int | None = None) -> set[str]:
    """The batch of a worker whose run came to this; returns whose end was its own."""
    from suimon.run.finish import Ended
    from suimon.worker import batch

    claim = lab.one("select claim_no from suimon.runs where id = %s", run)
    end = Ended(run, claim if claim_no is None else claim_no, "succeeded", text, "", 7)
    return batch.execute(lab.conn, lab.batch(worker, [end])).ended


def test_a_large_result_is_a_content_and_a_small_one_never_meets_the_store(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.pipeline("p")
    small, large = lab.submit("p"), lab.submit("p")
    worker = lab.worker()
    lab.claim(worker, 2)
    assert ended(lab, worker, large, ZEROS) == {large}
    assert read_payload(lab.conn, large, "output") == ZEROS.encode()

    def touched(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(payload, "ready", touched)
    monkeypatch.setattr(payload.Kept, "write", touched)
    assert ended(lab, worker, small, '"x"') == {small}


def test_who_lost_a_run_does_not_replace_its_large_result(lab: Lab) -> None:
    lab.pipeline("p")
    run = lab.submit("p")
    stale, fresh = lab.worker(), lab.worker(name="other")
    lab.claim(stale)
    lab.kill(stale)
    from suimon.run import rescue

    rescue.rescue(lab.conn)
    lab.claim(fresh)
    assert ended(lab, fresh, run, ZEROS) == {run}
    assert ended(lab, stale, run, text_of(1, 9000), claim_no=1) == set()
    assert read_payload(lab.conn, run, "output") == ZEROS.encode()


def test_a_batch_that_is_sent_again_counts_once(lab: Lab) -> None:
    lab.pipeline("p")
    run = lab.submit("p")
    worker = lab.worker()
    lab.claim(worker)
    ended(lab, worker, run, ZEROS)
    ended(lab, worker, run, ZEROS)
    assert lab.sql("select refs from suimon.contents") == [(1,)]


def test_a_submit_that_is_asked_twice_refers_once(lab: Lab) -> None:
    lab.pipeline("p")
    first = lab.submit("p", {"text": ZEROS}, key="k")
    assert lab.submit("p", {"text": ZEROS}, key="k") == first
    assert lab.sql("select refs, codec from suimon.contents") == [(1, "zstd")]
    assert wrong_counts(lab.conn) == []


def test_children_of_one_chunk_share_equal_items(lab: Lab) -> None:
    from suimon.run import finish, spawn

    lab.pipeline("s", {"kids": {"type": "SPAWNER", "inputs": {"items": []},
                                "config": {"task": "m:f"}}})  # fmt: skip
    parent = lab.parent(lab.worker(), "s")
    items = [ZEROS, "1", ZEROS, text_of(5, 9000)]

    def store() -> tuple[int, bool]:
        return spawn.chunk(
            lab.conn, parent.holder, parent.fanout, parent.child, root_id=parent.row.root_id,
            first=0, n=4, hashes="{1,2,1,3}", keys=None, items=finish.RS.join(items),
        )  # fmt: skip

    assert store() == (4, False)
    assert store() == (0, False)
    assert lab.sql("select size, refs from suimon.contents order by size") == [
        (9000, 1), (len(ZEROS), 2),
    ]  # fmt: skip
    assert read_payload(lab.conn, parent.child_id(2), "input") == ZEROS.encode()
    assert wrong_counts(lab.conn) == []


def test_a_writer_waits_for_no_open_transaction(lab: Lab, db_url: str) -> None:
    """Sums are added to by rows, folded now and then; SQL keeps its text for itself."""
    with connect(db_url, name="other") as other:
        other.execute("set lock_timeout = '5s'")
        with lab.conn.transaction():
            lab.sql("select suimon.use_store(5, 0)")
            lab.sql("select suimon.emit('a.b', to_jsonb(repeat('v', 20000)))")
            for _ in range(300):
                other.execute("select suimon.use_store(1, 2)")
            keep(other, ("00000000-0000-0000-0000-000000000001", "x", '"' + "v" * 20000 + '"'))
        assert lab.one("select count(*) from suimon.store_usage") < 300
    stored = lab.one("select sum(stored) from suimon.contents")
    assert lab.one("select suimon.store_bytes()") == 5 + 900 + stored


def test_pages_bring_a_bounded_piece(lab: Lab, conn: Connection) -> None:
    """A list says how large a value is; one that asks for all of it gets it in several pages."""
    from suimon.run import pages

    lab.pipeline("s", {"kids": {"type": "SPAWNER", "inputs": {"items": []},
                                "config": {"task": "m:f"}}})  # fmt: skip
    parent = lab.fan_out(lab.worker(), "s", 5)
    worker = lab.worker(name="w")
    big = '"' + "x" * (6 * 1024 * 1024) + '"'
    for row in lab.claim(worker, 5):
        ended(lab, worker, row.id, big)
    fanout = pages.fanout_of(conn, parent.id, None)
    listed = pages.children(conn, fanout)
    assert [(r["output"], r["output_bytes"]) for r in listed.rows] == [(None, len(big))] * 5
    first = pages.children(conn, fanout, whole=True)
    assert ([len(r["output"]) for r in first.rows], first.next) == ([len(big) - 2] * 2, 2)
    from suimon.run import stream

    page = stream.page(conn, parent.fanout.id, parent.fanout.base, "succeeded", -1, 500)
    assert [row[0] for row in page] == [0, 1]
    assert page[0][3] == big
