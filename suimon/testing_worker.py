"""The test kit's worker: `python -m suimon.testing_worker FOLDER`, its options on standard input.

It is the real worker with the real transactions. Around some of them stands a crash point: if the
test has asked for one, this process kills itself there (SIGKILL, nothing is tidied up). The
transactions are wrapped in this process only; production knows none of it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from suimon.db.connect import Connection
from suimon.run import merge, spawn, wait
from suimon.testing_faults import VARIABLE, Faults
from suimon.worker import batch as batches
from suimon.worker import slots
from suimon.worker.batch import Batch, Outcome
from suimon.worker.worker import Worker, WorkerOptions


def install(faults: Faults) -> None:
    """Put the crash points around the transactions they are named after."""

    def point(name: str) -> None:
        if faults.take(name) is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def acting(*args: Any, **named: Any) -> Any:
            point(f"before_{name}")
            answer = act(*args, **named)
            point(f"after_{name}")
            return answer

        return acting

    execute = batches.execute

    def executing(conn: Connection, batch: Batch) -> Outcome:
        kinds = [name for name, has in (("step", batch.steps), ("finish", batch.ended)) if has]
        for name in kinds:
            point(f"before_{name}")
        outcome = execute(conn, batch)
        for name in kinds:
            point(f"after_{name}")
        if outcome.claimed:
            point("after_claim")
        return outcome

    batches.execute = executing
    spawn.chunk = around(spawn.chunk, "chunk")
    spawn.seal = around(spawn.seal, "seal")
    wait.park = around(wait.park, "park")
    merge.finish_parent = around(merge.finish_parent, "finish")
    slots.GUARDIAN = "suimon.testing_guardian"


def main() -> int:
    """Work until told to drain, or until a crash point is met."""
    options = json.loads(sys.stdin.readline())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    install(Faults.of_environment())
    names = (VARIABLE, *options.pop("names"))
    worker = Worker(WorkerOptions(folder=sys.argv[1], pass_environment=names, **options))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.drain())
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
