package store_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A row that Postgres refuses to claim holds up the rows of its partition key, and no other row.
// Once it is mended, its key goes on, in order.
func TestARefusedHeadHoldsUpItsOwnKeyOnly(t *testing.T) {
	b := newBench(t)
	head := b.row("partition_key, priority", "'bad', -1")
	var behind, free []int64
	for range 5 {
		behind = append(behind, b.row("partition_key", "'bad'"))
		free = append(free, b.row("partition_key", "'good'"), b.row("", ""))
	}
	b.refuse(`RAISE 'no'`, head)
	got := b.claim(most(4), window(4))
	requireRefused(t, []int64{head}, got.Refused)
	taken := ids(got.Claims)
	for len(got.Claims)+got.Moved > 0 {
		got = b.claim(most(4), window(4))
		require.Empty(t, got.Refused)
		taken = append(taken, ids(got.Claims)...)
	}
	require.Equal(t, 5, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = ANY($1) AND pick_lane = 1`, behind))
	require.ElementsMatch(t, []int64{free[0], free[1], free[3], free[5], free[7], free[9]}, taken, "of the free key the first")

	b.refuse("NULL")
	again := b.beside(func(*pgxpool.Config) {})
	require.Equal(t, []int64{head}, ids(again.claim().Claims))
}

// The head of a key that waits in lane key comes forward in a claim of the rows behind it. If
// Postgres refuses that, no claim fails for it, and the rows behind are not set apart: they wait,
// and their key is to be promoted.
func TestAHeadThatCannotComeForwardHoldsUpNoClaim(t *testing.T) {
	b := newBench(t)
	head := b.row("partition_key, priority, pick_lane", "'bad', -1, 1")
	first, second := b.row("partition_key", "'bad'"), b.row("partition_key", "'bad'")
	free := b.row("", "")
	b.refuse(`RAISE 'no'`, head)
	got := b.claim(most(2), window(2))
	require.Empty(t, got.Refused)
	taken, unsettled := ids(got.Claims), got.Unsettled
	got = b.claim(most(2), window(2))
	require.Equal(t, []int64{free}, append(taken, ids(got.Claims)...))
	require.Contains(t, append(unsettled, got.Unsettled...), "bad")
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id IN ($1, $2) AND pick_lane = 1`, first, second))
	p, err := b.Promote(t.Context(), []string{"bad"})
	require.NoError(t, err)
	require.Len(t, p.Refused, 1)
	b.refuse("NULL")
	_, err = b.Promote(t.Context(), []string{"bad"})
	require.NoError(t, err)
	require.Equal(t, []int64{head}, ids(b.claim().Claims))
}

// Two faults at once: Postgres refuses one row, and another session holds another. Rows that are
// set aside for another machine are refused like others.
func TestARefusedRowAndAHeldOne(t *testing.T) {
	b := newBench(t)
	bad, held, unknown := b.row("priority", "-2"), b.row("priority, partition_key", "-1, 'held'"), b.row("priority, fsm_version", "-1, 2")
	behind := b.row("partition_key", "'held'")
	var free []int64
	for range 6 {
		free = append(free, b.row("", ""))
	}
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), byHand(`SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`), held)
	require.NoError(t, err)
	b.refuse(`RAISE 'no'`, bad, unknown)
	var taken []int64
	var refused []store.Refused
	blocked := false
	for range 10 { // as a scheduler does: blocked rows are moved by the next claim
		got := b.claim(most(2), window(2), func(p *store.ClaimParams) { p.MoveBlocked = blocked })
		taken, refused = append(taken, ids(got.Claims)...), append(refused, got.Refused...)
		blocked = got.Blocked > 0
	}
	require.ElementsMatch(t, free, taken)
	requireRefused(t, []int64{bad, unknown}, refused)
	require.Equal(t, 1, b.number(`SELECT pick_lane FROM gendurable.gen_durable WHERE id = $1`, behind))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []int64{held}, ids(b.claim().Claims))
}

// What a trigger of the host raises is the row's fault, even if it is the code by which two claims
// of one key meet.
func TestATriggerThatRaisesAUniqueViolation(t *testing.T) {
	b := newBench(t)
	bad, good := b.row("", ""), b.row("", "")
	b.refuse(`RAISE USING ERRCODE = '23505'`, bad)
	got := b.claim()
	require.Equal(t, []int64{good}, ids(got.Claims))
	requireRefused(t, []int64{bad}, got.Refused)
}

// unreadable breaks a row so that it can be claimed, and not read. It returns whether nothing of it
// can be read but what identifies it.
var unreadable = map[string]struct {
	broken func(b bench) int64
	unread bool
}{
	"a value that no time.Time holds": {func(b bench) int64 {
		b.exec(`ALTER TABLE gendurable.gen_durable DROP CONSTRAINT gen_durable_times_check`)
		return b.row("inserted_at, partition_key", "'infinity', 'own'")
	}, true},
	"a value with which Postgres cannot reckon": {func(b bench) int64 {
		b.exec(`ALTER TABLE gendurable.gen_durable DROP CONSTRAINT gen_durable_finite_check`)
		return b.row("deadline", "'infinity'")
	}, true},
	"a state of which a part is lost": {func(b bench) int64 {
		id := b.row("state", "$1::jsonb", document(3_000, true))
		b.loseState(id)
		return id
	}, true},
	"a large state of which a part is lost": {func(b bench) int64 {
		id := b.row("state", "$1::jsonb", document(5<<20, true))
		b.loseState(id)
		return id
	}, false},
	"a signal that cannot be read": {func(b bench) int64 {
		b.exec(`ALTER TABLE gendurable.signals DROP CONSTRAINT signals_times_check`)
		id := b.row("awaits", "'{go}'")
		b.exec(`INSERT INTO gendurable.signals (target_id, name, inserted_at) VALUES ($1, 'go', 'infinity')`, id)
		return id
	}, false},
}

// loseState deletes what Postgres stores of a state apart from its row, as a broken disk may.
func (b bench) loseState(id int64) {
	b.t.Helper()
	var there int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_surgery'`).Scan(&there))
	if there == 0 && os.Getenv("CI") == "" {
		b.t.Skip("the server has no pg_surgery, which can damage a table")
	}
	b.exec(`CREATE EXTENSION IF NOT EXISTS pg_surgery SCHEMA public`)
	var toast string
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), byHand(`SELECT reltoastrelid::regclass::text FROM pg_class
		WHERE oid = 'gendurable.gen_durable'::regclass`)).Scan(&toast))
	b.exec(`SELECT public.heap_force_kill('` + toast + `'::regclass, (SELECT array_agg(ctid) FROM ` + toast + `))`)
	require.Error(b.t, b.pool.QueryRow(b.t.Context(), byHand(`SELECT state::text FROM gendurable.gen_durable WHERE id = $1`), id).Scan(new(string)))
}

// A row that cannot be read is claimed like others, and keeps no other from being read. It comes
// with the columns that identify it, so that its instance can fail.
func TestARowThatCannotBeReadKeepsNobodyElse(t *testing.T) {
	for name, u := range unreadable {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				b := newBench(t)
				bad := u.broken(b)
				var good []int64
				for range 6 {
					id := b.row("awaits, state", `'{go}', '{"a": 1}'`)
					b.exec(`INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id)
					good = append(good, id)
				}
				beside := b.beside(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				got := beside.claim()
				require.Empty(t, got.Refused)
				require.ElementsMatch(t, append(good, bad), ids(got.Claims))
				for _, c := range got.Claims {
					if c.ID != bad {
						require.Len(t, c.Awaited, 1)
						require.JSONEq(t, `{"a": 1}`, string(c.State))
						require.NoError(t, c.Unread)
						continue
					}
					require.Equal(t, "m/1 s", store.MachineID(c.Machine, c.Version)+" "+c.Step)
					require.Equal(t, u.unread, c.Unread != nil, c.Unread)
					if u.unread {
						require.ErrorContains(t, c.Unread, "repair")
					} else {
						require.True(t, c.Partial)
						_, err := beside.Complete(t.Context(), me, c, 1<<20)
						require.Equal(t, store.FaultData, store.Classify(err), "%v", err)
					}
					// It can be ended.
					b.commit(newMark(), true, store.Entry{Claim: c, Commit: ending(step.Fail)})
				}
			})
		}
	}
}
