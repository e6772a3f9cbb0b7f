package integration

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A process is stopped in the middle of a claim, of which only the beginning has reached the
// server: that has locked the gates, and waits for the rest, which never comes. The others claim
// from these gates all the same, before the stopped process goes on.
func TestAClaimThatIsCutOffLetsGoOfItsGates(t *testing.T) {
	t.Parallel()
	for name, cutAt := range map[string]string{"before it claims": "AS around", "before its commit": "COMMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fsm.Declare[int, int]("gated")
			def := m.Job(func(_ context.Context, n int) (int, error) { return n, nil })
			database := pgtest.Migrated(t)
			pool := pgtest.Pool(t, database)
			outside := client(t, pool)
			_, err := outside.Admin().SetGate(t.Context(), engine.Gate{Name: "ceiling", Queue: "default", Places: 2})
			require.NoError(t, err)

			f := newFreezer()
			c := hasty(configOn(t, database, def))
			c.Pool = pgtest.Pool(t, database, f.through, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the texts of a claim go with it
			})
			c.Queues["default"] = quick(5)
			start(t, c)
			t.Cleanup(func() { close(f.thawed) })
			f.cutOff("'gendurable.gates'", cutAt)
			var ids []fsm.ID
			for n := range 5 {
				ids = append(ids, insert(t, outside, m.New(n)))
			}
			<-f.frozen
			eventually(t, func() bool {
				return query[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.datname = current_database()
					AND l.locktype = 'advisory' AND a.xact_start IS NOT NULL AND a.state = 'active' AND a.wait_event = 'ClientRead')`)
			}, "no claim has been cut off with a gate locked")

			start(t, hasty(configOn(t, database, def)))
			allDone(t, outside, ids...)
		})
	}
}
