"""A program that submits runs, as a process of its own: one JSON object on standard input says
which (`url`, `pipeline`, `inputs`), each run in a transaction of its own.
"""

from __future__ import annotations

import json
import sys

from suimon.db.connect import connect
from suimon.run import doors


def main() -> None:
    asked = json.loads(sys.stdin.read())
    with connect(asked["url"], name="submitter") as conn:
        for given in asked["inputs"]:
            doors.start(conn, asked["pipeline"], given)


if __name__ == "__main__":
    main()
