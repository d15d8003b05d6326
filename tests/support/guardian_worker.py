"""Stands in for a worker: a guardian, one slot, one run that never ends; then it only stamps.

`python guardian_worker.py CODE_ROOT FOLDER SILENCE_MS MARK`: prints a line of JSON for each event.
"""

from __future__ import annotations

import json
import select
import sys
from dataclasses import asdict
from pathlib import Path

from suimon.worker import wire
from suimon.worker.slots import Guardian


def say(kind: str, body: object) -> None:
    print(json.dumps([kind, body]), flush=True)


def main() -> None:
    root, folder, silence_ms, mark = sys.argv[1:]
    guardian = Guardian(folder=folder, silence_ms=int(silence_ms))
    handle = guardian.start_slot(0)
    handle.send(wire.init(root))
    program = {"n": 1, "kind": "task", "task": "stay:stay", "vertex": "v", "item": True}
    handle.send(wire.program(program))
    handle.send(wire.runs(1, [(1, mark, ["r", 1, None, "p"])]))
    said = False
    while True:
        guardian.stamp()
        if select.select([guardian.fileno()], [], [], 0.02)[0]:
            for event in guardian.read_events():
                say(type(event).__name__, asdict(event))
        if not said and Path(mark).exists():
            said = True
            say("ready", {"guardian": guardian.pid, "slot": handle.pid})


if __name__ == "__main__":
    main()
