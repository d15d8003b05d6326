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

-- What a new run of this name gets. pool and the limits are live values: a changed declaration moves them only while
-- nobody has edited them (pool_edited_at, edited_at: null). While runs that wait are still being moved to another pool,
-- moving_from names the pools they come from; transactions below moving_mark may still be making runs there.
create table suimon.pipelines (
  name text primary key,
  graph_id int not null references suimon.graphs (id),
  pool text not null,
  lane_limit int,                      -- null: unlimited
  lane_per text,                       -- dotted path into the input: a lane for each value
  holds_lane boolean not null default false,   -- on_failure = hold: a failed run keeps its lane closed
  priority smallint not null default 2 check (priority between 0 and 3),
  max_queued int,                      -- queued runs that are no children; null: any number
  pause_after int,                     -- so many bad ends in a row pause its triggers; null: never
  failures_since timestamptz not null default '-infinity',   -- bad ends before it do not count: somebody resumed
  needs jsonb not null default '[]',   -- paths of the input that the graph reads, for suimon.submit in SQL
  labels text[] not null default '{}', -- those that the definition gives to each of its runs
  deployed_at timestamptz not null default clock_timestamp(),
  edited_at timestamptz,
  pool_edited_at timestamptz,
  moving_from text[] not null default '{}',
  moving_since timestamptz,
  moving_mark bigint,
  constraint moving_says_since_when check ((moving_from = '{}') = (moving_since is null))
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
  since timestamptz,                   -- when the engine parked it or put it back last; null: it waits since it was created
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
  labels text[],                       -- of a root, for the quotas that count it and all below it; null: none
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
-- Whose place is taken: admission counts these under the lane's lock. Who had begun and is held back for want of code is
-- not admitted and keeps its place.
create index runs_lane_live on suimon.runs (lane)
  where lane is not null and (admitted or (reason like 'no_code:%' and started_at is not null))
    and status in ('queued', 'running', 'waiting');
-- The database's own guarantee of "one at a time".
create unique index runs_lane_one on suimon.runs (lane)
  where lane_limit = 1 and (admitted or (reason like 'no_code:%' and started_at is not null))
    and status in ('queued', 'running', 'waiting');
-- What a worker holds: rescue and reconcile. The finish avoids it on purpose (see run/finish.sql).
create index runs_held on suimon.runs (worker_id) where status = 'running';
-- Why runs wait, counted for people (run/health.sql). The odd predicate keeps it out of every other plan: what nobody
-- else asks implies it, and a plan that takes it for a way to a row by its id would cost the finish its speed.
create index runs_waiting on suimon.runs (reason) where status = 'waiting' and coalesce(reason, '') <> '';
create index runs_timer on suimon.runs (wake_at) where status = 'waiting' and wake_at is not null;
create index runs_deadline on suimon.runs (deadline_at) where deadline_at is not null and status in ('queued', 'running', 'waiting');
-- The last queued rank of a pipeline's single runs (a flood queues behind itself), and how many wait (max_queued).
create index runs_queued_roots on suimon.runs (pipeline, admitted, rank) where status = 'queued' and parent_id is null;
create index runs_roots on suimon.runs (pipeline, id) where parent_id is null;
-- Which root runs ended last: failures in a row.
create index runs_ended_roots on suimon.runs (pipeline, finished_at) where finished_at is not null and parent_id is null;
-- Which root runs failed since the last look (run.failed notices); written by bad ends only.
create index runs_failed_roots on suimon.runs (finished_at) where status in ('failed', 'timed_out') and parent_id is null;
-- Held back one by one: no worker has the code, or the pipeline is paused.
create index runs_held_back on suimon.runs (pool, reason, rank, id) where status = 'queued' and not admitted and reason is not null;
create index runs_ended_badly on suimon.runs (fanout_id, position)
  where status in ('failed', 'timed_out', 'cancelled') and fanout_id is not null;
create index runs_cancelling on suimon.runs (id) where cancel_requested and status in ('queued', 'running', 'waiting');
-- Who waits for a destination, by fan-out (0: runs that are no children), each in the order of its tickets.
create index runs_limited on suimon.runs (split_part(reason, ':', 2), coalesce(fanout_id, 0), wake_at)
  where status = 'waiting' and (reason like 'limit:%' or reason like 'held:%');
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

-- At most so many runs of a pool are claimed at once, over all its workers. Whoever claims there locks the row and counts
-- (suimon.held_in) in a later statement. A pool that nobody ever capped has no row.
create table suimon.pool_caps (
  name text primary key,
  cap int check (cap > 0),             -- null: no longer
  version int not null default 1,      -- rises with each edit
  edited_at timestamptz not null default clock_timestamp()
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
  skipped int not null default 0,      -- bad ends in states that are not tolerated, which an operator has forgiven
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
       + case when 'cancelled' = any (f.tolerate) then 0 else f.cancelled end > f.skipped
      or coalesce(
           case when 'failed' = any (f.tolerate) then f.failed else 0 end
         + case when 'timed_out' = any (f.tolerate) then f.timed_out else 0 end
         + case when 'cancelled' = any (f.tolerate) then f.cancelled else 0 end
         > case when f.expected is null then f.max_failures else f.allowed end, false)
$$;
create function suimon.is_complete(f suimon.fanouts) returns boolean language sql immutable as $$
  select coalesce(f.succeeded + f.failed + f.timed_out + f.cancelled >= f.expected, false)
$$;

-- One row per vertex that has ended, or that waits (`open`: due_at is its timer, timeout or deadline), or a spawner
-- whose list found no room (`deferred`: due_at is its next try, attempt counts them, ended_at is the first; output says
-- how many bytes it would store). A run with one vertex has none: its own row says it all.
create table suimon.steps (
  run_id uuid not null,
  vertex text not null,
  status text not null check (status in ('open', 'deferred', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  due_at timestamptz,
  attempt int not null,
  claim_no int not null,
  duration_us bigint,
  output jsonb,                        -- null on a succeeded step: above 8 KB, see payloads
  error jsonb,
  ended_at timestamptz not null default clock_timestamp(),
  primary key (run_id, vertex)
);

create index steps_deferred on suimon.steps (run_id) where status = 'deferred';

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
  sha256 bytea not null,               -- in contents
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
  starts int not null default 0,       -- claims and ends in the minute before its last beat, as it counts them
  ends int not null default 0,
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
  ('repair', 60000), ('flows', 300000), ('prune', 300000), ('doors', 30000), ('pauses', 30000), ('notices', 30000),
  ('wakes', 30000), ('quotas', 30000), ('contents', 300000), ('storage', 30000), ('pools', 30000);

-- --------------------------------------------------------------------------------------------------- doors

-- What starts runs by itself: one row per trigger of a current graph, and of an earlier one whose deliveries are
-- still here. A trigger is known by its name within its pipeline ("cron:0 2 * * *@UTC"), so a redeploy keeps its state.
create table suimon.triggers (
  id bigint generated always as identity primary key,
  pipeline text not null,
  name text not null,
  kind text not null check (kind in ('CRON', 'EVENT', 'EVERY', 'FILE', 'WEBHOOK')),
  spec jsonb not null,                 -- as the graph holds it, a FILE's path made absolute
  slug text,                           -- WEBHOOK: its address
  next_at timestamptz,                 -- CRON, EVERY: the next instant
  cursor_at timestamptz,               -- CRON, EVERY: the last instant that was dealt with
  era int not null default 0,          -- rises when the clock was set back and a rhythm begins anew
  last_run uuid,                       -- CRON, EVERY: the run that later instants may fold into
  retry_at timestamptz,                -- the oldest waiting delivery is not tried before
  note text,                           -- what hinders it, for people
  created_at timestamptz not null default clock_timestamp(),
  retired_at timestamptz,              -- no longer in the current graph
  unique (pipeline, name)
) with (fillfactor = 50);
create unique index triggers_slug on suimon.triggers (slug) where slug is not null and retired_at is null;
create index triggers_due on suimon.triggers (next_at) where next_at is not null and retired_at is null;

-- What arrived at a door. Deliveries of one trigger become runs in the order of seq: while the oldest waits, because
-- its pipeline is full or paused, the later ones wait behind it. Nothing is deleted before it has ended.
create table suimon.deliveries (
  id uuid primary key,                 -- UUIDv7: sorts by arrival
  trigger_id bigint,                   -- null: a call to an address that does not exist
  seq bigint generated always as identity,
  state text not null check (state in ('waiting', 'delivered', 'folded', 'missed', 'refused', 'dead', 'discarded')),
  duplicate boolean not null default false,
  tries int not null default 0,
  arrived_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  run_id uuid,
  key text,                            -- the idempotency key of its run
  source text not null,                -- what people call it: a path, an instant, a delivery id, an event
  code text,                           -- why it waits, died or was refused: a stable code
  why text,
  input jsonb,                         -- the input of its run; null: above 8 KB, see payloads (name delivery)
  detail jsonb,                        -- what else is worth keeping: headers without secrets, the answer given
  constraint waiting_iff_open check ((ended_at is null) = (state = 'waiting'))
);
create index deliveries_waiting on suimon.deliveries (trigger_id, seq) where state = 'waiting';
create index deliveries_of_trigger on suimon.deliveries (trigger_id, id);
create index deliveries_dead on suimon.deliveries (code, id) where state in ('dead', 'discarded');
create index deliveries_rejected on suimon.deliveries (ended_at) where state in ('refused', 'discarded');
create index deliveries_run on suimon.deliveries (run_id) where run_id is not null;
create unique index deliveries_key on suimon.deliveries (trigger_id, key)
  where key is not null and state in ('waiting', 'delivered', 'dead', 'discarded');
-- Which runs one version of a file has, at any trigger (file_moves).
create index deliveries_file on suimon.deliveries ((detail ->> 'version')) where detail ->> 'version' is not null;
create index deliveries_refused on suimon.deliveries (id) where state = 'refused';

-- How many calls of webhooks were refused since ever; their rows in deliveries are bounded, these numbers are not.
create table suimon.refusals (
  trigger_id bigint not null,          -- 0: an address that does not exist
  code text not null,                  -- as in deliveries
  count bigint not null,
  primary key (trigger_id, code)
) with (fillfactor = 50);

-- What happened, told by anybody in a transaction of their own. One key of one type, one event.
create table suimon.events (
  id uuid primary key,
  type text not null check (length(type) between 1 and 200),
  key_hash bytea unique,               -- SHA-256 of type and key
  payload jsonb,                       -- null: above 8 KB, see payloads (name event)
  run_id uuid,                         -- the run whose ctx.emit it was
  occurred_at timestamptz not null default clock_timestamp()
);

-- What stands still by somebody's word, or by failures in a row. what: pipeline:NAME (nothing of it starts),
-- triggers:NAME (its triggers only), trigger:ID, pool:NAME, destination:NAME.
create table suimon.pauses (
  what text primary key,
  automatic boolean not null default false,
  by text not null,
  why text not null default '',
  runs uuid[] not null default '{}',   -- the failures in a row that caused it
  at timestamptz not null default clock_timestamp()
);

-- -------------------------------------------------------------------------------------------- notifications

-- Where people want to be told that something needs them. secret is a reference (env:, file:, secret:), never a value.
create table suimon.channels (
  name text primary key,
  kind text not null check (kind in ('webhook', 'email')),
  target text not null,                -- an URL; or addresses with a comma between
  secret text,
  kinds text[] not null,               -- run.failed, pipeline.paused, delivery.dead, pool.no_worker, or run.*
  enabled boolean not null default true,
  note text,                           -- why it was disabled
  since timestamptz not null default clock_timestamp(),   -- made, or enabled again: nothing older is told
  created_at timestamptz not null default clock_timestamp()
);

-- What is told: written with the fact, or by the duty that looks for it; sent by the relay (outbox/relay.py), at least
-- once. One fact, one notice a channel.
create table suimon.notices (
  id uuid primary key,
  channel text not null,
  kind text not null,
  fact text not null,
  subject text not null,
  payload jsonb not null,
  state text not null default 'waiting' check (state in ('waiting', 'sent', 'dead')),
  tries int not null default 0,
  next_at timestamptz not null default clock_timestamp(),   -- while it is being sent: the end of its lease
  why text,                            -- what the last try met
  created_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  constraint open_notice_waits check ((ended_at is null) = (state = 'waiting')),
  unique (channel, fact)
);
create index notices_waiting on suimon.notices (channel, next_at) where state = 'waiting';

-- How far the duty has looked for failed runs, and the failures that it has told: a run may end before the mark moves
-- and be committed after it (outbox/notify.sql).
create table suimon.notice_marks (
  kind text primary key,
  at timestamptz not null
);
insert into suimon.notice_marks (kind, at) values ('run.failed', '-infinity');
create table suimon.notice_told (
  run_id uuid not null,
  claim_no int not null,
  finished_at timestamptz not null,
  primary key (run_id, claim_no)
);

-- Conditions that last (pool:NAME has work and no worker): one row an episode, gone when it is over.
create table suimon.alarms (
  what text primary key,
  since timestamptz not null default clock_timestamp(),
  told_at timestamptz
);

-- ------------------------------------------------------------------------------------------------- secrets

-- The keys that secrets are encrypted with, known by their fingerprint; no key lies in the database. More than one
-- only while values are encrypted anew (suimon secrets rotate).
create table suimon.secret_keys (
  id text primary key,
  fingerprint text not null,
  current boolean not null,
  since timestamptz not null default clock_timestamp()
);
create unique index secret_keys_current on suimon.secret_keys (current) where current;

-- Ciphertext (AES-256-GCM), bound to name, version and key: a row that was exchanged or changed cannot be read.
create table suimon.secrets (
  name text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,99}$'),
  version int not null,
  key_id text not null references suimon.secret_keys (id),
  nonce bytea not null check (octet_length(nonce) = 12),
  body bytea not null check (octet_length(body) <= 66000),
  set_by text not null,
  set_at timestamptz not null default clock_timestamp()
);

-- What FILE triggers by content have read: a mark (path, size, times, inode) and the key of what was in it then, so
-- that nobody reads it again after a restart. A row lost costs a reading, never a second run.
create table suimon.file_contents (
  trigger_id bigint not null,
  mark bytea not null,
  key text not null,
  primary key (trigger_id, mark)
);

-- Files that are to be moved when their run has ended (done, failed), until they have been.
create table suimon.file_moves (
  trigger_id bigint not null,
  key text not null,                   -- of the delivery
  path bytea not null,
  host text not null,                  -- whose watcher saw it: a path may mean another file elsewhere
  size bigint not null,                -- and its version: what replaced it meanwhile stays where it is
  mtime_ns bigint not null,
  inode numeric not null,              -- 64 bits without a sign
  version text not null,               -- the same as a word, as in the detail of deliveries: of all triggers that took it
  arrived_at timestamptz not null default clock_timestamp(),
  primary key (trigger_id, key, path)
);

-- Has this version of a file a run that has not ended, or a delivery that is to become one, at whatever trigger?
create function suimon.file_in_use(p_version text) returns boolean language sql stable as $$
  select exists (
    select from suimon.deliveries d left join suimon.runs r on r.id = d.run_id
    where d.detail ->> 'version' = p_version and (d.state = 'waiting' or (r.id is not null and r.finished_at is null)))
$$;

-- ------------------------------------------------------------------------------------------------ limits

-- What is called outside, with its limits: live values, shared by all workers. A changed declaration moves them only
-- while nobody has edited them (edited_at is null). tat: the theoretical arrival time of the next call (core/gcra.py).
create table suimon.destinations (
  name text primary key,
  rate text,                           -- as people write it: 20/s; null: as often as one likes
  per_second double precision check (per_second > 0),
  burst int check (burst > 0),
  concurrency int check (concurrency > 0),     -- calls at once; null: any number
  base_url text,
  auth text,                           -- a reference (env:, file:, secret:), never a value
  timeout_ms int not null default 10000 check (timeout_ms > 0),
  tat timestamptz not null default '-infinity',
  held_until timestamptz,              -- nobody calls before: the far side's word (429) or a person's
  held_why text,
  held_by text,                        -- null: the engine, because of an answer
  version int not null default 1,      -- rises with each edit
  declared jsonb not null,             -- what was deployed last
  deployed_at timestamptz not null default clock_timestamp(),
  edited_at timestamptz,
  constraint rate_is_whole check ((rate is null) = (per_second is null) and (rate is null) = (burst is null))
) with (fillfactor = 50);

-- A place among the calls at once, of a worker, for a time. It is freed by its token alone: by the worker when the call
-- has ended, by whoever buries the worker, and by its expiry.
create table suimon.leases (
  token bigint generated always as identity primary key,
  destination text not null,
  worker_id bigint not null,
  run_id uuid,                         -- who uses it, as its worker said last; null: nobody
  since timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
) with (fillfactor = 50);
create index leases_of_destination on suimon.leases (destination);
create index leases_of_worker on suimon.leases (worker_id);

-- Which workers ask for a destination just now, and how much: places are divided among them.
create table suimon.destination_users (
  destination text not null,
  worker_id bigint not null,
  wants int not null,                  -- calls that wait or are being made
  waiting int not null,
  seen_at timestamptz not null,
  primary key (destination, worker_id)
) with (fillfactor = 50);

-- How many runs may be created in a day and in a month (UTC), all together, of one pipeline or with one label. A run
-- counts once, a child like any other. used counts what was created and what is reserved; a new day or month begins
-- with the first use in it, and a clock that jumps back begins none.
create table suimon.quotas (
  name text primary key check (name = 'all' or name like 'pipeline:_%' or name like 'label:_%:_%'),
  per_day int check (per_day >= 0),
  per_month int check (per_month >= 0),
  day date not null,
  day_used bigint not null default 0 check (day_used >= 0),
  month date not null,                 -- its first day
  month_used bigint not null default 0 check (month_used >= 0),
  version int not null default 1,      -- rises with each edit
  edited_by text not null,
  edited_at timestamptz not null default clock_timestamp(),
  constraint limits_something check (per_day is not null or per_month is not null)
) with (fillfactor = 50);

-- A fan-out's reservation: n children from a position on were counted in this day and month, before the first of them
-- was born. Those that never will be are given back by suimon.quota_free.
create table suimon.quota_holds (
  fanout_id bigint not null,
  quota text not null,
  n int not null check (n > 0),
  from_position int not null,
  day date not null,
  month date not null,
  primary key (fanout_id, quota)
) with (fillfactor = 50);

-- ------------------------------------------------------------------------------------------- large and long

-- What is too large for a row, once for all that refer to it. refs is counted by the database (count_references): a
-- content that nobody refers to any more goes at once, one with an object after the duty has deleted that.
create table suimon.contents (
  sha256 bytea primary key check (octet_length(sha256) = 32),  -- of the bytes as they were given (keep_text: and of its own)
  size bigint not null check (size between 0 and 16777216),
  stored bigint not null,              -- bytes as they are kept
  refs int not null default 0 check (refs >= 0),
  codec text not null check (codec in ('zstd', 'none')),
  place text,                          -- URL of its object; readable only where somebody refers to it
  body bytea,                          -- null: in its object
  touched_at timestamptz not null default clock_timestamp(),
  constraint content_is_somewhere check (body is not null or place is not null)
) with (fillfactor = 90);
alter table suimon.contents alter column body set storage external;
-- Intents whose writer died, and objects that nobody refers to: what the duty removes.
create index contents_unused on suimon.contents (touched_at) where refs = 0;

-- Inputs, results and step results above 8 KB and up to 16 MiB: their JSON text is a content.
create table suimon.payloads (
  run_id uuid not null,
  name text not null,                  -- input, output, step:VERTEX, shared:FANOUT; delivery, event (by their id)
  sha256 bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (run_id, name)
);

-- What all contents take, as the sum of what each writer added or took away: rows are only added, so that nobody waits for
-- a transaction that stays open; use_store folds them now and then.
create table suimon.store_usage (
  id bigint generated always as identity primary key,
  db_bytes bigint not null,
  object_bytes bigint not null
);

-- The marks of the store, and what is known of the disk below the database; one row. Pressure begins at high_bytes and
-- is over below low_bytes (above_since); it begins below disk_min_bytes of free disk and is over from disk_ok_bytes on
-- (scarce_since). Whoever sees a change writes it down (suimon.see_pressure); no other writes happen here but edits and
-- the sweep's measurements. watch is what everybody reads first: false means that nothing has to be asked.
create table suimon.store (
  id boolean primary key default true check (id),
  object_url text,                     -- where contents of 64 KiB and more go; null: they stay in the database
  high_bytes bigint check (high_bytes > 0),    -- null: no marks
  low_bytes bigint check (low_bytes > 0),
  disk_min_bytes bigint not null default 1073741824 check (disk_min_bytes >= 0),
  disk_ok_bytes bigint not null default 2147483648,
  disk_free bigint,                    -- null: never measured; older than three minutes: unknown
  disk_total bigint,
  disk_at timestamptz,
  above_since timestamptz,
  scarce_since timestamptz,
  version int not null default 1,      -- rises with each edit
  edited_by text,
  edited_at timestamptz,
  watch boolean generated always as (high_bytes is not null or above_since is not null or scarce_since is not null
                                     or coalesce(disk_free < disk_min_bytes, false)) stored,
  constraint marks_are_whole check ((high_bytes is null) = (low_bytes is null) and low_bytes <= high_bytes),
  constraint disk_marks_are_whole check (disk_min_bytes <= disk_ok_bytes)
) with (fillfactor = 50);
insert into suimon.store default values;

-- Fan-outs that were let in and are not sealed yet: the bytes that each may still store, as it said itself. Only while
-- marks are set, and only for lists with large items. A row whose fan-out is sealed, ended or gone counts no more.
create table suimon.store_holds (
  fanout_id bigint primary key,
  ahead bigint not null
) with (fillfactor = 50);

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

-- ---------------------------------------------------------------------------------------------- contents

-- Bytes that contents take, in the database and in object stores (there: of those that somebody refers to; the others are
-- being deleted). Exact, and cheap to ask.
create function suimon.store_bytes() returns bigint language sql stable parallel safe as $$
  select coalesce(sum(u.db_bytes + u.object_bytes), 0)::bigint from suimon.store_usage u
$$;

-- Adds to the sum. One in fifty folds up to 500 rows that nobody else is folding into one.
create function suimon.use_store(db bigint, objects bigint) returns void language plpgsql as $$
begin
  if db = 0 and objects = 0 then
    return;
  end if;
  insert into suimon.store_usage (db_bytes, object_bytes) values (use_store.db, use_store.objects);
  if random() < 0.02 and current_setting('transaction_isolation') = 'read committed' then
    with old as materialized (
      select u.id from suimon.store_usage u order by u.id limit 500 for update skip locked
    ),
    gone as (
      delete from suimon.store_usage u using old where u.id = old.id returning u.db_bytes, u.object_bytes
    )
    insert into suimon.store_usage (db_bytes, object_bytes) select sum(g.db_bytes), sum(g.object_bytes) from gone g having count(*) > 0;
  end if;
end $$;

create function suimon.count_contents() returns trigger language plpgsql as $$
declare
  db bigint := 0;
  objects bigint := 0;
  was record;
begin
  if tg_op <> 'DELETE' then
    select coalesce(sum(c.stored) filter (where c.body is not null), 0) as db,
           coalesce(sum(c.stored) filter (where c.body is null and c.refs > 0), 0) as objects into was from born c;
    db := was.db; objects := was.objects;
  end if;
  if tg_op <> 'INSERT' then
    select coalesce(sum(c.stored) filter (where c.body is not null), 0) as db,
           coalesce(sum(c.stored) filter (where c.body is null and c.refs > 0), 0) as objects into was from gone c;
    db := db - was.db; objects := objects - was.objects;
  end if;
  perform suimon.use_store(db, objects);
  return null;
end $$;
create trigger contents_born after insert on suimon.contents referencing new table as born
  for each statement execute function suimon.count_contents();
create trigger contents_changed after update on suimon.contents referencing old table as gone new table as born
  for each statement execute function suimon.count_contents();
create trigger contents_gone after delete on suimon.contents referencing old table as gone
  for each statement execute function suimon.count_contents();

-- Moves refs by what one statement has done to references, whoever sent it. Locks in the order of sha256, as every
-- writer does. Error SUI41: a content has gone since its writer looked; the writer keeps it again.
create function suimon.move_references(digests bytea[], moves int[]) returns void language plpgsql as $$
begin
  perform from suimon.contents c where c.sha256 = any (digests) order by c.sha256 for no key update;
  delete from suimon.contents c using unnest(digests, moves) as m(sha256, n)
  where c.sha256 = m.sha256 and c.refs + m.n = 0 and m.n < 0 and c.place is null;
  update suimon.contents c set refs = c.refs + m.n, touched_at = clock_timestamp()
  from unnest(digests, moves) as m(sha256, n) where c.sha256 = m.sha256;
  if exists (select from unnest(digests, moves) as m(sha256, n)
             where m.n > 0 and not exists (select from suimon.contents c where c.sha256 = m.sha256)) then
    raise exception 'a content has gone before its reference was written'
      using errcode = 'SUI41', hint = 'Keep it again, and repeat the transaction.';
  end if;
end $$;

create function suimon.count_references() returns trigger language plpgsql as $$
declare
  digests bytea[];
  moves int[];
begin
  if tg_op = 'INSERT' then
    select array_agg(m.sha256), array_agg(m.n) into digests, moves
    from (select b.sha256, count(*) as n from born b group by b.sha256) m;
  elsif tg_op = 'DELETE' then
    select array_agg(m.sha256), array_agg(m.n) into digests, moves
    from (select g.sha256, -count(*) as n from gone g group by g.sha256) m;
  else
    select array_agg(m.sha256), array_agg(m.n) into digests, moves
    from (select x.sha256, sum(x.n) as n
          from (select b.sha256, 1 as n from born b union all select g.sha256, -1 from gone g) x
          group by x.sha256 having sum(x.n) <> 0) m;
  end if;
  if digests is not null then
    perform suimon.move_references(digests, moves);
  end if;
  return null;
end $$;
create trigger payloads_born after insert on suimon.payloads referencing new table as born
  for each statement execute function suimon.count_references();
create trigger payloads_changed after update on suimon.payloads referencing old table as gone new table as born
  for each statement execute function suimon.count_references();
create trigger payloads_gone after delete on suimon.payloads referencing old table as gone
  for each statement execute function suimon.count_references();
create trigger artifacts_born after insert on suimon.artifacts referencing new table as born
  for each statement execute function suimon.count_references();
create trigger artifacts_changed after update on suimon.artifacts referencing old table as gone new table as born
  for each statement execute function suimon.count_references();
create trigger artifacts_gone after delete on suimon.artifacts referencing old table as gone
  for each statement execute function suimon.count_references();

-- Keeps bytes and holds their row until the reference is written in the same transaction. What is there already stays as it
-- is, unless nobody refers to it and it lies in an object: whether that was ever put, nobody knows.
create function suimon.keep_contents(digests bytea[], sizes bigint[], codecs text[], bodies bytea[]) returns void language sql as $$
  insert into suimon.contents as c (sha256, size, stored, codec, body)
  select k.sha256, k.size, octet_length(k.body), k.codec, k.body
  from unnest(digests, sizes, codecs, bodies) as k(sha256, size, codec, body) order by k.sha256
  on conflict (sha256) do update
  set touched_at = clock_timestamp(),
      body = case when c.refs = 0 and c.body is null then excluded.body else c.body end,
      codec = case when c.refs = 0 and c.body is null then excluded.codec else c.codec end,
      stored = case when c.refs = 0 and c.body is null then excluded.stored else c.stored end
$$;

-- The same for one text, as SQL has it: not compressed, and under a digest that nobody else has. A transaction of SQL may
-- stay open for long, and whoever keeps equal bytes would wait for it. Returns the digest.
create function suimon.keep_text(body text) returns bytea language plpgsql as $$
declare
  bytes bytea := convert_to(keep_text.body, 'UTF8');
  digest bytea := sha256(bytes || uuid_send(gen_random_uuid()));
begin
  perform suimon.keep_contents(array[digest], array[octet_length(bytes)::bigint], array['none'], array[bytes]);
  return digest;
end $$;

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

-- How many runs the workers of a pool hold now, those of dead ones that are not rescued yet included (of workers that are
-- gone: by the run's own pool). One index probe for each worker that holds anything, and what they hold here.
create function suimon.held_in(pool text) returns bigint language sql stable as $$
  with recursive holder(id) as (
    (select r.worker_id from suimon.runs r where r.status = 'running' order by r.worker_id limit 1)
    union all
    select (select r.worker_id from suimon.runs r where r.status = 'running' and r.worker_id > h.id order by r.worker_id limit 1)
    from holder h where h.id is not null
  )
  select coalesce(sum(c.runs), 0)::bigint
  from holder h left join suimon.workers w on w.id = h.id
  cross join lateral (select count(*) as runs from suimon.runs r
                      where r.status = 'running' and r.worker_id = h.id and (w.id is not null or r.pool = held_in.pool)) c
  where h.id is not null and (w.id is null or w.pool = held_in.pool)
$$;

-- The pool that the children of a fan-out were given by name, if any: their spawner's, or, where they are tasks of their
-- parent's own graph, the one that the parent was given.
create function suimon.named_pool(fanout bigint) returns text language sql stable as $$
  select coalesce(g.body #>> array['vertices', f.vertex, 'config', 'pool'],
                  case when g.body #>> array['vertices', f.vertex, 'config', 'pipeline'] is null
                       then h.body #>> array['vertices', e.vertex, 'config', 'pool'] end)
  from suimon.fanouts f
  join suimon.runs p on p.id = f.parent_id join suimon.graphs g on g.id = p.graph_id
  left join suimon.fanouts e on e.id = p.fanout_id
  left join suimon.runs o on o.id = e.parent_id left join suimon.graphs h on h.id = o.graph_id
  where f.id = named_pool.fanout
$$;

-- The engine's one grammar of durations, as core/durations.py: a number and ms, s, m, h or d.
create function suimon.seconds_of(duration text) returns double precision language sql immutable strict parallel safe as $$
  select substring(duration from '^[0-9]+')::double precision
       * case substring(duration from '[a-z]+$')
           when 'ms' then 0.001 when 's' then 1 when 'm' then 60 when 'h' then 3600 when 'd' then 86400 end
$$;

-- A worker's round at one destination, in one transaction and under the lock of its row: places it gives back, places
-- it uses (their expiry moves), then what it may have: calls that are booked ahead (n calls, the first in first_s, one
-- each step_s), new places, and how many of its places others are waiting for. Times are seconds from `now` of the
-- database's clock. With room to spare, runs that were parked for this destination are woken, of each fan-out the same
-- number, oldest ticket first: one that came early with all its children keeps no other waiting. (Looks at 1,000 fan-outs.)
-- The arithmetic is core/gcra.py's; a worker that is dead gets nothing.
create function suimon.take_calls(
  p_worker bigint, p_name text, p_calls int, p_places int, p_wants int, p_waiting int,
  p_back bigint[], p_used bigint[], p_runs uuid[],
  out d suimon.destinations, out kept bigint[], out places bigint[], out n int, out first_s double precision,
  out step_s double precision, out lease_s double precision, out held_s double precision, out give_back int,
  out part double precision, out parked boolean, out pools text[]) language plpgsql as $$
#variable_conflict use_column
declare
  at timestamptz;
  begin_s double precision;
  live int;
  free int;
  mine int;
  share int;
  owed int := 0;
  rest int;
  users int;
  u record;
  spare int;
  beat_s double precision;
begin
  n := 0; give_back := 0; part := 1; parked := false; kept := '{}'; places := '{}'; pools := '{}';
  delete from suimon.leases l where l.token = any (p_back) and l.worker_id = p_worker;
  select x.* into d from suimon.destinations x where x.name = p_name for no key update;
  at := clock_timestamp();
  select w.beat_ms / 1000.0 into beat_s from suimon.workers w where w.id = p_worker and not w.dead;
  -- longer than a call lasts, and than the slots of a frozen worker live
  lease_s := greatest(coalesce(d.timeout_ms, 0) / 1000.0 + 10, coalesce(beat_s, 0) * 3 + 5);
  if d.name is null or beat_s is null then
    return;
  end if;
  with used as (
    select * from unnest(p_used, p_runs) as u(token, run_id)
  ),
  renewed as (
    update suimon.leases l
    set expires_at = at + make_interval(secs => lease_s), run_id = u.run_id,
        since = case when l.run_id is not distinct from u.run_id then l.since else at end
    from used u where l.token = u.token and l.worker_id = p_worker and l.expires_at > at
    returning l.token
  )
  select coalesce(array_agg(r.token), '{}') into kept from renewed r;
  delete from suimon.leases l where l.destination = p_name and l.expires_at <= at;
  held_s := case when exists (select from suimon.pauses p where p.what = 'destination:' || p_name) then 3600
                 when d.held_until > at then least(extract(epoch from least(d.held_until, at + interval '1 day') - at), 86400) end;
  parked := exists (select from suimon.runs r where split_part(r.reason, ':', 2) = p_name and r.status = 'waiting'
                    and (r.reason like 'limit:%' or r.reason like 'held:%') limit 1);
  delete from suimon.destination_users v where v.destination = p_name
    and (v.seen_at < at - interval '2 seconds' or (v.worker_id = p_worker and p_wants = 0));
  if p_wants > 0 then
    insert into suimon.destination_users as v (destination, worker_id, wants, waiting, seen_at)
    values (p_name, p_worker, p_wants, p_waiting, at)
    on conflict (destination, worker_id) do update set wants = excluded.wants, waiting = excluded.waiting, seen_at = at;
  end if;
  if held_s is not null then
    return;
  end if;
  select coalesce(p_wants::double precision / nullif(sum(v.wants), 0), 1) into part
  from suimon.destination_users v where v.destination = p_name;
  if d.concurrency is not null then
    -- who wants less than the others gets it; what does not divide goes round
    select count(*), coalesce(sum(case when l.worker_id = p_worker then 1 else 0 end), 0) into live, mine
    from suimon.leases l where l.destination = p_name;
    select count(*) into users from suimon.destination_users v where v.destination = p_name;
    rest := d.concurrency; share := 0;
    for u in select v.worker_id, v.wants, (select count(*)::int from suimon.leases l
                                           where l.destination = p_name and l.worker_id = v.worker_id) as has
             from suimon.destination_users v where v.destination = p_name
             order by v.wants, md5(v.worker_id::text || floor(extract(epoch from at) / 5)::text) loop
      if u.worker_id = p_worker then
        share := least(u.wants, rest / users);
      else
        owed := owed + greatest(least(u.wants, rest / users) - u.has, 0);
      end if;
      rest := rest - least(u.wants, rest / users);
      users := users - 1;
    end loop;
    free := greatest(d.concurrency - live, 0);
    with made as (
      insert into suimon.leases (destination, worker_id, since, expires_at)
      select p_name, p_worker, at, at + make_interval(secs => lease_s)
      from generate_series(1, least(p_places, free, greatest(share - mine, free - owed)))
      returning token
    )
    select coalesce(array_agg(m.token), '{}') into places from made m;
    -- (more may be out than there are now: the limit was lowered)
    give_back := greatest(least(mine - share, owed - (d.concurrency - live - cardinality(places))), 0);
  end if;
  spare := 1000;
  if d.per_second is not null then
    step_s := 1 / d.per_second;
    begin_s := greatest(case when d.tat > at - interval '1 hour' then extract(epoch from d.tat - at) else 0 end, 0);
    first_s := begin_s - (greatest(d.burst / 2, 1) - 1) * step_s;
    -- (the horizon of core/gcra.py)
    rest := greatest(floor((0.25 - first_s) * d.per_second + 1e-9)::int + 1, 0);
    n := greatest(least(p_calls, ceil(rest * part)::int, rest), 0);
    if n > 0 then
      update suimon.destinations x set tat = at + make_interval(secs => begin_s + n * step_s) where x.name = p_name;
    end if;
    spare := case when rest - n > 0 then rest - n + ceil(d.per_second * 0.25)::int else 0 end;
  end if;
  if parked then
    select least(spare, coalesce(d.concurrency, spare)) - coalesce(sum(v.waiting), 0)::int into spare
    from suimon.destination_users v where v.destination = p_name;
    with recursive flow(id) as (
      (select coalesce(r.fanout_id, 0) from suimon.runs r
       where split_part(r.reason, ':', 2) = p_name and r.status = 'waiting' and (r.reason like 'limit:%' or r.reason like 'held:%')
       order by coalesce(r.fanout_id, 0) limit 1)
      union all
      select (select coalesce(r.fanout_id, 0) from suimon.runs r
              where split_part(r.reason, ':', 2) = p_name and r.status = 'waiting'
                and (r.reason like 'limit:%' or r.reason like 'held:%') and coalesce(r.fanout_id, 0) > flow.id
              order by coalesce(r.fanout_id, 0) limit 1)
      from flow where flow.id is not null
    ),
    flows as materialized (
      select f.id from flow f where f.id is not null limit 1000
    ),
    -- (twice its share of each: what one has not, the others use)
    head as materialized (
      select h.id, row_number() over (partition by flows.id order by h.wake_at) as place
      from flows cross join lateral (
        select r.id, r.wake_at from suimon.runs r
        where split_part(r.reason, ':', 2) = p_name and r.status = 'waiting' and (r.reason like 'limit:%' or r.reason like 'held:%')
          and coalesce(r.fanout_id, 0) = flows.id and not r.cancel_requested
        order by r.wake_at limit greatest(least(spare, 2 * spare / (select count(*) from flows) + 1), 0)) h
    ),
    next as materialized (
      select r.id from suimon.runs r
      where r.id = any (array(select h.id from head h order by h.place, random() limit greatest(spare, 0)))
        and r.status = 'waiting' and (r.reason like 'limit:%' or r.reason like 'held:%') and not r.cancel_requested
      order by r.id for no key update skip locked
    ),
    woken as (
      update suimon.runs r
      set status = 'queued', reason = null, wake_at = null, since = clock_timestamp(), rank = suimon.head_of(r.pool, r.priority)
      from next where r.id = next.id
      returning r.pool
    )
    select coalesce(array_agg(distinct w.pool), '{}') into pools from woken w;
  end if;
end $$;

-- Why a run does not run (null when it does or has ended). Parked runs carry their reason; the others are derived,
-- so that a stopped pool costs no writes. Bounded: five index probes. A paused pipeline holds what has not begun and
-- is a run of its own: a bare task's child (it has a vertex) belongs to a run that goes on.
create function suimon.reason_of(r suimon.runs) returns text language sql stable as $$
  select case
    when r.status not in ('queued', 'waiting') then null
    when r.cancel_requested then 'cancelling'
    when r.reason is not null then r.reason
    when r.vertex is null and r.started_at is null and exists (select from suimon.pauses p where p.what = 'pipeline:' || r.pipeline)
      then 'paused:pipeline:' || r.pipeline
    when exists (select from suimon.pauses p where p.what = 'pool:' || r.pool) then 'paused:pool:' || r.pool
    when not r.admitted then coalesce(
      (select 'lane_held:' || l.held_by from suimon.lanes l where l.name = r.lane and l.held_by is not null), 'lane')
    when not exists (select from suimon.workers w where w.pool = r.pool and not w.dead and not w.draining) then 'no_worker:' || r.pool
    else 'no_slot:' || r.pool
  end
$$;

-- Is there pressure, and of which kind? Judged now, nothing written. A disk that nobody has measured for three minutes
-- is unknown, and unknown is no pressure.
create function suimon.judge_pressure(out above boolean, out scarce boolean) language plpgsql stable as $$
declare
  s suimon.store;
begin
  above := false; scarce := false;
  select x.* into s from suimon.store x where x.watch;
  if found then
    above := coalesce(suimon.store_bytes() >= case when s.above_since is null then s.high_bytes else s.low_bytes end, false);
    scarce := coalesce(s.disk_at > clock_timestamp() - interval '3 minutes'
                       and s.disk_free < case when s.scarce_since is null then s.disk_min_bytes else s.disk_ok_bytes end, false);
  end if;
end $$;

-- The same, and a change is written down by whoever sees it. What follows from one: at the beginning a prune, now; at
-- the end whoever keeps the doors wakes those that were deferred.
create function suimon.see_pressure() returns boolean language plpgsql as $$
declare
  now_ record;
  was record;
begin
  select * into now_ from suimon.judge_pressure();
  select x.above_since is not null as above, x.scarce_since is not null as scarce into was from suimon.store x;
  if (now_.above, now_.scarce) is distinct from (was.above, was.scarce) then
    -- who admits a fan-out just now holds the row; the next one to look will see the same
    update suimon.store x
    set above_since = case when now_.above then coalesce(x.above_since, clock_timestamp()) end,
        scarce_since = case when now_.scarce then coalesce(x.scarce_since, clock_timestamp()) end
    from (select y.id from suimon.store y for no key update skip locked) free where x.id = free.id;
    if found and (now_.above or now_.scarce) then
      perform suimon.prune_soon();
    elsif found then
      perform pg_notify('suimon_doors', 'storage');
    end if;
  end if;
  return now_.above or now_.scarce;
end $$;

-- Brings the next prune to now, where it would be more than half a minute away.
create function suimon.prune_soon() returns void language plpgsql as $$
begin
  update suimon.duties d set next_at = clock_timestamp()
  from (select e.name from suimon.duties e where e.name = 'prune' and e.next_at > clock_timestamp() + interval '30 seconds'
        for no key update skip locked) late
  where d.name = late.name;
  if found then
    perform pg_notify('suimon_doors', 'sweep');
  end if;
end $$;

-- Will the spawner of this fan-out still store something?
create function suimon.is_spawning(f suimon.fanouts) returns boolean language sql stable as $$
  select f.expected is null and f.state = 'open' and not f.cancelling
     and exists (select from suimon.runs p where p.id = f.parent_id and p.finished_at is null and not p.cancel_requested)
     and not exists (select from suimon.steps s where s.run_id = f.parent_id and s.vertex = f.vertex and s.status <> 'deferred')
$$;

-- Under pressure of the store a fan-out that is half stored waits like any other, for runs to end and to be pruned.
-- Where none can, it would wait for ever, and with it its own children's room: then the oldest of them goes on, a chunk
-- at a time, above the mark; where there is none, the oldest that has not begun and whose own run holds room that its end gives
-- back, one at a time (goes_first). An older one that cannot run itself (no worker, paused) is passed over. None can: no tree
-- that could end and is kept for a while only is alive (one in which a fan-out is deferred, or that waits for people or a
-- clock, a lane or a worker, cannot), and the prune has seen all that have ended. A scarce disk stops every one of them.
create function suimon.no_room_comes(p_fanout bigint) returns boolean language sql stable as $$
  with stuck as materialized (
    select f.root_id from suimon.fanouts f where f.id = p_fanout
    union
    select r.root_id from suimon.steps s join suimon.runs r on r.id = s.run_id where s.status = 'deferred' and r.finished_at is null
  ),
  kept as materialized (
    select p.name from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
    where g.body -> 'keep' is not null and not exists (select from suimon.pauses a where a.what = 'pipeline:' || p.name)
  )
  select not exists (select from suimon.store x where x.scarce_since is not null)
     and not exists (select from suimon.store_holds h join suimon.fanouts f on f.id = h.fanout_id
                     join suimon.runs p on p.id = f.parent_id
                     where h.fanout_id <> p_fanout
                       and (h.fanout_id < p_fanout or not exists (select from suimon.store_holds o where o.fanout_id = p_fanout))
                       and suimon.is_spawning(f)
                       and (p.status = 'running' or (p.status = 'waiting' and p.reason = 'storage')
                            or (p.status = 'queued' and suimon.reason_of(p) like 'no_slot:%')))
     and not exists (select from suimon.runs r join kept k on k.name = r.pipeline
                     where r.parent_id is null and r.status = 'running' and r.root_id not in (select root_id from stuck))
     and not exists (select from (select r from suimon.runs r join kept k on k.name = r.pipeline
                                  where r.parent_id is null and r.status = 'queued' and r.admitted limit 1000) q
                     where suimon.reason_of(q.r) like 'no_slot:%' and (q.r).root_id not in (select root_id from stuck))
     and not exists (select from suimon.runs r join kept k on k.name = r.pipeline
                     where r.parent_id is null and r.status = 'waiting' and coalesce(r.reason, '') <> ''
                       and split_part(r.reason, ':', 1) not in ('storage', 'signal', 'approval', 'timer')
                       and r.root_id not in (select root_id from stuck))
     and not exists (select from suimon.runs r where r.reason = 'pruning')
     and not exists (select from kept k join suimon.duties d on d.name = 'prune'
                     where exists (select from suimon.runs r where r.pipeline = k.name and r.parent_id is null
                                   and r.finished_at is not null and r.finished_at > coalesce(d.last_at, '-infinity')))
$$;

create function suimon.goes_first(p_fanout bigint) returns boolean language sql stable as $$
  select suimon.no_room_comes(p_fanout)
     and (exists (select from suimon.store_holds h where h.fanout_id = p_fanout)
          or exists (select from suimon.fanouts f join suimon.runs r on r.id = f.root_id
                     join suimon.payloads y on y.run_id = r.id and y.name = 'input'
                     join suimon.pipelines p on p.name = r.pipeline join suimon.graphs g on g.id = p.graph_id
                     where f.id = p_fanout and g.body -> 'keep' is not null))
$$;

-- May this spawner store a chunk whose last item has the position p_last (null: may it begin to read its list)? p_large:
-- the bytes of its items that go to payloads; p_ahead: those of the whole list, as its first chunk says (null: unknown).
-- A chunk that was stored before always may, and what has ended early is not asked here. Without pressure a fan-out that
-- has begun goes on; the first chunk of one with large items needs room for all of them, beside what others that were let
-- in still have ahead of them, or the store for itself below the low mark. First chunks take turns at the store's row, so
-- that no room is given twice.
create function suimon.may_spawn(p_fanout bigint, p_base uuid, p_last int, p_large bigint, p_ahead bigint)
returns boolean language plpgsql as $$
declare
  begun boolean := exists (select from suimon.runs r where r.id = suimon.child_id(p_base, 0));
  wants bigint := greatest(p_ahead, p_large, 0);
  s suimon.store;
  used bigint;
  others record;
begin
  if exists (select from suimon.runs r where r.id = suimon.child_id(p_base, p_last))
     or exists (select from suimon.fanouts f where f.id = p_fanout and (f.state <> 'open' or f.cancelling)) then
    return true;
  end if;
  if suimon.see_pressure() then
    if begun then
      insert into suimon.store_holds (fanout_id, ahead) values (p_fanout, 0) on conflict do nothing;
    else
      perform from suimon.store x for no key update;  -- one at a time
    end if;
    if not suimon.goes_first(p_fanout) then
      return false;
    end if;
    if p_last is not null and not begun then
      insert into suimon.store_holds (fanout_id, ahead) values (p_fanout, 0) on conflict do nothing;
      wants := 0;  -- it has the store for itself
    end if;
  end if;
  if p_last is null then
    return true;
  end if;
  if begun then
    if p_large > 0 then
      insert into suimon.store_holds as h (fanout_id, ahead) values (p_fanout, 0)
      on conflict (fanout_id) do update set ahead = greatest(h.ahead - p_large, 0);
    end if;
  elsif wants > 0 then
    select x.* into s from suimon.store x for no key update;
    delete from suimon.store_holds h
    where not exists (select from suimon.fanouts f where f.id = h.fanout_id and suimon.is_spawning(f));
    used := suimon.store_bytes();
    select count(*) as n, coalesce(sum(h.ahead), 0) as ahead into others from suimon.store_holds h where h.fanout_id <> p_fanout;
    if used + others.ahead + wants > s.high_bytes and (others.n > 0 or used >= s.low_bytes) then
      return false;
    end if;
    insert into suimon.store_holds (fanout_id, ahead) select p_fanout, wants - p_large where s.high_bytes is not null
    on conflict (fanout_id) do update set ahead = excluded.ahead;
  end if;
  delete from suimon.steps d using suimon.fanouts f
  where f.id = p_fanout and d.run_id = f.parent_id and d.vertex = f.vertex and d.status = 'deferred';
  return true;
end $$;

-- Large things from outside are refused under pressure; what is small, and what running work stores, is not.
create function suimon.refuse_large(size int) returns void language plpgsql as $$
begin
  if size > 8192 and (select j.above or j.scarce from suimon.judge_pressure() j) then
    raise exception 'the payload store is full, and % bytes would be stored in it', size
      using errcode = 'SUI39', hint = 'Nothing was stored; ask again later. See: suimon storage';
  end if;
end $$;

-- What holds a trigger back, or null: its own pause, its pipeline's triggers', or the whole pipeline's.
create function suimon.pause_of(trigger_id bigint) returns text language sql stable as $$
  select p.what from suimon.triggers t
  join suimon.pauses p on p.what in ('pipeline:' || t.pipeline, 'triggers:' || t.pipeline, 'trigger:' || t.id)
  where t.id = pause_of.trigger_id order by p.what limit 1
$$;

-- The last root runs of a pipeline that ended after `since`, oldest first, when `enough` of them in a row ended badly;
-- else null. One that was cancelled counts neither way. Looks at the newest 1,000 ends.
create function suimon.bad_ends_in_a_row(pipeline text, since timestamptz, enough int) returns uuid[] language sql stable as $$
  select case when count(*) = bad_ends_in_a_row.enough and bool_and(e.status in ('failed', 'timed_out'))
              then array_agg(e.id order by e.finished_at, e.id) end
  from (
    select n.id, n.status, n.finished_at from (
      select r.id, r.status, r.finished_at from suimon.runs r
      where r.pipeline = bad_ends_in_a_row.pipeline and r.parent_id is null and r.finished_at > bad_ends_in_a_row.since
      order by r.finished_at desc limit 1000) n
    where n.status <> 'cancelled' order by n.finished_at desc limit bad_ends_in_a_row.enough) e
$$;

-- When a run that no trigger started ended well after `since`, the newest of the last 1,000 ends; else null.
create function suimon.good_end_by_hand(pipeline text, since timestamptz) returns timestamptz language sql stable as $$
  select n.finished_at from (
    select r.id, r.status, r.finished_at from suimon.runs r
    where r.pipeline = good_end_by_hand.pipeline and r.parent_id is null and r.finished_at > good_end_by_hand.since
    order by r.finished_at desc limit 1000) n
  where n.status = 'succeeded'
    and not exists (select from suimon.deliveries d where d.run_id = n.id and d.state = 'delivered' and not d.duplicate)
  order by n.finished_at desc limit 1
$$;

-- Pipelines whose triggers have to stop by themselves, or to go on again: asked by the sweep, and before deliveries
-- for one pipeline (null: all that have triggers, at most 1,000).
create function suimon.pauses_due(only_this text) returns table (pipeline text, bad uuid[], healed timestamptz) language sql stable as $$
  select p.name, j.bad, j.healed
  from suimon.pipelines p
  left join suimon.pauses a on a.what = 'triggers:' || p.name
  cross join lateral (
    select case when a.what is null and p.pause_after is not null
                then suimon.bad_ends_in_a_row(p.name, p.failures_since, p.pause_after) end as bad,
           case when a.automatic then suimon.good_end_by_hand(p.name, a.at) end as healed) j
  where (only_this is null or p.name = only_this) and (j.bad is not null or j.healed is not null)
    and exists (select from suimon.triggers t where t.pipeline = p.name and t.retired_at is null)
  limit 1000
$$;

-- Why runs were taken out of the claimable queue one by one: each pool and reason once, from the index (at most 1,000).
create function suimon.held_back_reasons() returns table (pool text, reason text) language sql stable as $$
  with recursive held(pool, reason) as (
    (select r.pool, r.reason from suimon.runs r where r.status = 'queued' and not r.admitted and r.reason is not null
     order by r.pool, r.reason limit 1)
    union all
    select n.pool, n.reason from held h cross join lateral (
      select r.pool, r.reason from suimon.runs r
      where r.status = 'queued' and not r.admitted and r.reason is not null and (r.pool, r.reason) > (h.pool, h.reason)
      order by r.pool, r.reason limit 1) n
  )
  select h.pool, h.reason from held h limit 1000
$$;

-- Runs that are held back by a pause that is over: whoever resumed died in the middle, or a worker was late.
create function suimon.pauses_over() returns table (pool text, reason text) language sql stable as $$
  select h.pool, h.reason from suimon.held_back_reasons() h
  where h.reason like 'paused:%' and not exists (select from suimon.pauses p where p.what = substr(h.reason, 8))
$$;

-- A UUIDv7 (RFC 9562, 5.7): 48 bits of milliseconds, then random. PostgreSQL has its own from version 18 on.
create function suimon.uuid7() returns uuid language sql volatile as $$
  select (left(h.ms, 8) || '-' || right(h.ms, 4) || '-7' || substr(h.r, 16, 3) || substr(h.r, 19))::uuid
  from (select lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') as ms,
               gen_random_uuid()::text as r) h
$$;

-- Same input? Judged on the text that jsonb makes of it, whatever door it came through.
create function suimon.print_of(input text) returns bytea language sql immutable strict parallel safe as $$
  select sha256(convert_to(input::jsonb::text, 'UTF8'))
$$;

-- How many runs of a pipeline wait, children not counted; counted up to `enough`.
create function suimon.queued_of(pipeline text, enough int) returns int language sql stable as $$
  select count(*)::int from (select from suimon.runs r
    where r.pipeline = queued_of.pipeline and r.status = 'queued' and r.parent_id is null limit greatest(enough, 0)) q
$$;

-- Labels are key:value in visible ASCII, at most 10 of at most 100 characters (suimon/core/labels.py).
create function suimon.labels_fit(labels text[]) returns boolean language sql immutable as $$
  select coalesce(array_ndims(labels), 1) = 1 and cardinality(labels) <= 10 and coalesce((
    select bool_and(l is not null and length(l) <= 100 and l ~ '^[a-z][a-z0-9_-]*:[!-~]+$') from unnest(labels) l), true)
$$;

-- The labels of a new run: its pipeline's and those it is given; null: none.
create function suimon.labels_of(declared text[], given text[]) returns text[] language sql immutable parallel safe as $$
  select nullif(array(select distinct l from unnest(declared || given) l order by l), '{}')
$$;

-- The quotas that count a run, by name.
create function suimon.quotas_of(pipeline text, labels text[]) returns text[] language sql stable as $$
  select array(select q.name from suimon.quotas q
               where q.name in ('all', 'pipeline:' || quotas_of.pipeline)
                  or (q.name like 'label:%' and substr(q.name, 7) = any (quotas_of.labels))
               order by q.name)
$$;

-- A quota's counters as they stand at an instant: nought in a new day or month, unchanged where the clock jumped back.
create function suimon.quota_at(q suimon.quotas, at timestamptz, out day date, out day_used bigint, out month date, out month_used bigint)
language sql immutable as $$
  select greatest(q.day, n.day), case when n.day > q.day then 0 else q.day_used end,
         greatest(q.month, n.month), case when n.month > q.month then 0 else q.month_used end
  from (select (at at time zone 'UTC')::date as day, date_trunc('month', at at time zone 'UTC')::date as month) n
$$;

-- What of a quota is used, and when it renews, by period.
create function suimon.quota_periods(q suimon.quotas, at timestamptz)
returns table (period text, bound int, used bigint, renews_at timestamptz) language sql immutable rows 2 as $$
  select p.period, p.bound, p.used, p.renews at time zone 'UTC'
  from suimon.quota_at(q, at) s
  cross join lateral (values ('day', q.per_day, s.day_used, s.day + interval '1 day'),
                             ('month', q.per_month, s.month_used, s.month + interval '1 month')) as p(period, bound, used, renews)
  where p.bound is not null
$$;

-- The least that all of these quotas have left at an instant; null: nothing bounds.
create function suimon.quota_left(names text[], at timestamptz) returns bigint language sql stable as $$
  select min(greatest(p.bound - p.used, 0))
  from suimon.quotas q cross join lateral suimon.quota_periods(q, at) p where q.name = any (names)
$$;

-- Which of these quotas has no room for what is asked of it: the one that renews last; null: all have.
create function suimon.quota_refusal(names text[], needs bigint[], at timestamptz) returns jsonb language sql stable as $$
  select jsonb_build_object('quota', q.name, 'period', p.period, 'limit', p.bound, 'used', p.used,
                            'left', greatest(p.bound - p.used, 0), 'asked', u.need, 'renews_at', p.renews_at)
  from unnest(quota_refusal.names, quota_refusal.needs) as u(name, need)
  join suimon.quotas q on q.name = u.name
  cross join lateral suimon.quota_periods(q, at) p
  where u.need > 0 and p.used + u.need > p.bound
  order by p.renews_at desc, q.name, p.period limit 1
$$;

-- How many children a fan-out has: their positions have no gaps.
create function suimon.made_of(base uuid) returns int language sql stable as $$
  select coalesce((select r.position + 1 from suimon.runs r
                   where r.id >= suimon.child_id(base, 0) and r.id <= suimon.child_id(base, 2147483647)
                   order by r.id desc limit 1), 0)
$$;

-- Nobody will create a child under this reservation any more: its list is sealed, its spawner's step or its run has
-- ended. (A spawner that is retried reserves anew; one that was rescued goes on with what it has.)
create function suimon.hold_is_over(fanout bigint) returns boolean language sql stable as $$
  select not exists (
    select from suimon.fanouts f join suimon.runs p on p.id = f.parent_id
    where f.id = hold_is_over.fanout and f.expected is null and p.finished_at is null
      and not exists (select from suimon.steps s where s.run_id = f.parent_id and s.vertex = f.vertex
                        and s.status not in ('open', 'deferred')))
$$;

-- Locks quotas in the order of their names, which is everybody's, and before contents. Who finds one locked waits for a
-- second: a transaction that starts runs may stay open, and nothing of the engine may hang on it. Error: SUI42.
create function suimon.quota_lock(names text[]) returns void language plpgsql as $$
declare
  before text := current_setting('lock_timeout');
begin
  perform set_config('lock_timeout', '1s', true);
  perform from suimon.quotas q where q.name = any (names) order by q.name for no key update;
  perform set_config('lock_timeout', before, true);
exception when lock_not_available then
  raise exception 'a transaction that has started runs of this quota is still open'
    using errcode = 'SUI42', hint = 'Nothing was stored; ask again. Keep transactions that call suimon.submit short.';
end $$;

-- Gives back what ended fan-outs reserved and did not use, to the day and the month it was taken from: of these quotas
-- (null: of all), and of this fan-out alone unless it is null. At most 1,000 reservations; returns how many. A chunk that
-- is being stored holds its parent's row, so nothing here is over while one is under way.
create function suimon.quota_free(p_names text[], p_fanout bigint) returns int language plpgsql as $$
declare
  freed int := 0;
  names text[];
begin
  if not exists (select from suimon.quota_holds h where (p_fanout is null or h.fanout_id = p_fanout)
                 and (p_names is null or h.quota = any (p_names)) and suimon.hold_is_over(h.fanout_id)) then
    return 0;
  end if;
  -- those that somebody else has locked come another time
  names := array(select q.name from suimon.quotas q
                 where q.name in (select h.quota from suimon.quota_holds h where (p_fanout is null or h.fanout_id = p_fanout)
                                  and (p_names is null or h.quota = any (p_names)))
                 order by q.name for no key update skip locked);
  with over as materialized (
    select h.fanout_id, h.quota from suimon.quota_holds h
    where (p_fanout is null or h.fanout_id = p_fanout) and suimon.hold_is_over(h.fanout_id)
      and (h.quota = any (names) or (p_names is null and not exists (select from suimon.quotas q where q.name = h.quota)))
    order by h.fanout_id, h.quota limit 1000
  ),
  gone as (
    delete from suimon.quota_holds h using over o where h.fanout_id = o.fanout_id and h.quota = o.quota
    returning h.*
  ),
  unused as (
    -- (of one whose fan-out was pruned nobody knows what was used)
    select g.quota, g.day, g.month, greatest(g.from_position + g.n - greatest(g.from_position, suimon.made_of(f.base)), 0) as n
    from gone g join suimon.fanouts f on f.id = g.fanout_id
  ),
  back as (
    select q.name, coalesce(sum(u.n) filter (where u.day = q.day), 0) as day_n,
           coalesce(sum(u.n) filter (where u.month = q.month), 0) as month_n
    from unused u join suimon.quotas q on q.name = u.quota group by q.name
  ),
  given as (
    update suimon.quotas q
    set day_used = greatest(q.day_used - b.day_n, 0), month_used = greatest(q.month_used - b.month_n, 0)
    from back b where b.name = q.name
  )
  select count(*) into freed from gone;
  return freed;
end $$;

-- Takes so many of each of these quotas, or nothing: null, or which one refused. What ended fan-outs have reserved is
-- given back before anything is refused. `at` is the clock's unless a test says otherwise.
create function suimon.quota_take(p_names text[], p_needs bigint[], p_at timestamptz default null) returns jsonb language plpgsql as $$
declare
  refused jsonb;
  now timestamptz;
begin
  perform suimon.quota_lock(p_names);
  now := coalesce(p_at, clock_timestamp());
  refused := suimon.quota_refusal(p_names, p_needs, now);
  if refused is not null and suimon.quota_free(p_names, null) > 0 then
    refused := suimon.quota_refusal(p_names, p_needs, now);
  end if;
  if refused is null then
    update suimon.quotas q
    set (day, day_used, month, month_used) = (
      select s.day, s.day_used + u.need, s.month, s.month_used + u.need from suimon.quota_at(q, now) s)
    from unnest(p_names, p_needs) as u(name, need) where q.name = u.name and u.need > 0;
  end if;
  return refused;
end $$;

-- Gives back what was taken a moment ago in this very transaction.
create function suimon.quota_back(p_names text[], p_n bigint) returns void language sql as $$
  update suimon.quotas q set day_used = greatest(q.day_used - p_n, 0), month_used = greatest(q.month_used - p_n, 0)
  where q.name = any (p_names)
$$;

-- What a chunk of a fan-out takes, in its transaction and before it is stored: null, or which quota refused. p_total is
-- told with the first chunk where the list's length is known: all of it is reserved then, or nothing. Otherwise, and for
-- what goes beyond a reservation, each chunk takes what is new in it.
create function suimon.quota_chunk(p_root uuid, p_fanout bigint, p_pipeline text, p_first int, p_n int, p_total int,
                                   p_at timestamptz default null) returns jsonb language plpgsql as $$
declare
  names text[];
  needs bigint[];
  made int;
  refused jsonb;
begin
  if not exists (select from suimon.quotas) then
    return null;
  end if;
  names := suimon.quotas_of(p_pipeline, (select r.labels from suimon.runs r where r.id = p_root));
  if names = '{}' then
    return null;
  end if;
  -- the chunks of a reserved fan-out wait for nobody
  if p_total is null and cardinality(names) = (select count(*) from suimon.quota_holds h where h.fanout_id = p_fanout
      and h.quota = any (names) and h.from_position + h.n >= p_first + p_n) then
    return null;
  end if;
  perform suimon.quota_lock(names);
  select suimon.made_of(f.base) into made from suimon.fanouts f where f.id = p_fanout;
  select array_agg(greatest(
           case when h.fanout_id is null then greatest(p_total, p_first + p_n) else p_first + p_n end
           - greatest(made, h.from_position + h.n), 0) order by u.place) into needs
  from unnest(names) with ordinality as u(name, place)
  left join suimon.quota_holds h on h.fanout_id = p_fanout and h.quota = u.name;
  refused := suimon.quota_take(names, needs, p_at);
  if refused is null and p_total is not null then
    insert into suimon.quota_holds (fanout_id, quota, n, from_position, day, month)
    select p_fanout, q.name, u.need, made, q.day, q.month
    from unnest(names, needs) as u(name, need) join suimon.quotas q on q.name = u.name
    where u.need > 0
    on conflict do nothing;
  end if;
  return refused;
end $$;

-- Who stands still because a quota had nothing left, and may try again: it has something now, or there is no such quota
-- any more. At most 1,000, the longest first; returns their pools.
create function suimon.quota_wake(p_name text) returns setof text language sql as $$
  with next as materialized (
    select r.id from suimon.runs r
    where r.status = 'waiting' and coalesce(r.reason, '') <> '' and r.reason >= 'quota:' and r.reason < 'quota;'
      and (p_name is null or r.reason = 'quota:' || p_name) and not r.cancel_requested
      and coalesce(suimon.quota_left(array[substr(r.reason, 7)], clock_timestamp()), 1) > 0
    order by r.id limit 1000 for no key update skip locked
  ),
  woken as (
    update suimon.runs r set status = 'queued', reason = null, wake_at = null, rank = suimon.head_of(r.pool, r.priority)
    from next n where r.id = n.id
    returning r.pool
  )
  select distinct w.pool from woken w
$$;

-- Runs are born here, whatever door they come through. Takes no lock but those of the quotas that count it. A run whose
-- key has its run already is not born; nothing is born above max_queued, where `asking` runs are counted as new (null:
-- nobody counts), nor where a quota has no room for all that are asked for. A run of a limited pipeline is born outside
-- the claimable queue: lane.admit lets it in after the commit. p_contents: of inputs above 8 KB, where they have been
-- kept already.
create function suimon.new_runs(p_pipeline text, p_ids uuid[], p_keys text[], p_inputs text[], p_asking int, p_labels text[] default null,
                                p_contents bytea[] default null)
returns table (id uuid, pool text, lane text, lane_rank bigint, lane_limit int) language plpgsql as $$
#variable_conflict use_column
declare
  counting text[] := '{}';
  asked bigint := greatest(p_asking, cardinality(p_ids));
  made bigint;
begin
  if exists (select from suimon.quotas) then
    select suimon.quotas_of(p_pipeline, suimon.labels_of(p.labels, p_labels)) into counting
    from suimon.pipelines p where p.name = p_pipeline;
    counting := coalesce(counting, '{}');
    if suimon.quota_take(counting, array_fill(asked, array[cardinality(counting)])) is not null then
      return;
    end if;
  end if;
  return query
  with target as materialized (
    select p.*, suimon.head_of(p.pool, p.priority) as head,
           case when p.labels <> '{}' or p_labels is not null then suimon.labels_of(p.labels, p_labels) end as all_labels,
           -- the pipeline's own word, else the strictest of its tasks
           suimon.seconds_of(g.body ->> 'deadline') as deadline_s,
           coalesce((g.body ->> 'maxInterruptions')::smallint,
                    (select min((v.value -> 'config' ->> 'maxInterruptions')::smallint)
                     from json_each(g.body -> 'vertices') v where v.value ->> 'type' = 'TASK'), 3) as max_interruptions
    from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
    where p.name = p_pipeline
      and (p_asking is null or p.max_queued is null
           or suimon.queued_of(p_pipeline, p.max_queued - p_asking + 1) <= p.max_queued - p_asking)
  ),
  asked as materialized (
    select a.* from unnest(p_ids, p_keys, p_inputs) with ordinality as a(id, key, input, place)
  ),
  -- a limited pipeline has its lane; with `per` there is one for each value, and without its value there is no run
  laned as materialized (
    select l.* from (
      select a.*, case when t.lane_limit is null then null
                       when t.lane_per is null then 'pipeline:' || p_pipeline
                       else 'pipeline:' || p_pipeline || ':' || left(a.input::jsonb #>> string_to_array(t.lane_per, '.'), 200)
                  end as lane, t.lane_limit
      from asked a cross join target t) l
    where l.lane is not null or l.lane_limit is null
  ),
  -- the constraint that makes one key one run; who loses the race inserts nothing and looks the winner up
  keyed as (
    insert into suimon.idempotency_keys (pipeline, key_hash, run_id, input_hash)
    select p_pipeline, sha256(convert_to(a.key, 'UTF8')) as key_hash, a.id, suimon.print_of(a.input)
    from laned a where a.key is not null order by key_hash
    on conflict do nothing
    returning run_id
  ),
  -- a flood of single runs queues behind itself
  flow as materialized (
    select greatest(t.head, coalesce((
      select r.rank from suimon.runs r
      where r.pipeline = p_pipeline and r.status = 'queued' and r.admitted and r.parent_id is null and r.rank >= t.head
      order by r.rank desc limit 1), 0)) as last_rank
    from target t
  ),
  born as (
    insert into suimon.runs (id, root_id, rank, lane_rank, graph_id, lane_limit, priority, max_interruptions, admitted,
                             holds_lane, deadline_at, pipeline, pool, lane, idempotency_key, labels, input)
    select a.id, a.id, flow.last_rank + a.place, case when t.lane_limit is not null then nextval('suimon.lane_rank') end,
           t.graph_id, t.lane_limit, t.priority, t.max_interruptions, t.lane_limit is null,
           t.holds_lane, clock_timestamp() + make_interval(secs => t.deadline_s),
           p_pipeline, t.pool, a.lane, a.key, t.all_labels,
           case when octet_length(a.input) <= 8192 then a.input::jsonb end
    from laned a cross join target t cross join flow
    where a.key is null or a.id in (select run_id from keyed)
    order by a.place
    returning runs.id, runs.pool, runs.lane, runs.lane_rank, runs.lane_limit
  ),
  large as (
    insert into suimon.payloads (run_id, name, sha256)
    select a.id, 'input', coalesce((p_contents)[a.place], suimon.keep_text(a.input))
    from asked a join born b on b.id = a.id where octet_length(a.input) > 8192
  )
  select born.id, born.pool, born.lane, born.lane_rank, born.lane_limit from born;
  get diagnostics made = row_count;
  if counting <> '{}' and made < asked then
    perform suimon.quota_back(counting, asked - made);
  end if;
end $$;

-- Who submits in SQL has no process that could do what follows a submit. An idle worker of the pool is told, or, for
-- a run behind a lane and for snapshots older than an idle flag, whoever keeps the doors.
create function suimon.follow_submit(pool text, lane text) returns void language plpgsql as $$
begin
  if lane is not null then
    perform pg_notify('suimon_doors', 'lane ' || lane);
  elsif current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('suimon_doors', 'pool ' || pool);
  else
    perform pg_notify('suimon_wake', w.pool || ' ' || w.id) from (
      select w.pool, w.id from suimon.workers w
      where w.pool = follow_submit.pool and w.idle and not w.dead and not w.draining order by random() limit 1) w;
  end if;
end $$;

-- Starts a run from any language, in the caller's transaction: rolled back, nothing happened; committed, it happens.
-- Returns the run's id, the existing run's when the key has one. Runs with the rights of its owner: a role needs
-- nothing but `grant usage on schema suimon`. Errors: SUI31 unknown pipeline, SUI33 input refused, SUI35 queue full,
-- SUI38 quota exceeded, SUI39 a large input while the store is full. With a quota, others that it counts wait for this
-- transaction's end.
create function suimon.submit(pipeline text, input jsonb default '{}', idempotency_key text default null, labels text[] default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  target suimon.pipelines;
  born record;
  found uuid;
  missing text;
  lane_value jsonb;
  counting text[];
  refused jsonb;
begin
  select p.* into target from suimon.pipelines p where p.name = submit.pipeline;
  if target.name is null then
    raise exception 'there is no pipeline "%"', pipeline using errcode = 'SUI31', hint = 'Deploy it: suimon deploy PATH';
  end if;
  if idempotency_key = '' or octet_length(idempotency_key) > 1024 then
    raise exception 'the idempotency key cannot be used' using errcode = 'SUI33', hint = '1 to 1024 bytes; for more, take a hash.';
  end if;
  if not suimon.labels_fit(labels) or cardinality(suimon.labels_of(target.labels, labels)) > 10 then
    raise exception 'the labels cannot be used'
      using errcode = 'SUI33', hint = 'At most 10 like tenant:acme, of at most 100 characters, without spaces.';
  end if;
  if input is null or octet_length(input::text) > 16777216 then
    raise exception 'the input is %', case when input is null then 'null' else 'larger than 16 MiB' end using errcode = 'SUI33';
  end if;
  if target.needs <> '[]' and jsonb_typeof(input) <> 'object' then
    raise exception 'the input must be an object, not %', jsonb_typeof(input)
      using errcode = 'SUI33', detail = 'Pipeline ' || pipeline || ' reads its fields.', hint = 'Give an object.';
  end if;
  select array_to_string(array(select jsonb_array_elements_text(n)), '.') into missing
  from jsonb_array_elements(target.needs) n
  where submit.input #> array(select jsonb_array_elements_text(n)) is null limit 1;
  if missing is not null then
    raise exception 'the input lacks "%"', missing
      using errcode = 'SUI33', detail = 'Pipeline ' || pipeline || ' reads it.', hint = 'Give an object with this field.';
  end if;
  lane_value := input #> string_to_array(target.lane_per, '.');
  if target.lane_per is not null and (jsonb_typeof(lane_value) not in ('string', 'number') or lane_value = '""'
                                      or (jsonb_typeof(lane_value) = 'number' and lane_value::text !~ '^-?[0-9]+$')) then
    raise exception '"%" must be text or a whole number', target.lane_per
      using errcode = 'SUI33', detail = 'It tells the lanes of pipeline ' || pipeline || ' apart.', hint = 'Give it a value.';
  end if;
  select k.run_id into found from suimon.idempotency_keys k
  where k.pipeline = submit.pipeline and k.key_hash = sha256(convert_to(submit.idempotency_key, 'UTF8'));
  if found is not null then
    return found;
  end if;
  perform suimon.refuse_large(octet_length(input::text));
  select n.* into born from suimon.new_runs(pipeline, array[suimon.uuid7()], array[idempotency_key], array[input::text], 1,
                                              submit.labels) n;
  if born.id is not null then
    perform suimon.follow_submit(born.pool, born.lane);
    return born.id;
  end if;
  select k.run_id into found from suimon.idempotency_keys k
  where k.pipeline = submit.pipeline and k.key_hash = sha256(convert_to(submit.idempotency_key, 'UTF8'));
  counting := suimon.quotas_of(pipeline, suimon.labels_of(target.labels, submit.labels));
  refused := suimon.quota_refusal(counting, array_fill(1::bigint, array[cardinality(counting)]), clock_timestamp());
  if found is null and refused is not null then
    raise exception 'quota "%" has nothing left for this %', refused ->> 'quota', refused ->> 'period'
      using errcode = 'SUI38',
            detail = format('%s of %s runs a %s are used or reserved; it renews at %s.', refused ->> 'used', refused ->> 'limit',
                            refused ->> 'period', refused ->> 'renews_at'),
            hint = 'Nothing was stored; ask again after that, or raise it: suimon quotas set ' || (refused ->> 'quota');
  end if;
  if found is null then
    raise exception 'pipeline "%" has its % waiting runs', pipeline, target.max_queued
      using errcode = 'SUI35', hint = 'Nothing was stored; ask again later.';
  end if;
  return found;
end $$;

-- `order.*` fits order.paid and order.paid.late: a star stands for any characters.
create function suimon.event_fits(pattern text, type text) returns boolean language sql immutable strict parallel safe as $$
  select type like replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
$$;

-- Something happened: each pipeline that listens gets a delivery. One key of one type is one event: who tells it again
-- gets the earlier one. Whoever keeps the doors is notified only where nothing older waits: who works on the older one
-- looks again (duties/doors.py proves that nobody is missed). `run`: whose ctx.emit it was.
create function suimon.tell_event(type text, payload jsonb, key text, run uuid) returns uuid language plpgsql as $$
declare
  event uuid := suimon.uuid7();
  at timestamptz := clock_timestamp();
  digest bytea := sha256(convert_to(tell_event.type || ' ' || tell_event.key, 'UTF8'));
  earlier uuid;
  body jsonb;
  told bigint[];
begin
  for i in 1 .. 3 loop  -- again where the earlier one has just been pruned
    insert into suimon.events (id, type, key_hash, payload, run_id, occurred_at)
    values (event, tell_event.type, digest,
            case when octet_length(tell_event.payload::text) <= 8192 then tell_event.payload end, tell_event.run, at)
    on conflict (key_hash) do nothing;
    exit when found;
    select e.id into earlier from suimon.events e where e.key_hash = digest;
    if earlier is not null then
      return earlier;
    end if;
  end loop;
  if octet_length(payload::text) > 8192 then
    insert into suimon.payloads (run_id, name, sha256) values (event, 'event', suimon.keep_text(payload::text));
  end if;
  body := jsonb_build_object('type', tell_event.type, 'payload', tell_event.payload, 'event_id', event, 'occurred_at',
                             to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
  with arrived as (
    insert into suimon.deliveries (id, trigger_id, state, key, source, input)
    select suimon.uuid7(), t.id, 'waiting', 'event:' || event, tell_event.type,
           case when octet_length(body::text) <= 8192 then body end
    from suimon.triggers t
    where t.kind = 'EVENT' and t.retired_at is null and suimon.event_fits(t.spec ->> 'event', tell_event.type)
    order by t.id
    returning id, trigger_id, seq
  ),
  kept as materialized (
    select suimon.keep_text(body::text) as sha256 where octet_length(body::text) > 8192 and exists (select from arrived)
  ),
  large as (
    insert into suimon.payloads (run_id, name, sha256) select a.id, 'delivery', k.sha256 from arrived a cross join kept k
  )
  select array_agg(a.trigger_id) into told from arrived a
  where not exists (select from suimon.deliveries d where d.trigger_id = a.trigger_id and d.state = 'waiting');
  -- (a snapshot older than this statement proves nothing)
  if told is not null or current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('suimon_doors', 'deliveries');
  end if;
  return event;
end $$;

-- Tells of something from any language, in the caller's transaction: rolled back, it never happened. Returns the event's
-- id, that of the earlier one when this key of this type was told before. Rights as those of suimon.submit. Errors: SUI33, SUI39.
create function suimon.emit(type text, payload jsonb default '{}', key text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if type is null or type !~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}$' then
    raise exception 'the event type cannot be used: "%"', coalesce(left(type, 200), 'null')
      using errcode = 'SUI33', hint = 'Letters, digits, and . _ : / - (at most 200), like order.paid';
  end if;
  -- (1 KiB below the limit of an input, which holds it with its type and time)
  if payload is null or octet_length(payload::text) > 16776192 then
    raise exception 'the payload is %', case when payload is null then 'null' else 'larger than 16 MiB' end
      using errcode = 'SUI33', hint = 'Put large data into a table or a file and tell its name.';
  end if;
  if key = '' or octet_length(key) > 1024 then
    raise exception 'the key cannot be used' using errcode = 'SUI33', hint = '1 to 1024 bytes; for more, take a hash.';
  end if;
  perform suimon.refuse_large(octet_length(payload::text));
  return suimon.tell_event(type, payload, key, null);
end $$;

-- One notice for each channel that wants to know; a fact that was told already is not told again. Returns how many.
create function suimon.notice(kind text, fact text, at timestamptz, subject text, payload jsonb) returns int language plpgsql as $$
#variable_conflict use_column
declare
  written int;
begin
  insert into suimon.notices (id, channel, kind, fact, subject, payload)
  select suimon.uuid7(), c.name, notice.kind, notice.fact, left(notice.subject, 300), notice.payload
  from suimon.channels c
  where c.enabled and c.since <= notice.at
    and exists (select from unnest(c.kinds) as k(pattern) where suimon.event_fits(k.pattern, notice.kind))
  order by c.name
  on conflict (channel, fact) do nothing;
  get diagnostics written = row_count;
  if written > 0 then
    perform pg_notify('suimon_doors', 'notices');
  end if;
  return written;
end $$;

-- Dead letters are told once an hour for each trigger and code: a thousand with one cause are one notice.
create function suimon.notice_of_dead_letter() returns trigger language plpgsql as $$
begin
  perform suimon.notice(
    'delivery.dead', format('dead:%s:%s:%s', new.trigger_id, new.code, date_trunc('hour', clock_timestamp())), clock_timestamp(),
    format('dead letter of %s: %s', coalesce(t.pipeline, 'no pipeline'), new.code),
    jsonb_build_object('pipeline', t.pipeline, 'trigger', t.name, 'delivery_id', new.id, 'source', new.source,
                       'code', new.code, 'why', left(new.why, 1000)))
  from (select 1) one left join suimon.triggers t on t.id = new.trigger_id;
  return null;
end $$;
create trigger deliveries_died after update of state on suimon.deliveries for each row
  when (new.state = 'dead' and old.state = 'waiting') execute function suimon.notice_of_dead_letter();
create trigger deliveries_born_dead after insert on suimon.deliveries for each row
  when (new.state = 'dead') execute function suimon.notice_of_dead_letter();

-- Triggers that stopped by themselves; what somebody paused by hand is known.
create function suimon.notice_of_pause() returns trigger language plpgsql as $$
begin
  perform suimon.notice('pipeline.paused', 'paused:' || new.what || ':' || new.at, new.at, 'paused: ' || new.what,
                        jsonb_build_object('what', new.what, 'pipeline', split_part(new.what, ':', 2), 'why', new.why,
                                           'runs', to_jsonb(new.runs[1:20]), 'paused_at', new.at));
  return null;
end $$;
create trigger pauses_told after insert on suimon.pauses for each row
  when (new.automatic) execute function suimon.notice_of_pause();

create function suimon.notice_of_pressure() returns trigger language plpgsql as $$
begin
  perform suimon.notice(
    'storage.pressure', 'pressure:' || coalesce(new.above_since, new.scarce_since), clock_timestamp(),
    case when new.scarce_since is null then 'the payload store is above its mark' else 'the disk of the database is nearly full' end,
    jsonb_build_object('store_bytes', suimon.store_bytes(), 'high_bytes', new.high_bytes, 'low_bytes', new.low_bytes,
                       'disk_free', new.disk_free, 'disk_min_bytes', new.disk_min_bytes,
                       'since', coalesce(new.above_since, new.scarce_since)));
  return null;
end $$;
create trigger store_pressure_told after update on suimon.store for each row
  when ((old.above_since is null and new.above_since is not null) or (old.scarce_since is null and new.scarce_since is not null))
  execute function suimon.notice_of_pressure();

-- The first id of an instant: ids sort by their time of birth.
create function suimon.first_id(at timestamptz) returns uuid language sql immutable strict parallel safe as $$
  select (lpad(to_hex(greatest((extract(epoch from at) * 1000)::bigint, 0)), 12, '0') || '00000000000000000000')::uuid
$$;
