"""A slot of the test kit's worker: the real one, with faults around its tasks.

`Run.arguments` is the last thing before a task is called and `Slot.finish` the first after it has
ended; both are wrapped here, in this process only. Production starts `suimon.worker.slot` and never
loads this.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from suimon import errors
from suimon.testing_faults import FAIL, Faults
from suimon.worker import slot
from suimon.worker.slot_run import Run

_SUCCESS: Final = ord("S")


class InjectedFault(Exception):  # noqa: N818  (the name is what a test sees as the error's type)
    """What a task "raises" that `engine.fail` has chosen."""


def install(faults: Faults) -> None:
    """Wrap both ends of a task."""
    arguments, finish = Run.arguments, slot.Slot.finish

    def facts(run: Run) -> dict[str, Any]:
        return {
            "task": run.program.definition.get("task"),
            "vertex": run.program.vertex,
            "pipeline": run.pipeline,
            "key": run.item_key,
            "position": int(run.run_id[-8:], 16),  # child i of a fan-out is its base + i
        }

    def before(self: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = arguments(self)
        if faults.take("before_task", **facts(self)) is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        fault = faults.take(FAIL, **facts(self))
        if fault is not None:
            raise errors.Fatal(fault["error"]) if fault["fatal"] else InjectedFault(fault["error"])
        return found

    def after(self: slot.Slot, run: Run, line: bytes) -> None:
        ended_well = line[0] == _SUCCESS and run.program.kind == "task"
        if ended_well and faults.take("after_task", **facts(run)) is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        finish(self, run, line)

    Run.arguments = before  # type: ignore[method-assign]
    slot.Slot.finish = after  # type: ignore[method-assign]


if __name__ == "__main__":
    install(Faults.of_environment())
    slot.main()
