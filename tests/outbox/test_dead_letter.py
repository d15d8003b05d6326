"""Dead letters: seen, grouped by cause, requeued, edited, processed again, discarded, restored."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from support.lab import Lab

from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.outbox import dead_letter, emit
from suimon.run import audit
from suimon.triggers import deliver, fire

LISTENS = [{"type": "EVENT", "event": "order.*"}]
READS = {"t": {"type": "TASK", "config": {"task": "m:f"}, "inputs": {"n": {"$ref": "input.n"}}}}
ME = {"actor": "ann", "why": "mended"}


@pytest.fixture
def doors(lab: Lab) -> Lab:
    """A pipeline that reads `n`, and a trigger at which anything may arrive."""
    lab.pipeline("p", READS, triggers=LISTENS)
    return lab


def trigger(lab: Lab) -> fire.Trigger:
    return fire.live(lab.conn, ["EVENT"])[0]


def arrive(lab: Lab, *values: Any) -> list[str]:
    """These arrive and are tried once; the ids in order."""
    before = lab.one("select coalesce(max(seq), 0) from suimon.deliveries")
    to = trigger(lab)
    keyed = [fire.Arrival(orjson.dumps(v), f"s{i}", f"k{before}-{i}") for i, v in enumerate(values)]
    fire.arrive(lab.conn, to, keyed)
    deliver.deliver(lab.conn, to.id)
    return [r[0] for r in lab.sql("select id::text from suimon.deliveries where seq > %s"
                                  " order by seq", before)]  # fmt: skip


def states(lab: Lab) -> list[str]:
    return [row[0] for row in lab.sql("select state from suimon.deliveries order by seq")]


def audited(conn: Connection) -> list[tuple[str, str, Any]]:
    return [(a["action"], a["target"], a["detail"]) for a in audit.listed(conn)]


def test_what_cannot_be_a_run_is_listed_with_its_cause(doors: Lab) -> None:
    good, bad = arrive(doors, {"n": 1}, {"m": 1})
    found = {one["id"]: one for one in dead_letter.listed(doors.conn)}
    assert (found[good]["state"], found[bad]["state"]) == ("delivered", "dead")
    assert (found[bad]["code"], found[bad]["pipeline"]) == ("SUI-3003", "p")
    assert "n" in found[bad]["why"]
    only = dead_letter.listed(doors.conn, states=["dead"], pipeline="p", trigger="event:order.*")
    assert [one["id"] for one in only] == [bad]
    assert dead_letter.listed(doors.conn, since_s=60, pipeline="other") == []
    assert len(dead_letter.listed(doors.conn, since_s=1e10)) == len(dead_letter.listed(doors.conn))
    assert [one["id"] for one in dead_letter.listed(doors.conn, before=bad)] == [good]
    with pytest.raises(InputRefused, match='no state "lost"'):
        dead_letter.listed(doors.conn, states=["lost"])


def test_show_has_the_whole_input_whatever_its_size(doors: Lab) -> None:
    small, large = arrive(doors, {"m": 1}, {"m": "x" * 20_000})
    assert dead_letter.show(doors.conn, small)["input"] == {"m": 1}
    assert dead_letter.show(doors.conn, large)["input"] == {"m": "x" * 20_000}
    assert dead_letter.resolve(doors.conn, small[:30]) == small
    with pytest.raises(NotThere):
        dead_letter.resolve(doors.conn, "00000000")
    with pytest.raises(InputRefused):
        dead_letter.resolve(doors.conn, "xyz")


def test_a_requeued_one_is_tried_again_at_the_place_of_its_arrival(doors: Lab) -> None:
    first, second = arrive(doors, {"m": 1}, {"m": 2})
    doors.pipeline("p", triggers=LISTENS)  # mended: it reads nothing any more
    assert dead_letter.requeue(doors.conn, [second, first], **ME) == sorted([first, second])
    assert states(doors) == ["waiting", "waiting"]
    deliver.deliver(doors.conn, trigger(doors).id)
    ran = doors.sql("select input from suimon.runs order by rank")
    assert [row[0] for row in ran] == [{"m": 1}, {"m": 2}]
    assert {(action, target) for action, target, _ in audited(doors.conn)} == {
        ("requeue", first), ("requeue", second),
    }  # fmt: skip


def test_only_what_is_dead_is_requeued_and_all_or_none(doors: Lab) -> None:
    good, bad = arrive(doors, {"n": 1}, {"m": 1})
    with pytest.raises(Conflict, match='is "delivered", not "dead"'):
        dead_letter.requeue(doors.conn, [bad, good], **ME)
    assert states(doors) == ["delivered", "dead"]
    assert audited(doors.conn) == []


def test_one_that_is_requeued_unmended_dies_again(doors: Lab) -> None:
    (bad,) = arrive(doors, {"m": 1})
    dead_letter.requeue(doors.conn, [bad], **ME)
    deliver.deliver(doors.conn, trigger(doors).id)
    assert states(doors) == ["dead"]


@pytest.mark.parametrize("size", [1, 20_000])
def test_an_edited_one_becomes_a_run_with_the_new_input(doors: Lab, size: int) -> None:
    (bad,) = arrive(doors, {"m": "x" * 20_000})
    dead_letter.requeue_edited(doors.conn, bad, {"n": "y" * size}, **ME)
    assert dead_letter.show(doors.conn, bad)["input"] == {"n": "y" * size}
    deliver.deliver(doors.conn, trigger(doors).id)
    assert states(doors) == ["delivered"]
    assert dead_letter.show(doors.conn, bad)["input"] == {"n": "y" * size}
    assert audited(doors.conn)[0][2]["edited"] is True
    with pytest.raises(Conflict):
        dead_letter.requeue_edited(doors.conn, bad, {"n": 1}, **ME)


def test_a_discarded_one_can_be_restored(doors: Lab) -> None:
    (bad,) = arrive(doors, {"m": 1})
    assert dead_letter.discard(doors.conn, [bad], **ME) == [bad]
    with pytest.raises(Conflict, match="discarded"):
        dead_letter.requeue(doors.conn, [bad], **ME)
    assert dead_letter.restore(doors.conn, [bad], **ME) == [bad]
    assert states(doors) == ["dead"]
    assert [action for action, _, _ in audited(doors.conn)] == ["restore", "discard"]


def test_a_delivered_one_again_is_a_new_delivery_with_a_run_of_its_own(doors: Lab) -> None:
    (first,) = arrive(doors, {"n": 1})
    new = dead_letter.again(doors.conn, first, **ME)
    deliver.deliver(doors.conn, trigger(doors).id)
    one, two = dead_letter.show(doors.conn, first), dead_letter.show(doors.conn, new)
    assert (two["state"], two["input"], two["detail"]) == (
        "delivered", {"n": 1}, {"again_of": first},
    )  # fmt: skip
    assert two["run_id"] != one["run_id"]
    assert not two["duplicate"]


def test_a_dead_one_is_not_processed_again_but_requeued(doors: Lab) -> None:
    (bad,) = arrive(doors, {"m": 1})
    with pytest.raises(Conflict, match="has not become a run yet"):
        dead_letter.again(doors.conn, bad, **ME)


def test_a_call_that_was_answered_at_once_has_the_input_of_its_run(doors: Lab) -> None:
    answer = fire.start_now(doors.conn, trigger(doors), fire.Arrival(b'{"n":5}', "call", "c"))
    assert dead_letter.show(doors.conn, answer.delivery_id)["input"] == {"n": 5}
    dead_letter.again(doors.conn, answer.delivery_id, **ME)
    doors.sql("delete from suimon.runs")
    with pytest.raises(Conflict, match="was not kept"):
        dead_letter.again(doors.conn, answer.delivery_id, **ME)


def test_groups_are_causes_without_what_is_particular(doors: Lab) -> None:
    arrive(doors, *({"m": i} for i in range(5)))
    doors.sql(
        "update suimon.deliveries set code = 'X', why = 'row ' || seq || ' of \"' || source"
        " || '\" for ' || id || ' is bad' where mod(seq, 2) = 0"
    )
    found = [(g.count, g.pipeline, g.code, g.cause) for g in dead_letter.groups(doors.conn)]
    assert sorted((count, code) for count, _, code, _ in found) == [(2, "X"), (3, "SUI-3003")]
    assert ("row # of # for # is bad") in {cause for *_, cause in found}


def test_a_group_is_requeued_in_batches_and_gone_on_with(
    doors: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter, "BATCH", 3)
    arrive(doors, *({"m": i} for i in range(8)))
    doors.sql("update suimon.deliveries set code = 'X' where seq = 1")
    assert dead_letter.count_dead(doors.conn, code="SUI-3003") == 7

    def broken_off(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dead_letter.requeue_all(doors.conn, code="SUI-3003", each=broken_off, **ME)
    assert states(doors).count("waiting") == 3
    assert dead_letter.requeue_all(doors.conn, code="SUI-3003", pipeline="p", **ME) == 4
    assert dead_letter.requeue_all(doors.conn, code="SUI-3003", pipeline="other", **ME) == 0
    assert states(doors) == ["dead"] + ["waiting"] * 7
    assert dead_letter.requeue_all(doors.conn, **ME) == 1
    assert len(audited(doors.conn)) == 8


def test_emit_tells_who_listens(doors: Lab) -> None:
    assert emit.listeners(doors.conn, "order.paid") == [("p", "event:order.*")]
    assert emit.listeners(doors.conn, "stock.low") == []
    first = emit.emit(doors.conn, "order.paid", {"n": 1}, key="k")
    assert emit.emit(doors.conn, "order.paid", {"n": 1}, key="k") == first
    with pytest.raises(InputRefused):
        emit.emit(doors.conn, "order paid")


def test_where_nothing_waits_nobody_wants_to_look_again(doors: Lab) -> None:
    """None, not zero seconds: that would be a loop without a pause."""
    arrive(doors, {"n": 1})
    assert deliver.deliver_all(doors.conn) == (0, None)
