package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// unsafely skips checks that the tests' servers fail: they run without fsync, and other tests use
// them at the same time.
const unsafely = "durability,connections"

// examine runs doctor, and returns its findings by check.
func (h *host) examine(code exitCode, args ...string) map[string]finding {
	h.t.Helper()
	found := map[string]finding{}
	for _, f := range read[diagnosis](h.run(append([]string{"doctor", "--json", "--skip", unsafely}, args...)...).is(code)).Findings {
		found[f.Check] = f
		if f.Grade == gradeOK {
			require.Empty(h.t, f.Do)
		} else {
			require.NotEmpty(h.t, f.Do)
		}
	}
	return found
}

func TestDoctorOfTheHealthy(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	h.until(h.insert(1), fsm.StatusAwaitingSignal)
	found := h.examine(codeDone)
	for _, k := range checks {
		if k.name != "durability" && k.name != "connections" {
			require.Contains(t, found, k.name)
			require.Equal(t, gradeOK, found[k.name].Grade, "%v", found[k.name])
		}
	}
	h.run("doctor", "--skip", unsafely).is(codeDone).says("ok    schema", "is current", "ok    proxy", "ok    unserved")
	all := read[diagnosis](h.run("doctor", "--json")).Findings
	require.Len(t, all, len(checks))
	require.Contains(t, all[3].Seen, "fsync ")
	require.Contains(t, all[4].Seen, "connections are in use")
}

func TestDoctorOfTheUnmigrated(t *testing.T) {
	t.Parallel()
	h := &host{t: t, url: pgtest.Database(t)}
	found := h.examine(codeUnmet)
	require.Equal(t, gradeFail, found["schema"].Grade)
	require.Contains(t, found["schema"].Do, "gendurable migrate up")
	require.NotContains(t, found, "leases", "there is no table to look into")
	text := h.run("doctor", "--skip", unsafely).is(codeUnmet).says("fail  schema", "→ ", "gendurable migrate up")
	require.Empty(t, text.errs, "all was said")
}

func TestDoctorOfTheSick(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, locked_by, lease_expires_at, eligible_at, finished_at) VALUES
		('order', 'start', 'default', 'executing', 'w', now() - interval '2 hours', now(), NULL),
		('order', 'start', 'default', 'runnable', NULL, NULL, now() - interval '5 minutes', NULL),
		('order', 'start', 'paused', 'runnable', NULL, NULL, now() - interval '5 minutes', NULL),
		('order', 'start', 'default', 'done', NULL, NULL, now(), now() - interval '30 days')`)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, aside_step, eligible_at) VALUES
		('order', 'ship', 'default', 4, 'ship', now() - interval '5 minutes'), ('order', 'ship', 'paused', 4, 'ship', now() - interval '5 minutes')`)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, paused, last_error) VALUES
		('fare', 'start', 'default', true, 'cannot become version 2 of machine fare, paused as it was: no such currency'),
		('fare', 'start', 'default', true, 'another error')`)
	h.run("queue", "pause", "paused").is(codeDone)
	h.exec(`ALTER TABLE gendurable.signals SET (autovacuum_enabled = false)`)
	found := h.examine(codeUnmet)
	for name, want := range map[string]grade{
		"leases": gradeFail, "unserved": gradeFail, "steps": gradeFail, "conversions": gradeFail, "autovacuum": gradeFail, "retention": gradeWarn, "paused-queues": gradeWarn,
		"horizon": gradeOK, "indexes": gradeOK, "proxy": gradeOK,
	} {
		require.Equal(t, want, found[name].Grade, "%v", found[name])
	}
	require.Contains(t, found["leases"].Seen, "1 leases are over")
	require.Contains(t, found["leases"].Seen, "2h")
	require.Contains(t, found["unserved"].Seen, `1 of order/1 in queue "default", due for 5m: no live worker serves the queue`)
	require.NotContains(t, found["unserved"].Seen, "paused")
	require.Contains(t, found["steps"].Seen, `1 of order/1 at step "ship" in queue "default", due for 5m: no worker`)
	require.NotContains(t, found["steps"].Seen, "paused")
	require.Contains(t, found["conversions"].Seen, "1 of fare/1, the first is ")
	require.Contains(t, found["conversions"].Seen, "which cannot become version 2 of machine fare, paused as it was: no such currency")
	require.Contains(t, found["retention"].Seen, "30d")
	require.Equal(t, gradeOK, h.examine(codeUnmet, "--retention", "1000h")["retention"].Grade)
	require.Equal(t, gradeOK, h.examine(codeUnmet, "--patience", "3h")["leases"].Grade)

	h.exec(`ALTER TABLE gendurable.signals RESET (autovacuum_enabled, autovacuum_vacuum_scale_factor)`)
	require.Contains(t, h.examine(codeUnmet)["autovacuum"].Seen, "other settings")
	h.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'here', 1, '', '{"default": 4}', '{order/2}', now() + interval '1 hour')`)
	require.Contains(t, h.examine(codeUnmet)["unserved"].Seen, "no live worker of the queue registers the machine")
	h.exec(`UPDATE gendurable.workers SET machines = '{order/1}'`)
	require.Equal(t, gradeOK, h.examine(codeUnmet)["unserved"].Grade)
}

// Kept signals are in order as long as workers hand them over, and none has expired.
func TestDoctorOfKeptSignals(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.patient()
	p.doctorCommand = &doctorCommand{Patience: time.Minute}
	keep := func(key, left string) {
		h.exec(`INSERT INTO gendurable.kept_signals (key, name, inserted_at, expires_at) VALUES ($1, 'paid', now() - interval '1 day', now() + $2::text::interval)`, key, left)
	}
	occupy := func(key, age string) {
		h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, paused, correlation_key, correlation_scope, inserted_at) VALUES ('order', 'start', true, $1,
			'{runnable,executing,awaiting_signal,awaiting_children}', now() - $2::text::interval)`, key, age)
	}
	require.Equal(t, ok("none is kept"), h.ask(p, (*patient).keptSignals))
	keep("a", "2 days")
	keep("a", "2 days")
	require.Equal(t, ok("2 are kept for keys that nobody has yet"), h.ask(p, (*patient).keptSignals))
	h.exec(`INSERT INTO gendurable.kept_signals (key, name, expires_at) VALUES ('a', 'booked', '2100-02-03 04:05:06+00'), ('a', 'gone', now())`)
	h.run("instance", "why", "key:a").is(codeNotFound).complains("3 signals are kept for the key (booked, paid), the first until ")
	h.exec(`DELETE FROM gendurable.kept_signals WHERE name <> 'paid'`)
	h.exec(`UPDATE gendurable.kept_signals SET expires_at = '2100-02-03 04:05:06+00'`)
	h.run("instance", "why", "key:a").is(codeNotFound).complains("2 signals are kept for the key (paid), the first until 2100-02-03 04:05:06 UTC")
	h.exec(`UPDATE gendurable.kept_signals SET expires_at = now() + interval '2 days'`)
	keep("b", "30 min")
	found := h.ask(p, (*patient).keptSignals)
	require.Equal(t, gradeWarn, found.Grade)
	require.Equal(t, `1 for 1 keys, one of which is "b", expire within an hour`, found.Seen)
	occupy("b", "10 seconds")
	require.Equal(t, gradeOK, h.ask(p, (*patient).keptSignals).Grade, "it has just come")
	occupy("a", "1 hour")
	found = h.ask(p, (*patient).keptSignals)
	require.Equal(t, gradeFail, found.Grade)
	require.Equal(t, `2 for 1 keys, one of which is "a", have a live instance that was not given them`, found.Seen)
	h.exec(`DELETE FROM gendurable.gen_durable`)
	keep("c", "-30 seconds")
	require.Equal(t, gradeWarn, h.ask(p, (*patient).keptSignals).Grade, "the GC comes every minute")
	keep("d", "-2 min")
	occupy("d", "1 minute") // too late
	found = h.ask(p, (*patient).keptSignals)
	require.Equal(t, gradeFail, found.Grade)
	require.Contains(t, found.Seen, `1 for 1 keys, one of which is "d", have expired, and are still there`)
}

// patient returns what the checks examine, with limits that a test reaches.
func (h *host) patient() *patient {
	var options options
	options.DatabaseURL, options.Schema = h.url, "gendurable"
	return &patient{app: &app{options: options, console: &console{}}, pool: h.pool, schema: options.Schema, here: time.Now, limits: usual()}
}

func (h *host) ask(p *patient, question func(*patient, context.Context) (finding, error)) finding {
	h.t.Helper()
	f, err := question(p, h.t.Context())
	require.NoError(h.t, err)
	return f
}

// snapshot opens a transaction that keeps its snapshot, until end.
func (h *host) snapshot() (pid string, end func()) {
	h.t.Helper()
	tx, err := h.pool.BeginTx(h.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(h.t, err)
	end = func() { _ = tx.Rollback(context.Background()) }
	h.t.Cleanup(end)
	require.NoError(h.t, tx.QueryRow(h.t.Context(), `SELECT pg_backend_pid()::text`).Scan(&pid))
	return pid, end
}

// Doctor names the transaction that holds dead rows back. The older it is, the worse is the grade.
func TestDoctorSeesOldTransactions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pid, end := h.snapshot()
	found := h.examine(codeDone)["horizon"]
	require.Contains(t, found.Seen, "session "+pid)
	require.Contains(t, found.Seen, "idle in transaction")

	old := h.patient()
	old.limits.horizonWarn = time.Nanosecond
	warned := h.ask(old, (*patient).horizon)
	require.Equal(t, gradeWarn, warned.Grade, "%v", warned)
	require.Contains(t, warned.Do, "pg_terminate_backend")
	old.limits.horizonFail = time.Nanosecond
	require.Equal(t, gradeFail, h.ask(old, (*patient).horizon).Grade)

	// The age also counts in transactions, since for a replication slot nothing else is known.
	for range 3 {
		h.exec(`SELECT pg_current_xact_id()`)
	}
	distant := h.patient()
	distant.limits.horizonWarnXIDs = 2
	require.Equal(t, gradeWarn, h.ask(distant, (*patient).horizon).Grade)
	distant.limits.horizonFailXIDs = 2
	require.Equal(t, gradeFail, h.ask(distant, (*patient).horizon).Grade)

	end()
	require.NotContains(t, h.ask(old, (*patient).horizon).Seen, "session "+pid)
}

// Autovacuum cannot remove these dead rows, since a snapshot still sees them.
func TestDoctorSeesDeadRows(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.snapshot() // first, since a session in a transaction does not report its statistics
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'order', 'start' FROM generate_series(1, 1000)`)
	h.exec(`UPDATE gendurable.gen_durable SET visit = visit + 1`)
	p := h.patient()
	p.limits.deadWarn = 900
	var found finding
	require.Eventually(t, func() bool { // a session reports its statistics with some delay
		found = h.ask(p, (*patient).deadRows)
		return strings.Contains(found.Seen, "gen_durable: 1000 dead rows beside 1000")
	}, patience, 50*time.Millisecond)
	require.Equal(t, gradeWarn, found.Grade)
	require.Contains(t, found.Do, "horizon")
	require.Equal(t, gradeOK, h.ask(h.patient(), (*patient).deadRows).Grade, "so few are a busy queue's")

	p.limits.deadFail = 900
	for range 2 {
		h.exec(`UPDATE gendurable.gen_durable SET visit = visit + 1`)
	}
	require.Eventually(t, func() bool { return h.ask(p, (*patient).deadRows).Grade == gradeFail }, patience, 50*time.Millisecond)
}

func TestDoctorSeesBadIndexes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'order', 'start' FROM generate_series(1, 20000)`)
	h.exec(`DELETE FROM gendurable.gen_durable WHERE id % 1000 > 0`)
	h.exec(`VACUUM ANALYZE gendurable.gen_durable`)
	p := h.patient()
	p.limits.bloatLeast = 64 << 10
	found := h.ask(p, (*patient).indexes)
	require.Equal(t, gradeWarn, found.Grade, "%v", found)
	require.Contains(t, found.Seen, "gen_durable_ready (")
	require.Contains(t, found.Do, "REINDEX INDEX CONCURRENTLY")
	require.Equal(t, gradeOK, h.ask(h.patient(), (*patient).indexes).Grade, "small ones do not matter")
	h.exec(`REINDEX TABLE gendurable.gen_durable`)
	require.Equal(t, gradeOK, h.ask(p, (*patient).indexes).Grade)

	_, err := h.pool.Exec(t.Context(), `CREATE UNIQUE INDEX CONCURRENTLY cut_off ON gendurable.gen_durable (fsm)`)
	require.Error(t, err)
	found = h.ask(p, (*patient).indexes)
	require.Equal(t, gradeFail, found.Grade)
	require.Contains(t, found.Seen, "invalid: cut_off")
}

// For a long backlog, doctor reads no more than the walk, and reports a lower bound.
func TestDoctorLooksAtSoMuchOfABacklog(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, eligible_at)
		SELECT 'order', 'start', queue, lane, now() - interval '1 hour' FROM (VALUES ('aside', 2), ('ready', 0)) v (queue, lane), generate_series(1, 30)`)
	p := h.patient()
	p.doctorCommand = &doctorCommand{Patience: time.Minute}
	all := h.ask(p, (*patient).unserved)
	require.Contains(t, all.Seen, `30 of order/1 in queue "aside"`)
	require.Contains(t, all.Seen, `30 of order/1 in queue "ready"`)
	p.limits.walk = 20
	some := h.ask(p, (*patient).unserved)
	require.Equal(t, gradeFail, some.Grade)
	require.Contains(t, some.Seen, `20 or more of order/1 in queue "aside"`)
	require.Contains(t, some.Seen, `20 or more of order/1 in queue "ready"`)
}

// A step that begins again and again is found, whether it runs or waits, and whatever ended its
// runs; what an earlier visit has met does not count.
func TestDoctorSeesStepsThatBeginAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	cut := func(visit, times int) string {
		return fmt.Sprintf(`[{"kind": "release", "visit": %d, "times": %d, "error": "x"}]`, visit, times)
	}
	put := func(step, status string, visit, crashes int, errors string) {
		claimed := `NULL, NULL`
		if status == "executing" {
			claimed = `'w', now() + interval '1 hour'`
		}
		h.exec(fmt.Sprintf(`INSERT INTO gendurable.gen_durable (fsm, step, status, visit, crashes, errors, locked_by, lease_expires_at)
			VALUES ('order', '%s', '%s', %d, %d, '%s', %s)`, step, status, visit, crashes, errors, claimed))
	}
	put("calm", "executing", 3, 4, `[]`)
	put("past", "runnable", 3, 0, cut(2, 50))
	put("odd", "runnable", 3, 0, `[{"kind": "release", "visit": 3, "times": "many"}, 1]`)
	p := h.patient()
	require.Equal(t, gradeOK, h.ask(p, (*patient).repeats).Grade)
	put("runs", "executing", 3, 2, cut(3, 6))
	put("waits", "runnable", 3, 0, cut(3, 5))
	put("kills", "runnable", 3, 7, `{}`)
	found := h.ask(p, (*patient).repeats)
	require.Equal(t, gradeWarn, found.Grade)
	require.Equal(t, `1 of order/1 at step "runs", 8 times instance 4; 1 of order/1 at step "kills", 7 times instance 6; `+
		`1 of order/1 at step "waits", 5 times instance 5 have begun without an outcome`, found.Seen)
}

func TestDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for seen, ahead := range map[string]time.Duration{"behind": time.Hour, "ahead of": -time.Hour} {
		p := h.patient()
		p.here = func() time.Time { return time.Now().Add(ahead) }
		found := h.ask(p, (*patient).clock)
		require.Equal(t, gradeWarn, found.Grade, "%v", found)
		require.Contains(t, found.Seen, seen)
		require.Contains(t, found.Do, "synchronise")
		p.limits.skewWarn = 2 * time.Hour
		require.Equal(t, gradeOK, h.ask(p, (*patient).clock).Grade)
	}
}

func TestDoctorSeesProxies(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	bouncer := pgtest.Bouncer(t, h.url, [2]string{"pool_mode", "transaction"})
	h.insert(1)
	h.url = bouncer.URL(h.url)
	found := h.examine(codeDone)
	require.Equal(t, gradeWarn, found["proxy"].Grade)
	require.Contains(t, found["proxy"].Do, "LockLease")
	h.run("instance", "list").is(codeDone).says("order/1")
	h.run("instance", "cancel", "--all", "--yes").is(codeDone).says("cancelled 1")
	h.run("top", "--once", "--every", "100ms").is(codeDone)
}
