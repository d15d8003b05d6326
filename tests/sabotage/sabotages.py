"""One-line sabotages of the engine, and the test that must notice each of them.

A suite that stays green under one of these guards nothing. `make sabotage` applies them one by one
to a copy of the tree; `tests/tidy/test_sabotages.py` proves that each still fits the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sabotage:
    """`old` stands exactly once in `file` and becomes `new`; `tests` must turn red."""

    name: str
    file: str
    old: str
    new: str
    tests: str


RUN = "suimon/run/"
SABOTAGES = (
    Sabotage(
        "no fence in the finish", RUN + "finish.sql",
        "    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no\n"
        "  returning r.id, r.fanout_id, r.status",
        "\n  returning r.id, r.fanout_id, r.status",
        "tests/interleavings/test_rescue.py tests/property",
    ),
    Sabotage(
        "no lane lock", RUN + "lane.sql",
        "where name = any (%(lanes)s::text[]) order by name for no key update;",
        "where name = any (%(lanes)s::text[]) order by name;",
        "tests/interleavings/test_admission.py",
    ),
    Sabotage(
        "no lock of a pool's cap", RUN + "claim.sql",
        "where c.name = %(pool)s and c.cap is not null for no key update;",
        "where c.name = %(pool)s and c.cap is not null;",
        "tests/run/test_pools.py",
    ),
    Sabotage(
        "a claim passes a cap it has not locked", RUN + "claim.sql",
        "else coalesce((select case when %(capped)s then least",
        "else coalesce((select case when true or %(capped)s then least",
        "tests/run/test_pools.py",
    ),
    Sabotage(
        "no word about room under a cap", "suimon/worker/batch.py",
        "if batch.capped is not None and batch.frees > len(outcome.claimed):",
        "if False and batch.frees > len(outcome.claimed):  # type: ignore[unreachable]",
        "tests/run/test_pools.py",
    ),
    Sabotage(
        "no on conflict in the chunk", RUN + "spawn.sql",
        "  order by i.id\n  on conflict (id) do nothing\n", "  order by i.id\n",
        "tests/interleavings/test_edges_of_fan_outs.py",
    ),
    Sabotage(
        "tally twice", RUN + "finish.sql",
        "set succeeded = f.succeeded + t.succeeded,",
        "set succeeded = f.succeeded + 2 * t.succeeded,",
        "tests/interleavings/test_edges_of_fan_outs.py tests/property",
    ),
    Sabotage(
        "no manifest hash", RUN + "spawn.sql",
        " or r.item_hash is distinct from u.hash", "",
        "tests/interleavings/test_edges_of_fan_outs.py",
    ),
    Sabotage(
        "any edge allowed", "suimon/db/migrations/0001_initial.sql",
        "when (old.status is distinct from new.status and not (", "when (false and not (",
        "tests/db/test_schema_states.py",
    ),
    Sabotage(
        "rescue by age only", "suimon/worker/watch.py",
        "        if late or gap:\n", "        if False:\n",
        "tests/duties/test_watch.py",
    ),
    Sabotage(
        "places of the dead stay taken", RUN + "rescue.sql",
        "freed as (delete from suimon.leases l using gone where l.worker_id = gone.id)",
        "freed as (select id from gone)",
        "tests/store/test_destination.py",
    ),
    Sabotage(
        "places are not counted", "suimon/db/migrations/0001_initial.sql",
        "free := greatest(d.concurrency - live, 0);", "free := d.concurrency;",
        "tests/store/test_destination.py",
    ),
    Sabotage(
        "room that others hold is given again", "suimon/db/migrations/0001_initial.sql",
        "if used + others.ahead + wants > s.high_bytes", "if used + wants > s.high_bytes",
        "tests/run/test_pressure_fan_outs.py",
    ),
    Sabotage(
        "a frozen process calls when it wakes up", "suimon/worker/slot_wire.py",
        "            if clock.monotonic() >= self.last:\n", "            if False:\n",
        "tests/worker/test_slot_wire.py",
    ),
    Sabotage(
        "no release on drain", "suimon/worker/stops.py",
        "                self._worker.outbox.release(held.fence, begun=held.run.begun)\n",
        "                self._worker.outbox.interrupt(held)\n",
        "tests/acceptance/test_drain.py",
    ),
    Sabotage(
        "floor without margin", RUN + "claim.py",
        "floor = low_rank - max(BATCH_MARGIN * self.workers, span)", "floor = low_rank",
        "tests/run/test_order.py",
    ),
    Sabotage(
        "NOTIFY dropped", RUN + "wake.sql",
        "select pg_notify('suimon_wake', p.pool || ' ' || w.id)",
        "select concat('suimon_wake', p.pool || ' ' || w.id)",
        "tests/interleavings/test_wake_up.py",
    ),
    Sabotage(
        "last claim before silence dropped", "suimon/worker/idle.py",
        "        elif safe:\n", "        elif True:\n",
        "tests/interleavings/test_wake_up.py",
    ),
    Sabotage(
        "merge settles at expected - 1", "suimon/db/migrations/0001_initial.sql",
        ">= f.expected, false)", ">= f.expected - 1, false)",
        "tests/interleavings/test_fan_out.py tests/interleavings/test_edges_of_fan_outs.py",
    ),
    Sabotage(
        "retry loses its lane place", RUN + "retry.sql",
        "set floor = least(l.floor, b.lane_rank)", "set floor = l.floor + 5000",
        "tests/run/test_retry.py",
    ),
    Sabotage(
        "chunk without parent lock", RUN + "spawn.sql",
        "where r.id = %(parent)s and r.status = 'running' and r.worker_id = %(worker)s"
        " and r.claim_no = %(claim_no)s\nfor no key update;",
        "where r.id = %(parent)s and r.status = 'running' and r.worker_id = %(worker)s"
        " and r.claim_no = %(claim_no)s;",
        "tests/interleavings/test_cancel_meets_spawn.py",
    ),
    Sabotage(
        "attempt counted on release", RUN + "claim.sql",
        "set status = 'queued', worker_id = null, attempt = greatest(r.attempt - 1, 0), rank =",
        "set status = 'queued', worker_id = null, attempt = r.attempt, rank =",
        "tests/run/test_order.py",
    ),
    Sabotage(
        "two runs with one key", "suimon/db/migrations/0001_initial.sql",
        "where a.key is null or a.id in (select run_id from keyed)", "where true",
        "tests/run/test_submit.py",
    ),
    Sabotage(
        "a retry of many does not hold its fan-out", RUN + "finish.sql",
        "coalesce(f.held_until < clock_timestamp(), true)", "true",
        "tests/interleavings/test_edges_of_fan_outs.py",
    ),
    Sabotage(
        "poison is never found", RUN + "rescue.sql",
        "set status = case when h.interruptions > r.max_interruptions then 'failed'",
        "set status = case when false then 'failed'",
        "tests/run/test_rescue.py",
    ),
    Sabotage(
        "cancel does not reach the fan-out", RUN + "cancel.sql",
        "update suimon.fanouts f set cancelling = true from live",
        "update suimon.fanouts f set cancelling = f.cancelling from live",
        "tests/run/test_cancel.py",
    ),
    Sabotage(
        "two live runs of a serial lane", RUN + "lane.sql",
        "('queued', 'running', 'waiting')), 1000))", "('queued', 'running')), 1000))",
        "tests/run/test_lanes.py",
    ),
    Sabotage(
        "a half-done run without its code is overtaken", RUN + "lane.sql",
        "(r.admitted or (r.reason like 'no_code:%%' and r.started_at is not null))\n"
        "                  and", "r.admitted and", "tests/run/test_lanes_without_code.py",
    ),
    Sabotage(
        "a half-done run that gets its code queues up again", RUN + "claim.sql",
        "admitted = r.lane is null or r.started_at is not null,", "admitted = r.lane is null,",
        "tests/run/test_lanes_without_code.py",
    ),
    Sabotage(
        "a quota's reservation is not given back when its run ends",
        "suimon/db/migrations/0001_initial.sql",
        "f.expected is null and p.finished_at is null", "f.expected is null",
        "tests/run/test_quota_holds.py",
    ),
    Sabotage(
        "a quota is counted without its lock", "suimon/db/migrations/0001_initial.sql",
        "perform suimon.quota_lock(p_names);\n  now", "now",
        "tests/run/test_quotas.py",
    ),
    Sabotage(
        "a fan-out reserves its first chunk only", "suimon/worker/slot_spawn.py",
        "total=self.length if self._seq == 0 else None", "total=None",
        "tests/acceptance/test_quotas.py",
    ),
    Sabotage(
        "settle forgets its parent", RUN + "finish.sql",
        "and p.reason = 'children' and not p.cancel_requested",
        "and p.reason = 'nobody' and not p.cancel_requested",
        "tests/interleavings/test_fan_out.py tests/property",
    ),
    Sabotage(
        "a slot serves anybody after it held a secret", "suimon/worker/held.py",
        "            return self.bound is None or self.bound == pipeline",
        "            return True",
        "tests/acceptance/test_secret_slots.py",
    ),
    Sabotage(
        "a secret is bound to nothing", "suimon/store/secret.py",
        'return f"{name}|{version}|{key_id}".encode()', 'return b"nothing"',
        "tests/store/test_secret.py",
    ),
    Sabotage(
        "a secret in two pieces is shown", "suimon/core/redact.py",
        "self._of.marks, _begins_at(text, names, 0))", "self._of.marks, len(text))",
        "tests/core/test_redact.py",
    ),
    Sabotage(
        "secrets stay in results", "suimon/worker/slot_end.py",
        "return hidden.json(text) if hidden.names else text", "return text",
        "tests/cases/test_c66_secrets.py",
    ),
    Sabotage(
        "a right signature beside a wrong one", "suimon/core/signatures.py",
        "    if len(found) != 1:", "    if not found:",
        "tests/core/test_signatures.py",
    ),
    Sabotage(
        "two senders share their ids", "suimon/triggers/webhook.py",
        'else f"{trigger.name}:{named}"', "else named",
        "tests/triggers/test_webhook.py",
    ),
)  # fmt: skip
