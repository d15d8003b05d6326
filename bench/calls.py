"""What limits cost, and whether they hold at full size.

`limit` drains the same no-op runs with and without `destination=`, in turn; the destination's
limits are far away. `calls` has three workers of two slots call a server that counts, 20,000 times:
what it saw at once, what it saw in windows of a second and more, and how much of the allowed rate
was used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.meter import Figure
from bench.place import SQL, Place, rate
from suimon.cli.deploy import definitions
from suimon.run import deploy

TESTS = Path(__file__).parents[1] / "tests"
RATE, BURST, AT_ONCE, TAKES = 200.0, 50, 24, 0.03
WORKERS = 3

_CODE = """
import os

from suimon import Destination, Pipeline, task

far = Destination(
    "far", rate="{rate:g}/s", burst={burst}, concurrency={at_once}, base_url="{url}", timeout="5s"
)

@task
async def call(n, ctx):
    answer = await ctx.http("far").get("/" + str(n), headers={{"X-Pid": str(os.getpid())}})
    return answer.raise_for_status().status_code

@task
def numbers(count):
    yield from range(count)

p = Pipeline("calls", concurrency=None)
rows = p.run("rows", numbers, p.input.count)
p.merge("outcome", p.spawn("each", call, rows))
"""


def limit(place: Place, size: Any) -> list[Figure]:
    """Drains of the same runs with and without a destination, each in a fresh worker."""
    took: dict[str, list[float]] = {"single": [], "single-wide": []}
    for _ in range(2):
        for pipeline, seconds in took.items():
            place.conn.execute(SQL.forget_runs)
            place.submit_many(pipeline, size.children)
            worker = place.start_worker(ready=False)
            place.until(
                lambda name=pipeline: place.one(SQL.drained, pipeline=name)[0] >= size.children,
                f"{size.children:,} runs",
                pause=0.5,
            )
            spent, _, well = place.one(SQL.drain_time, pipeline=pipeline)
            assert well, "a run did not succeed"
            seconds.append(float(spent))
            worker.stop()
    without, with_ = min(took["single"]), min(took["single-wide"])
    return [
        rate("without a destination", size.children, without),
        rate("with a destination", size.children, with_),
        Figure("with / without", with_ / without, "x"),
    ]


def calls(place: Place, size: Any) -> list[Figure]:
    """Three workers, two slots each, twenty async tasks a slot, against a server that counts."""
    sys.path.append(str(TESTS))
    from support.counting_server import CountingServer, most_at_once, worst_window

    count = size.calls
    with CountingServer(takes=TAKES) as far, tempfile.TemporaryDirectory() as folder:
        code = _CODE.format(rate=RATE, burst=BURST, at_once=AT_ONCE, url=far.url)
        Path(folder, "m.py").write_text(code, encoding="utf-8")
        deploy.deploy(place.conn, definitions(folder))
        workers = [_worker(place, folder, number) for number in range(WORKERS)]
        try:
            run = place.submit("calls", {"count": count})
            place.follow(run, count)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(30)
        seen = far.calls()
    first, last = seen[0].began, seen[-1].began
    return [
        Figure("calls that came", len(seen), ""),
        Figure("most at once", most_at_once(seen)[0], f"of {AT_ONCE}"),
        Figure("most above rate x t in a window", worst_window(seen, RATE), f"of {BURST}"),
        rate("came", len(seen), last - first),
        Figure("of the allowed rate", 100 * len(seen) / (last - first) / RATE, "%"),
    ]


def _worker(place: Place, folder: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "suimon.cli.main", "worker", folder, "--slots", "2"]
    command += ["--async-per-slot", "20", "--name", f"bench-{number}"]
    environment = {
        **os.environ, "SUIMON_DATABASE_URL": place.url, "SUIMON_ALLOW_ADDRESSES": "127.0.0.1",
    }  # fmt: skip
    with (place.folder / f"calls-{number}.log").open("wb") as stream:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
