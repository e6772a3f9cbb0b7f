SET LOCAL lock_timeout = '5s';

-- Everything that the engine keeps. No file names a schema: the search_path decides.

-- An engine reads the revisions in the schema of its tables. The Atlas CLI keeps them in a schema of their own unless it is told
-- otherwise, and makes the tables in public: an engine would find neither. Tables of a version from before the first release cannot be
-- brought to this one.
DO $$
BEGIN
  IF to_regclass('atlas_schema_revisions.atlas_schema_revisions') IS NOT NULL
    AND to_regclass(format('%I.atlas_schema_revisions', current_schema())) IS NULL THEN
    RAISE EXCEPTION 'schema % has no revision table: the engine would not find what is migrated here', quote_ident(current_schema())
      USING HINT = 'Give the Atlas CLI the engine''s schema twice, as search_path of the URL and as revisions schema: '
        'gendurable migrate dir writes an atlas.hcl that does.';
  END IF;
  IF to_regclass(format('%I.gen_durable', current_schema())) IS NOT NULL THEN
    RAISE EXCEPTION 'schema % has tables of a version from before the first release, from which no migration leads on',
      quote_ident(current_schema())
      USING HINT = 'Let the program of that version finish what is there, and migrate a new schema.';
  END IF;
END
$$;

CREATE TYPE "durable_status" AS ENUM ('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'done', 'failed');

-- What a failed instance has in common with those that failed alike: machine, version, step, queue, kind, and the beginning of its error
-- without what differs from instance to instance: quoted texts, addresses, numbers, and words with digits or of hexadecimal digits only.
-- An apostrophe within a word opens no quotation. Whoever may write the table needs to call it. A function with a setting is not resolved
-- before its first call: sessions in which nothing fails do not load PL/pgSQL.
CREATE OR REPLACE FUNCTION "gen_durable_fingerprint"(errors jsonb, failure text, queue text, fsm text, fsm_version integer)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
BEGIN
  RETURN hashtextextended(
    left(regexp_replace(left(coalesce(errors->-1->>'error', ''), 500) COLLATE "C",
      '"(?:[^"\\]|\\.)*(?:"|$)|`[^`]*(?:`|$)|[A-Za-z]''[A-Za-z]|''[^'']*''|[A-Za-z0-9_.+-]*@[A-Za-z0-9_.-]*|-?(?:[0-9A-Fa-f]{4,}|[A-Za-z0-9_]*(?:[0-9]|::))[A-Za-z0-9_.:-]*',
      '#', 'g'), 200),
    hashtextextended(coalesce(failure, ''), hashtextextended(coalesce(errors->-1->>'step', ''),
      hashtextextended(queue, hashtextextended(fsm, fsm_version::bigint)))));
END $$;

GRANT EXECUTE ON FUNCTION "gen_durable_fingerprint"(jsonb, text, text, text, integer) TO PUBLIC;

-- The instances. Columns of a fixed width that are never NULL come first, since Postgres finds those at offsets that it knows; then the
-- texts that every row has; then what may be NULL, what most rows have before what few have.
CREATE TABLE "gen_durable" (
  "id" bigint GENERATED ALWAYS AS IDENTITY,
  "eligible_at" timestamptz NOT NULL DEFAULT now(),
  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  "claim_token" bigint NOT NULL DEFAULT 0,
  "visit" bigint NOT NULL DEFAULT 0,
  "round" bigint NOT NULL DEFAULT 0,
  "parent_round" bigint NOT NULL DEFAULT 0,
  "uid" uuid NOT NULL DEFAULT gen_random_uuid(),
  "status" "durable_status" NOT NULL DEFAULT 'runnable',
  "fsm_version" integer NOT NULL DEFAULT 1,
  "attempt" integer NOT NULL DEFAULT 0,
  "crashes" integer NOT NULL DEFAULT 0,
  "children_pending" integer NOT NULL DEFAULT 0,
  "depth" integer NOT NULL DEFAULT 0,
  "priority" smallint NOT NULL DEFAULT 0,
  "pick_lane" smallint NOT NULL DEFAULT 0,
  "paused" boolean NOT NULL DEFAULT false,
  "timed_out" boolean NOT NULL DEFAULT false,

  "queue" text NOT NULL DEFAULT 'default',
  "fsm" text NOT NULL,
  "step" text NOT NULL,
  -- An array of the enum, not of text: a generated column must be immutable, and the cast from an enum to text is not.
  "correlation_scope" "durable_status"[] NOT NULL DEFAULT '{}',
  "state" jsonb NOT NULL DEFAULT '{}',

  "commit_id" uuid,
  "lease_expires_at" timestamptz,
  "finished_at" timestamptz,
  "locked_by" text,
  "result" jsonb,
  "partition_key" text,
  "correlation_key" text,
  "correlation_guard" text GENERATED ALWAYS AS (
    CASE WHEN "correlation_key" IS NOT NULL AND "status" = ANY ("correlation_scope") THEN "correlation_key" END
  ) STORED,
  "await_deadline" timestamptz,
  "awaits" text[],
  "labels" jsonb,
  "trace" jsonb,
  "failure" text,
  "last_error" text,
  -- Postgres reads the text of this expression, and of each CHECK, anew in each UPDATE statement that names what it depends on. So the
  -- function has what is long. Step and error are those of the newest entry of errors: a commit that keeps its claim names step and
  -- last_error.
  "fingerprint" bigint GENERATED ALWAYS AS (
    CASE WHEN "status" = 'failed' THEN gen_durable_fingerprint("errors", "failure", "queue", "fsm", "fsm_version") END
  ) STORED,
  "errors" jsonb,
  "deadline" timestamptz,
  "parent_id" bigint,
  "joined" uuid,
  "dropped" jsonb,
  "progress" jsonb,
  -- How long it is kept after its end, where its insert says so.
  "retain" bigint[],

  -- These are of gates.
  "gate" text,
  "place" integer,
  "seat" integer,
  "run_gate" text,
  "run_place" integer,
  -- The step at which it is set aside: as "step" is, which no index may name.
  "aside_step" text,

  -- The policy of a round of children: see internal/store/commit_join.go. NULL: it has none.
  "join_round" bigint,
  "join_size" integer,
  "join_done" integer,
  "join_failed" integer,
  "wake_done" integer,
  "wake_failed" integer,
  "wake_ended" integer,
  -- The rounds of children whose rest is to be cancelled, oldest first: see internal/store/sweep_rest.go.
  "losers" bigint[],
  -- The rounds that are graphs, oldest first: what is left of them is cancelled once the row has ended.
  "graphs" bigint[],
  -- Its name, where it is a node of its parent's graph.
  "node" text,
  -- These are of streams of children: see internal/store/commit_stream.go.
  "stream_most" integer,
  "stream_nth" bigint,
  "stream_visit" bigint,

  PRIMARY KEY ("id"),
  -- Rows that could wedge the engine are impossible. A CHECK lets pass what is unknown: where a NULL could, coalesce is in its way. They
  -- are written short, since Postgres reads their text anew in each statement that writes a row.
  --
  -- Any other subset lets a mere status change collide with another instance, which wedges the pick or the reaper of a whole queue.
  CONSTRAINT "gen_durable_scope_check" CHECK (
    "correlation_scope" = '{}' OR "correlation_scope" @> '{runnable,executing,awaiting_signal,awaiting_children}'
  ),
  -- The reaper finds an executing instance by its lease alone.
  CONSTRAINT "gen_durable_lease_check" CHECK (
    "status" <> 'executing' OR ("locked_by" IS NOT NULL AND "lease_expires_at" IS NOT NULL)
  ),
  -- An infinite time does not scan into a Go time: it would break the loop that meets it.
  CONSTRAINT "gen_durable_finite_check" CHECK (
    isfinite("eligible_at") AND isfinite("lease_expires_at") AND isfinite("await_deadline") AND isfinite("finished_at")
    AND isfinite("deadline")
  ),
  CONSTRAINT "gen_durable_times_check" CHECK (isfinite("inserted_at") AND isfinite("updated_at")),
  -- The index of the labels serves objects only, and a step could not read anything else.
  CONSTRAINT "gen_durable_labels_check" CHECK (jsonb_typeof("labels") = 'object'),
  -- Longer names may not fit an index entry.
  CONSTRAINT "gen_durable_names_check" CHECK (
    '' <> ALL (ARRAY["fsm", "step", "queue", "partition_key", "correlation_key"])
    AND greatest(octet_length("fsm"), octet_length("step"), octet_length("queue"), octet_length("partition_key"),
      octet_length("correlation_key")) <= 512
    AND "fsm_version" >= 1
  ),
  -- Nothing could ever wake an instance that awaits no name.
  CONSTRAINT "gen_durable_awaits_check" CHECK (
    "status" <> 'awaiting_signal' OR (coalesce(cardinality("awaits"), 0) > 0 AND array_position("awaits", NULL) IS NULL)
  ),
  CONSTRAINT "gen_durable_finished_check" CHECK (("status" IN ('done', 'failed')) = ("finished_at" IS NOT NULL)),
  CONSTRAINT "gen_durable_failure_check" CHECK (("status" = 'failed') = ("failure" IS NOT NULL)),
  CONSTRAINT "gen_durable_counts_check" CHECK (
    least("children_pending", "attempt", "crashes", "depth") >= 0 AND "visit" >= 0 AND "depth" <= 100
  ),
  -- What no key holds back would be hidden behind its key for good; the same goes for a gate, and for the name of a step.
  CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 5 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL) AND ("pick_lane" <> 3 OR "gate" IS NOT NULL)
    AND ("pick_lane" <> 4 OR "aside_step" IS NOT NULL)
  ),
  CONSTRAINT "gen_durable_gate_check" CHECK (
    octet_length("gate") BETWEEN 1 AND 1200 AND ("place" IS NULL OR "place" >= 1 AND "gate" IS NOT NULL)
  )
) WITH (
  -- A commit that keeps its claim changes no indexed column; room left in its page keeps that update heap-only, at half the write cost.
  fillfactor = 75,
  -- Queues turn their rows over many times an hour, and dead entries at the front of the pick's index cost every pick until they are
  -- vacuumed. The default of a fifth of the table is far too late for a table that also keeps finished rows. The threshold spares small
  -- tables; without a delay a vacuum is over before as much has died again.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_analyze_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Claim tokens grow across all instances, so that they also order the holders of one partition key. CACHE 1: a session that cached a
-- range would hand out smaller tokens later. Owned, so that it goes when the table goes.
CREATE SEQUENCE "gen_durable_token" AS bigint CACHE 1 OWNED BY "gen_durable"."claim_token";

-- No index names updated_at, step, state, visit or commit_id: a commit that keeps its claim changes those, and would not be heap-only.

-- The pick. Its indexes end in id: the rows of one bulk insert share eligible_at, and would be sorted by hand otherwise.
CREATE INDEX "gen_durable_ready" ON "gen_durable" ("queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 0;

-- Rows whose machine some worker did not know, by machine: a worker that knows it finds them, no other walks over them.
CREATE INDEX "gen_durable_aside" ON "gen_durable" ("queue", "fsm", "fsm_version", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 2;

-- The instances in line at each gate, and the keys of a gate as one range of bytes.
CREATE INDEX "gen_durable_lines" ON "gen_durable" ("queue", "gate" text_pattern_ops, "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 3;

-- The instances that are set aside at each step that some worker did not know.
CREATE INDEX "gen_durable_stray" ON "gen_durable" ("queue", "fsm", "fsm_version", "aside_step", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 4;

-- The order within a partition key and queue: who is at its head.
CREATE INDEX "gen_durable_key" ON "gen_durable" ("partition_key", "queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "partition_key" IS NOT NULL;

-- For the reaper.
CREATE INDEX "gen_durable_lease" ON "gen_durable" ("lease_expires_at") WHERE "status" = 'executing';

-- The last line of the promise that one step of a key executes at a time. It is younger than the index of leases: while nothing
-- executes, both seem to cost the same to who looks for the holder of a key, and Postgres takes the younger.
CREATE UNIQUE INDEX "gen_durable_busy" ON "gen_durable" ("partition_key") WHERE "status" = 'executing' AND "partition_key" IS NOT NULL;

-- Nobody gives a place of a gate twice: of a gate's, of a queue's, of one for whole runs.
CREATE UNIQUE INDEX "gen_durable_place" ON "gen_durable" ("gate", "place") WHERE "place" IS NOT NULL;

CREATE UNIQUE INDEX "gen_durable_seat" ON "gen_durable" ("queue", "seat") WHERE "seat" IS NOT NULL;

CREATE UNIQUE INDEX "gen_durable_run" ON "gen_durable" ("run_gate", "run_place")
  WHERE "run_place" IS NOT NULL AND "finished_at" IS NULL;

-- A key has one occupant, and is its address. In the order of bytes, in which the keys with a prefix are one range.
CREATE UNIQUE INDEX "gen_durable_correlation" ON "gen_durable" ("correlation_guard" text_pattern_ops) WHERE "correlation_guard" IS NOT NULL;

-- The keys that their instances no longer occupy, or never did. Lists by a prefix of the key read both indexes.
CREATE INDEX "gen_durable_keyed" ON "gen_durable" ("correlation_key" text_pattern_ops)
  WHERE "correlation_key" IS NOT NULL AND "correlation_guard" IS NULL;

-- The children of a parent. A foreign key would lock the parent anew for every child, a quarter of what the insertion of a child costs.
-- The engine inserts children under the lock of their parent, and deletes a parent after them. Only who deletes one by hand leaves
-- children behind; they end without it. Each update of a child adds an entry: among entries that are lists, this splits one, and dead
-- entries are found more slowly.
CREATE INDEX "gen_durable_parent" ON "gen_durable" ("parent_id") WITH (deduplicate_items = off) WHERE "parent_id" IS NOT NULL;

-- A node of a graph, by its name: no graph has two of one name.
CREATE UNIQUE INDEX "gen_durable_node" ON "gen_durable" ("parent_id", "parent_round", "node") WHERE "node" IS NOT NULL;

-- The nodes that are to be skipped. No claim looks in that lane.
CREATE INDEX "gen_durable_skip" ON "gen_durable" ("id") WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 5;

-- The parents that do not wait any more for the rest of a round, which is to be cancelled, and the roots that have ended.
CREATE INDEX "gen_durable_losers" ON "gen_durable" ("id")
  WHERE "losers" IS NOT NULL AND ("status" <> 'awaiting_children' OR "losers"[1] <> "round") OR "graphs" IS NOT NULL AND "finished_at" IS NOT NULL;

-- For await timeouts.
CREATE INDEX "gen_durable_deadline" ON "gen_durable" ("await_deadline") WHERE "await_deadline" IS NOT NULL;

-- For the deadlines of instances.
CREATE INDEX "gen_durable_expiry" ON "gen_durable" ("deadline") WHERE "deadline" IS NOT NULL AND "finished_at" IS NULL;

-- The failed instances, for lists of them, and those of each fingerprint. Both are counted and grouped without a look at the table.
CREATE INDEX "gen_durable_failed" ON "gen_durable" ("id") INCLUDE ("fingerprint") WHERE "status" = 'failed';

CREATE INDEX "gen_durable_alike" ON "gen_durable" ("fingerprint", "id") INCLUDE ("finished_at") WHERE "fingerprint" IS NOT NULL;

-- For GC. Not on updated_at: an index that names what every commit changes costs every commit its heap-only update.
CREATE INDEX "gen_durable_finished" ON "gen_durable" ("finished_at") WHERE "finished_at" IS NOT NULL;

-- By it the GC finds instances whose own retention has ended.
CREATE INDEX "gen_durable_retained"
  ON "gen_durable" ((timezone('UTC', finished_at)
    + least(CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END, 3162240000000000)
    * interval '00:00:00.000001'))
  WHERE (finished_at IS NOT NULL
    AND CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END >= 0);

-- For whoever looks for labels; instances without any are not in it.
CREATE INDEX "gen_durable_labels" ON "gen_durable" USING gin ("labels" jsonb_path_ops) WHERE "labels" IS NOT NULL;

-- The inboxes.
CREATE TABLE "signals" (
  "id" bigint GENERATED ALWAYS AS IDENTITY,
  "target_id" bigint NOT NULL,
  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text,
  "consumed_at" timestamptz,
  "trace" jsonb,
  PRIMARY KEY ("id"),
  UNIQUE ("target_id", "dedup_key"),
  FOREIGN KEY ("target_id") REFERENCES "gen_durable" ("id") ON DELETE CASCADE,
  CONSTRAINT "signals_names_check" CHECK (
    octet_length("name") BETWEEN 1 AND 512 AND octet_length("dedup_key") BETWEEN 1 AND 512
  ),
  CONSTRAINT "signals_finite_check" CHECK (isfinite("consumed_at")),
  CONSTRAINT "signals_times_check" CHECK (isfinite("inserted_at"))
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_analyze_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX "signals_target" ON "signals" ("target_id", "name");

-- Tombstones of one instance, oldest first: they are capped.
CREATE INDEX "signals_consumed" ON "signals" ("target_id", "consumed_at") WHERE "consumed_at" IS NOT NULL;

-- Signals to correlation keys that nobody occupies yet.
CREATE TABLE "kept_signals" (
  "id" bigint GENERATED ALWAYS AS IDENTITY,
  "key" text NOT NULL,
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text,
  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  "expires_at" timestamptz NOT NULL,
  "trace" jsonb,
  PRIMARY KEY ("id"),
  CONSTRAINT "kept_signals_names_check" CHECK (
    octet_length("key") BETWEEN 1 AND 512 AND octet_length("name") BETWEEN 1 AND 512 AND octet_length("dedup_key") BETWEEN 1 AND 512
  ),
  CONSTRAINT "kept_signals_times_check" CHECK (isfinite("inserted_at") AND isfinite("expires_at"))
);

CREATE UNIQUE INDEX "kept_signals_key" ON "kept_signals" ("key", "dedup_key");

CREATE INDEX "kept_signals_expiry" ON "kept_signals" ("expires_at");

-- What nodes wait for. An edge has no foreign key: the sweep that deletes a node deletes those that lead away from it. needs: 0 the
-- origin is to be done, 1 to have ended, 2 to have failed, 3 it is one of a quorum, of which so many are to be done as wake_done of the
-- node says.
CREATE TABLE "edges" (
  "from_id" bigint NOT NULL,
  "to_id" bigint NOT NULL,
  "needs" smallint NOT NULL,
  PRIMARY KEY ("from_id", "to_id"),
  CONSTRAINT "edges_needs_check" CHECK ("needs" BETWEEN 0 AND 3)
);

CREATE INDEX "edges_to" ON "edges" ("to_id");

-- A gate bounds how many instances execute at a time, how many begin in a period, what all values of its label do together, and whole
-- runs. Without places, it bounds only the others. Workers look here when they poll.
CREATE TABLE "gates" (
  "name" text NOT NULL,
  "queue" text,
  "machine" text,
  "step" text,
  "label" text,
  "places" integer,
  "rate" integer,
  "rate_per" bigint,
  "rate_burst" integer,
  "total" integer,
  "total_rate" integer,
  "total_rate_per" bigint,
  "total_rate_burst" integer,
  "cost_label" text,
  "adapt" boolean NOT NULL DEFAULT false,
  "run" boolean NOT NULL DEFAULT false,
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("name"),
  -- The name ends at the first slash of an instance's gate.
  CONSTRAINT "gates_names_check" CHECK (
    octet_length("name") BETWEEN 1 AND 64 AND strpos("name", '/') = 0 AND octet_length("queue") BETWEEN 1 AND 512
    AND octet_length("machine") BETWEEN 1 AND 512 AND octet_length("step") BETWEEN 1 AND 512 AND octet_length("label") BETWEEN 1 AND 64
  ),
  CONSTRAINT "gates_places_check" CHECK (
    "places" BETWEEN 0 AND 10000 AND "total" BETWEEN 0 AND 10000 AND ("step" IS NULL OR "machine" IS NOT NULL)
  ),
  CONSTRAINT "gates_rates_check" CHECK (
    num_nonnulls("rate", "rate_per", "rate_burst") IN (0, 3) AND "rate" BETWEEN 1 AND 1000000
    AND "rate_per" BETWEEN 1000 AND 31536000000000 AND "rate_burst" BETWEEN 1 AND 1000000
    AND num_nonnulls("total_rate", "total_rate_per", "total_rate_burst") IN (0, 3) AND "total_rate" BETWEEN 1 AND 1000000
    AND "total_rate_per" BETWEEN 1000 AND 31536000000000 AND "total_rate_burst" BETWEEN 1 AND 1000000
  ),
  CONSTRAINT "gates_cost_check" CHECK (octet_length("cost_label") BETWEEN 1 AND 64)
);

-- What is known of one value of a gate's label, and of a gate itself. Claims that pay for a rate update it, always the same rows.
CREATE TABLE "gate_keys" (
  "key" text NOT NULL,
  "debt" double precision NOT NULL DEFAULT 0,
  "at" timestamptz NOT NULL DEFAULT now(),
  "pace" double precision NOT NULL DEFAULT 1,
  "closed_until" timestamptz,
  "weight" integer NOT NULL DEFAULT 1,
  -- In place of the gate's places.
  "places" integer,
  -- Many processes are told of too many requests in the same moment: by this the first of them slows the key down, once.
  "slowed_at" timestamptz,
  PRIMARY KEY ("key"),
  CONSTRAINT "gate_keys_check" CHECK (
    octet_length("key") BETWEEN 1 AND 1200 AND "weight" BETWEEN 1 AND 100 AND "places" BETWEEN 1 AND 10000 AND "debt" >= 0 AND "debt" <= 1e12
    AND "pace" > 0 AND "pace" <= 1 AND isfinite("at") AND isfinite("closed_until")
  )
) WITH (fillfactor = 50);

-- The keys that are closed. Claims change other columns, so their updates stay heap-only.
CREATE INDEX "gate_keys_closed" ON "gate_keys" ("closed_until") WHERE "closed_until" IS NOT NULL;
-- The keys with their own places, which polls read.
CREATE INDEX "gate_keys_places" ON "gate_keys" ("key") WHERE "places" IS NOT NULL;

-- A row is there exactly while its queue is paused. Workers look here when they poll, never when they claim.
CREATE TABLE "paused_queues" (
  "queue" text NOT NULL,
  "paused_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("queue"),
  CONSTRAINT "paused_queues_names_check" CHECK (octet_length("queue") BETWEEN 1 AND 512),
  CONSTRAINT "paused_queues_times_check" CHECK (isfinite("paused_at"))
);

-- Claims with a partition key that were taken away from a worker whose step may still run: the next of the key waits for it. Almost always
-- empty.
CREATE TABLE "lost_claims" (
  "id" uuid NOT NULL DEFAULT gen_random_uuid(),
  "partition_key" text NOT NULL,
  "worker" text NOT NULL,
  "claim_token" bigint NOT NULL,
  "lost_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("id"),
  CONSTRAINT "lost_claims_finite_check" CHECK (isfinite("lost_at"))
);

CREATE INDEX "lost_claims_key" ON "lost_claims" ("partition_key");

-- Inserts that are throttled or debounced by a key meet here, and nobody else does. Most of its updates change no indexed column.
CREATE TABLE "windows" (
  "name" text NOT NULL,
  "uid" uuid NOT NULL,
  "instance" bigint NOT NULL DEFAULT 0,
  "opened_at" timestamptz NOT NULL,
  "until" timestamptz NOT NULL,
  PRIMARY KEY ("name"),
  CONSTRAINT "windows_names_check" CHECK (octet_length("name") BETWEEN 3 AND 530),
  CONSTRAINT "windows_times_check" CHECK (isfinite("opened_at") AND isfinite("until"))
) WITH (fillfactor = 50);

-- What inserts an instance at each of its occurrences. Whoever fires one locks its row, inserts and moves next_at in one transaction; the
-- instance's correlation key, which names the occurrence, is the last line.
CREATE TABLE "schedules" (
  "name" text NOT NULL,
  "spec" jsonb NOT NULL,
  "expression" text NOT NULL,
  "time_zone" text NOT NULL DEFAULT 'UTC',
  "catch_up" text NOT NULL DEFAULT 'latest',
  "overlap" text NOT NULL DEFAULT 'allow',
  "jitter" bigint NOT NULL DEFAULT 0,
  "next_at" timestamptz NOT NULL,
  "last_at" timestamptz,
  "last_instance" bigint,
  "paused_at" timestamptz,
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("name"),
  CONSTRAINT "schedules_names_check" CHECK (octet_length("name") BETWEEN 1 AND 256 AND octet_length("expression") BETWEEN 1 AND 512
    AND octet_length("time_zone") BETWEEN 1 AND 512),
  CONSTRAINT "schedules_policy_check" CHECK ("catch_up" IN ('none', 'latest', 'all') AND "overlap" IN ('allow', 'skip') AND "jitter" >= 0),
  CONSTRAINT "schedules_finite_check" CHECK (isfinite("next_at") AND isfinite("last_at") AND isfinite("paused_at")
    AND jsonb_typeof("spec") = 'object'),
  CONSTRAINT "schedules_times_check" CHECK (isfinite("updated_at"))
);

CREATE INDEX "schedules_due" ON "schedules" ("next_at") WHERE "paused_at" IS NULL;

-- Who works: each process writes its row at every heartbeat. What is executed goes by leases.
CREATE TABLE "workers" (
  "id" uuid NOT NULL,
  "host" text NOT NULL,
  "pid" integer NOT NULL,
  "version" text NOT NULL,
  "queues" jsonb NOT NULL,
  "machines" text[] NOT NULL,
  "draining" boolean NOT NULL DEFAULT false,
  -- The number of its release, which says what it can serve: see internal/store/release.go.
  "release" integer NOT NULL DEFAULT 1,
  "started_at" timestamptz NOT NULL DEFAULT now(),
  "beat_at" timestamptz NOT NULL DEFAULT now(),
  "expires_at" timestamptz NOT NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "workers_finite_check" CHECK (isfinite("started_at") AND isfinite("beat_at") AND isfinite("expires_at"))
);

-- Machines as programs have declared them: Start stores them, so that programs that were not compiled with them can draw them.
CREATE TABLE "definitions" (
  "definition" text NOT NULL,
  "machine" text NOT NULL,
  "version" integer NOT NULL,
  "graph" jsonb NOT NULL,
  "declared_at" timestamptz NOT NULL DEFAULT now(),
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("definition"),
  CONSTRAINT "definitions_names_check" CHECK (
    octet_length("machine") BETWEEN 1 AND 512 AND "version" >= 1 AND "definition" = "machine" || '/' || "version"::text
  ),
  CONSTRAINT "definitions_graph_check" CHECK (
    jsonb_typeof("graph") = 'object' AND isfinite("declared_at") AND isfinite("updated_at")
  )
);

-- The machines whose transitions are recorded, for sweeps of processes that do not know them.
CREATE TABLE "recorded_machines" (
  "machine" text NOT NULL,
  "since" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("machine"),
  CONSTRAINT "recorded_machines_names_check" CHECK (octet_length("machine") BETWEEN 1 AND 512)
);

-- What happened: a row for each transition of a recorded machine, and for each operator's verb. Rows are only ever appended, and outlive
-- their instance; days are dropped as a whole. Workers have SELECT and INSERT here, no more.
CREATE TABLE "history" (
  "at" timestamptz NOT NULL DEFAULT now(),
  "instance" bigint,
  "visit" bigint,
  "took" bigint,
  "waited" bigint,
  "attempt" integer,
  "fsm_version" integer,
  "kind" text NOT NULL,
  "worker" uuid,
  "fsm" text,
  "step" text,
  "to_step" text,
  "failure" text,
  "error" text,
  "actor" text,
  "reason" text,
  "subject" text,
  "diff" jsonb,
  "before" jsonb,
  "after" jsonb
) PARTITION BY RANGE ("at");

-- The timeline of one instance is short: it is sorted, not indexed.
CREATE INDEX "history_instance" ON "history" ("instance");

-- By these the verbs of operators, few among many transitions, are listed, and are found by who asked, by verb and by what they were
-- about. Transitions of instances are in none of them.
CREATE INDEX "history_verbs" ON "history" ("at") WHERE (actor IS NOT NULL);

CREATE INDEX "history_actor" ON "history" ("actor", "at") WHERE (actor IS NOT NULL);

CREATE INDEX "history_kind" ON "history" ("kind", "at") WHERE (actor IS NOT NULL);

CREATE INDEX "history_subject" ON "history" ("subject", "at") WHERE (subject IS NOT NULL);

-- A day without a partition never stops a commit.
CREATE TABLE "history_rest" PARTITION OF "history" DEFAULT;

-- An erased person's rows are deleted, also where a publication FOR ALL TABLES asks for an identity of what is deleted.
ALTER TABLE "history" REPLICA IDENTITY FULL;

ALTER TABLE "history_rest" REPLICA IDENTITY FULL;

-- Moves what source has of a time into target, or deletes it if target is NULL; of more than most rows the latest. Postgres may refuse a row each
-- time, since a trigger or a check of the host's says so. Then it searches for the latest such moment, by halves, and goes on before it, until it
-- has met as many as culprits. What is left then stays in source. It returns how many rows moved, how many moments are refused, the latest of them,
-- and the first error. The caller has source to itself, or need not care.
CREATE OR REPLACE FUNCTION "gen_durable_move_history"(source text, target text, since timestamptz, until timestamptz, most bigint, culprits integer,
  OUT moved bigint, OUT refused integer, OUT latest timestamptz, OUT because text)
LANGUAGE plpgsql AS $$
DECLARE
  move CONSTANT text := format(CASE WHEN target IS NULL THEN 'DELETE FROM %1$s WHERE at >= $1 AND at < $2'
    ELSE 'WITH moved AS (DELETE FROM %1$s WHERE at >= $1 AND at < $2 RETURNING *) INSERT INTO %2$s SELECT * FROM moved' END, source, target);
  times timestamptz[];
  first integer; -- the latest refused moment is one from this index on, and before the next; all behind has moved
  past integer;
  middle integer;
  n bigint;
BEGIN
  moved := 0;
  refused := 0;
  EXECUTE format('SELECT min(x.at) FROM (SELECT at FROM %s WHERE at >= $1 AND at < $2 ORDER BY at DESC LIMIT $3) x', source)
    INTO since USING since, until, most;
  WHILE since < until AND refused < culprits LOOP
    BEGIN
      EXECUTE move USING since, until;
      GET DIAGNOSTICS n = ROW_COUNT;
      moved := moved + n;
      RETURN;
    EXCEPTION
      WHEN lock_not_available OR insufficient_resources OR operator_intervention OR system_error THEN RAISE; -- no row is to blame
      WHEN OTHERS THEN because := coalesce(because, format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE));
    END;
    EXECUTE format('SELECT ARRAY(SELECT DISTINCT at FROM %s WHERE at >= $1 AND at < $2 ORDER BY at)', source) INTO times USING since, until;
    first := 1;
    past := cardinality(times) + 1;
    WHILE past - first > 1 LOOP
      middle := (first + past) / 2;
      BEGIN
        EXECUTE move USING times[middle], coalesce(times[past], until);
        GET DIAGNOSTICS n = ROW_COUNT;
        moved := moved + n;
        past := middle;
      EXCEPTION
        WHEN lock_not_available OR insufficient_resources OR operator_intervention OR system_error THEN RAISE;
        WHEN OTHERS THEN first := middle;
      END;
    END LOOP;
    refused := refused + 1;
    latest := coalesce(latest, times[first]);
    until := times[first];
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION "gen_durable_move_history"(text, text, timestamptz, timestamptz, bigint, integer) FROM PUBLIC;

-- Makes the partitions of today and of the days ahead, and removes the days that are past keep. It runs with the rights of its owner, so that
-- workers need none that would change a row. No commit waits for it for long:
-- - A new day is a table of its own before ATTACH takes it in, which locks the days that others write only against other DDL. PARTITION OF
--   would lock the whole history against its writers.
-- - An old day is emptied by TRUNCATE, which locks that day alone. To drop it takes the whole history for a moment, so that is left to a
--   moment at which nobody has it (NOWAIT): an empty table costs nothing.
-- - Every wait is over after 200 ms, and the next call goes on.
--
-- The rows of a day without a partition are in history_rest. If they are few, they move when their day is made. If today is there and they
-- are many, so that commits would wait for the move, history_rest is set aside as history_rest_ and the second at which that was, and a new
-- one takes its place. The next call makes a partition of what was set aside: until then it is not found in the history.
--
-- A row that Postgres refuses to move stays where it is, and holds up nothing else. Its day begins behind it: what is before stays in history_rest,
-- where it is found. If it is in a table that was set aside, and of another time, the others go back from there into the history, and the table
-- waits. refused counts such rows and days, because is the first error.
CREATE OR REPLACE FUNCTION "gen_durable_roll_history"(keep interval, ahead integer DEFAULT 7, OUT made integer, OUT dropped integer,
  OUT refused integer, OUT because text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
  -- Names are qualified: a temporary table of the caller's would come first.
  home CONSTANT text := quote_ident(current_schema());
  whole CONSTANT regclass := (home || '.history')::regclass;
  rest CONSTANT text := home || '.history_rest';
  moves CONSTANT text := format('SELECT * FROM %s.gen_durable_move_history($1, $2, $3, $4, $5, $6)', home);
  today CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
  many CONSTANT bigint := 10000; -- rows are moved while nobody can write
  culprits CONSTANT integer := 10;
  day date;
  part text;
  old record;
  since timestamptz; -- the first instant of a partition, and the one behind it
  until timestamptz;
  moving bigint;
  ahead_of record; -- what became of rows that were moved
  before record;
BEGIN
  made := 0;
  dropped := 0;
  refused := 0;
  IF coalesce(keep < interval '1 day', true) OR coalesce(ahead NOT BETWEEN 0 AND 100, true) THEN
    RAISE EXCEPTION 'gen_durable_roll_history: keep % and ahead %, want at least a day, and 0 to 100', keep, ahead
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('gendurable history ' || home, 0)) THEN
    RETURN; -- somebody else rolls
  END IF;

  -- What was set aside becomes the partition from the end of the one before it. Nobody has it, so it is looked through here, and not by
  -- ATTACH, which locks history_rest.
  FOR old IN
    SELECT c.oid::regclass AS part, (to_date(substr(c.relname, 14, 8), 'YYYYMMDD') + to_char(substr(c.relname, 22)::int, 'FM00:00:00')::time)
      AT TIME ZONE 'UTC' AS until
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = home::regnamespace AND c.relname ~ '^history_rest_\d{14}$' AND NOT c.relispartition ORDER BY c.relname
  LOOP
    SELECT max(e) INTO since FROM (SELECT CASE WHEN c.relname ~ '^history_\d{8}$' THEN (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp
        ELSE to_date(substr(c.relname, 14, 8), 'YYYYMMDD') + to_char(substr(c.relname, 22)::int, 'FM00:00:00')::time END AT TIME ZONE 'UTC' AS e
      FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = whole AND c.relname ~ '^history_(\d{8}|rest_\d{14})$') x WHERE e <= old.until;
    since := coalesce(since, '-infinity');
    BEGIN
      EXECUTE moves INTO ahead_of USING old.part::text, whole::text, old.until, 'infinity'::timestamptz, many, culprits;
      EXECUTE moves INTO before USING old.part::text, whole::text, '-infinity'::timestamptz, since, many, culprits;
      moving := ahead_of.moved + before.moved;
      made := made + least(moving, 1);
      CONTINUE WHEN moving >= many;
      IF ahead_of.refused + before.refused = 0 THEN
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT here CHECK (at >= %L AND at < %L)', old.part, since, old.until);
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rest);
        EXECUTE moves INTO before USING rest, old.part::text, since, old.until, NULL::bigint, 1;
        IF before.refused = 0 THEN
          EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%L)', whole, old.part,
            CASE WHEN since = '-infinity' THEN 'MINVALUE' ELSE quote_literal(since) END, old.until);
        END IF;
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT here', old.part);
      END IF;
      IF ahead_of.refused + before.refused > 0 THEN
        refused := refused + ahead_of.refused + before.refused;
        because := coalesce(because, ahead_of.because, before.because);
        EXECUTE moves INTO before USING old.part::text, whole::text, '-infinity'::timestamptz, 'infinity'::timestamptz, many, culprits;
        made := made + least(before.moved, 1);
        CONTINUE;
      END IF;
      made := made + 1;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
  END LOOP;

  FOR day IN SELECT today + n FROM generate_series(0, ahead) n LOOP
    part := home || '.history_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass(part) IS NOT NULL;
    since := day::timestamp AT TIME ZONE 'UTC';
    until := (day + 1)::timestamp AT TIME ZONE 'UTC';
    EXIT WHEN clock_timestamp() >= until - interval '2 seconds'; -- the next call, when the day is over
    BEGIN
      EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE at >= $1 AND at < $2 LIMIT $3) x', rest) INTO moving USING since, until, many + 1;
      EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, whole);
      EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', part);
      -- ATTACH looks through history_rest, and keeps out who writes there: today's commits, while today has no partition.
      IF day = today AND (moving > many OR pg_relation_size(rest) > 256 * 1024 * 1024) THEN
        since := date_trunc('second', clock_timestamp()) + interval '1 second';
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', whole);
        EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', whole, rest);
        EXECUTE format('ALTER TABLE %s RENAME TO %I', rest, 'history_rest_' || to_char(since AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISS'));
        EXECUTE format('CREATE TABLE %s PARTITION OF %s DEFAULT', rest, whole);
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', rest);
      ELSIF moving > 0 THEN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rest);
        EXECUTE moves INTO before USING rest, part, since, until, NULL::bigint, 1;
        IF before.refused > 0 THEN
          refused := refused + 1;
          because := coalesce(because, before.because);
          since := before.latest + interval '1 microsecond';
          IF since >= until THEN -- nothing is behind it
            EXECUTE format('DROP TABLE %s', part);
            CONTINUE;
          END IF;
        END IF;
      END IF;
      EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', whole, part, since, until);
      made := made + 1;
    EXCEPTION
      WHEN lock_not_available THEN EXIT;
      WHEN check_violation THEN NULL; -- a row came meanwhile
    END;
  END LOOP;

  -- What has no day of its own goes row by row.
  BEGIN
    EXECUTE moves INTO before USING rest, NULL::text, '-infinity'::timestamptz, now() - keep, many, culprits;
    refused := refused + before.refused;
    because := coalesce(because, before.because);
  EXCEPTION WHEN lock_not_available THEN NULL;
  END;

  -- A table that was set aside, and could never become a partition, goes with its last day.
  FOR old IN
    SELECT c.oid::regclass AS part FROM pg_catalog.pg_class c
    WHERE c.relnamespace = home::regnamespace AND c.relname ~ '^history_(\d{8}|rest_\d{14})$'
      AND (c.relname ~ 'rest' OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = whole))
      AND to_date(substr(c.relname, CASE WHEN c.relname ~ 'rest' THEN 14 ELSE 9 END, 8), 'YYYYMMDD') + 1 <= ((now() - keep) AT TIME ZONE 'UTC')::date
    ORDER BY c.relname LIMIT 100
  LOOP
    BEGIN
      IF pg_relation_size(old.part) > 0 THEN
        EXECUTE format('TRUNCATE %s', old.part);
      END IF;
    EXCEPTION
      WHEN lock_not_available THEN
        CONTINUE; -- somebody reads it
      WHEN insufficient_resources OR operator_intervention OR system_error THEN RAISE;
      WHEN OTHERS THEN
        refused := refused + 1;
        because := coalesce(because, format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE));
        CONTINUE;
    END;
    BEGIN -- a block of its own: what fails here does not undo the TRUNCATE
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', whole);
      EXECUTE format('DROP TABLE %s', old.part);
      dropped := dropped + 1;
    EXCEPTION
      WHEN lock_not_available THEN NULL;
      WHEN insufficient_resources OR operator_intervention OR system_error THEN RAISE;
      WHEN OTHERS THEN
        refused := refused + 1;
        because := coalesce(because, format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE));
    END;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION "gen_durable_roll_history"(interval, integer) FROM PUBLIC;

-- What other languages insert and signal by; the engine itself has statements of its own. Both run in the caller's transaction, with the
-- caller's rights, and find the tables wherever this migration has found them. OR REPLACE: the Atlas CLI leaves functions behind in its
-- dev database.

-- Inserts an instance, unless its key is occupied: then id is the occupant's. scope says for how long a key is occupied, as fsm.Scope does.
CREATE OR REPLACE FUNCTION "gen_durable_insert"(
  machine text, state jsonb DEFAULT '{}', version integer DEFAULT 1, step text DEFAULT 'start', queue text DEFAULT 'default',
  priority integer DEFAULT 0, correlation_key text DEFAULT NULL, scope text DEFAULT 'live', partition_key text DEFAULT NULL,
  eligible_at timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL, labels jsonb DEFAULT NULL,
  OUT id bigint, OUT duplicate boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  live CONSTANT durable_status[] := '{runnable,executing,awaiting_signal,awaiting_children}';
  occupied durable_status[];
BEGIN
  CASE scope
    WHEN 'live' THEN occupied := live;
    WHEN 'live_or_done' THEN occupied := live || '{done}'::durable_status[];
    WHEN 'live_or_failed' THEN occupied := live || '{failed}'::durable_status[];
    WHEN 'all' THEN occupied := live || '{done,failed}'::durable_status[];
    WHEN 'none' THEN occupied := '{}';
    ELSE RAISE EXCEPTION 'gen_durable_insert: scope %, want live, live_or_done, live_or_failed, all or none', coalesce(quote_literal(scope), 'NULL')
      USING ERRCODE = 'invalid_parameter_value';
  END CASE;
  IF jsonb_path_exists(labels, 'strict $.* ? (@.type() != "string")', '{}', true) THEN -- what is no object, the table refuses
    RAISE EXCEPTION 'gen_durable_insert: labels %, want texts only', labels USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Write {"customer": "7"}, not {"customer": 7}.';
  END IF;
  FOR try IN 1..10 LOOP
    INSERT INTO gen_durable AS g (fsm, fsm_version, step, state, queue, priority, correlation_key, correlation_scope, partition_key, eligible_at,
      deadline, labels)
    VALUES (gen_durable_insert.machine, gen_durable_insert.version, gen_durable_insert.step, gen_durable_insert.state,
      gen_durable_insert.queue, gen_durable_insert.priority, gen_durable_insert.correlation_key,
      CASE WHEN gen_durable_insert.correlation_key IS NULL THEN '{}' ELSE occupied END, gen_durable_insert.partition_key,
      greatest(gen_durable_insert.eligible_at, clock_timestamp()), gen_durable_insert.deadline, gen_durable_insert.labels)
    ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
    RETURNING g.id INTO gen_durable_insert.id;
    IF FOUND THEN
      duplicate := false;
      RETURN;
    END IF;
    SELECT g.id INTO gen_durable_insert.id FROM gen_durable g WHERE g.correlation_guard = gen_durable_insert.correlation_key;
    IF FOUND THEN
      duplicate := true;
      RETURN;
    END IF;
  END LOOP; -- its key was freed between the two statements
  RAISE EXCEPTION 'gen_durable_insert: the key was taken and freed again at every attempt' USING ERRCODE = 'serialization_failure',
    HINT = 'Try again.';
END $$;

-- Puts a signal into the inbox of a live instance, by id or by the key that it occupies, and wakes it if it awaits that name, also
-- beside children. A dedup key that the instance has seen is a duplicate, and nothing happens. SQLSTATE Y0001: there is no such
-- instance, or it has ended; Y0002: its inbox is full.
CREATE OR REPLACE FUNCTION "gen_durable_signal"(
  name text, payload jsonb DEFAULT '{}', target bigint DEFAULT NULL, correlation_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  inbox integer DEFAULT 10000, OUT id bigint, OUT duplicate boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  unread bigint;
BEGIN
  IF (target IS NULL) = (correlation_key IS NULL) THEN
    RAISE EXCEPTION 'gen_durable_signal: give either target or correlation_key' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The target is locked before anything is written, and each statement here sees what the one before it has waited for: whoever parks,
  -- ends or deletes the instance is before or after this delivery, never beside it. A key may move to another instance meanwhile.
  FOR try IN 1..3 LOOP
    IF target IS NOT NULL THEN
      SELECT g.id INTO gen_durable_signal.id FROM gen_durable g
      WHERE g.id = target AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE;
    ELSE
      SELECT g.id INTO gen_durable_signal.id FROM gen_durable g
      WHERE g.correlation_guard = gen_durable_signal.correlation_key AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE;
    END IF;
    EXIT WHEN FOUND;
  END LOOP;
  IF gen_durable_signal.id IS NULL THEN
    RAISE EXCEPTION 'gen_durable_signal: no live target' USING ERRCODE = 'Y0001',
      DETAIL = format('It has ended, or never was: %s.', coalesce('instance ' || target, 'key ' || quote_literal(correlation_key)));
  END IF;
  duplicate := EXISTS (SELECT FROM signals s WHERE s.target_id = gen_durable_signal.id AND s.dedup_key = gen_durable_signal.dedup_key);
  IF duplicate THEN
    RETURN;
  END IF;
  SELECT count(*) INTO unread FROM (
    SELECT FROM signals s WHERE s.target_id = gen_durable_signal.id AND s.consumed_at IS NULL LIMIT gen_durable_signal.inbox) n;
  IF unread >= gen_durable_signal.inbox THEN
    RAISE EXCEPTION 'gen_durable_signal: inbox full' USING ERRCODE = 'Y0002',
      DETAIL = format('Instance %s has %s signals that it has not consumed.', gen_durable_signal.id, unread);
  END IF;
  INSERT INTO signals (target_id, name, payload, dedup_key)
  VALUES (gen_durable_signal.id, gen_durable_signal.name, gen_durable_signal.payload, gen_durable_signal.dedup_key);
  UPDATE gen_durable g SET status = 'runnable', eligible_at = clock_timestamp(), await_deadline = NULL, pick_lane = 0, updated_at = clock_timestamp()
  WHERE g.id = gen_durable_signal.id AND g.status IN ('awaiting_signal', 'awaiting_children')
    AND gen_durable_signal.name = ANY(g.awaits);
END $$;
