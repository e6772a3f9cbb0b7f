package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func requireRefused(t *testing.T, want []int64, got []store.Refused) {
	t.Helper()
	var ids []int64
	for _, r := range got {
		require.Error(t, r.Err)
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	require.Equal(t, want, ids)
}

// refuse makes a trigger of the host refuse each change of some rows, by an SQL statement that
// raises an error.
func (b bench) refuse(body string, ids ...int64) {
	b.t.Helper()
	b.exec(`CREATE OR REPLACE FUNCTION gendurable.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + body + `; RETURN new; END $$`)
	b.exec(`DROP TRIGGER IF EXISTS refuse ON gendurable.gen_durable`)
	if len(ids) > 0 {
		b.exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW WHEN (old.id IN (%s))
			EXECUTE FUNCTION gendurable.refuse()`, list(ids)))
	}
}

func list(ids []int64) (text string) {
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		text += number(id)
	}
	return text
}

// refusals are errors that a host's trigger may raise, and objects that it may miss.
var refusals = map[string]string{"raised": `RAISE 'no'`, "missing function": `PERFORM missing()`, "right": `RAISE USING ERRCODE = '42501'`,
	"conflict": `RAISE USING ERRCODE = '40001'`, "deadlock": `RAISE USING ERRCODE = '40P01'`}

// sweeps are the statements for many rows. Each has a row that it finds, and a function that uses
// it and returns the number of changed rows and the refused ones.
var sweeps = map[string]struct {
	row columns
	use func(b bench, limit int) (changed int, refused []store.Refused)
}{
	"reap": {plain.with(columns{"status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() - interval '1 s'`}),
		func(b bench, limit int) (int, []store.Refused) {
			got, err := b.Reap(b.t.Context(), newMark(), store.CrashLimits{}, limit)
			require.NoError(b.t, err)
			return got.Released, got.Refused
		}},
	"claim": {plain, func(b bench, limit int) (int, []store.Refused) {
		got := b.claim(most(limit), window(limit))
		return len(got.Claims), got.Refused
	}},
	"expire": {overdueRow, func(b bench, limit int) (int, []store.Refused) {
		got, err := b.Expire(b.t.Context(), newMark(), limit)
		require.NoError(b.t, err)
		return len(got.Failed), got.Refused
	}},
	"skip": {plain.with(columns{"node": `'n' || (SELECT count(*) FROM gendurable.gen_durable)`, "parent_id": `1`, "parent_round": `1`, "join_failed": `1`, "pick_lane": `5`}),
		func(b bench, limit int) (int, []store.Refused) {
			got, err := b.Skip(b.t.Context(), newMark(), 0, limit)
			require.NoError(b.t, err)
			return len(got.Failed), got.Refused
		}},
	"time out": {plain.with(columns{"status": `'awaiting_signal'`, "awaits": `'{go}'`, "await_deadline": `now() - interval '1 s'`}),
		func(b bench, limit int) (int, []store.Refused) {
			got, err := b.TimeOut(b.t.Context(), limit)
			require.NoError(b.t, err)
			return len(got.Queues), got.Refused
		}},
}

// Rows that Postgres refuses to change delay no others, although they come first and are more than
// a sweep takes. A store finds each of them once, and tries it again after a while. Another store
// has to find them itself.
func TestSweepsPassOverWhatIsRefused(t *testing.T) {
	for name, sweep := range sweeps {
		for why, body := range refusals {
			t.Run(name+"/"+why, func(t *testing.T) {
				b := newBench(t)
				var bad []int64
				for range 7 {
					bad = append(bad, b.insert(sweep.row))
				}
				for range 9 {
					b.insert(sweep.row)
				}
				b.refuse(body, bad...)
				var found []store.Refused
				total := 0
				for range 5 {
					changed, refused := sweep.use(b, 5)
					total, found = total+changed, append(found, refused...)
				}
				require.Equal(t, 9, total)
				requireRefused(t, bad, found)
				b.refuse("NULL")
				again := b.beside(func(*pgxpool.Config) {})
				changed, refused := sweep.use(again, 100)
				require.Equal(t, 7, changed)
				require.Empty(t, refused)
			})
		}
	}
}

// The same holds if a trigger of the host waits for a lock in vain each time, or is cut off by its
// time limit, in the sweeps for which no step waits.
func TestSweepsPassOverWhatIsHeldUp(t *testing.T) {
	for name, sweep := range sweeps {
		for _, code := range []string{"55P03", "57014"} {
			if name == "claim" { // it may itself wait for another one
				continue
			}
			t.Run(name+"/"+code, func(t *testing.T) {
				b := newBench(t)
				bad := b.insert(sweep.row)
				for range 9 {
					b.insert(sweep.row)
				}
				b.refuse(`RAISE USING ERRCODE = '`+code+`'`, bad)
				changed, refused := sweep.use(b, 10)
				require.Equal(t, 9, changed)
				requireRefused(t, []int64{bad}, refused)
			})
		}
	}
}

// If Postgres refuses the statement whatever its rows are, then no row is at fault, and none is set
// apart.
func TestSweepsThatAreRefusedAltogether(t *testing.T) {
	for name, sweep := range sweeps {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for range 3 {
				b.insert(sweep.row)
			}
			b.exec(`CREATE FUNCTION gendurable.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed'; END $$`)
			b.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON gendurable.gen_durable FOR EACH STATEMENT EXECUTE FUNCTION gendurable.refuse()`)
			for range 2 {
				_, err := b.TimeOut(t.Context(), 5)
				require.ErrorContains(t, err, "closed")
				_, err = b.Reap(t.Context(), newMark(), store.CrashLimits{}, 5)
				require.ErrorContains(t, err, "closed")
				_, err = b.Expire(t.Context(), newMark(), 5)
				require.ErrorContains(t, err, "closed")
				_, err = b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: me, Limit: 5, Window: 5, Lease: lease})
				require.ErrorContains(t, err, "closed")
			}
			b.exec(`DROP TRIGGER refuse ON gendurable.gen_durable`)
			changed, refused := sweep.use(b, 5)
			require.Equal(t, 3, changed)
			require.Empty(t, refused)
		})
	}
}

// If the next row of a partition key cannot come forward, that affects neither the row before it
// nor any other key.
func TestAHeadThatIsRefusedKeepsNobodyElse(t *testing.T) {
	keyed := func(b bench, key string, more columns) int64 {
		return b.insert(plain.with(columns{"partition_key": quote(key)}).with(more))
	}
	waiting := columns{"pick_lane": `1`}
	for why, body := range refusals {
		t.Run(why, func(t *testing.T) {
			b := newBench(t)
			held := columns{"priority": `5`, "status": `'executing'`, "locked_by": quote(me), "claim_token": `7`, "lease_expires_at": `now() + interval '1 h'`}
			claim := func(id int64, key string) *step.Claim {
				return &step.Claim{ID: id, Step: "s", Queue: "default", Token: 7, PartitionKey: key}
			}
			var bad []int64
			ends := map[string]*step.Claim{}
			b.exec(`CREATE TABLE public.written (n int)`)
			for _, key := range []string{"commit", "own", "release", "reap", "expire"} {
				row := held
				switch key {
				case "reap":
					row = row.with(columns{"lease_expires_at": `now() - interval '1 s'`})
				case "expire":
					row = columns{"deadline": `now()`}
				}
				ends[key] = claim(keyed(b, key, row), key)
				bad = append(bad, keyed(b, key, waiting))
			}
			free := keyed(b, "free", waiting)
			b.refuse(body, bad...)

			got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: ends["commit"], Commit: ending(step.Done)}}, 0)
			require.NoError(t, err)
			require.True(t, got.Applied[ends["commit"].ID])
			require.Equal(t, []string{"commit"}, got.Missed)

			own, err := b.transact(me, newMark(), store.Entry{Claim: ends["own"], Commit: ending(step.Done)}, nil)
			require.NoError(t, err)
			require.True(t, own.Applied[ends["own"].ID])
			require.Equal(t, []string{"own"}, own.Missed)
			require.Equal(t, 1, b.written())

			back, err := b.Release(t.Context(), me, []*step.Claim{ends["release"]})
			require.NoError(t, err)
			require.Equal(t, 1, back.Claims)
			require.Equal(t, []string{"release"}, back.Missed)

			reaped, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 10)
			require.NoError(t, err)
			require.Equal(t, 1, reaped.Released)
			require.Empty(t, reaped.Refused)
			require.Equal(t, []string{"reap"}, reaped.Missed)

			expired, err := b.Expire(t.Context(), newMark(), 10)
			require.NoError(t, err)
			require.Equal(t, []int64{ends["expire"].ID}, expired.Failed)
			require.Equal(t, []string{"expire"}, expired.Missed)

			p, err := b.Promote(t.Context(), []string{"commit", "free", "expire"})
			require.NoError(t, err)
			require.Equal(t, 0, b.number(`SELECT pick_lane FROM gendurable.gen_durable WHERE id = $1`, free))
			require.Len(t, p.Refused, 2)
			require.ElementsMatch(t, []string{"commit", "expire"}, []string{p.Refused[0].Key, p.Refused[1].Key})
		})
	}
}

// A lease that cannot be extended costs no other lease, and a claim that cannot be given back keeps
// no other claim.
func TestLeasesBesideOneThatIsRefused(t *testing.T) {
	b := newBench(t)
	var claims []*step.Claim
	for range 9 {
		claims = append(claims, b.executing(nil))
	}
	bad := []int64{claims[3].ID, claims[8].ID}
	b.refuse(`RAISE 'no'`, bad...)
	line := b.Line()
	t.Cleanup(func() { require.NoError(t, line.Close(t.Context())) })
	beaten, err := line.Beat(t.Context(), me, claims, time.Hour)
	require.NoError(t, err)
	require.Len(t, beaten.Extended, 7)
	require.Empty(t, beaten.Lost)
	requireRefused(t, bad, beaten.Refused)
	beaten, err = line.Insist(t.Context(), me, claims[3], time.Hour, time.Second)
	require.NoError(t, err)
	requireRefused(t, bad[:1], beaten.Refused)
	back, err := b.Release(t.Context(), me, claims)
	require.NoError(t, err)
	require.Equal(t, 7, back.Claims)
	requireRefused(t, bad, back.Refused)
}
