"""What other people have chosen is shown, and never obeyed by the terminal."""

from __future__ import annotations

import pytest

from suimon.cli import drawing, show

HOSTILE = "a\x1b[2J\x9b31m\x07\u202egpj.csv"
TAME = "a\\x1b[2J\\x9b31m\\x07\\u202egpj.csv"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_name_that_a_sender_chose_moves_no_cursor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(show, "is_terminal", lambda: terminal)
    show.table(["SOURCE"], [[HOSTILE]])
    show.pairs({"source": HOSTILE})
    show.lines(HOSTILE)
    show.error_lines(HOSTILE)
    written = capsys.readouterr()
    assert [line.split()[-1] for line in written.out.splitlines()] == ["SOURCE", *[TAME] * 3]
    assert written.err == f"{TAME}\n"


def test_letters_of_any_script_and_the_ends_of_lines_stay() -> None:
    text = "水門\tÄpfel\n한글"
    assert show.printable(text) == text


def test_a_list_that_an_ended_run_never_read_to_its_end_is_given_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is not shown as open, as if something were still to come."""
    counts = dict.fromkeys(("succeeded", "failed", "timed_out", "cancelled", "running"), 0)
    fanout = {
        "vertex": "kids", "state": "open", "verdict": None, "allowed_failures": None,
        "counts": {**counts, "total": 0, "expected": None, "unfinished": 0},
        "durations": None, "errors": [], "slowest_now": [],
    }  # fmt: skip
    drawing._fanout({"id": "01", "finished_at": "2030-01-01T00:00:00+00:00"}, fanout)
    drawing._fanout({"id": "01", "finished_at": None}, fanout)
    ended, live = filter(None, capsys.readouterr().out.splitlines())
    assert ended == 'fan-out "kids": given up, its list was not read to its end; 0 children made'
    assert live == 'fan-out "kids": open; 0 of 0 succeeded'
