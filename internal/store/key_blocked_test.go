package store_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

func moving(p *store.ClaimParams) { p.MoveBlocked = true }

// A row whose key's head, or executing row, another transaction has locked is first reported and
// left alone. The next claim moves it out of the front, and its caller has to promote its key:
// Promote misses the key until the lock is gone, and then the key goes on in its order.
func TestWhatIsBlockedMakesWay(t *testing.T) {
	for name, anchor := range map[string]columns{
		"behind its head":     {"priority": `-1`},
		"behind what is next": {"priority": `-1`, "pick_lane": `1`},
		"behind a claim": {"status": `'executing'`, "locked_by": quote(me), "lease_expires_at": `now() + interval '1 h'`,
			"queue": `'elsewhere'`, "claim_token": `7`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			first := b.ofKey("k", 9, anchor)
			next, last := b.ofKey("k", 8, nil), b.ofKey("k", 7, nil)
			free := b.ofKey("other", 1, nil)
			stranger := b.begin()
			b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, first)

			got := b.claim(most(1), window(1))
			require.Empty(t, got.Claims)
			require.Equal(t, 1, got.Blocked)
			require.Empty(t, got.Unsettled)
			got = b.claim(most(1), window(1), moving)
			require.Zero(t, got.Blocked)
			require.Equal(t, []string{"k"}, got.Unsettled)
			got = b.claim(most(1), window(10), moving)
			require.Equal(t, []int64{free}, ids(got.Claims))

			for range 2 {
				p, err := b.Promote(t.Context(), []string{"k"})
				require.NoError(t, err)
				require.Equal(t, store.Promotion{Missed: []string{"k"}}, p)
			}
			require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 0 AND id = ANY($1)`, []int64{next, last}))
			require.NoError(t, stranger.Rollback(t.Context()))
			p, err := b.Promote(t.Context(), []string{"k"})
			require.NoError(t, err)
			require.Empty(t, p.Missed)
			if name != "behind a claim" {
				require.Equal(t, []string{"default"}, p.Queues)
				require.Equal(t, []int64{first}, ids(b.claim().Claims))
			}
			b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL WHERE id = $1`, first)
			_, err = b.Promote(t.Context(), []string{"k"}) // as the end of the claim does
			require.NoError(t, err)
			for _, want := range []int64{next, last} {
				claimed := b.claim().Claims
				require.Equal(t, []int64{want}, ids(claimed))
				b.finish(claimed[0])
			}
		})
	}
}

// A transaction that ends the claim, or takes the head away, has promoted the key before the row
// was moved that it would otherwise have seen, and has not committed yet. The key is not settled
// before it has. Afterwards the key goes on.
func TestAKeyIsNotSettledBehindWhatIsUnderWay(t *testing.T) {
	for name, x := range map[string]struct {
		anchor columns
		ends   string
	}{
		"an end": {columns{"status": `'executing'`, "locked_by": quote(me), "lease_expires_at": `now() + interval '1 h'`},
			`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`},
		"a pause":      {nil, `UPDATE gendurable.gen_durable SET paused = true WHERE id = $1`},
		"a reschedule": {nil, `UPDATE gendurable.gen_durable SET eligible_at = now() + interval '1 h' WHERE id = $1`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			first := b.ofKey("k", 9, x.anchor)
			next := b.ofKey("k", 8, nil)
			verb := b.begin()
			b.inTx(verb, x.ends, first)
			b.claim()
			require.Equal(t, []string{"k"}, b.claim(moving).Unsettled)
			p, err := b.Promote(t.Context(), []string{"k"})
			require.NoError(t, err)
			require.Equal(t, []string{"k"}, p.Missed)
			require.NoError(t, verb.Commit(t.Context()))
			p, err = b.Promote(t.Context(), []string{"k"})
			require.NoError(t, err)
			require.Equal(t, store.Promotion{Queues: []string{"default"}}, p)
			require.Equal(t, []int64{next}, ids(b.claim().Claims))
		})
	}
}

// Two workers move rows of one key and settle it. Each may meet the other's locks, and neither
// leaves the key standing still.
func TestTwoSettleAKey(t *testing.T) {
	b := newBench(t)
	first := b.ofKey("k", 9, columns{"pick_lane": `1`})
	next := b.ofKey("k", 8, nil)
	elsewhere := b.ofKey("k", 7, columns{"queue": `'elsewhere'`, "pick_lane": `1`})
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = ANY($1) FOR NO KEY UPDATE`, []int64{first, elsewhere})
	require.Equal(t, []string{"k"}, b.claim(moving).Unsettled)
	require.NoError(t, stranger.Rollback(t.Context()))

	other, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{})
	require.NoError(t, err)
	b.inTx(other, `UPDATE gendurable.gen_durable SET pick_lane = 0 WHERE id = $1`, first) // another's promotion
	p, err := b.Promote(t.Context(), []string{"k"})
	require.NoError(t, err)
	require.Equal(t, store.Promotion{Queues: []string{"elsewhere"}, Missed: []string{"k"}}, p)
	require.NoError(t, other.Commit(t.Context()))
	p, err = b.Promote(t.Context(), p.Missed)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"default", "elsewhere"}, p.Queues)
	require.Equal(t, []int64{first}, ids(b.claim().Claims))
	require.Equal(t, []string{fmt.Sprint(next)}, b.column(`SELECT id::text FROM gendurable.gen_durable WHERE pick_lane = 1`))
}
