"""A worker as a process of its own, for tests: `python worker_main.py FOLDER` reads its options as
one line of JSON from standard input, so that neither its environment nor its command line holds a
database URL.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys

from suimon.worker.worker import Worker, WorkerOptions


def main() -> int:
    options = json.loads(sys.stdin.readline())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(threadName)s %(levelname)s %(message)s"
    )
    for name in ("pass_environment",):
        if name in options:
            options[name] = tuple(options[name])
    worker = Worker(WorkerOptions(folder=sys.argv[1], **options))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.drain())
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
