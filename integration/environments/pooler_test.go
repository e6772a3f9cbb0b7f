package environments

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// bouncer returns a PgBouncer that pools transactions before the tests' server.
func bouncer(t *testing.T) *pgdev.Bouncer {
	t.Helper()
	return pgtest.Bouncer(t, pgtest.Database(t), [2]string{"pool_mode", "transaction"}, [2]string{"default_pool_size", "5"},
		[2]string{"server_round_robin", "1"})
}

// The pooler has fewer sessions than the engine has connections, and uses them in turn: so two
// transactions of a connection hardly ever share a session.
func TestBehindAPoolerOfTransactions(t *testing.T) {
	t.Parallel()
	b := bouncer(t)
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe}
	if tier.Long() {
		modes = append(modes, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol)
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			direct := pgtest.Migrated(t)
			scenario(t, environment{url: b.URL(direct), direct: direct, configure: inMode(mode),
				change: func(c *engine.Config) { c.PartitionLock = engine.LockLease }})
		})
	}
}

// The engine refuses the two configurations that a pooler of transactions would break in silence.
// The tests of package engine have all cases.
func TestAPoolerOfTransactionsIsNoticed(t *testing.T) {
	t.Parallel()
	direct := pgtest.Migrated(t)
	pool := pgtest.Pool(t, bouncer(t).URL(direct))
	s := &scene{}
	eng, err := engine.New(engine.Config{Pool: pool, Machines: s.definitions(), Queues: map[string]engine.Queue{"default": {}}})
	require.NoError(t, err)
	require.ErrorIs(t, eng.Start(t.Context()), engine.ErrPooler)
}

func TestBehindAPoolerOfSessions(t *testing.T) {
	t.Parallel()
	direct := pgtest.Migrated(t)
	b := pgtest.Bouncer(t, direct, [2]string{"pool_mode", "session"})
	scenario(t, environment{url: b.URL(direct), direct: direct})
}
