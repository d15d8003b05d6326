"""What other people have chosen is shown, and never obeyed by the terminal."""

from __future__ import annotations

import pytest

from suimon.cli import show

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
