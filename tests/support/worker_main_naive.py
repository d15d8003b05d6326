"""A worker that believes its idle flag at once: the protocol without its proof, for one test."""

from __future__ import annotations

import sys

from suimon.run import wake
from support import worker_main


def _at_once(*_: object) -> bool:
    return True


if __name__ == "__main__":
    wake.may_be_silent = _at_once  # type: ignore[assignment]
    sys.exit(worker_main.main())
