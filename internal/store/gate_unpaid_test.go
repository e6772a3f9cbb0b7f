package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
)

// A foreign transaction has inserted rows of gate_keys, and does not commit. Claims go on with all
// other keys, and with instances behind no gate. When that transaction ends, either way, so do the
// keys.
func TestAStrangerInsertsRowsOfKeys(t *testing.T) {
	for name, end := range map[string]func(pgx.Tx) error{
		"commits":    func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
		"rolls back": func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.gate(perHour(60, 5))
			for _, customer := range []string{"a", "b", "c", "d", "e", "f"} {
				b.lineUp(customer, 2, nil)
			}
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), `INSERT INTO gendurable.gate_keys (key, weight) SELECT unnest(ARRAY[$1 || '/b', $1 || '/e']), 5`, perCustomer.Name)
			require.NoError(t, err)
			got := b.claimBeside()
			require.Equal(t, map[string]int{"a": 2, "c": 2, "d": 2, "f": 2}, perKey(got.Claims), "the first claim has all others")
			for _, one := range got.Refused {
				require.Contains(t, []string{perCustomer.Name + "/b", perCustomer.Name + "/e"}, one.Key)
			}
			b.lineUp("a", 1, nil)
			require.Equal(t, map[string]int{"a": 1}, perKey(b.claimBeside().Claims))
			require.NoError(t, end(tx))
			had := 0
			steady.Eventually(t, func() bool {
				for _, n := range perKey(b.claimBeside().Claims) {
					had += n
				}
				return had == 4
			})
		})
	}
}

// claimBeside claims at gates. On a slow machine one claim has not the time to find all keys: it
// fails, and the next one goes on with the search.
func (b bench) claimBeside() (got store.Claimed) {
	b.t.Helper()
	p := store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 100, Window: 100, Lease: lease}
	gated(&p)
	steady.Eventually(b.t, func() (done bool) {
		var err error
		if got, err = b.Claim(b.t.Context(), p); !store.IsLockTimeout(err) {
			require.NoError(b.t, err)
			done = true
		}
		return done
	})
	return got
}

// The row of a whole gate: its keys wait, and another gate's do not.
func TestAStrangerInsertsTheRowOfAGate(t *testing.T) {
	b := newBench(t)
	total := perHour(60, 5)
	total.Rate, total.TotalRate = store.Rate{}, total.Rate
	b.gate(total)
	b.gate(store.Gate{Name: "region", Label: "region", Places: store.NoBound, Total: store.NoBound, Rate: store.Rate{N: 60, Per: time.Hour, Burst: 5}})
	b.lineUp("acme", 2, nil)
	b.exec(`UPDATE gendurable.gen_durable SET labels = '{"region": "eu"}', gate = 'region/eu' WHERE id = (SELECT max(id) FROM gendurable.gen_durable)`)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO gendurable.gate_keys (key, weight) VALUES ($1, 1)`, perCustomer.Name)
	require.NoError(t, err)
	got := b.claimBeside()
	require.Len(t, got.Claims, 1)
	require.Equal(t, "eu", got.Claims[0].Labels["region"])
}

// The row of a queue's gate: that queue waits, and its claims neither fail nor keep the gates that
// they share with other queues. When the foreign transaction ends, either way, the queue goes on.
// It is the same if that transaction holds the row after it was committed.
func TestAStrangerHasTheRowOfAQueuesGate(t *testing.T) {
	const insert = `INSERT INTO gendurable.gate_keys (key) VALUES ('own')`
	for name, c := range map[string]struct {
		before string
		does   string
		end    func(pgx.Tx) error
	}{
		"inserted it, and commits":    {`SELECT`, insert, func(tx pgx.Tx) error { return tx.Commit(context.Background()) }},
		"inserted it, and rolls back": {`SELECT`, insert, func(tx pgx.Tx) error { return tx.Rollback(context.Background()) }},
		"holds it":                    {insert, `SELECT FROM gendurable.gate_keys FOR UPDATE`, func(tx pgx.Tx) error { return tx.Rollback(context.Background()) }},
		"changes it":                  {insert, `UPDATE gendurable.gate_keys SET weight = 2`, func(tx pgx.Tx) error { return tx.Commit(context.Background()) }},
		"deletes it":                  {insert, `DELETE FROM gendurable.gate_keys`, func(tx pgx.Tx) error { return tx.Commit(context.Background()) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.gate(store.Gate{Name: "own", Queue: "default", Places: store.NoBound, Total: store.NoBound, Rate: store.Rate{N: 60, Per: time.Hour, Burst: 5}})
			b.gate(perCustomer)
			b.exec(c.before)
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), c.does)
			require.NoError(t, err)
			b.lineUp("acme", 1, nil)
			b.of("zoo", columns{"labels": `'{}'`}) // behind no other gate
			got := b.claimBeside()
			require.Empty(t, got.Claims)
			for _, one := range got.Refused {
				require.Equal(t, "own", one.Key)
			}
			for range 3 { // it is known by now: no claim waits for the row, and fails
				got = b.claim(gated)
				require.Empty(t, got.Claims)
				require.Empty(t, got.Refused)
			}
			b.lineUp("acme", 1, columns{"queue": `'other'`})
			got = b.claim(func(p *store.ClaimParams) { gated(p); p.Queue = "other" })
			require.Len(t, got.Claims, 1, "another queue at the gate that both have")
			require.NoError(t, c.end(tx))
			had := 0
			steady.Eventually(t, func() bool { had += len(b.claimBeside().Claims); return had == 2 })
			require.Equal(t, 2, b.number(`SELECT debt::int FROM gendurable.gate_keys WHERE key = 'own'`), "and pays")
		})
	}
}
