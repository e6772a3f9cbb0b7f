package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrations"
)

// version1 inserts rows as version 1 could leave them; the test calls each by its step. Every
// malformed kind is there, next to sound ones.
const version1 = `
	INSERT INTO gen_durable (step, fsm, status, updated_at, last_error, locked_by, lease_expires_at, awaits, partition_key,
			correlation_key, correlation_scope, eligible_at, attempt, children_pending) VALUES
		('sound', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, 'k0', '{runnable,executing,awaiting_signal,awaiting_children}', now(), 3, 0),
		('done', 'm', 'done', '2020-01-02', NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 0),
		('done at infinity', 'm', 'done', 'infinity', NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 0),
		('failed', 'm', 'failed', '2020-01-03', 'boom', NULL, NULL, NULL, NULL, NULL, '{}', now(), 2, 0),
		('leased', 'm', 'executing', now(), NULL, 'w', '2030-01-01', NULL, 'p', NULL, '{}', now(), 0, 0),
		('leased too', 'm', 'executing', now(), NULL, 'w', '2030-01-01', NULL, 'p', NULL, '{}', now(), 1, 0),
		('no lease', 'm', 'executing', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 0),
		('lease forever', 'm', 'executing', now(), NULL, 'w', 'infinity', NULL, NULL, NULL, '{}', now(), 0, 0),
		('awaits', 'm', 'awaiting_signal', now(), NULL, NULL, NULL, '{go}', NULL, NULL, '{}', now(), 0, 0),
		('awaits null', 'm', 'awaiting_signal', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 0),
		('awaits none', 'm', 'awaiting_signal', now(), NULL, NULL, NULL, '{}', NULL, NULL, '{}', now(), 0, 0),
		('awaits a null', 'm', 'awaiting_signal', now(), NULL, NULL, NULL, '{NULL}', NULL, NULL, '{}', now(), 0, 0),
		('awaits go and null', 'm', 'awaiting_signal', now(), NULL, NULL, NULL, '{go,NULL}', NULL, NULL, '{}', now(), 0, 0),
		('scope executing', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, 'k1', '{executing}', now(), 0, 0),
		('scope done', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, 'k2', '{runnable,done}', now(), 0, 0),
		('never', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', 'infinity', 0, 0),
		('always', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', '-infinity', 0, 0),
		('negative', 'm', 'runnable', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), -1, -1),
		('open barrier', 'm', 'awaiting_children', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 0),
		('parent', 'm', 'awaiting_children', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 2),
		('parent of the lost', 'm', 'awaiting_children', now(), NULL, NULL, NULL, NULL, NULL, NULL, '{}', now(), 0, 1);
	INSERT INTO gen_durable (step, fsm, status, awaits, parent_id) VALUES
		('child', 'm', 'runnable', NULL, (SELECT id FROM gen_durable WHERE step = 'parent')),
		('child done', 'm', 'done', NULL, (SELECT id FROM gen_durable WHERE step = 'parent')),
		('child lost', 'm', 'awaiting_signal', '{}', (SELECT id FROM gen_durable WHERE step = 'parent')),
		('only child lost', 'm', 'awaiting_signal', NULL, (SELECT id FROM gen_durable WHERE step = 'parent of the lost'));
	INSERT INTO gen_durable (step, fsm, inserted_at, updated_at) VALUES
		('from the beginning', 'm', '-infinity', '2020-01-04'), ('inserted at the end', 'm', 'infinity', 'infinity');
	INSERT INTO signals (target_id, name, dedup_key, inserted_at) SELECT id, 'go', 'd', 'infinity' FROM gen_durable WHERE step = 'awaits';
	INSERT INTO gen_durable (step, fsm) SELECT 'bulk', 'm' FROM generate_series(1, 2500)`

// mended maps each row to what the migrations make of it: its status, and other columns worth a
// look.
var mended = map[string]string{
	"sound":               "runnable guard=k0 attempt=3",
	"done":                "done finished=2020-01-02",
	"done at infinity":    "done finished=today",
	"failed":              "failed failure=error finished=2020-01-03 error=boom attempt=2",
	"leased":              "executing locked=w lease=2030-01-01",
	"leased too":          "runnable attempt=2 crashes=1",
	"no lease":            "executing locked=unknown lease=today",
	"lease forever":       "executing locked=w lease=today",
	"awaits":              "awaiting_signal awaits={go} inbox=1",
	"awaits null":         "failed failure=error finished=today error=awaited no signal: nothing could have woken it",
	"awaits none":         "failed failure=error finished=today error=awaited no signal: nothing could have woken it awaits={}",
	"awaits a null":       "failed failure=error finished=today error=awaited no signal: nothing could have woken it awaits={}",
	"awaits go and null":  "awaiting_signal awaits={go}",
	"scope executing":     "runnable scope={runnable,executing,awaiting_signal,awaiting_children} guard=k1",
	"scope done":          "runnable scope={runnable,executing,awaiting_signal,awaiting_children,done} guard=k2",
	"never":               "runnable eligible",
	"always":              "runnable eligible",
	"negative":            "runnable",
	"from the beginning":  "runnable inserted=2020-01-04",
	"inserted at the end": "runnable inserted=today",
	"open barrier":        "runnable",
	"parent":              "awaiting_children pending=1 visit=1 round=1",
	"parent of the lost":  "runnable visit=1 round=1",
	"child":               "runnable of=1",
	"child done":          "done finished=today of=1 joined",
	"child lost":          "failed failure=error finished=today error=awaited no signal: nothing could have woken it awaits={} of=1 joined",
	"only child lost":     "failed failure=error finished=today error=awaited no signal: nothing could have woken it of=1 joined",
}

const mendedQuery = `SELECT concat_ws(' ', status, 'failure=' || failure,
		'finished=' || CASE WHEN finished_at::date = now()::date THEN 'today' ELSE finished_at::date::text END, 'error=' || last_error,
		'locked=' || locked_by, 'lease=' || CASE WHEN lease_expires_at::date = now()::date THEN 'today' ELSE lease_expires_at::date::text END,
		'awaits=' || awaits::text,
		'scope=' || CASE WHEN step LIKE 'scope%' THEN correlation_scope::text END, 'guard=' || correlation_guard,
		'attempt=' || nullif(attempt, 0), 'crashes=' || nullif(crashes, 0), 'pending=' || nullif(children_pending, 0),
		'visit=' || nullif(visit, 0), 'round=' || nullif(round, 0), 'of=' || nullif(parent_round, 0),
		CASE WHEN joined IS NOT NULL THEN 'joined' END,
		'inserted=' || CASE WHEN inserted_at::date <> now()::date THEN inserted_at::date::text WHEN step LIKE 'inserted%' THEN 'today' END,
		CASE WHEN step IN ('never', 'always') AND eligible_at BETWEEN now() - interval '1 hour' AND now() THEN 'eligible' END, 'inbox=' || nullif((SELECT count(*) FROM signals s WHERE s.target_id = g.id), 0))
	FROM gen_durable g WHERE step = $1`

func (d database) requireMended(t *testing.T) {
	t.Helper()
	d.requireCurrent(t)
	for step, want := range mended {
		require.Equal(t, want, one[string](t, d, mendedQuery, step), step)
	}
	require.Equal(t, 2500+len(mended), one[int](t, d, `SELECT count(DISTINCT uid)::int FROM gen_durable`))
	require.Zero(t, one[int](t, d, `SELECT count(*)::int FROM gen_durable WHERE NOT (isfinite(inserted_at) AND isfinite(updated_at))`))
	require.Zero(t, one[int](t, d, `SELECT count(*)::int FROM signals WHERE NOT isfinite(inserted_at)`))
	require.Equal(t, 2500, one[int](t, d, `SELECT count(*)::int FROM gen_durable
		WHERE step = 'bulk' AND status = 'runnable' AND visit = 0 AND parent_round = 0 AND eligible_at <= now()`))
}

func TestVersion1RowsAreMended(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	d.exec(t, version1)
	for _, version := range migrations.Versions()[2:] { // those after the base
		applied, err := d.migrator().To(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, []string{version}, applied)
	}
	d.requireMended(t)
}

func TestVersion1RowsAreMendedByTheCLI(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	d.atlasApply(t, "2")
	d.requireBase(t)
	d.exec(t, version1)
	d.atlasApply(t)
	d.requireMended(t)
}

// The backfill also finds rows that version 1 writes between the columns and the backfill; later
// rows cannot be malformed.
func TestRowsOfWritersDuringTheMigration(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	_, err := d.migrator().To(t.Context(), "20261121100100")
	require.NoError(t, err)
	d.exec(t, version1)
	d.at(t, checks)
	_, err = d.Exec(t.Context(), `INSERT INTO gen_durable (fsm, step, status) VALUES ('m', 's', 'awaiting_signal')`)
	require.ErrorContains(t, err, "gen_durable_awaits_check")
	d.at(t, migrations.Latest())
	d.requireMended(t)
}

func TestBackfillReportsWhatItCannotMend(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	d.exec(t, version1)
	d.exec(t, `INSERT INTO gen_durable (step, fsm, status, correlation_key, correlation_scope) VALUES
		('collides', 'm', 'runnable', 'k0', '{executing}'), ('nameless', '', 'runnable', NULL, '{}')`)
	before := one[string](t, d, `SELECT jsonb_agg(to_jsonb(g) ORDER BY id)::text FROM gen_durable g WHERE step IN ('collides', 'nameless')`)
	ids := column[int64](t, d, `SELECT id FROM gen_durable WHERE step IN ('collides', 'nameless') ORDER BY id`)

	applied, err := d.migrator().Up(t.Context())
	require.Equal(t, []string{"20261121100100", checks}, applied)
	require.ErrorContains(t, err, `migrate schema "gendurable": apply version `+backfill+`: DO $backfill$: ERROR: 2 instances`)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "2 instances of version 1 cannot be mended: 2528 (its correlation key is held by 1), "+
		"2529 (violates gen_durable_names_check); change or delete them, then migrate again", refused.Message)
	require.Equal(t, []int64{2528, 2529}, ids)

	require.Equal(t, ids, column[int64](t, d, `SELECT id FROM gen_durable WHERE uid IS NULL ORDER BY id`), "all others are done")
	require.True(t, one[bool](t, d, `SELECT jsonb_agg(to_jsonb(g) ORDER BY id) @> $1::jsonb FROM gen_durable g WHERE uid IS NULL`, before),
		"of these nothing is changed")

	if tier.Current() > tier.Short { // the CLI reports the same
		out, err := d.atlas(t, "migrate", "apply")
		require.Error(t, err)
		require.Contains(t, out, "its correlation key is held by 1")
	}

	d.exec(t, `DELETE FROM gen_durable WHERE uid IS NULL`)
	d.at(t, migrations.Latest())
	d.requireMended(t)
}

func TestBackfillReportsSignalsItCannotMend(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	d.exec(t, `INSERT INTO gen_durable (fsm, step) VALUES ('m', 's')`)
	d.exec(t, `INSERT INTO signals (target_id, name) VALUES (1, 'fine'), (1, '')`)
	_, err := d.migrator().Up(t.Context())
	require.ErrorContains(t, err, "1 signals of version 1 have an empty or over-long name or dedup_key: 2;")
	d.exec(t, `UPDATE signals SET name = 'named' WHERE name = ''`)
	d.at(t, migrations.Latest()).requireCurrent(t)
}

// The backfill waits for a row in another transaction, not forever, and goes on where it was.
func TestBackfillInterruptedHalfway(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	d.exec(t, version1)
	d.at(t, checks)
	tx, err := d.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM gen_durable WHERE id = 1500 FOR UPDATE`)
	require.NoError(t, err)

	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	d.awaitWaiting(t, "DO $backfill$%")
	require.Equal(t, 1000, one[int](t, d, `SELECT count(*)::int FROM gen_durable WHERE uid IS NOT NULL`), "the first batch is committed")
	d.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'DO $backfill$%'`)
	require.Error(t, wait())
	require.NoError(t, tx.Rollback(t.Context()))

	d.at(t, migrations.Latest()).requireMended(t)
}

// Times of rows of before that are infinite are mended, while engines go on. The migration may be
// cut off anywhere.
func TestInfiniteTimesAreMended(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, "20261121101800")
	d.exec(t, `INSERT INTO gen_durable (fsm, step, inserted_at) SELECT 'm', 's', 'infinity' FROM generate_series(1, 3)`)
	d.exec(t, `INSERT INTO signals (target_id, name, inserted_at) VALUES (1, 'go', '-infinity')`)
	d.exec(t, `INSERT INTO schedules (name, spec, expression, next_at, updated_at) VALUES ('s', '{}', '@every 1s', now(), 'infinity')`)
	d.exec(t, `INSERT INTO paused_queues (queue, paused_at) VALUES ('q', 'infinity')`)
	release := d.holdOpen(t, pgx.ReadCommitted, `SELECT FROM signals FOR UPDATE`)

	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	d.awaitWaiting(t, "DO $add$%")
	_, err := d.Exec(t.Context(), `INSERT INTO gen_durable (fsm, step, inserted_at) VALUES ('m', 's', 'infinity')`)
	require.ErrorContains(t, err, "gen_durable_times_check", "nobody adds to them")
	d.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'DO $add$%'`)
	require.Error(t, wait())
	release()

	d.at(t, migrations.Latest()).requireCurrent(t)
	for _, table := range []string{"gen_durable.inserted_at", "signals.inserted_at", "schedules.updated_at", "paused_queues.paused_at"} {
		name, column, _ := strings.Cut(table, ".")
		require.Equal(t, "today", one[string](t, d, `SELECT min(CASE WHEN `+column+`::date = now()::date THEN 'today' ELSE `+column+`::text END)
			FROM `+name), table)
	}
	require.Equal(t, finalChecks, column[string](t, d, checksQuery))
}
