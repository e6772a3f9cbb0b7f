package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// While a session holds a snapshot open, VACUUM may not clean up behind claims: the index of ready
// rows keeps an entry for each row that ran, in front of those that wait. A process that has just
// begun knows no place behind them. Its first claim steps over all of them, once for each priority,
// and then it goes on behind its last row. The proof has 800,000 such entries.
func TestAFreshProcessGetsPastDeadEntries(t *testing.T) {
	b := newBench(t)
	dead, live := tier.Size(t, "DEAD_ENTRIES", 5000, 5000, 800_000), 1000
	fill := `INSERT INTO gendurable.gen_durable (fsm, step, queue, priority, eligible_at)
		SELECT 'm', 's', 'default', i % 2, now() - interval '1 hour' + i * interval '1 microsecond' FROM generate_series(1, $1::int) i`
	b.exec(fill, dead)
	holder, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	var seen int
	require.NoError(t, holder.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable`).Scan(&seen))
	require.Equal(t, dead, seen)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now()`)
	b.exec(fill, live)
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() - interval '1 minute' WHERE status = 'runnable'`)
	b.exec(`VACUUM gendurable.gen_durable`) // in vain

	fresh := benchOn(t, b.pool) // it remembers nothing
	var after store.Place
	for n := 0; n < live; n += 100 {
		got := fresh.claim(func(p *store.ClaimParams) { p.Limit, p.Window, p.After = 100, 100, after })
		require.Len(t, got.Claims, 100, "behind %v", after)
		after = got.Last
	}
}
