package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// ofKey inserts a runnable row with a partition key, some minutes old.
func (b bench) ofKey(key string, minutes int, more columns) int64 {
	b.t.Helper()
	return b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": quote(key),
		"eligible_at": fmt.Sprintf("now() - interval '%d min'", minutes)}.with(more))
}

// finish ends a claim with Done.
func (b bench) finish(c *step.Claim) {
	b.t.Helper()
	b.outcome(c, *ending(step.Done))
}

// One row runs at a time per key and queue, in the order of the pick, whatever the order of
// insertion.
func TestOnlyTheHeadOfAKey(t *testing.T) {
	b := newBench(t)
	want := make([]int64, 8)
	for _, spot := range []int{5, 2, 7, 0, 3, 6, 1, 4} {
		want[spot] = b.ofKey("k", 100-spot%4, columns{"priority": number(spot / 4)})
	}
	free := b.ofKey("other", 1, columns{"priority": `9`})
	require.Equal(t, []int64{want[0], free}, ids(b.claim().Claims))
	require.Empty(t, b.claim().Claims, "the key is busy")
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL WHERE id = ANY($1)`, []int64{want[0], free})
	var got []int64
	for range want {
		c := b.claim(most(1)).Claims
		require.Len(t, c, 1)
		got = append(got, c[0].ID)
		b.finish(c[0])
	}
	require.Equal(t, want, got)
}

// A key is busy in all queues, but has a separate head in each.
func TestAKeyAcrossQueues(t *testing.T) {
	b := newBench(t)
	first := b.ofKey("k", 9, columns{"queue": `'a'`})
	second := b.ofKey("k", 8, columns{"queue": `'a'`})
	elsewhere := b.ofKey("k", 1, columns{"queue": `'b'`})
	claimed := b.claim(queue("a")).Claims
	require.Equal(t, []int64{first}, ids(claimed))
	require.Empty(t, b.claim(queue("b")).Claims)
	b.finish(claimed[0])

	claimed = b.claim(queue("b")).Claims
	require.Equal(t, []int64{elsewhere}, ids(claimed), "the head of its own queue, though an older row waits in another")
	require.Empty(t, b.claim(queue("a")).Claims)
	b.finish(claimed[0])
	require.Equal(t, []int64{second}, ids(b.claim(queue("a")).Claims))
}

// T58: the order is a promise: a head that another transaction has locked is waited for, not
// overtaken. Other keys go on.
func TestALockedHeadIsNotOvertaken(t *testing.T) {
	b := newBench(t)
	head := b.ofKey("k", 9, nil)
	b.ofKey("k", 8, nil)
	free := b.ofKey("other", 1, nil)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, head)
	require.Equal(t, []int64{free}, ids(b.claim().Claims))
	require.Empty(t, b.claim().Claims)
	require.NoError(t, stranger.Rollback(t.Context()))
	require.Equal(t, []int64{head}, ids(b.claim().Claims))
}

// A head that this worker cannot run holds its key, and no other.
func TestAnUnknownHeadHoldsItsKey(t *testing.T) {
	b := newBench(t)
	head := b.ofKey("k", 9, columns{"fsm": `'x'`})
	next := b.ofKey("k", 8, nil)
	free := b.ofKey("other", 1, nil)
	require.Equal(t, []int64{free}, ids(b.claim().Claims))
	require.Empty(t, b.claim().Claims)
	claimed := b.claim(knowing("x/1")).Claims
	require.Equal(t, []int64{head}, ids(claimed))
	b.finish(claimed[0])
	require.Equal(t, []int64{next}, ids(b.claim().Claims))
}

func TestWhatDoesNotHoldAKey(t *testing.T) {
	b := newBench(t)
	for name, ahead := range map[string]columns{
		"parked":   {"status": `'awaiting_signal'`, "awaits": `'{go}'`},
		"children": {"status": `'awaiting_children'`, "children_pending": `1`},
		"paused":   {"paused": `true`},
		"delayed":  {"eligible_at": `now() + interval '1 hour'`},
		"ended":    {"status": `'done'`, "finished_at": `now()`},
	} {
		b.ofKey(name, 9, ahead.with(columns{"priority": `-5`}))
		id := b.ofKey(name, 1, nil)
		require.Equal(t, []int64{id}, ids(b.claim().Claims), name)
	}
}

// A row that comes due at a more urgent priority is the head from then on.
func TestAHeadThatComesDue(t *testing.T) {
	b := newBench(t)
	late := b.ofKey("k", -60, columns{"priority": `-5`})
	first, second := b.ofKey("k", 9, nil), b.ofKey("k", 8, nil)
	claimed := b.claim(most(1)).Claims
	require.Equal(t, []int64{first}, ids(claimed))
	require.Empty(t, b.claim().Claims)
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() WHERE id = $1`, late)
	b.finish(claimed[0])
	claimed = b.claim().Claims
	require.Equal(t, []int64{late}, ids(claimed))
	b.finish(claimed[0])
	require.Equal(t, []int64{second}, ids(b.claim().Claims))
}

// After a bulk insert for one key, claims see its first row only, and the others wait behind it.
// They do not wait behind a row that may be dropped, or that is not due.
func TestInsertChainsAKey(t *testing.T) {
	b := newBench(t)
	list := []*step.Spec{newSpec("ck"), newSpec(""), newSpec(""), newSpec(""), newSpec(""), newSpec("")}
	for _, s := range list {
		s.PartitionKey = "k"
	}
	list[2].Queue = "elsewhere"
	list[3].Priority = -1
	list[4].At = tomorrow
	list[5].PartitionKey = ""
	second := []*step.Spec{newSpec("may be dropped"), newSpec(""), newSpec("")}
	for _, s := range second {
		s.PartitionKey, s.Queue = "k2", "elsewhere"
	}
	b.insertSpecs(append(list, second...))
	require.Equal(t, []string{"1", "1", "0", "0", "0", "0", "0", "0", "1"}, b.column(`SELECT pick_lane::text FROM gendurable.gen_durable ORDER BY id`))
	for _, i := range []int{3, 0, 1} {
		claimed := b.claim(most(1)).Claims
		require.Len(t, claimed, 1)
		if claimed[0].PartitionKey == "" { // in between, by age
			claimed = b.claim(most(1)).Claims
		}
		require.Equal(t, list[i].UID, claimed[0].UID)
		b.finish(claimed[0])
	}
}

func TestOutcomesThatPassTheKeyOn(t *testing.T) {
	b := newBench(t)
	for i, o := range []step.Commit{
		{Kind: step.Next, Step: "two"}, {Kind: step.Next, Step: "two", At: tomorrow}, {Kind: step.Retry, Delay: aDay.Done}, {Kind: step.Await, Step: "two", Names: []string{"x"}},
		{Kind: step.Children, Step: "two", Spawn: kids(1)}, *ending(step.Done), *ending(step.Fail),
	} {
		key := fmt.Sprint("key ", i)
		b.ofKey(key, 9, nil)
		claimed := b.claim().Claims
		require.Len(t, claimed, 1)
		b.ofKey(key, 8, columns{"pick_lane": `1`})
		urgent := b.ofKey(key, 7, columns{"pick_lane": `1`, "priority": `-1`})
		b.outcome(claimed[0], o)
		require.Equal(t, []int64{urgent}, ids(b.claim().Claims), "%s", o.Kind)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// A head that another transaction has locked when its turn comes is reported. A later attempt, or
// the sweep, brings it forward.
func TestPromotionThatMissedItsHead(t *testing.T) {
	b := newBench(t)
	for _, sweep := range []bool{false, true} {
		key := fmt.Sprint("k ", sweep)
		b.ofKey(key, 9, nil)
		claimed := b.claim().Claims
		require.Len(t, claimed, 1)
		next := b.ofKey(key, 8, columns{"pick_lane": `1`})
		stranger := b.begin()
		b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, next)
		got := b.commit(newMark(), false, store.Entry{Claim: claimed[0], Commit: ending(step.Done)})
		require.Equal(t, []string{key}, got.Missed)
		require.NoError(t, stranger.Rollback(t.Context()))
		require.Empty(t, b.claim().Claims)

		if sweep {
			last, p, err := b.Sweep(t.Context(), "", 100, nil)
			require.NoError(t, err)
			require.Empty(t, last)
			require.Equal(t, store.Promotion{Queues: []string{"default"}}, p)
		} else {
			p, err := b.Promote(t.Context(), got.Missed)
			require.NoError(t, err)
			require.Equal(t, store.Promotion{Queues: []string{"default"}}, p)
		}
		require.Equal(t, []int64{next}, ids(b.claim().Claims))
	}
}

func TestSweepVisitsKeysInSlices(t *testing.T) {
	b := newBench(t)
	var want []int64
	for i := range 5 {
		want = append(want, b.ofKey(fmt.Sprint("still ", i), 9-i, columns{"pick_lane": `1`}))
		b.executing(columns{"partition_key": quote(fmt.Sprint("busy ", i))})
		b.ofKey(fmt.Sprint("busy ", i), 5, columns{"pick_lane": `1`})
	}
	var slices int
	for last, more := "", true; more; slices++ {
		var err error
		last, _, err = b.Sweep(t.Context(), last, 3, nil)
		require.NoError(t, err)
		more = last != ""
	}
	require.Equal(t, 4, slices)
	require.Equal(t, want, ids(b.claim().Claims))
	require.Equal(t, 5, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 1`), "busy keys are left alone")
}

// Four pickers work on two queues. No two rows of a key run at once, nothing is lost or left
// standing, each key keeps its order per queue, and fencing tokens grow from holder to holder of a
// key. So it is beside rows that Postgres refuses to change: those keep back the rows behind them,
// until they are mended.
func TestPickersSideBySideOnFewKeys(t *testing.T) {
	t.Run("", func(t *testing.T) { newBench(t).pickSideBySide(nil, nil) })
	t.Run("beside refused rows", func(t *testing.T) {
		b := newBench(t)
		var bad []int64
		for n := range 6 {
			bad = append(bad, b.ofKey(fmt.Sprint("k", n), 5, columns{"queue": quote(fmt.Sprint("q", n%2)), "priority": `-1`}))
			bad = append(bad, b.ofKey(fmt.Sprint("own ", n), 5, columns{"queue": quote(fmt.Sprint("q", n%2)), "priority": `-2`}))
		}
		b.refuse(`RAISE 'no'`, bad...)
		b.pickSideBySide(bad, func() { b.refuse("NULL") })
	})
}

// pickSideBySide lets four pickers run all rows of few keys in two queues. If there are bad rows,
// which Postgres refuses to change, it does so twice: before and after they are mended.
func (b bench) pickSideBySide(bad []int64, mend func()) {
	t := b.t
	const rows, keys = 240, 12
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, partition_key, queue)
		SELECT 'm', 's', 'k' || n % $1, 'q' || n / $1 % 2 FROM generate_series(0, $2 - 1) n`, keys, rows)
	var mu sync.Mutex
	running, order, newest := map[string]int64{}, map[string][]int64{}, map[string]int64{}
	enter := func(c *step.Claim) error {
		mu.Lock()
		defer mu.Unlock()
		if by, ok := running[c.PartitionKey]; ok {
			return fmt.Errorf("%d runs beside %d of %s", c.ID, by, c.PartitionKey)
		}
		running[c.PartitionKey] = c.ID
		if c.FencingToken <= newest[c.PartitionKey] {
			return fmt.Errorf("%d of %s has fencing token %d, after %d", c.ID, c.PartitionKey, c.FencingToken, newest[c.PartitionKey])
		}
		newest[c.PartitionKey] = c.FencingToken
		at := c.Queue + c.PartitionKey
		order[at] = append(order[at], c.ID)
		return nil
	}
	leave := func(c *step.Claim) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, c.PartitionKey)
	}
	left := func() int {
		return b.number(`SELECT count(*) FROM gendurable.gen_durable g WHERE status <> 'done' AND NOT EXISTS (SELECT FROM gendurable.gen_durable h
			WHERE h.id = ANY($1) AND h.queue = g.queue AND h.partition_key = g.partition_key)`, bad)
	}
	picker := func(n int) error {
		b := b.beside(func(*pgxpool.Config) {}) // as a process of its own
		var missed []string
		for left() > 0 {
			got, err := b.Claim(t.Context(), store.ClaimParams{Queue: fmt.Sprint("q", n%2), Worker: me, Machines: []string{"m/1"}, Limit: 5,
				Window: 50, Lease: lease})
			if err != nil && !store.IsUniqueViolation(err) && !store.IsLockTimeout(err) { // they collided on a key, one in each queue
				return err
			}
			missed = append(missed, got.Unsettled...)
			for _, c := range got.Claims {
				if err := enter(c); err != nil {
					return err
				}
			}
			for _, c := range got.Claims {
				leave(c) // before the commit, which lets the next one in
				done, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: c, Commit: ending(step.Done)}}, patient)
				if err != nil || !done.Applied[c.ID] {
					return errors.Join(err, fmt.Errorf("%d not applied", c.ID))
				}
				missed = append(missed, done.Missed...)
			}
			p, err := b.Promote(t.Context(), missed)
			if err != nil {
				return err
			}
			missed = p.Missed
		}
		return nil
	}
	pick := func() {
		failed := make(chan error, 4)
		for n := range 4 {
			go func() { failed <- picker(n) }()
		}
		for range 4 {
			require.NoError(t, <-failed)
		}
	}
	pick()
	behind := 0
	if len(bad) > 0 {
		require.Len(t, order, 2*keys-6, "those without a bad head")
		mend()
		bad, behind = nil, 1
		pick()
		for n := range 6 {
			require.Len(t, order[fmt.Sprintf("q%down %d", n%2, n)], 1)
			delete(order, fmt.Sprintf("q%down %d", n%2, n))
		}
	}
	require.Len(t, order, 2*keys)
	for at, ids := range order {
		require.True(t, slices.IsSorted(ids), "%s ran as %v", at, ids)
		require.GreaterOrEqual(t, len(ids), rows/keys/2)
		require.LessOrEqual(t, len(ids), rows/keys/2+behind)
	}
}

// T85: two picks of different queues collide on the same keys. They go through the keys in one
// order, so that they cannot deadlock.
func TestPicksOfTwoQueuesMeetOnKeys(t *testing.T) {
	b := newBench(t)
	b.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''10ms''', current_database()); END $$`)
	b.pool.Reset()
	stalled := b.ofKey("z", 9, columns{"queue": `'c'`})
	for _, at := range [][2]string{{"k1", "a"}, {"z", "a"}, {"k2", "a"}, {"k2", "b"}, {"k1", "b"}} {
		b.ofKey(at[0], 5, columns{"queue": quote(at[1])})
	}
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'x', lease_expires_at = now() WHERE id = $1`, stalled)
	picks := make(chan error, 2)
	pick := func(queue string) {
		_, err := b.Claim(t.Context(), store.ClaimParams{Queue: queue, Worker: me, Machines: []string{"m/1"}, Limit: 10, Window: 100, Lease: lease})
		picks <- err
	}
	go pick("a")
	b.waiting(1)
	go pick("b")
	steady.Eventually(t, func() bool {
		return len(picks) > 0 || b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	require.NoError(t, stranger.Rollback(t.Context()))
	for range 2 {
		if err := <-picks; err != nil { // the second one lost a key to the first, or gave up waiting for it
			require.True(t, store.IsUniqueViolation(err) || store.IsLockTimeout(err), err)
		}
	}
}

// A claim is stopped after it has drawn its claim token and before its row's entry in the index of
// executing keys. Meanwhile other claims of the key come and go: from another queue, or of more
// urgent rows of the same queue. A later holder of the key has a greater fencing token.
func TestFencingTokensOrderTheHoldersOfAKey(t *testing.T) {
	for name, ahead := range map[string]columns{
		"of another queue": {"queue": `'fast'`},
		"more urgent":      {"priority": `-1`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.002); END LOOP; -- no lock_timeout ends it
				RETURN NEW; END $$`)
			b.exec(`CREATE TRIGGER gate BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW
				WHEN (OLD.status = 'runnable' AND NEW.status = 'executing' AND NEW.locked_by = 'gated') EXECUTE FUNCTION gate()`)
			slow := []int64{b.ofKey("k", 9, nil), b.ofKey("l", 9, nil)}

			gate := b.begin()
			b.inTx(gate, `SELECT pg_advisory_xact_lock(1)`)
			claimed := make(chan store.Claimed, 1)
			failed := make(chan error, 1)
			go func() {
				got, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: "gated", Machines: []string{"m/1"}, Limit: 10,
					Window: 10, Lease: lease})
				claimed <- got
				failed <- err
			}()
			steady.Eventually(t, func() bool {
				return b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) > 0
			})
			var between []*step.Claim
			for range 3 {
				b.ofKey("k", 5, ahead)
				b.ofKey("l", 5, ahead)
				others := b.claim(queue(strings.Trim(cmp.Or(ahead["queue"], "default"), "'"))).Claims
				require.Len(t, others, 2)
				for _, c := range others {
					b.finish(c)
				}
				between = append(between, others...)
			}
			require.NoError(t, gate.Rollback(t.Context()))
			late := (<-claimed).Claims
			require.NoError(t, <-failed)
			require.ElementsMatch(t, slow, ids(late))

			last := map[string]int64{}
			for _, c := range append(between, late...) {
				require.Greater(t, c.FencingToken, last[c.PartitionKey])
				last[c.PartitionKey] = c.FencingToken
			}
			require.NotEqual(t, late[0].FencingToken, late[1].FencingToken)
			require.Less(t, late[0].Token, between[0].Token, "the gate is where it is said to be")
		})
	}
}
