"""Faults that a test asks for, as files: written by the test, taken by the kit's worker and slots.

    0001.json       {"at": "task", "task": "orders:post", "key": "17", "times": 1, "error": "boom"}
    0001.used-0     made by whoever meets it first: each fault strikes `times` times, in any process

No production process looks here. Nothing beyond the standard library: a slot imports it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

#: The kit's processes find the folder by this variable.
VARIABLE: Final = "SUIMON_TEST_FAULTS"
#: Where a process may be killed: the worker at its transactions, a slot around a task.
WORKER_POINTS: Final = (
    "after_claim", "before_step", "after_step", "before_finish", "after_finish",
    "before_chunk", "after_chunk", "before_seal", "after_seal", "before_park", "after_park",
)  # fmt: skip
SLOT_POINTS: Final = ("before_task", "after_task")
#: A fault that is no crash: the task fails instead of being called.
FAIL: Final = "task"
_FACTS: Final = ("task", "vertex", "pipeline", "key", "position")


class Faults:
    """The faults of one engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_environment(cls) -> Faults:
        """Those of the engine that started this process."""
        return cls(Path(os.environ[VARIABLE]))

    def add(self, at: str, *, times: int | None, error: str = "", **facts: Any) -> None:
        """Ask for one; facts that are None match everything."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("*.json"))) + 1
        body = {"at": at, "times": times, "error": error, **facts}
        made = self._folder / f"{number:04}.new"
        made.write_text(json.dumps(body), encoding="utf-8")
        made.rename(made.with_suffix(".json"))

    def take(self, at: str, **facts: Any) -> dict[str, Any] | None:
        """The first fault for this place and these facts that has a strike left; it is used up."""
        for path in sorted(self._folder.glob("*.json")):
            fault: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            wanted = {name: fault[name] for name in _FACTS if fault.get(name) is not None}
            met = all(facts.get(name) == value for name, value in wanted.items())
            if fault["at"] == at and met and _strike(path, fault["times"]):
                return fault
        return None

    def struck(self, *points: str) -> int:
        """How many strikes were made at these places so far."""
        count = 0
        for path in self._folder.glob("*.json"):
            if json.loads(path.read_text(encoding="utf-8"))["at"] in points:
                count += len(list(self._folder.glob(f"{path.stem}.used-*")))
        return count

    def clear(self) -> None:
        """No more faults; what has struck stays counted."""
        for path in self._folder.glob("*.json"):
            fault = json.loads(path.read_text(encoding="utf-8"))
            path.with_suffix(".new").write_text(json.dumps({**fault, "times": 0}), encoding="utf-8")
            path.with_suffix(".new").rename(path)


def _strike(path: Path, times: int | None) -> bool:
    number = 0
    while times is None or number < times:
        mark = path.with_name(f"{path.stem}.used-{number}")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            continue
        return True
    return False
