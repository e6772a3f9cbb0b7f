-- Generated from package schema by make generate. DO NOT EDIT.
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
-- Create "lost_claims" table
CREATE TABLE "lost_claims" (
  "id" uuid NOT NULL DEFAULT (gen_random_uuid()),
  "partition_key" text NOT NULL,
  "worker" text NOT NULL,
  "claim_token" bigint NOT NULL,
  "lost_at" timestamptz NOT NULL DEFAULT (now()),
  PRIMARY KEY ("id"),
  CONSTRAINT "lost_claims_finite_check" CHECK (isfinite(lost_at))
);
-- Create index "lost_claims_key" to table: "lost_claims"
CREATE INDEX "lost_claims_key" ON "lost_claims" ("partition_key");
-- Create "schedules" table
CREATE TABLE "schedules" (
  "name" text NOT NULL,
  "spec" jsonb NOT NULL,
  "expression" text NOT NULL,
  "time_zone" text NOT NULL DEFAULT 'UTC',
  "catch_up" text NOT NULL DEFAULT 'latest',
  "overlap" text NOT NULL DEFAULT 'allow',
  "jitter" bigint NOT NULL DEFAULT 0,
  "next_at" timestamptz NOT NULL,
  "last_at" timestamptz NULL,
  "last_instance" bigint NULL,
  "paused_at" timestamptz NULL,
  "updated_at" timestamptz NOT NULL DEFAULT (now()),
  PRIMARY KEY ("name"),
  CONSTRAINT "schedules_finite_check" CHECK (isfinite(next_at) AND isfinite(last_at) AND isfinite(paused_at) AND jsonb_typeof(spec) = 'object'::text),
  CONSTRAINT "schedules_names_check" CHECK (octet_length(name) BETWEEN 1 AND 256 AND octet_length(expression) BETWEEN 1 AND 512 AND octet_length(time_zone) BETWEEN 1 AND 512),
  CONSTRAINT "schedules_policy_check" CHECK (catch_up IN ('none', 'latest', 'all') AND overlap IN ('allow', 'skip') AND jitter >= 0),
  CONSTRAINT "schedules_times_check" CHECK (isfinite(updated_at))
);
-- Create index "schedules_due" to table: "schedules"
CREATE INDEX "schedules_due" ON "schedules" ("next_at") WHERE paused_at IS NULL;
-- Create "gates" table
CREATE TABLE "gates" (
  "name" text NOT NULL,
  "queue" text NULL,
  "machine" text NULL,
  "step" text NULL,
  "label" text NULL,
  "places" integer NULL,
  "updated_at" timestamptz NOT NULL DEFAULT (now()),
  "rate" integer NULL,
  "rate_per" bigint NULL,
  "rate_burst" integer NULL,
  "total" integer NULL,
  "total_rate" integer NULL,
  "total_rate_per" bigint NULL,
  "total_rate_burst" integer NULL,
  "cost_label" text NULL,
  "adapt" boolean NOT NULL DEFAULT (false),
  "run" boolean NOT NULL DEFAULT (false),
  PRIMARY KEY ("name"),
  CONSTRAINT "gates_cost_check" CHECK (octet_length(cost_label) BETWEEN 1 AND 64),
  CONSTRAINT "gates_names_check" CHECK (octet_length(name) BETWEEN 1 AND 64 AND strpos(name, '/') = 0 AND octet_length(queue) BETWEEN 1 AND 512 AND octet_length(machine) BETWEEN 1 AND 512 AND octet_length(step) BETWEEN 1 AND 512 AND octet_length(label) BETWEEN 1 AND 64),
  CONSTRAINT "gates_places_check" CHECK (places BETWEEN 0 AND 10000 AND total BETWEEN 0 AND 10000 AND (step IS NULL OR machine IS NOT NULL)),
  CONSTRAINT "gates_rates_check" CHECK (num_nonnulls(rate, rate_per, rate_burst) IN (0, 3) AND rate BETWEEN 1 AND 1000000 AND rate_per BETWEEN 1000 AND 31536000000000 AND rate_burst BETWEEN 1 AND 1000000 AND num_nonnulls(total_rate, total_rate_per, total_rate_burst) IN (0, 3) AND total_rate BETWEEN 1 AND 1000000 AND total_rate_per BETWEEN 1000 AND 31536000000000 AND total_rate_burst BETWEEN 1 AND 1000000)
);
-- Create "gate_keys" table
CREATE TABLE "gate_keys" (
  "key" text NOT NULL,
  "debt" double precision NOT NULL DEFAULT 0,
  "at" timestamptz NOT NULL DEFAULT (now()),
  "pace" double precision NOT NULL DEFAULT 1,
  "closed_until" timestamptz NULL,
  "weight" integer NOT NULL DEFAULT 1,
  "places" integer NULL,
  "slowed_at" timestamptz NULL,
  PRIMARY KEY ("key"),
  CONSTRAINT "gate_keys_check" CHECK (octet_length(key) BETWEEN 1 AND 1200 AND weight BETWEEN 1 AND 100 AND places BETWEEN 1 AND 10000 AND debt >= 0 AND debt <= 1e12 AND pace > 0 AND pace <= 1 AND isfinite(at) AND isfinite(closed_until))
);
-- Create index "gate_keys_closed" to table: "gate_keys"
CREATE INDEX "gate_keys_closed" ON "gate_keys" ("closed_until") WHERE closed_until IS NOT NULL;
-- Create index "gate_keys_places" to table: "gate_keys"
CREATE INDEX "gate_keys_places" ON "gate_keys" ("key") WHERE places IS NOT NULL;
-- Create enum type "durable_status"
CREATE TYPE "durable_status" AS ENUM ('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'done', 'failed');
-- Create "gen_durable" table
CREATE TABLE "gen_durable" (
  "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  "fsm" text NOT NULL,
  "fsm_version" integer NOT NULL DEFAULT 1,
  "step" text NOT NULL,
  "status" "durable_status" NOT NULL DEFAULT 'runnable',
  "state" jsonb NOT NULL DEFAULT '{}',
  "result" jsonb NULL,
  "awaits" text[] NULL,
  "queue" text NOT NULL DEFAULT 'default',
  "priority" smallint NOT NULL DEFAULT 0,
  "partition_key" text NULL,
  "eligible_at" timestamptz NOT NULL DEFAULT (now()),
  "attempt" integer NOT NULL DEFAULT 0,
  "last_error" text NULL,
  "locked_by" text NULL,
  "lease_expires_at" timestamptz NULL,
  "parent_id" bigint NULL,
  "children_pending" integer NOT NULL DEFAULT 0,
  "correlation_key" text NULL,
  "correlation_scope" "durable_status"[] NOT NULL DEFAULT '{}',
  "correlation_guard" text NULL GENERATED ALWAYS AS (CASE WHEN correlation_key IS NOT NULL AND status = ANY (correlation_scope) THEN correlation_key END) STORED,
  "inserted_at" timestamptz NOT NULL DEFAULT (now()),
  "updated_at" timestamptz NOT NULL DEFAULT (now()),
  "uid" uuid NOT NULL DEFAULT (gen_random_uuid()),
  "claim_token" bigint NOT NULL DEFAULT 0,
  "visit" bigint NOT NULL DEFAULT 0,
  "crashes" integer NOT NULL DEFAULT 0,
  "commit_id" uuid NULL,
  "failure" text NULL,
  "finished_at" timestamptz NULL,
  "await_deadline" timestamptz NULL,
  "timed_out" boolean NOT NULL DEFAULT (false),
  "round" bigint NOT NULL DEFAULT 0,
  "parent_round" bigint NOT NULL DEFAULT 0,
  "joined" uuid NULL,
  "dropped" jsonb NULL,
  "depth" integer NOT NULL DEFAULT 0,
  "pick_lane" smallint NOT NULL DEFAULT 0,
  "paused" boolean NOT NULL DEFAULT (false),
  "deadline" timestamptz NULL,
  "labels" jsonb NULL,
  "trace" jsonb NULL,
  "errors" jsonb NULL,
  "fingerprint" bigint NULL GENERATED ALWAYS AS (CASE WHEN status = 'failed' THEN gen_durable_fingerprint(errors, failure, queue, fsm, fsm_version) END) STORED,
  "gate" text NULL,
  "aside_step" text NULL,
  "place" integer NULL,
  "seat" integer NULL,
  "run_gate" text NULL,
  "run_place" integer NULL,
  "retain" bigint[] NULL,
  "progress" jsonb NULL,
  "join_round" bigint NULL,
  "join_size" integer NULL,
  "join_done" integer NULL,
  "join_failed" integer NULL,
  "wake_done" integer NULL,
  "wake_failed" integer NULL,
  "wake_ended" integer NULL,
  "losers" bigint[] NULL,
  "graphs" bigint[] NULL,
  "node" text NULL,
  "stream_most" integer NULL,
  "stream_nth" bigint NULL,
  "stream_visit" bigint NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "gen_durable_awaits_check" CHECK (status <> 'awaiting_signal' OR (COALESCE(cardinality(awaits), 0) > 0 AND array_position(awaits, NULL::text) IS NULL)),
  CONSTRAINT "gen_durable_counts_check" CHECK (least(children_pending, attempt, crashes, depth) >= 0 AND visit >= 0 AND depth <= 100),
  CONSTRAINT "gen_durable_failure_check" CHECK ((status = 'failed') = (failure IS NOT NULL)),
  CONSTRAINT "gen_durable_finished_check" CHECK ((status IN ('done', 'failed')) = (finished_at IS NOT NULL)),
  CONSTRAINT "gen_durable_finite_check" CHECK (isfinite(eligible_at) AND isfinite(lease_expires_at) AND isfinite(await_deadline) AND isfinite(finished_at) AND isfinite(deadline)),
  CONSTRAINT "gen_durable_gate_check" CHECK (octet_length(gate) BETWEEN 1 AND 1200 AND (place IS NULL OR place >= 1 AND gate IS NOT NULL)),
  CONSTRAINT "gen_durable_labels_check" CHECK (jsonb_typeof(labels) = 'object'::text),
  CONSTRAINT "gen_durable_lane_check" CHECK (pick_lane BETWEEN 0 AND 5 AND (pick_lane <> 1 OR partition_key IS NOT NULL) AND (pick_lane <> 3 OR gate IS NOT NULL) AND (pick_lane <> 4 OR aside_step IS NOT NULL)),
  CONSTRAINT "gen_durable_lease_check" CHECK (status <> 'executing' OR (locked_by IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT "gen_durable_names_check" CHECK ('' <> ALL (ARRAY[fsm, step, queue, partition_key, correlation_key]) AND greatest(octet_length(fsm), octet_length(step), octet_length(queue), octet_length(partition_key), octet_length(correlation_key)) <= 512 AND fsm_version >= 1),
  CONSTRAINT "gen_durable_scope_check" CHECK (correlation_scope = '{}' OR correlation_scope @> '{runnable,executing,awaiting_signal,awaiting_children}'),
  CONSTRAINT "gen_durable_times_check" CHECK (isfinite(inserted_at) AND isfinite(updated_at))
);
-- Create index "gen_durable_lease" to table: "gen_durable"
CREATE INDEX "gen_durable_lease" ON "gen_durable" ("lease_expires_at") WHERE status = 'executing';
-- Create index "gen_durable_correlation" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_correlation" ON "gen_durable" ("correlation_guard" text_pattern_ops) WHERE correlation_guard IS NOT NULL;
-- Create index "gen_durable_keyed" to table: "gen_durable"
CREATE INDEX "gen_durable_keyed" ON "gen_durable" ("correlation_key" text_pattern_ops) WHERE correlation_key IS NOT NULL AND correlation_guard IS NULL;
-- Create index "gen_durable_parent" to table: "gen_durable"
CREATE INDEX "gen_durable_parent" ON "gen_durable" ("parent_id") WHERE parent_id IS NOT NULL;
-- Create index "gen_durable_ready" to table: "gen_durable"
CREATE INDEX "gen_durable_ready" ON "gen_durable" ("queue", "priority", "eligible_at", "id") WHERE status = 'runnable' AND NOT paused AND pick_lane = 0;
-- Create index "gen_durable_aside" to table: "gen_durable"
CREATE INDEX "gen_durable_aside" ON "gen_durable" ("queue", "fsm", "fsm_version", "priority", "eligible_at", "id") WHERE status = 'runnable' AND NOT paused AND pick_lane = 2;
-- Create index "gen_durable_stray" to table: "gen_durable"
CREATE INDEX "gen_durable_stray" ON "gen_durable" ("queue", "fsm", "fsm_version", "aside_step", "priority", "eligible_at", "id") WHERE status = 'runnable' AND NOT paused AND pick_lane = 4;
-- Create index "gen_durable_key" to table: "gen_durable"
CREATE INDEX "gen_durable_key" ON "gen_durable" ("partition_key", "queue", "priority", "eligible_at", "id") WHERE status = 'runnable' AND NOT paused AND partition_key IS NOT NULL;
-- Create index "gen_durable_busy" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_busy" ON "gen_durable" ("partition_key") WHERE status = 'executing' AND partition_key IS NOT NULL;
-- Create index "gen_durable_lines" to table: "gen_durable"
CREATE INDEX "gen_durable_lines" ON "gen_durable" ("queue", "gate" text_pattern_ops, "priority", "eligible_at", "id") WHERE status = 'runnable' AND NOT paused AND pick_lane = 3;
-- Create index "gen_durable_place" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_place" ON "gen_durable" ("gate", "place") WHERE place IS NOT NULL;
-- Create index "gen_durable_seat" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_seat" ON "gen_durable" ("queue", "seat") WHERE seat IS NOT NULL;
-- Create index "gen_durable_run" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_run" ON "gen_durable" ("run_gate", "run_place") WHERE run_place IS NOT NULL AND finished_at IS NULL;
-- Create index "gen_durable_finished" to table: "gen_durable"
CREATE INDEX "gen_durable_finished" ON "gen_durable" ("finished_at") WHERE finished_at IS NOT NULL;
-- Create index "gen_durable_failed" to table: "gen_durable"
CREATE INDEX "gen_durable_failed" ON "gen_durable" ("id") INCLUDE ("fingerprint") WHERE status = 'failed';
-- Create index "gen_durable_alike" to table: "gen_durable"
CREATE INDEX "gen_durable_alike" ON "gen_durable" ("fingerprint", "id") INCLUDE ("finished_at") WHERE fingerprint IS NOT NULL;
-- Create index "gen_durable_deadline" to table: "gen_durable"
CREATE INDEX "gen_durable_deadline" ON "gen_durable" ("await_deadline") WHERE await_deadline IS NOT NULL;
-- Create index "gen_durable_skip" to table: "gen_durable"
CREATE INDEX "gen_durable_skip" ON "gen_durable" ("id") WHERE status = 'runnable' AND NOT paused AND pick_lane = 5;
-- Create index "gen_durable_losers" to table: "gen_durable"
CREATE INDEX "gen_durable_losers" ON "gen_durable" ("id") WHERE losers IS NOT NULL AND (status <> 'awaiting_children' OR losers[1] <> round) OR graphs IS NOT NULL AND finished_at IS NOT NULL;
-- Create index "gen_durable_node" to table: "gen_durable"
CREATE UNIQUE INDEX "gen_durable_node" ON "gen_durable" ("parent_id", "parent_round", "node") WHERE node IS NOT NULL;
-- Create index "gen_durable_expiry" to table: "gen_durable"
CREATE INDEX "gen_durable_expiry" ON "gen_durable" ("deadline") WHERE deadline IS NOT NULL AND finished_at IS NULL;
-- Create index "gen_durable_labels" to table: "gen_durable"
CREATE INDEX "gen_durable_labels" ON "gen_durable" USING GIN ("labels" jsonb_path_ops) WHERE labels IS NOT NULL;
-- Create index "gen_durable_retained" to table: "gen_durable"
CREATE INDEX "gen_durable_retained" ON "gen_durable" ((timezone('UTC', finished_at) + least(CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END, 3162240000000000) * interval '00:00:00.000001')) WHERE finished_at IS NOT NULL AND CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END >= 0;
-- Create "kept_signals" table
CREATE TABLE "kept_signals" (
  "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  "key" text NOT NULL,
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text NULL,
  "inserted_at" timestamptz NOT NULL DEFAULT (now()),
  "expires_at" timestamptz NOT NULL,
  "trace" jsonb NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "kept_signals_names_check" CHECK (octet_length(key) BETWEEN 1 AND 512 AND octet_length(name) BETWEEN 1 AND 512 AND octet_length(dedup_key) BETWEEN 1 AND 512),
  CONSTRAINT "kept_signals_times_check" CHECK (isfinite(inserted_at) AND isfinite(expires_at))
);
-- Create index "kept_signals_key" to table: "kept_signals"
CREATE UNIQUE INDEX "kept_signals_key" ON "kept_signals" ("key", "dedup_key");
-- Create index "kept_signals_expiry" to table: "kept_signals"
CREATE INDEX "kept_signals_expiry" ON "kept_signals" ("expires_at");
-- Create "definitions" table
CREATE TABLE "definitions" (
  "definition" text NOT NULL,
  "machine" text NOT NULL,
  "version" integer NOT NULL,
  "graph" jsonb NOT NULL,
  "declared_at" timestamptz NOT NULL DEFAULT (now()),
  "updated_at" timestamptz NOT NULL DEFAULT (now()),
  PRIMARY KEY ("definition"),
  CONSTRAINT "definitions_graph_check" CHECK (jsonb_typeof(graph) = 'object'::text AND isfinite(declared_at) AND isfinite(updated_at)),
  CONSTRAINT "definitions_names_check" CHECK (octet_length(machine) BETWEEN 1 AND 512 AND version >= 1 AND definition = machine || '/' || version::text)
);
-- Create "paused_queues" table
CREATE TABLE "paused_queues" (
  "queue" text NOT NULL,
  "paused_at" timestamptz NOT NULL DEFAULT (now()),
  PRIMARY KEY ("queue"),
  CONSTRAINT "paused_queues_names_check" CHECK (octet_length(queue) BETWEEN 1 AND 512),
  CONSTRAINT "paused_queues_times_check" CHECK (isfinite(paused_at))
);
-- Create "recorded_machines" table
CREATE TABLE "recorded_machines" (
  "machine" text NOT NULL,
  "since" timestamptz NOT NULL DEFAULT (now()),
  PRIMARY KEY ("machine"),
  CONSTRAINT "recorded_machines_names_check" CHECK (octet_length(machine) BETWEEN 1 AND 512)
);
-- Create "edges" table
CREATE TABLE "edges" (
  "from_id" bigint NOT NULL,
  "to_id" bigint NOT NULL,
  "needs" smallint NOT NULL,
  PRIMARY KEY ("from_id", "to_id"),
  CONSTRAINT "edges_needs_check" CHECK (needs BETWEEN 0 AND 3)
);
-- Create index "edges_to" to table: "edges"
CREATE INDEX "edges_to" ON "edges" ("to_id");
-- Create "workers" table
CREATE TABLE "workers" (
  "id" uuid NOT NULL,
  "host" text NOT NULL,
  "pid" integer NOT NULL,
  "version" text NOT NULL,
  "queues" jsonb NOT NULL,
  "machines" text[] NOT NULL,
  "draining" boolean NOT NULL DEFAULT (false),
  "started_at" timestamptz NOT NULL DEFAULT (now()),
  "beat_at" timestamptz NOT NULL DEFAULT (now()),
  "expires_at" timestamptz NOT NULL,
  "release" integer NOT NULL DEFAULT 1,
  PRIMARY KEY ("id"),
  CONSTRAINT "workers_finite_check" CHECK (isfinite(started_at) AND isfinite(beat_at) AND isfinite(expires_at))
);
-- Create "history" table
CREATE TABLE "history" (
  "at" timestamptz NOT NULL DEFAULT (now()),
  "instance" bigint NULL,
  "visit" bigint NULL,
  "took" bigint NULL,
  "waited" bigint NULL,
  "attempt" integer NULL,
  "fsm_version" integer NULL,
  "kind" text NOT NULL,
  "worker" uuid NULL,
  "fsm" text NULL,
  "step" text NULL,
  "to_step" text NULL,
  "failure" text NULL,
  "error" text NULL,
  "actor" text NULL,
  "reason" text NULL,
  "subject" text NULL,
  "diff" jsonb NULL,
  "before" jsonb NULL,
  "after" jsonb NULL
) PARTITION BY RANGE ("at");
-- Create index "history_instance" to table: "history"
CREATE INDEX "history_instance" ON "history" ("instance");
-- Create index "history_verbs" to table: "history"
CREATE INDEX "history_verbs" ON "history" ("at") WHERE actor IS NOT NULL;
-- Create index "history_actor" to table: "history"
CREATE INDEX "history_actor" ON "history" ("actor", "at") WHERE actor IS NOT NULL;
-- Create index "history_kind" to table: "history"
CREATE INDEX "history_kind" ON "history" ("kind", "at") WHERE actor IS NOT NULL;
-- Create index "history_subject" to table: "history"
CREATE INDEX "history_subject" ON "history" ("subject", "at") WHERE subject IS NOT NULL;
-- Create "windows" table
CREATE TABLE "windows" (
  "name" text NOT NULL,
  "uid" uuid NOT NULL,
  "instance" bigint NOT NULL DEFAULT 0,
  "opened_at" timestamptz NOT NULL,
  "until" timestamptz NOT NULL,
  PRIMARY KEY ("name"),
  CONSTRAINT "windows_names_check" CHECK (octet_length(name) BETWEEN 3 AND 530),
  CONSTRAINT "windows_times_check" CHECK (isfinite(opened_at) AND isfinite(until))
);
-- Create "signals" table
CREATE TABLE "signals" (
  "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text NULL,
  "inserted_at" timestamptz NOT NULL DEFAULT (now()),
  "consumed_at" timestamptz NULL,
  "trace" jsonb NULL,
  "target_id" bigint NOT NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "signals_target_id_dedup_key_key" UNIQUE ("target_id", "dedup_key"),
  CONSTRAINT "signals_target_id_fkey" FOREIGN KEY ("target_id") REFERENCES "gen_durable" ("id") ON DELETE CASCADE,
  CONSTRAINT "signals_finite_check" CHECK (isfinite(consumed_at)),
  CONSTRAINT "signals_names_check" CHECK (octet_length(name) BETWEEN 1 AND 512 AND octet_length(dedup_key) BETWEEN 1 AND 512),
  CONSTRAINT "signals_times_check" CHECK (isfinite(inserted_at))
);
-- Create index "signals_target" to table: "signals"
CREATE INDEX "signals_target" ON "signals" ("target_id", "name");
-- Create index "signals_consumed" to table: "signals"
CREATE INDEX "signals_consumed" ON "signals" ("target_id", "consumed_at") WHERE consumed_at IS NOT NULL;
