package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// unsafely: the tests' servers are without fsync, and others use them at the same time.
const unsafely = "durability,connections"

// examine runs doctor, and returns what it found by check.
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
	h.run("queue", "pause", "paused").is(codeDone)
	h.exec(`ALTER TABLE gendurable.signals SET (autovacuum_enabled = false)`)
	found := h.examine(codeUnmet)
	for name, want := range map[string]grade{
		"leases": gradeFail, "unserved": gradeFail, "autovacuum": gradeFail, "retention": gradeWarn, "paused-queues": gradeWarn,
		"horizon": gradeOK, "indexes": gradeOK, "proxy": gradeOK,
	} {
		require.Equal(t, want, found[name].Grade, "%v", found[name])
	}
	require.Contains(t, found["leases"].Seen, "1 leases are over")
	require.Contains(t, found["leases"].Seen, "2h")
	require.Contains(t, found["unserved"].Seen, `1 of order/1 in queue "default", due for 5m: no live worker serves the queue`)
	require.NotContains(t, found["unserved"].Seen, "paused")
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

// Who holds back what could be removed is named.
func TestDoctorSeesOldTransactions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	tx, err := h.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // the test is over
	_, err = tx.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(t, err)
	var pid string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_backend_pid()::text`).Scan(&pid))
	found := h.examine(codeDone)
	require.Contains(t, found["horizon"].Seen, "session "+pid)
	require.Contains(t, found["horizon"].Seen, "idle in transaction")
}

func TestDoctorSeesProxies(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	bouncer, err := pgdev.StartBouncer(t.Context(), h.url, pgdev.WithSetting("pool_mode", "transaction"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Stop()) })
	h.insert(1)
	h.url = bouncer.URL(h.url)
	found := h.examine(codeDone)
	require.Equal(t, gradeWarn, found["proxy"].Grade)
	require.Contains(t, found["proxy"].Do, "LockLease")
	h.run("instance", "list").is(codeDone).says("order/1")
	h.run("instance", "cancel", "--all", "--yes").is(codeDone).says("cancelled 1")
	h.run("top", "--once", "--every", "100ms").is(codeDone)
}
