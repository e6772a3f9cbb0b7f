package migrations_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/migrations"
)

const (
	columnsQuery = `SELECT format('%s %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
			CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
			CASE a.attidentity WHEN 'a' THEN ' identity always' WHEN 'd' THEN ' identity by default' ELSE '' END,
			CASE WHEN d.adbin IS NOT NULL THEN CASE a.attgenerated WHEN 's' THEN ' generated ' ELSE ' default ' END
				|| btrim(regexp_replace(pg_get_expr(d.adbin, d.adrelid), '\s+', ' ', 'g')) ELSE '' END)
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

	constraintsQuery = `SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
		WHERE conrelid = $1::text::regclass AND contype <> 'c' ORDER BY conname`

	checksQuery = `SELECT conname::text FROM pg_constraint WHERE contype = 'c' AND convalidated
		AND connamespace = 'gendurable'::regnamespace ORDER BY conname`
)

func (d database) indexes(t *testing.T) []string {
	t.Helper()
	return column[string](t, d, `SELECT regexp_replace(replace(indexdef, 'gendurable.', ''), '\s+', ' ', 'g') FROM pg_indexes
		WHERE schemaname = 'gendurable' AND tablename IN ('gen_durable', 'signals') ORDER BY indexname`)
}

// These are the columns and indexes of §9 of the reference specification, as Postgres describes
// them, with the names, types and defaults that they have there. Their order is free.
var (
	referenceInstances = lines(`
		id bigint not null identity always
		fsm text not null
		fsm_version integer not null default 1
		step text not null
		status durable_status not null default 'runnable'::durable_status
		state jsonb not null default '{}'::jsonb
		result jsonb
		awaits text[]
		queue text not null default 'default'::text
		priority smallint not null default 0
		partition_key text
		eligible_at timestamp with time zone not null default now()
		attempt integer not null default 0
		last_error text
		locked_by text
		lease_expires_at timestamp with time zone
		parent_id bigint
		children_pending integer not null default 0
		correlation_key text
		correlation_scope durable_status[] not null default '{}'::durable_status[]
		correlation_guard text generated CASE WHEN ((correlation_key IS NOT NULL) AND (status = ANY (correlation_scope))) THEN correlation_key ELSE NULL::text END
		inserted_at timestamp with time zone not null default now()
		updated_at timestamp with time zone not null default now()`)

	referenceSignals = lines(`
		id bigint not null identity always
		target_id bigint not null
		name text not null
		payload jsonb not null default '{}'::jsonb
		dedup_key text
		inserted_at timestamp with time zone not null default now()`)

	referenceIndexes = lines(`
		CREATE UNIQUE INDEX gen_durable_correlation ON gen_durable USING btree (correlation_guard text_pattern_ops) WHERE (correlation_guard IS NOT NULL)
		CREATE INDEX gen_durable_lease ON gen_durable USING btree (lease_expires_at) WHERE (status = 'executing'::durable_status)
		CREATE INDEX gen_durable_parent ON gen_durable USING btree (parent_id) WHERE (parent_id IS NOT NULL)
		CREATE INDEX gen_durable_pick ON gen_durable USING btree (queue, priority, eligible_at) WHERE (status = 'runnable'::durable_status)
		CREATE UNIQUE INDEX gen_durable_pkey ON gen_durable USING btree (id)
		CREATE UNIQUE INDEX signals_pkey ON signals USING btree (id)
		CREATE INDEX signals_target ON signals USING btree (target_id, name)
		CREATE UNIQUE INDEX signals_target_id_dedup_key_key ON signals USING btree (target_id, dedup_key)`)
)

// replaced has what the engine has instead of an index of the reference, which is another one of
// the same purpose: docs/specification.md says which.
var replaced = map[string][]string{
	"gen_durable_pick": {"gen_durable_ready", "gen_durable_aside", "gen_durable_lines", "gen_durable_stray"},
	// It does not keep equal keys as lists.
	"gen_durable_parent": {"gen_durable_parent"},
}

// The engine adds these.
var (
	engineInstances = lines(`
		uid uuid not null default gen_random_uuid()
		claim_token bigint not null default 0
		visit bigint not null default 0
		crashes integer not null default 0
		commit_id uuid
		failure text
		fingerprint bigint generated CASE WHEN (status = 'failed'::durable_status) THEN gen_durable_fingerprint(errors, failure, queue, fsm, fsm_version) ELSE NULL::bigint END
		finished_at timestamp with time zone
		await_deadline timestamp with time zone
		timed_out boolean not null default false
		round bigint not null default 0
		parent_round bigint not null default 0
		joined uuid
		dropped jsonb
		depth integer not null default 0
		pick_lane smallint not null default 0
		paused boolean not null default false
		deadline timestamp with time zone
		labels jsonb
		trace jsonb
		errors jsonb
		gate text
		place integer
		seat integer
		run_gate text
		run_place integer
		aside_step text
		retain bigint[]
		progress jsonb
		join_round bigint
		join_size integer
		join_done integer
		join_failed integer
		wake_done integer
		wake_failed integer
		wake_ended integer
		losers bigint[]
		graphs bigint[]
		node text
		stream_most integer
		stream_nth bigint
		stream_visit bigint`)

	engineSignals = lines(`
		consumed_at timestamp with time zone
		trace jsonb`)

	constraints = lines(`
		gen_durable_pkey PRIMARY KEY (id)`)

	signalConstraints = lines(`
		signals_pkey PRIMARY KEY (id)
		signals_target_id_dedup_key_key UNIQUE (target_id, dedup_key)
		signals_target_id_fkey FOREIGN KEY (target_id) REFERENCES gen_durable(id) ON DELETE CASCADE`)

	indexes = lines(`
		CREATE INDEX gen_durable_alike ON gen_durable USING btree (fingerprint, id) INCLUDE (finished_at) WHERE (fingerprint IS NOT NULL)
		CREATE INDEX gen_durable_aside ON gen_durable USING btree (queue, fsm, fsm_version, priority, eligible_at, id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (pick_lane = 2))
		CREATE UNIQUE INDEX gen_durable_busy ON gen_durable USING btree (partition_key) WHERE ((status = 'executing'::durable_status) AND (partition_key IS NOT NULL))
		CREATE UNIQUE INDEX gen_durable_correlation ON gen_durable USING btree (correlation_guard text_pattern_ops) WHERE (correlation_guard IS NOT NULL)
		CREATE INDEX gen_durable_deadline ON gen_durable USING btree (await_deadline) WHERE (await_deadline IS NOT NULL)
		CREATE INDEX gen_durable_expiry ON gen_durable USING btree (deadline) WHERE ((deadline IS NOT NULL) AND (finished_at IS NULL))
		CREATE INDEX gen_durable_failed ON gen_durable USING btree (id) INCLUDE (fingerprint) WHERE (status = 'failed'::durable_status)
		CREATE INDEX gen_durable_finished ON gen_durable USING btree (finished_at) WHERE (finished_at IS NOT NULL)
		CREATE INDEX gen_durable_key ON gen_durable USING btree (partition_key, queue, priority, eligible_at, id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (partition_key IS NOT NULL))
		CREATE INDEX gen_durable_keyed ON gen_durable USING btree (correlation_key text_pattern_ops) WHERE ((correlation_key IS NOT NULL) AND (correlation_guard IS NULL))
		CREATE INDEX gen_durable_labels ON gen_durable USING gin (labels jsonb_path_ops) WHERE (labels IS NOT NULL)
		CREATE INDEX gen_durable_lease ON gen_durable USING btree (lease_expires_at) WHERE (status = 'executing'::durable_status)
		CREATE INDEX gen_durable_lines ON gen_durable USING btree (queue, gate text_pattern_ops, priority, eligible_at, id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (pick_lane = 3))
		CREATE INDEX gen_durable_losers ON gen_durable USING btree (id) WHERE (((losers IS NOT NULL) AND ((status <> 'awaiting_children'::durable_status) OR (losers[1] <> round))) OR ((graphs IS NOT NULL) AND (finished_at IS NOT NULL)))
		CREATE UNIQUE INDEX gen_durable_node ON gen_durable USING btree (parent_id, parent_round, node) WHERE (node IS NOT NULL)
		CREATE INDEX gen_durable_parent ON gen_durable USING btree (parent_id) WITH (deduplicate_items=off) WHERE (parent_id IS NOT NULL)
		CREATE UNIQUE INDEX gen_durable_pkey ON gen_durable USING btree (id)
		CREATE UNIQUE INDEX gen_durable_place ON gen_durable USING btree (gate, place) WHERE (place IS NOT NULL)
		CREATE INDEX gen_durable_ready ON gen_durable USING btree (queue, priority, eligible_at, id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (pick_lane = 0))
		CREATE INDEX gen_durable_retained ON gen_durable USING btree (((timezone('UTC'::text, finished_at) + ((LEAST( CASE WHEN (status = 'done'::durable_status) THEN retain[1] WHEN ((failure = 'cancelled'::text) AND (retain[3] >= 0)) THEN retain[3] ELSE retain[2] END, '3162240000000000'::bigint))::double precision * '00:00:00.000001'::interval)))) WHERE ((finished_at IS NOT NULL) AND ( CASE WHEN (status = 'done'::durable_status) THEN retain[1] WHEN ((failure = 'cancelled'::text) AND (retain[3] >= 0)) THEN retain[3] ELSE retain[2] END >= 0))
		CREATE UNIQUE INDEX gen_durable_run ON gen_durable USING btree (run_gate, run_place) WHERE ((run_place IS NOT NULL) AND (finished_at IS NULL))
		CREATE UNIQUE INDEX gen_durable_seat ON gen_durable USING btree (queue, seat) WHERE (seat IS NOT NULL)
		CREATE INDEX gen_durable_skip ON gen_durable USING btree (id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (pick_lane = 5))
		CREATE INDEX gen_durable_stray ON gen_durable USING btree (queue, fsm, fsm_version, aside_step, priority, eligible_at, id) WHERE ((status = 'runnable'::durable_status) AND (NOT paused) AND (pick_lane = 4))
		CREATE INDEX signals_consumed ON signals USING btree (target_id, consumed_at) WHERE (consumed_at IS NOT NULL)
		CREATE UNIQUE INDEX signals_pkey ON signals USING btree (id)
		CREATE INDEX signals_target ON signals USING btree (target_id, name)
		CREATE UNIQUE INDEX signals_target_id_dedup_key_key ON signals USING btree (target_id, dedup_key)`)

	checks = lines(`
		definitions_graph_check
		definitions_names_check
		edges_needs_check
		gate_keys_check
		gates_cost_check
		gates_names_check
		gates_places_check
		gates_rates_check
		gen_durable_awaits_check
		gen_durable_counts_check
		gen_durable_failure_check
		gen_durable_finished_check
		gen_durable_finite_check
		gen_durable_gate_check
		gen_durable_labels_check
		gen_durable_lane_check
		gen_durable_lease_check
		gen_durable_names_check
		gen_durable_scope_check
		gen_durable_times_check
		kept_signals_names_check
		kept_signals_times_check
		lost_claims_finite_check
		paused_queues_names_check
		paused_queues_times_check
		recorded_machines_names_check
		schedules_finite_check
		schedules_names_check
		schedules_policy_check
		schedules_times_check
		signals_finite_check
		signals_names_check
		signals_times_check
		windows_names_check
		windows_times_check
		workers_finite_check`)
)

func (d database) requireConstraints(t *testing.T) {
	t.Helper()
	require.Equal(t, constraints, column[string](t, d, constraintsQuery, "gen_durable"))
	require.Equal(t, signalConstraints, column[string](t, d, constraintsQuery, "signals"))
	require.Equal(t, []string{"runnable", "executing", "awaiting_signal", "awaiting_children", "done", "failed"},
		column[string](t, d, `SELECT enumlabel::text FROM pg_enum WHERE enumtypid = 'durable_status'::regtype ORDER BY enumsortorder`))
}

func TestBaseIsTheReferenceAndTheEngines(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	require.ElementsMatch(t, append(slices.Clone(referenceInstances), engineInstances...), column[string](t, d, columnsQuery, "gen_durable"))
	require.ElementsMatch(t, append(slices.Clone(referenceSignals), engineSignals...), column[string](t, d, columnsQuery, "signals"))
	require.Equal(t, indexes, d.indexes(t))
	require.Equal(t, checks, column[string](t, d, checksQuery))
	d.requireConstraints(t)

	for _, index := range referenceIndexes {
		name := indexName.FindStringSubmatch(index)[1]
		if replaced[name] == nil {
			require.Contains(t, indexes, index)
			continue
		}
		for _, by := range replaced[name] {
			require.True(t, slices.ContainsFunc(indexes, func(other string) bool { return strings.Contains(other, "INDEX "+by+" ") }), by)
		}
	}
}

var indexName = regexp.MustCompile(`INDEX (\S+) ON`)

// Postgres knows at which offset such columns are, and need not look for them (docs/decisions.md,
// D77).
func TestColumnsOfAFixedWidthComeFirst(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	groups := column[int](t, d, `SELECT CASE WHEN attnotnull AND attlen > 0 THEN 1 WHEN attnotnull THEN 2 ELSE 3 END FROM pg_attribute
		WHERE attrelid = 'gen_durable'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`)
	require.True(t, slices.IsSorted(groups), groups)
	gaps := column[string](t, d, `SELECT attname::text FROM (SELECT *, sum(attlen) OVER (ORDER BY attnum) - attlen AS at FROM pg_attribute
		WHERE attrelid = 'gen_durable'::regclass AND attnum > 0 AND attnotnull AND attlen > 0) a
		WHERE at % CASE attalign WHEN 'd' THEN 8 WHEN 'i' THEN 4 WHEN 's' THEN 2 ELSE 1 END <> 0`)
	require.Empty(t, gaps, "no padding before any")
}

// Drift does not see these, since no schema tool of the community edition compares them.
func TestSequenceAndStorage(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, migrations.Latest())
	require.Equal(t, []string{"bigint 1 f"}, column[string](t, d,
		`SELECT format('%s %s %s', data_type, cache_size, cycle) FROM pg_sequences WHERE sequencename = 'gen_durable_token'`))
	for table, options := range map[string]int{"gen_durable": 7, "signals": 6} {
		require.Equal(t, options, one[int](t, d, `SELECT cardinality(reloptions) FROM pg_class WHERE oid = $1::text::regclass`, table), table)
	}
	require.Contains(t, one[string](t, d, `SELECT reloptions::text FROM pg_class WHERE oid = 'gen_durable'::regclass`), "fillfactor=75")
}

func TestChecksRefuseWhatCouldWedgeTheEngine(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, migrations.Latest())
	d.exec(t, `INSERT INTO gen_durable (fsm, step) VALUES ('m', 's')`)
	for set, check := range map[string]string{
		`correlation_scope = '{executing}'`:                               "scope",
		`correlation_scope = '{runnable,executing,awaiting_signal,done}'`: "scope",
		`status = 'executing'`:                                            "lease",
		`status = 'executing', locked_by = 'w'`:                           "lease",
		`eligible_at = 'infinity'`:                                        "finite",
		`lease_expires_at = '-infinity'`:                                  "finite",
		`await_deadline = 'infinity'`:                                     "finite",
		`fsm = ''`:                                                        "names",
		`step = repeat('ü', 257)`:                                         "names",
		`queue = ''`:                                                      "names",
		`partition_key = ''`:                                              "names",
		`correlation_key = repeat('k', 513)`:                              "names",
		`fsm_version = 0`:                                                 "names",
		`status = 'awaiting_signal'`:                                      "awaits",
		`status = 'awaiting_signal', awaits = '{}'`:                       "awaits",
		`status = 'awaiting_signal', awaits = '{go,NULL}'`:                "awaits",
		`status = 'done'`:                                                 "finished",
		`finished_at = now()`:                                             "finished",
		`finished_at = 'infinity', status = 'done'`:                       "finite",
		`inserted_at = 'infinity'`:                                        "times",
		`updated_at = '-infinity'`:                                        "times",
		`status = 'failed', finished_at = now()`:                          "failure",
		`failure = 'error'`:                                               "failure",
		`children_pending = -1`:                                           "counts",
		`attempt = -1`:                                                    "counts",
		`crashes = -1`:                                                    "counts",
		`visit = -1`:                                                      "counts",
		`depth = 101`:                                                     "counts",
		`pick_lane = 3`:                                                   "lane",
		`pick_lane = 4`:                                                   "lane",
		`pick_lane = 6, aside_step = 's'`:                                 "lane",
		`place = 1`:                                                       "gate",
		`gate = 'g', place = 0`:                                           "gate",
		`gate = repeat('g', 1201)`:                                        "gate",
		`pick_lane = 1, partition_key = NULL`:                             "lane",
	} {
		_, err := d.Exec(t.Context(), "UPDATE gen_durable SET "+set)
		require.ErrorContains(t, err, `"gen_durable_`+check+`_check"`, set)
	}
	for values, check := range map[string]string{
		`(1, '', NULL, NULL)`:                "names",
		`(1, repeat('n', 513), NULL, NULL)`:  "names",
		`(1, 'go', '', NULL)`:                "names",
		`(1, 'go', NULL, 'infinity')`:        "finite",
		`(1, 'go', repeat('d', 513), now())`: "names",
	} {
		_, err := d.Exec(t.Context(), "INSERT INTO signals (target_id, name, dedup_key, consumed_at) VALUES "+values)
		require.ErrorContains(t, err, `"signals_`+check+`_check"`, values)
	}
	for sql, check := range map[string]string{
		`INSERT INTO signals (target_id, name, inserted_at) VALUES (1, 'go', 'infinity')`:                                        "signals_times_check",
		`INSERT INTO paused_queues (queue, paused_at) VALUES ('q', '-infinity')`:                                                 "paused_queues_times_check",
		`INSERT INTO schedules (name, spec, expression, next_at, updated_at) VALUES ('s', '{}', '@every 1s', now(), 'infinity')`: "schedules_times_check",
	} {
		_, err := d.Exec(t.Context(), sql)
		require.ErrorContains(t, err, check, sql)
	}
	for _, set := range []string{
		`correlation_scope = '{runnable,executing,awaiting_signal,awaiting_children,failed}', correlation_key = 'k'`,
		`status = 'executing', locked_by = 'w', lease_expires_at = now()`,
		`status = 'awaiting_signal', awaits = '{go}', await_deadline = now()`,
		`status = 'failed', failure = 'decided', finished_at = now()`,
		`step = repeat('s', 512), depth = 100, pick_lane = 2`,
	} {
		_, err := d.Exec(t.Context(), "UPDATE gen_durable SET "+set)
		require.NoError(t, err, set)
	}
}
