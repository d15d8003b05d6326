"""A follower of log text: page by page at once, then a look each half second, to the run's end."""

from __future__ import annotations

import pytest
from support.lab import Lab

from suimon.errors import RunNotFound
from suimon.run import logs


def say(lab: Lab, run: str, claim: int, *texts: str) -> None:
    for text in texts:
        lab.sql("insert into suimon.logs (run_id, claim_no, stream, body)"
                " values (%s, %s, 'log', %s)", run, claim, text)  # fmt: skip


def test_a_follower_looks_twice_a_second_and_ends_with_the_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full page is followed at once; what comes a moment after the end is still told."""
    lab.pipeline("p")
    worker = lab.worker()
    run = lab.submit("p")
    row = lab.claim_run(worker, run)
    say(lab, run, row.claim_no, *(f"{n}\n" for n in range(logs.PAGE + 5)))
    slept: list[float] = []

    def instead(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            say(lab, run, row.claim_no, "live\n")
        if len(slept) == 3:
            lab.end(worker, row)
        if len(slept) == 4:
            say(lab, run, row.claim_no, "late\n")

    monkeypatch.setattr(logs.time, "sleep", instead)
    texts = [piece["text"] for piece in logs.pieces(lab.conn, run, follow=True)]
    assert texts == [*(f"{n}\n" for n in range(logs.PAGE + 5)), "live\n", "late\n"]
    assert slept == [0.5] * 5, "one look, then after each pause one more; the pages came at once"


def test_without_following_nobody_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the run goes on."""
    monkeypatch.setattr(logs.time, "sleep", lambda _: pytest.fail("it waited"))
    lab.pipeline("p")
    run = lab.submit("p")
    say(lab, run, 1, "a", "b")
    assert [piece["text"] for piece in logs.pieces(lab.conn, run)] == ["a", "b"]
    with pytest.raises(RunNotFound):
        list(logs.pieces(lab.conn, "00000000-0000-7000-8000-000000000000"))
