"""Errors: the tree in the docstring is the truth, codes are stable, texts have three parts."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback

import pytest

from suimon import errors
from suimon.errors import DefinitionError, InputRefused, Mistake, SuimonError


def all_classes() -> list[type[SuimonError]]:
    members = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]
    return [cls for cls in members if issubclass(cls, SuimonError)]


def test_the_drawn_tree_is_the_real_one() -> None:
    """Every class stands in the module's docstring below its parent, with its code."""
    drawn: dict[str, tuple[str | None, str | None]] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│ ]*)(?:├── |└── )?([A-Z]\w+)(?: +(SUI-\d{4}))?", line)
        if not match or (match[2] != "SuimonError" and "──" not in line):
            continue
        depth = line.index(match[2])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn[match[2]] = (stack[-1][1] if stack else None, match[3])
        stack.append((depth, match[2]))
    for cls in all_classes():
        parent = cls.__base__.__name__ if cls is not SuimonError else None
        assert drawn[cls.__name__][0] == parent, cls
        assert drawn[cls.__name__][1] in (cls.code, None), cls
    assert set(drawn) == {cls.__name__ for cls in all_classes()}


def test_codes_are_unique() -> None:
    """One code names one class."""
    codes = [cls.code for cls in all_classes()]
    assert len(set(codes)) == len(codes)


def test_an_error_renders_fact_detail_and_hint() -> None:
    """A person sees the three parts and the code."""
    error = InputRefused("no", path="$.a", detail="found 3", hint="send 4")
    assert error.render() == "no [SUI-3003]\n  detail: found 3\n  hint: send 4"
    assert error.to_json() == {
        "type": "InputRefused",
        "code": "SUI-3003",
        "message": "no",
        "detail": "found 3",
        "hint": "send 4",
        "path": "$.a",
    }


def test_a_traceback_shows_detail_and_hint() -> None:
    """A program that does not catch it is told what to do, too."""
    text = "".join(traceback.format_exception(InputRefused("no", detail="found 3", hint="send 4")))
    assert text.endswith(".InputRefused: no\ndetail: found 3\nhint: send 4\n")
    again = pickle.loads(pickle.dumps(InputRefused("no", hint="send 4")))
    assert again.__notes__ == ["hint: send 4"]


def test_a_definition_error_shows_all_its_mistakes() -> None:
    """Nothing is hidden behind the first mistake, also after a trip between processes."""
    error = DefinitionError([Mistake("a", "retries", "is wrong"), Mistake("b", None, "is odd")])
    again = pickle.loads(pickle.dumps(error))
    assert again.mistakes == error.mistakes
    assert "a.retries: is wrong" in error.render()
    assert "b: is odd" in error.render()


def test_a_mistake_survives_json() -> None:
    """The child process tells mistakes to its parent as JSON."""
    mistake = Mistake("a", "config.task", "no", "yes", pipeline="p", file="f.py", line=3)
    assert Mistake.from_json(mistake.to_json()) == mistake
    assert Mistake.from_json(Mistake(None, None, "x").to_json()) == Mistake(None, None, "x")


@pytest.mark.parametrize("cls", all_classes(), ids=lambda cls: cls.__name__)
def test_every_error_can_cross_a_process_border(cls: type[SuimonError]) -> None:
    """Pickling keeps the class, the message and the hint."""
    if cls is DefinitionError:
        return
    again = pickle.loads(pickle.dumps(cls("what", hint="how")))
    assert (type(again), again.message, again.hint) == (cls, "what", "how")
