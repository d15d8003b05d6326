"""The engine's functions without a worker process: pipelines, claims, fan-outs, ends, by hand.

    lab = Lab(conn)
    lab.pipeline("p"); run = lab.submit("p")
    worker = lab.worker(); row = lab.claim(worker)[0]; lab.end(worker, row)

A child's item is its position, its hash the position plus one. All of it goes through `suimon.run`
and `suimon.worker.batch`, so what is tested is what runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from suimon.db.connect import Connection, transaction
from suimon.run import claim, deploy, finish, lane, rescue, spawn, step, submit, wait
from suimon.run.claim import Claimed
from suimon.run.finish import Again, Ended, Settled
from suimon.run.spawn import Child, Fanout, Holder, Policy
from suimon.worker import batch as batches
from suimon.worker.batch import Batch, Outcome, Want

#: A graph whose runs spawn, merge and go on.
SPAWN_GRAPH: dict[str, Any] = {
    "kids": {
        "type": "SPAWNER", "inputs": {"items": {"$ref": "input.items"}}, "config": {"task": "m:f"},
    },
    "outcome": {"type": "MERGE", "after": ["kids"]},
    "report": {
        "type": "TASK", "inputs": {"outcome": {"$ref": "outcome"}}, "config": {"task": "m:g"},
    },
}  # fmt: skip
TASK_GRAPH: dict[str, Any] = {"t": {"type": "TASK", "config": {"task": "m:f"}}}
INTERRUPTIONS = 3
_WRONG = """
select f.id, f.succeeded, f.failed, f.timed_out, f.cancelled, c.* from suimon.fanouts f
cross join lateral (
  select count(*) filter (where status = 'succeeded') s,
         count(*) filter (where status = 'failed') f,
         count(*) filter (where status = 'timed_out') t,
         count(*) filter (where status = 'cancelled') c
  from suimon.runs r where r.fanout_id = f.id) c
where (f.succeeded, f.failed, f.timed_out, f.cancelled)
   is distinct from (c.s, c.f, c.t, c.c)"""


@dataclass(slots=True)
class Parent:
    """A claimed run with an open fan-out."""

    row: Claimed
    holder: Holder
    fanout: Fanout
    child: Child

    @property
    def id(self) -> str:
        return self.row.id

    def child_id(self, position: int) -> str:
        return self.fanout.base[:28] + f"{position:08x}"


class Lab:
    """Acts of the engine on one connection; several labs may share a database."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    # ------------------------------------------------------------------ what exists

    def pipeline(self, name: str, vertices: dict[str, Any] | None = None, **keys: Any) -> None:
        """Deploy a pipeline; without `concurrency` it has no lane."""
        keys.setdefault("concurrency", "unlimited")
        keys.setdefault("maxQueued", "unlimited")
        graph = {"suimon": 1, "pipeline": name, "vertices": vertices or TASK_GRAPH, **keys}
        text = orjson.dumps(graph, option=orjson.OPT_SORT_KEYS)
        deploy.deploy(self.conn, [deploy.Definition(name, hashlib.sha256(text).hexdigest(), graph)])

    def submit(
        self,
        pipeline: str,
        given: Any = None,
        *,
        key: str | None = None,
        labels: Sequence[str] = (),
    ) -> str:
        request = submit.Request(orjson.dumps({} if given is None else given), key)
        return submit.submit(self.conn, pipeline, [request], labels=labels)[0].id

    def submit_only(self, pipeline: str, *, conn: Connection | None = None) -> str:
        """The statement alone, as the SQL function in a caller's transaction: nobody admits yet."""
        run = submit.uuid7()
        params = {
            "pipeline": pipeline, "ids": [run], "keys": [None], "inputs": ["{}"], "asking": None,
            "labels": None,
            "contents": None,
        }  # fmt: skip
        (conn or self.conn).execute(submit.SQL.submit, params)
        return run

    def submit_many(self, pipeline: str, n: int) -> list[str]:
        requests = [submit.Request(b"%d" % i) for i in range(n)]
        return [one.id for one in submit.submit(self.conn, pipeline, requests)]

    def worker(self, pool: str = "default", *, name: str = "", idle: bool = False) -> int:
        """A worker's row, as one boot makes it."""
        facts = {
            "name": name or f"{pool}-worker", "pool": pool, "slots": 2, "host": "here", "pid": 1,
            "boot_id": "b", "pid_started": "1", "package_version": "0", "beat_ms": 1000,
            "tasks": ["m:f"],
        }  # fmt: skip
        worker = rescue.register(self.conn, facts)
        if idle:
            self.sql("update suimon.workers set idle = true where id = %s", worker)
        return worker

    def kill(self, worker: int) -> None:
        """The worker is dead and its row says so."""
        self.sql("update suimon.workers set dead = true where id = %s", worker)

    # ------------------------------------------------------------------ life

    def claim(
        self,
        worker: int,
        n: int = 1,
        *,
        pool: str = "default",
        floors: Sequence[int] = (0, 0, 0, 0),
        capped: bool = False,
    ) -> list[Claimed]:
        with transaction(self.conn):
            if capped:
                claim.send_lock_cap(self.conn, pool)
            cursor = claim.send(
                self.conn, pool=pool, worker=worker, n=n, floors=floors, capped=capped
            )
            return claim.rows(cursor)

    def claim_run(self, worker: int, run_id: str) -> Claimed:
        """This very run, whatever else is queued."""
        self.sql("update suimon.runs set rank = rank - 1000000000000000 where id = %s", run_id)
        row = self.claim(worker)[0]
        assert row.id == run_id
        return row

    def ended(self, row: Claimed, status: str = "succeeded") -> Ended:
        output, error = ("1", "") if status == "succeeded" else ("", '{"message": "no"}')
        return Ended(row.id, row.claim_no, status, output, error, 7, row.fanout_id, row.lane)

    def batch(self, worker: int, ends: Sequence[Ended], **more: Any) -> Batch:
        lanes = {e.lane for e in ends if e.lane is not None}
        fanouts = {e.fanout_id for e in ends if e.fanout_id is not None}
        made = Batch(worker, f"w{worker}", ended=list(ends), lanes=lanes, fanouts=fanouts)
        for name, value in more.items():
            setattr(made, name, value)
        return made

    def end(
        self,
        worker: int,
        rows: Claimed | Sequence[Claimed],
        status: str = "succeeded",
        *,
        want: int = 0,
        pool: str = "default",
        capped: bool = False,
    ) -> Outcome:
        """The fused transaction of a worker: these runs end, and perhaps a claim with it."""
        rows = [rows] if isinstance(rows, Claimed) else rows
        made = self.batch(worker, [self.ended(row, status) for row in rows])
        if want:
            made.want = Want(pool, want, [0, 0, 0, 0], unfloored=True)
        made.capped = pool if capped else None
        return batches.execute(self.conn, made)

    def again(self, worker: int, row: Claimed, delay_s: float = 0.0) -> Outcome:
        """A try that failed and comes again."""
        made = self.batch(worker, [])
        made.again = [Again(row.id, row.claim_no, delay_s, "failed", "", '{"message": "no"}')]
        return batches.execute(self.conn, made)

    def parent(
        self,
        worker: int,
        pipeline: str,
        *,
        policy: Policy | None = None,
        limit: int | None = None,
        row: Claimed | None = None,
        to: str | None = None,
    ) -> Parent:
        """Submit (or take `row`), claim, open a fan-out; `to` names a pipeline as its target."""
        row = row or self.claim_run(worker, self.submit(pipeline, {"items": []}))
        holder = Holder(row.id, row.claim_no, worker)
        base = submit.fanout_base()
        fanout = spawn.open_fanout(
            self.conn, holder, vertex="kids", base=base, policy=policy or Policy(),
            limit=limit, shared=None,
        )  # fmt: skip
        if to is None:
            child = Child(
                row.pipeline, row.graph_id, "kids", "default", row.priority, INTERRUPTIONS,
                fanout.lane, limit, own_lane=limit is not None,
            )  # fmt: skip
        else:
            target = submit.target(self.conn, to)
            name, place = fanout.lane, limit
            if target.lane_limit is not None:
                name = spawn.sub_lane(self.conn, row.id, lane.pipeline_lane(to))
                place = target.lane_limit if "/" not in name else 1
                lane.make_rows(self.conn, [(name, place, None)])
            child = Child(
                to, target.graph_id, None, target.pool, row.priority, INTERRUPTIONS, name, place,
                own_lane=name is not None and name == fanout.lane,
            )  # fmt: skip
        return Parent(row, holder, fanout, child)

    def chunk(
        self,
        parent: Parent,
        first: int,
        n: int,
        *,
        keys: Sequence[str] | None = None,
        offset: int = 1,
        total: int | None = None,
    ) -> tuple[int, bool]:
        """Children `first` to `first + n - 1`; another `offset` is another list; `total`: the first
        chunk of a list whose length is known.
        """
        places = range(first, first + n)
        return spawn.chunk(
            self.conn, parent.holder, parent.fanout, parent.child, root_id=parent.row.root_id,
            first=first, n=n, hashes=finish.array([i + offset for i in places]), keys=keys,
            items=finish.RS.join(str(i) for i in places), total=total,
        )  # fmt: skip

    def seal(self, parent: Parent, n: int, *, keyed: bool = False) -> Settled:
        return spawn.seal(self.conn, parent.holder, parent.fanout, n=n, keyed=keyed)[1]

    def spawned(self, parent: Parent) -> None:
        """The spawner's step is recorded as done."""
        row = parent.row
        made = self.batch(parent.holder.worker, [])
        made.steps = [step.Step(row.id, row.claim_no, "kids", "succeeded", 1, "{}", "")]
        batches.execute(self.conn, made)

    def park(self, parent: Parent, grace_s: float = 10.0) -> bool:
        on = wait.On(fanout=parent.fanout.id)
        return wait.park(self.conn, parent.holder, [on], grace_s=grace_s)[0]

    def fan_out(
        self, worker: int, pipeline: str, n: int, *, policy: Policy | None = None, **more: Any
    ) -> Parent:
        """A parent that waits for n queued children."""
        parent = self.parent(worker, pipeline, policy=policy, **more)
        for first in range(0, n, 1000):
            self.chunk(parent, first, min(1000, n - first))
        self.seal(parent, n)
        self.spawned(parent)
        assert self.park(parent) or n == 0
        return parent

    # ------------------------------------------------------------------ looking

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *values: Any) -> Any:
        return self.sql(statement, *values)[0][0]

    def status(self, run_id: str) -> str:
        return str(self.one("select status from suimon.runs where id = %s", run_id))

    def statuses(self) -> dict[str, int]:
        return dict(self.sql("select status::text, count(*) from suimon.runs group by 1"))

    def fanout(self, parent: Parent) -> dict[str, Any]:
        cursor = self.conn.execute(
            "select * from suimon.fanouts where id = %s", (parent.fanout.id,)
        )
        row = cursor.fetchone()
        assert row is not None
        assert cursor.description is not None
        return dict(zip([c.name for c in cursor.description], row, strict=True))

    def tally(self, parent: Parent) -> tuple[int, int, int, int]:
        """(succeeded, failed, timed_out, cancelled) as the fan-out counts them."""
        found = self.fanout(parent)
        return found["succeeded"], found["failed"], found["timed_out"], found["cancelled"]

    def recount(self, parent: Parent) -> tuple[int, int, int, int]:
        """The same as the children say."""
        rows = dict(
            self.sql(
                "select status::text, count(*) from suimon.runs where fanout_id = %s group by 1",
                parent.fanout.id,
            )
        )
        names = ("succeeded", "failed", "timed_out", "cancelled")
        return tuple(rows.get(name, 0) for name in names)  # type: ignore[return-value]

    def wrong_tallies(self) -> list[tuple[Any, ...]]:
        """Fan-outs whose count differs from their children."""
        return self.sql(_WRONG)
