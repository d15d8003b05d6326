"""The test kit's engine: a database, deployed pipelines, and one real worker process.

What it shows is what production does: the same transactions, the same processes, the same clean
child that reads your code. Only heartbeat and sweep are short, time can be moved, and faults can be
chosen. Waiting looks at the database every few milliseconds and is bounded by `timeout`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from suimon import testing_server
from suimon.context import Child
from suimon.core import clock, durations, jsonsafe
from suimon.db.connect import Connection, connect, retrying, transaction
from suimon.db.embedded_system import die_with_parent
from suimon.run import cancel as cancelling
from suimon.run import deploy, doors, operate, pages, read, wake
from suimon.run import retry as retrying_runs
from suimon.testing_faults import FAIL, SLOT_POINTS, VARIABLE, WORKER_POINTS, Faults
from suimon.triggers import cron

SQL = testing_server.SQL
#: How long anything is waited for, unless a call says otherwise; a bound, never a pause.
TIMEOUT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.01
_LEAVE_SECONDS: Final = 15.0
_ACTOR: Final = "test"


@dataclass(frozen=True, slots=True)
class Result:
    """A run as it stood when it was looked at."""

    id: str
    pipeline: str
    status: str
    reason: str | None
    attempt: int
    output: Any
    error: dict[str, Any] | None
    steps: dict[str, dict[str, Any]]
    attempts: tuple[dict[str, Any], ...]
    children: tuple[Child, ...]
    log: str

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"


class Engine:
    """Made by `engine(PATH)`; use it as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        slots: int = 2,
        pool: str = "default",
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        heartbeat: str = "500ms",
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """`env`: variables that your tasks may see; `secrets`: values by the names that tasks are
        granted ("crm_token", "env:NAME"); `heartbeat`: three silent ones are a death.
        """
        self.path = Path(path).absolute()
        self.timeout = timeout
        self.url = ""
        self._options: dict[str, Any] = {
            "slots": slots, "pool": pool, "heartbeat_s": durations.seconds(heartbeat)
        }  # fmt: skip
        self._env = dict(env or {})
        self._secrets = dict(secrets or {})
        self._life = contextlib.ExitStack()
        self._worker: subprocess.Popen[bytes] | None = None
        self._workers = 0

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as life:
            self._folder = Path(tempfile.mkdtemp(prefix="suimon-engine-"))
            life.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._faults = Faults(self._folder / "faults")
            self.url = life.enter_context(testing_server.database())
            self._conn: Connection = life.enter_context(connect(self.url, name="testing"))
            self._conn.execute(SQL.quick_duties)
            self._options["environment"] = testing_server.keep_secrets(self._conn, self._secrets)
            self.deploy()
            life.callback(self._end_worker)
            self._start_worker()
            self._life = life.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._life.close()

    def deploy(self, path: str | os.PathLike[str] | None = None) -> list[str]:
        """Read PATH (by default the engine's) in a clean child and make it current; the names."""
        from suimon.load import load_path

        loaded = load_path(path or self.path).check()
        made = [
            deploy.Definition(one.name, one.hash, one.graph, loaded.destinations)
            for one in loaded.pipelines
        ]
        return [one.name for one in deploy.deploy(self._conn, made, folder=str(path or self.path))]

    def restart(self) -> None:
        """End the worker in good order and start another: it has read the code anew."""
        self._end_worker()
        self._start_worker()

    @property
    def crashes(self) -> int:
        """How often a crash point was met."""
        return self._faults.struck(*WORKER_POINTS, *SLOT_POINTS)

    # ------------------------------------------------------------------ runs

    def run(
        self,
        pipeline: str,
        input: Any = None,  # noqa: A002
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Submit and wait for the end, whatever it is."""
        return self.wait(self.submit(pipeline, input, key=key), timeout=timeout)

    def submit(self, pipeline: str, input: Any = None, *, key: str | None = None) -> str:  # noqa: A002
        """Start a run; its id."""
        return doors.start(self._conn, pipeline, {} if input is None else input, key=key).id

    def started(self, pipeline: str) -> list[str]:
        """The ids of its runs, oldest first, whoever started them: a schedule, a file, an event."""
        rows = self._conn.execute(SQL.runs_of, {"pipeline": pipeline}).fetchall()
        return [row[0] for row in rows]

    def wait(
        self, run: str, status: str | Sequence[str] = (), *, timeout: float | None = None
    ) -> Result:
        """Until the run has ended, or has one of these states ("waiting"). Else AssertionError."""
        wanted = {status} if isinstance(status, str) else set(status)

        def there() -> bool:
            found = read.run(self._conn, run)
            return found.status in wanted if wanted else found.ended

        self._until(there, f"run {run} {' or '.join(sorted(wanted)) or 'ended'}", timeout)
        return self.look(run)

    def look(self, run: str) -> Result:
        """The run as it stands now."""
        found = read.run(self._conn, run)
        steps = {one["vertex"]: one for one in read.steps(self._conn, run)}
        children = tuple(self._children(found))
        log = "".join(piece["text"] for piece in pages.logs(self._conn, run))
        return Result(
            found.id, found.pipeline, found.status, found.reason, found.attempt, found.output,
            found.error, steps, tuple(read.attempts(self._conn, run)), children, log,
        )  # fmt: skip

    def _children(self, run: read.Run) -> Iterator[Child]:
        for fanout in run.fanouts:
            first: int | None = 0
            while first is not None:
                page = pages.children(self._conn, fanout, first=first, limit=pages.PAGE, whole=True)
                for one in page.rows:
                    yield Child.of_row(
                        (one["position"], one["item_key"], one["status"], one["output"],
                         one["error"], one["id"])
                    )  # fmt: skip
                first = page.next

    # ------------------------------------------------------------------ what people do

    def signal(self, run: str, name: str, data: Any = None) -> bool:
        """Send a named message; False: there was one of that name, and the first one stays."""
        text = jsonsafe.dumps(data, what="signal")
        return operate.signal(self._conn, run, name, text, actor=_ACTOR)

    def approve(
        self, run: str, vertex: str, *, by: str = _ACTOR, comment: str | None = None
    ) -> str | None:
        """Vote for it, as soon as it is asked; the decision if this completes the quorum."""
        return self._decide(run, vertex, by, comment, approve=True)

    def reject(
        self, run: str, vertex: str, *, by: str = _ACTOR, comment: str | None = None
    ) -> str | None:
        """Reject it, as soon as it is asked; one rejection decides."""
        return self._decide(run, vertex, by, comment, approve=False)

    def _decide(
        self, run: str, vertex: str, by: str, comment: str | None, *, approve: bool
    ) -> str | None:
        from suimon.run import approvals

        def asked() -> bool:
            found = approvals.listed(self._conn, run_id=run, all_=True)
            return any(one["vertex"] == vertex for one in found)

        self._until(asked, f'"{vertex}" of run {run} asked')
        decided = operate.decide(
            self._conn, run, vertex, approve=approve, actor=by, comment=comment
        )
        return decided[0]

    def cancel(self, run: str) -> bool:
        """Ask the run and all below it to stop; False: it was over already."""
        return operate.cancel(self._conn, [run], actor=_ACTOR).asked > 0

    def retry(self, run: str, *, failed_children: bool = False) -> int:
        """Run again what ended badly; how many runs went back to the queue."""
        plan = retrying_runs.plan(self._conn, [run], failed_children=failed_children)
        return retrying_runs.apply(self._conn, plan, actor=_ACTOR)

    # ------------------------------------------------------------------ time and faults

    def advance(self, by: str, *, settle: bool = True) -> None:
        """Let this time have passed: for timers, back-offs, deadlines, expiries, and schedules.

        First whatever can go on without waiting does (unless `settle` is False), so that a run just
        submitted has reached its wait. What is not moved: a task's own `timeout`, and times that
        your code reads itself.
        """
        if settle:
            self.settle()
        seconds = {"seconds": durations.seconds(by)}

        def move() -> None:
            with transaction(self._conn):  # in the engine's lock order
                self._conn.execute(SQL.move_fanouts, seconds)
                self._conn.execute(SQL.move_runs, seconds)
                self._conn.execute(SQL.move_steps, seconds)
                self._conn.execute(SQL.move_approvals, seconds)
                self._conn.execute(SQL.move_schedules, seconds)

        retrying(move)
        while wake.wake_due(self._conn) or cancelling.expire(self._conn):
            pass  # a thousand at a time, until none is due
        cron.due(self._conn)

    def settle(self, *, timeout: float | None = None) -> None:
        """Wait until nothing moves: every run has ended, waits, or cannot be claimed."""
        where = {"pool": self._options["pool"]}

        def still() -> bool:
            row = self._conn.execute(SQL.moving, where).fetchone()
            return row is not None and row[0] == 0

        self._until(still, "all runs ended or waiting", timeout)

    def fail(
        self,
        *,
        task: str | None = None,
        vertex: str | None = None,
        key: str | None = None,
        position: int | None = None,
        times: int | None = 1,
        error: str = "boom",
        fatal: bool = False,
    ) -> None:
        """Let the next `times` tries that match fail with this error instead of calling the task.

        `task` is "module:function", `key` and `position` those of an item; None matches all.
        `times=None`: every one. `fatal=True`: as if the task had raised Fatal.
        """
        self._faults.add(
            FAIL, times=times, error=error, fatal=fatal, task=task, vertex=vertex, key=key,
            position=position,
        )  # fmt: skip

    def crash(
        self,
        at: str,
        *,
        task: str | None = None,
        key: str | None = None,
        position: int | None = None,
        times: int | None = 1,
    ) -> None:
        """Kill a process (SIGKILL) the next `times` it comes to this point.

        At "before_task" and "after_task" the slot dies, and `task`, `key`, `position` choose whose;
        at the points of a transaction the worker does, and the kit starts another.
        """
        if at not in (*WORKER_POINTS, *SLOT_POINTS):
            msg = f'there is no crash point "{at}"; {", ".join((*SLOT_POINTS, *WORKER_POINTS))}'
            raise ValueError(msg)
        if at in WORKER_POINTS and (task, key, position) != (None, None, None):
            msg = f'"{at}" is a transaction of many runs: no task, key or position chooses one'
            raise ValueError(msg)
        self._faults.add(at, times=times, task=task, key=key, position=position)

    def clear_faults(self) -> None:
        """Forget what `fail` and `crash` still had to do."""
        self._faults.clear()

    # ------------------------------------------------------------------ the worker

    def _start_worker(self) -> None:
        self._workers += 1
        name = f"test-worker-{self._workers}"
        options = {
            **self._options, "url": self.url, "listen_url": self.url, "root": str(self.path),
            "name": name, "sweep_s": 0.5, "names": sorted(self._env),
            "read_folders": ["/"],  # a test's files lie wherever it made them
        }  # fmt: skip
        environment = _clean(self._env) | {VARIABLE: str(self._folder / "faults")}
        with self._log_file.open("ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "suimon.testing_worker", str(self._folder / name)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509  (it takes no lock)
            )
        assert self._worker.stdin is not None
        with self._worker.stdin as stdin:
            stdin.write(json.dumps(options).encode() + b"\n")

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        for act in (worker.terminate, worker.terminate, worker.kill):
            act()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(_LEAVE_SECONDS)
                return

    def _revive(self) -> None:
        """A worker that a crash point has killed is followed by another; any other end is told."""
        if self._worker is None or self._worker.poll() is None:
            return
        if self._faults.struck(*WORKER_POINTS) < self._workers:
            msg = f"the worker ended with {self._worker.returncode}\n{self.story()}"
            raise AssertionError(msg)
        self._start_worker()

    @property
    def _log_file(self) -> Path:
        return self._folder / "worker.log"

    def story(self) -> str:
        """The states of all runs and the end of the worker's log."""
        states = [str(row) for row in self._conn.execute(SQL.story).fetchall()]
        log = self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([*states, *log[-40:]])

    def _until(self, there: Any, what: str, timeout: float | None = None) -> None:
        seconds = self.timeout if timeout is None else timeout
        give_up_at = clock.monotonic() + seconds
        while not there():
            self._revive()
            if clock.monotonic() > give_up_at:
                msg = f"not within {seconds:g} s: {what}\n{self.story()}"
                raise AssertionError(msg)
            time.sleep(_LOOK_SECONDS)


def _clean(more: Mapping[str, str]) -> dict[str, str]:
    from suimon.cli import clean

    return {**clean.environment(), **more}
