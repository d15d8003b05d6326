"""Everything at once: dying workers, lanes, pools, nested fan-outs, cancels, retries.

Workers are threads that use the engine's functions as the real worker does, each on a connection of
its own; no process, no slot. A worker dies at two named points (with claims in hand, and between
two chunks), and a rescuer buries it, rescues, and nothing else: there is no sweep that could hide a
lost admission, settle or wake-up. With `kill_backends` connections break at any statement; then the
duties run too, as they must.

Bounds: as many roots as asked, three levels, 30 children, 5 workers.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import psycopg

from suimon.db.connect import Connection, connect
from suimon.duties import sweep
from suimon.errors import Conflict, DatabaseUnavailable
from suimon.run import cancel, rescue, retry, wake
from suimon.run.finish import Settled
from support.lab import Lab
from support.stress_worker import KIDS, POOLS, Found, Life

LIMITS: Final = {"serial0": 1, "serial1": 1, "serial2": 1, "serial3": 1, "three": 3, "four": 4}
STUCK_SECONDS: Final = 10.0
_LOG = """
create table public.settled (fanout bigint, old text, new text);
create function public.log_state() returns trigger language plpgsql as $$
begin insert into public.settled values (new.id, old.state, new.state); return null; end $$;
create trigger log_state after update of state on suimon.fanouts for each row
  when (old.state is distinct from new.state) execute function public.log_state()"""


class World:
    """One stress run; `run` returns what was found."""

    def __init__(
        self, url: str, seed: int, *, roots: int = 300, kill_backends: bool = False
    ) -> None:
        self.url, self.seed, self.roots, self.kills = url, seed, roots, kill_backends
        self.found = Found()
        self.stop = threading.Event()
        self.submitted = threading.Event()
        self.dead: list[int] = []
        self.keys: dict[tuple[str, str], set[str]] = {}
        self.lock = threading.Lock()

    def connect(self, name: str) -> Connection:
        return connect(self.url, name=name, patience_seconds=5)

    def run(self) -> Found:
        with self.connect("stress") as conn:
            conn.execute(_LOG)
            lab = Lab(conn)
            for number, (name, limit) in enumerate(LIMITS.items()):
                lab.pipeline(name, concurrency=limit, pool=POOLS[number % 2], priority=number % 4)
            for pool in POOLS:
                lab.pipeline(f"free-{pool}", pool=pool)
                lab.pipeline(f"parents-{pool}", KIDS, pool=pool, priority=1)
            acts = [
                self._submit,
                self._submit_serial,
                self._chaos,
                self._rescuer,
                self._timers,
                self._watch,
            ]
            acts += [self._kill_backends] if self.kills else []
            threads = [
                threading.Thread(target=self._guarded(act), name=act.__name__) for act in acts
            ]
            for number in range(5):
                work = self._guarded(lambda number=number: self._worker(number))
                threads.append(threading.Thread(target=work, name=f"worker{number}"))
            for thread in threads:
                thread.start()
            try:
                self._until_over(lab)
            finally:
                self.stop.set()
                for thread in threads:
                    thread.join(20)
            self._check(lab)
        return self.found

    def _guarded(self, act: Callable[[], None]) -> Callable[[], None]:
        def body() -> None:
            try:
                act()
            except BaseException:  # noqa: BLE001
                self.found.errors.append(traceback.format_exc())
                self.stop.set()

        return body

    # ------------------------------------------------------------------ who asks

    def _submit(self) -> None:
        """Free runs, limited ones and parents, one key for several of them now and then."""
        rng = random.Random(f"{self.seed} submit")
        with self.connect("submit") as conn:
            lab = Lab(conn)
            names = [
                "three",
                "four",
                "free-default",
                "free-other",
                "parents-default",
                "parents-other",
            ]
            for _ in range(self.roots):
                if self.stop.is_set():
                    return
                name = rng.choice(names)
                given = {"n": rng.randrange(31), "depth": rng.randrange(3)}
                key = f"key {rng.randrange(60)}" if rng.random() < 0.3 else None
                run = lab.submit(name, given, key=key)
                if key is not None:
                    self.keys.setdefault((name, key), set()).add(run)
                time.sleep(rng.random() * 0.01)
        self.submitted.set()

    def _submit_serial(self) -> None:
        """One submitter for the serial lanes, so that their order is that of its commits."""
        rng = random.Random(f"{self.seed} serial")
        with self.connect("serial") as conn:
            lab = Lab(conn)
            for _ in range(self.roots // 2):
                if self.stop.is_set():
                    return
                lab.submit(f"serial{rng.randrange(4)}")
                time.sleep(rng.random() * 0.02)

    def _chaos(self) -> None:
        """Cancels and retries of whatever there is, until all is submitted."""
        rng = random.Random(f"{self.seed} chaos")
        with self.connect("chaos") as conn:
            lab = Lab(conn)
            while not (self.stop.is_set() or self.submitted.is_set()):
                rows = lab.sql(
                    "select id::text, status::text from suimon.runs order by random() limit 1"
                )
                if rows and rng.random() < 0.25:
                    self.found.note("cancels")
                    cancel.request(conn, [rows[0][0]])
                else:
                    self._retry(lab, rng)
                time.sleep(0.05)

    def _retry(self, lab: Lab, rng: random.Random) -> None:
        children = rng.random() < 0.5
        what = "parent_id is null and pipeline like 'parents%%'" if children else "true"
        rows = lab.sql(
            "select id::text from suimon.runs"
            " where status in ('failed', 'timed_out', 'cancelled', 'succeeded')"
            f" and {what} order by random() limit 1"
        )
        if not rows:
            return
        try:
            plan = retry.plan(lab.conn, [rows[0][0]], failed_children=children)
            with self.lock:
                self.found.retried |= {one.id for one in [*plan.runs, *plan.parents]}
            retry.apply(lab.conn, plan, actor="stress")
            self.found.note("retries")
        except Conflict:
            self.found.note("refused retries")

    # ------------------------------------------------------------------ who keeps house

    def _rescuer(self) -> None:
        with self.connect("rescuer") as conn:
            while not self.stop.is_set():
                with self.lock:
                    dead, self.dead = self.dead, []
                for worker in dead:
                    rescue.bury(conn, worker, 0)
                if dead:
                    count, follows = rescue.rescue(conn)
                    self.found.note("rescued", count)
                    self._follow(conn, follows)
                if self.kills:
                    self._duties(conn)
                self.stop.wait(0.02)

    def _duties(self, conn: Connection) -> None:
        """The whole sweep; its repair should never find anything."""
        for name, duty in sweep.DUTIES.items():
            done = duty(conn)
            if name == "repair":
                self.found.note("repaired", done)

    def _timers(self) -> None:
        with self.connect("timers") as conn:
            while not self.stop.is_set():
                wake.wake_due(conn)
                self.stop.wait(0.01)

    def _kill_backends(self) -> None:
        rng = random.Random(f"{self.seed} kill")
        with self.connect("killer") as conn:
            while not self.stop.is_set():
                pids = conn.execute(
                    "select pid from pg_stat_activity where application_name like 'suimon:worker%'"
                    " and datname = current_database()"
                ).fetchall()
                if pids and not self.submitted.is_set():
                    conn.execute("select pg_terminate_backend(%s)", rng.choice(pids))
                    self.found.note("killed backends")
                self.stop.wait(0.15)

    def _watch(self) -> None:
        """In every snapshot no lane has more places taken than its limit."""
        with self.connect("watch") as conn:
            while not self.stop.is_set():
                over = conn.execute(
                    "select r.lane, count(*), max(r.lane_limit) from suimon.runs r"
                    " where r.lane is not null"
                    " and r.admitted and r.status in ('queued', 'running', 'waiting')"
                    " group by 1 having count(*) > max(r.lane_limit)"
                ).fetchall()
                if over:
                    self.found.errors.append(f"limit: {over}")
                self.found.note("snapshots")
                self.stop.wait(0.01)

    def _follow(self, conn: Connection, follows: Settled) -> None:
        if follows.stopped_parents:
            cancel.end_parents(conn, follows.stopped_parents)
        if follows.stragglers:
            cancel.sweep(conn)

    # ------------------------------------------------------------------ who works

    def _worker(self, number: int) -> None:
        rng = random.Random(f"{self.seed} worker {number}")
        pool = POOLS[number % 2]
        while not self.stop.is_set():
            life: Life | None = None
            try:
                with self.connect(f"worker{number}") as conn:
                    life = Life(self, conn, pool, rng)
                    life.work()
            except (psycopg.OperationalError, DatabaseUnavailable):
                if not self.kills:
                    raise
                self.found.note("broken connections")
            if life is not None:
                with self.lock:
                    self.dead.append(life.id)

    # ------------------------------------------------------------------ the end

    def _until_over(self, lab: Lab) -> None:
        """All are submitted and have ended; or nothing has moved for a while."""
        last, since = None, time.monotonic()
        while not self.stop.is_set():
            live = lab.one(
                "select count(*) from suimon.runs where status in ('queued', 'running', 'waiting')"
            )
            if self.submitted.is_set() and live == 0:
                return
            seen = lab.sql("select count(*), sum(claim_no), count(finished_at) from suimon.runs")
            if seen != last:
                last, since = seen, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                self.found.errors.append(f"stuck: {self._stuck(lab)}")
                return
            time.sleep(0.1)

    def _stuck(self, lab: Lab) -> list[Any]:
        runs = lab.sql(
            "select id::text, pipeline, pool, status::text, reason, lane, admitted, rank,"
            " cancel_requested, worker_id,"
            " claim_no, parent_id::text, fanout_id from suimon.runs"
            " where status in ('queued', 'running', 'waiting') order by id limit 12"
        )
        fanouts = lab.sql(
            "select * from suimon.fanouts f"
            " where state = 'open' or not suimon.is_complete(f) limit 8"
        )
        return [*runs, *fanouts, lab.sql("select id, dead, idle from suimon.workers")]

    def _check(self, lab: Lab) -> None:
        errors = self.found.errors
        errors += [f"tally: {row}" for row in lab.wrong_tallies()]
        errors += [
            f"settled {row}"
            for row in lab.sql(
                "select f.id, f.settles, f.state, count(s.*) from suimon.fanouts f"
                " left join public.settled s on s.fanout = f.id and s.new = 'settled'"
                " group by f.id having f.settles <> count(s.*)"
                " or (f.state = 'open' and suimon.is_complete(f))"
            )
        ]
        errors += [f"key {key}: {ids}" for key, ids in self.keys.items() if len(ids) > 1]
        serial = lab.sql(
            "select lane, id::text, started_at from suimon.runs where lane like 'pipeline:serial%%'"
            " and started_at is not null and status <> 'cancelled' order by lane, lane_rank"
        )
        kept = [row for row in serial if row[1] not in self.found.retried]
        for (lane, _, before), (other, run, after) in itertools.pairwise(kept):
            if lane == other and after < before:
                errors.append(f"order: {run} of {lane} began before its predecessor")
        self.found.counts["runs"] = lab.one("select count(*) from suimon.runs")
        self.found.counts["fan-outs"] = lab.one("select count(*) from suimon.fanouts")
        deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
        self.found.counts["deadlocks"] = lab.one(deadlocks)
        if self.found.counts.get("repaired"):
            errors.append(f"the repair duty found something {self.found.counts['repaired']} times")
