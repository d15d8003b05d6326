-- Suimon's whole schema as it stands now. Migrations lead here; a test proves both equal.
--
-- Reading order: states and their edges, graphs (what was written), runs (the queue itself), lanes, pools and
-- flows (order and fairness), fan-outs, steps and attempts (what happened), workers and duties (who does it),
-- payloads and logs (what is large). The life of a run is in docs/life-of-a-run.md.
--
-- Three rules hold everywhere:
--   * the run table is the queue: no second table can disagree with it;
--   * every transition rewrites the row, so: small columns, few partial indexes, and no foreign keys on the
--     hot path (a child's insert would lock its parent's row; a sweep checks instead);
--   * what must never happen is refused here, by CHECK, partial unique index or guard, not by the caller's care.

create schema suimon;

-- ------------------------------------------------------------------------------------------------ states

create type suimon.run_status as enum
  ('queued', 'running', 'waiting', 'succeeded', 'failed', 'timed_out', 'cancelled');

-- The sixteen edges, the same as core/states.py (a test proves it). Data, so that people and tests can read it;
-- the guard below repeats it in its WHEN clauses, where it costs nothing on an allowed edge.
create table suimon.run_edges (
  old suimon.run_status not null,
  new suimon.run_status not null,
  primary key (old, new)
);
insert into suimon.run_edges (old, new) values
  ('queued', 'running'), ('queued', 'cancelled'), ('queued', 'timed_out'),
  ('running', 'succeeded'), ('running', 'failed'), ('running', 'timed_out'), ('running', 'cancelled'),
  ('running', 'waiting'), ('running', 'queued'),
  ('waiting', 'queued'), ('waiting', 'cancelled'), ('waiting', 'timed_out'),
  ('succeeded', 'queued'), ('failed', 'queued'), ('timed_out', 'queued'), ('cancelled', 'queued');

-- ------------------------------------------------------------------------------------------------ graphs

-- A graph never changes; a run is pinned to the one it started with. hash is SHA-256 over canonical JSON, in hex.
create table suimon.graphs (
  id int generated always as identity primary key,
  pipeline text not null,
  hash text not null,
  body json not null,
  created_at timestamptz not null default clock_timestamp(),
  unique (pipeline, hash)
);

-- What a new run of this name gets. pool and concurrency are live values: a changed declaration moves them only
-- while nobody has edited them (edited_at is null).
create table suimon.pipelines (
  name text primary key,
  graph_id int not null references suimon.graphs (id),
  pool text not null,
  lane_limit int,                      -- null: unlimited
  lane_per text,                       -- dotted path into the input: a lane for each value
  holds_lane boolean not null default false,   -- on_failure = hold: a failed run keeps its lane closed
  priority smallint not null default 2 check (priority between 0 and 3),
  deployed_at timestamptz not null default clock_timestamp(),
  edited_at timestamptz
);

-- ------------------------------------------------------------------------------------------------ runs

create sequence suimon.lane_rank;

create table suimon.runs (
  id uuid primary key,                 -- sorts by time; child i of a fan-out is base + i: the key is its idempotency key
  root_id uuid not null,
  parent_id uuid,
  rank bigint not null default 0,      -- place in the claimable queue; meaningless while not admitted
  lane_rank bigint,                    -- place in the lane, from a sequence; never changes
  fanout_id bigint,
  duration_us bigint,                  -- what the slot measured of the last try
  wake_at timestamptz,
  deadline_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,              -- the last claim
  finished_at timestamptz,
  item_hash bigint,                    -- the manifest: this child's item may never differ from it
  worker_id bigint,
  graph_id int not null,
  claim_no int not null default 0,     -- rises at every claim and never falls: the fence
  attempt int not null default 0,      -- tries of the current step, the one under way included
  position int,
  lane_limit int,
  status suimon.run_status not null default 'queued',
  priority smallint not null default 2,
  interruptions smallint not null default 0,   -- of those tries, how many died with their worker or slot
  admitted boolean not null default true,
  cancel_requested boolean not null default false,
  holds_lane boolean not null default false,   -- a bad end of this run closes its lane until somebody acts
  max_interruptions smallint not null default 3,
  alone smallint not null default 0,   -- 1: next try alone in a slot; 2: alone in a worker (so that no neighbour is blamed)
  pipeline text not null,
  pool text not null,
  vertex text,                         -- a bare task's child: the spawner whose task it is, in its parent's graph
  lane text,
  reason text,                         -- stored when the engine parks a run; the rest is derived by suimon.reason_of
  item_key text,
  idempotency_key text,
  input jsonb,                         -- null: above 8 KB, see payloads
  output jsonb,                        -- null on a succeeded run: above 8 KB, see payloads
  error jsonb,
  constraint finished_iff_terminal check ((finished_at is not null) = (status in ('succeeded', 'failed', 'timed_out', 'cancelled'))),
  constraint worker_iff_running check ((worker_id is not null) = (status = 'running')),
  constraint waiting_says_why check (status <> 'waiting' or reason is not null),
  constraint child_has_place check ((fanout_id is null) = (position is null)),
  constraint lane_has_rank check (lane is null or lane_rank is not null),
  constraint only_admitted_run check (admitted or status not in ('running', 'waiting')),
  constraint counts_are_counts check (attempt >= 0 and claim_no >= 0 and interruptions >= 0 and priority between 0 and 3)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05,
        autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);

-- The claim's order. Only admitted rows are in it, so a busy lane's backlog is never walked over.
create index runs_ready on suimon.runs (pool, priority, rank, id) where status = 'queued' and admitted;
-- Who stands in a lane, oldest first. A row held for another reason (paused, no code) is not in it.
create index runs_lane_waiting on suimon.runs (lane, lane_rank) where status = 'queued' and not admitted and reason is null;
-- Whose place is taken: admission counts these under the lane's lock.
create index runs_lane_live on suimon.runs (lane) where lane is not null and admitted and status in ('queued', 'running', 'waiting');
-- The database's own guarantee of "one at a time".
create unique index runs_lane_one on suimon.runs (lane) where lane_limit = 1 and admitted and status in ('queued', 'running', 'waiting');
-- What a worker holds: rescue and reconcile. The finish avoids it on purpose (see run/finish.sql).
create index runs_held on suimon.runs (worker_id) where status = 'running';
create index runs_timer on suimon.runs (wake_at) where status = 'waiting' and wake_at is not null;
create index runs_deadline on suimon.runs (deadline_at) where deadline_at is not null and status in ('queued', 'running', 'waiting');
-- The last queued rank of a pipeline's single runs (a flood queues behind itself).
create index runs_single_rank on suimon.runs (pipeline, rank) where status = 'queued' and admitted and parent_id is null;
create index runs_roots on suimon.runs (pipeline, id) where parent_id is null;
-- Held back one by one: no worker has the code, or the pipeline is paused.
create index runs_held_back on suimon.runs (pool, reason) where status = 'queued' and not admitted and reason is not null;
create index runs_ended_badly on suimon.runs (fanout_id, position)
  where status in ('failed', 'timed_out', 'cancelled') and fanout_id is not null;
create index runs_cancelling on suimon.runs (id) where cancel_requested and status in ('queued', 'running', 'waiting');
-- Roots that are being removed: marked first, so that a crash in the middle is gone on with and a retry is refused.
create index runs_pruning on suimon.runs (id) where reason = 'pruning';

-- Every edge that is not in run_edges is refused, whoever writes. BEFORE, so that this error comes before a CHECK's.
create function suimon.refuse_edge() returns trigger language plpgsql as $$
begin
  raise exception 'run % may not go from % to %', old.id, old.status, new.status
    using errcode = 'SUI01', hint = 'The allowed edges are in suimon.run_edges.';
end $$;
create trigger runs_edge before update of status on suimon.runs for each row
  when (old.status is distinct from new.status and not (
       (old.status = 'queued' and new.status in ('running', 'cancelled', 'timed_out'))
    or (old.status = 'running' and new.status <> 'running')
    or (old.status = 'waiting' and new.status in ('queued', 'cancelled', 'timed_out'))
    or (old.status in ('succeeded', 'failed', 'timed_out', 'cancelled') and new.status = 'queued')))
  execute function suimon.refuse_edge();

create function suimon.refuse_birth() returns trigger language plpgsql as $$
begin
  raise exception 'a run is born queued, not %', new.status using errcode = 'SUI01';
end $$;
create trigger runs_birth before insert on suimon.runs for each row
  when (new.status <> 'queued') execute function suimon.refuse_birth();

-- One idempotency key, one run: this primary key is the only uniqueness of keys, and it outlives a pruned run.
create table suimon.idempotency_keys (
  pipeline text not null,
  key_hash bytea not null,             -- SHA-256 of the key
  run_id uuid not null,
  input_hash bytea not null,           -- SHA-256 of the canonical input, to say same_input
  created_at timestamptz not null default clock_timestamp(),
  primary key (pipeline, key_hash)
);

-- ------------------------------------------------------------------------------- order, limits and fairness

-- A lane is a name with a limit. floor: the lane_rank of its last admission; last_rank: the rank it gave last.
create table suimon.lanes (
  name text primary key,
  lane_limit int check (lane_limit >= 0),      -- null: no limit any more
  floor bigint not null default 0,
  last_rank bigint not null default 0,
  root_id uuid,                        -- a spawn's lane: its children share the root's flow
  held_by uuid,                        -- the failed run that keeps it closed; only that run may be admitted
  edited_at timestamptz
) with (fillfactor = 50);

-- The head of each pool and priority, published by its workers a few times a second.
create table suimon.pools (
  name text not null,
  priority smallint not null check (priority between 0 and 3),
  head bigint not null default 0,
  primary key (name, priority)
) with (fillfactor = 50);

-- The last rank given in a tree: a thousand nested fan-outs are one flow.
create table suimon.flows (
  root_id uuid primary key,
  last_rank bigint not null default 0
) with (fillfactor = 50);

-- ---------------------------------------------------------------------------------------- fan-outs and steps

create table suimon.fanouts (
  id bigint generated always as identity primary key,
  parent_id uuid not null,
  root_id uuid not null,
  vertex text not null,
  generation int not null default 1,
  base uuid not null unique,           -- low 32 bits zero; child i is base + i
  expected int,                        -- null until the list has ended (sealed)
  succeeded int not null default 0,
  failed int not null default 0,
  timed_out int not null default 0,
  cancelled int not null default 0,
  state text not null default 'open' check (state in ('open', 'settled')),
  verdict text check (verdict in ('succeeded', 'failed')),
  held_until timestamptz,              -- a retry of many is re-opening its children: may not settle before
  cancelling boolean not null default false,   -- no new children, those that exist are being cancelled
  tolerate text[] not null default '{}',       -- of failed, timed_out, cancelled
  max_failures int,
  max_failure_ratio text,              -- the text of the decimal, never a float
  allowed int,                         -- at the seal: min(max_failures, floor(ratio x expected)); null: any number
  fail_fast boolean not null default false,
  stragglers text not null default 'cancel' check (stragglers in ('cancel', 'finish')),
  settled_at timestamptz,
  settles int not null default 0,      -- how often it was settled; a retry re-opens it
  lane text,
  shared jsonb,                        -- inputs that are the same for all children, stored once
  created_at timestamptz not null default clock_timestamp(),
  constraint settled_has_verdict check ((state = 'settled') = (verdict is not null)),
  unique (parent_id, vertex, generation)
) with (fillfactor = 50);
create index fanouts_open on suimon.fanouts (id) where state = 'open';
create index fanouts_cancelling on suimon.fanouts (id)
  where cancelling and (expected is null or succeeded + failed + timed_out + cancelled < expected);

-- More bad ends than the merge tolerates? Before the seal a ratio cannot say so: more items raise its allowance.
create function suimon.is_over(f suimon.fanouts) returns boolean language sql immutable as $$
  select case when 'failed' = any (f.tolerate) then 0 else f.failed end
       + case when 'timed_out' = any (f.tolerate) then 0 else f.timed_out end
       + case when 'cancelled' = any (f.tolerate) then 0 else f.cancelled end > 0
      or coalesce(
           case when 'failed' = any (f.tolerate) then f.failed else 0 end
         + case when 'timed_out' = any (f.tolerate) then f.timed_out else 0 end
         + case when 'cancelled' = any (f.tolerate) then f.cancelled else 0 end
         > case when f.expected is null then f.max_failures else f.allowed end, false)
$$;
create function suimon.is_complete(f suimon.fanouts) returns boolean language sql immutable as $$
  select coalesce(f.succeeded + f.failed + f.timed_out + f.cancelled >= f.expected, false)
$$;

-- One row per vertex that has ended, or that waits (`open`: due_at is its timer, timeout or deadline). A run with one
-- vertex has none: its own row says it all.
create table suimon.steps (
  run_id uuid not null,
  vertex text not null,
  status text not null check (status in ('open', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  due_at timestamptz,
  attempt int not null,
  claim_no int not null,
  duration_us bigint,
  output jsonb,                        -- null on a succeeded step: above 8 KB, see payloads
  error jsonb,
  ended_at timestamptz not null default clock_timestamp(),
  primary key (run_id, vertex)
);

-- One row per try that did not end its step; the try that did is the run's or the step's own row.
create table suimon.attempts (
  run_id uuid not null,
  claim_no int not null,
  vertex text not null default '',
  attempt int not null,
  worker_id bigint,
  worker_name text,
  how text not null check (how in ('failed', 'timed_out', 'interrupted', 'cancelled', 'retried')),
  began_at timestamptz,
  ended_at timestamptz not null default clock_timestamp(),
  error jsonb,
  primary key (run_id, claim_no, vertex)
);

-- A named message to a run. It is kept if it comes early, and the first one of a name wins.
create table suimon.signals (
  run_id uuid not null,
  name text not null,
  data jsonb,                          -- null: above 8 KB, see payloads
  sent_by text not null,
  sent_at timestamptz not null default clock_timestamp(),
  primary key (run_id, name)
);

-- A question to people. It is decided once, by the vote that completes the quorum, by a rejection, or by its expiry.
create table suimon.approvals (
  run_id uuid not null,
  vertex text not null,
  pipeline text not null,
  title text,
  role text,
  show jsonb,
  quorum int not null default 1 check (quorum between 1 and 100),
  votes jsonb not null default '[]',   -- [{by, at, comment}], one a person
  decision text check (decision in ('approved', 'rejected', 'expired', 'not_required')),
  decided_by text,
  decided_at timestamptz,
  comment text,
  asked_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  constraint decided_has_time check ((decision is null) = (decided_at is null)),
  primary key (run_id, vertex)
);
create index approvals_open on suimon.approvals (asked_at) where decision is null;

-- Parts of a long task that are done and are not done again (ctx.checkpoint), and files it publishes (ctx.artifact):
-- an artifact is visible when the try that wrote it (claim_no) is the one that ended its step well.
create table suimon.checkpoints (
  run_id uuid not null,
  vertex text not null,
  name text not null,
  value text not null check (octet_length(value) <= 16777216),
  claim_no int not null,
  at timestamptz not null default clock_timestamp(),
  primary key (run_id, vertex, name)
);
create table suimon.artifacts (
  run_id uuid not null,
  vertex text not null,
  name text not null,
  part int not null default 0,         -- in parts of at most 1 MiB
  body bytea not null check (octet_length(body) <= 1048576),
  claim_no int not null,
  at timestamptz not null default clock_timestamp(),
  primary key (run_id, vertex, name, part)
);

-- How far a run says it is (ctx.progress); the last word only.
create table suimon.progress (
  run_id uuid primary key,
  done bigint not null,
  total bigint not null,
  at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- ------------------------------------------------------------------------------------------ workers, duties

-- A worker id is one boot of one worker. Death is a durable flag: a dead worker's heartbeat finds no row.
create table suimon.workers (
  id bigint generated always as identity primary key,
  name text not null,
  pool text not null,
  slots int not null,
  host text not null,
  pid int not null,
  boot_id text not null,
  pid_started text not null,
  package_version text not null,
  beat bigint not null default 0,
  beat_ms int not null,                -- its own interval: a rescuer waits for three of them
  idle boolean not null default false,
  draining boolean not null default false,
  dead boolean not null default false,
  tasks text[] not null default '{}',  -- the functions its code has
  started_at timestamptz not null default clock_timestamp(),
  beat_at timestamptz not null default clock_timestamp(),   -- for people; nothing is decided by it
  left_at timestamptz
) with (fillfactor = 50);
create index workers_live on suimon.workers (pool) where not dead;

-- Periodic work of the engine. Taken with skip locked by any worker: that lock is the whole election.
create table suimon.duties (
  name text primary key,
  every_ms int not null check (every_ms > 0),
  next_at timestamptz not null default clock_timestamp(),
  last_worker bigint,
  last_at timestamptz,
  last_note text
) with (fillfactor = 50);
insert into suimon.duties (name, every_ms) values
  ('timers', 30000), ('rescue', 30000), ('lanes', 30000), ('cancels', 30000), ('deadlines', 30000),
  ('repair', 60000), ('flows', 300000), ('prune', 300000);

-- ------------------------------------------------------------------------------------------- large and long

-- Inputs, results and step results above 8 KB and up to 16 MiB, as the JSON text itself.
create table suimon.payloads (
  run_id uuid not null,
  name text not null,                  -- input, output, step:VERTEX, shared:FANOUT
  body text not null check (octet_length(body) <= 16777216),
  created_at timestamptz not null default clock_timestamp(),
  primary key (run_id, name)
);

-- Log text in batches, at most 1 MB an attempt, its beginning and its end kept.
create table suimon.logs (
  run_id uuid not null,
  claim_no int not null,
  seq bigint generated always as identity,
  stream text not null check (stream in ('log', 'stdout', 'stderr', 'note')),
  at timestamptz not null default clock_timestamp(),
  body text not null,
  primary key (run_id, claim_no, seq)
);

-- What an operator did, to what, when and why.
create table suimon.audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  action text not null,
  target text not null,
  detail jsonb
);

-- ------------------------------------------------------------------------------------------------ functions

-- Child i of a fan-out. The base's low 32 bits are zero, so base + i is a concatenation.
create function suimon.child_id(base uuid, i int) returns uuid language sql immutable strict parallel safe as $$
  select (left(base::text, 28) || lpad(to_hex(i), 8, '0'))::uuid
$$;

-- The head of a pool and priority as submitters see it: the published row, or the clock for a pool nobody serves yet.
create function suimon.head_of(pool text, priority smallint) returns bigint language sql volatile as $$
  select coalesce((select p.head from suimon.pools p where p.name = head_of.pool and p.priority = head_of.priority),
                  (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- The engine's one grammar of durations, as core/durations.py: a number and ms, s, m, h or d.
create function suimon.seconds_of(duration text) returns double precision language sql immutable strict parallel safe as $$
  select substring(duration from '^[0-9]+')::double precision
       * case substring(duration from '[a-z]+$')
           when 'ms' then 0.001 when 's' then 1 when 'm' then 60 when 'h' then 3600 when 'd' then 86400 end
$$;

-- Why a run does not run (null when it does or has ended). Parked runs carry their reason; the others are derived,
-- so that a stopped pool costs no writes. Bounded: three index probes.
create function suimon.reason_of(r suimon.runs) returns text language sql stable as $$
  select case
    when r.status not in ('queued', 'waiting') then null
    when r.cancel_requested then 'cancelling'
    when r.reason is not null then r.reason
    when not r.admitted then coalesce(
      (select 'held:' || l.held_by from suimon.lanes l where l.name = r.lane and l.held_by is not null), 'lane')
    when not exists (select from suimon.workers w where w.pool = r.pool and not w.dead and not w.draining) then 'no_worker:' || r.pool
    else 'no_slot:' || r.pool
  end
$$;
