package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// specWith returns a spec whose state is a number, so that a test sees whose it is.
func specWith(n int, change ...func(*step.Spec)) *step.Spec {
	x := newSpec("")
	x.State = fmt.Appendf(nil, `{"n": %d}`, n)
	for _, f := range change {
		f(x)
	}
	return x
}

func onConflict(key string, c step.Conflict) func(*step.Spec) {
	return func(x *step.Spec) { x.Key, x.Conflict = key, c }
}

func windowed(kind step.WindowKind, key string, length, most time.Duration) func(*step.Spec) {
	return func(x *step.Spec) {
		x.Window = step.Window{Kind: kind, Key: key, For: length, Most: most}
		if kind == step.WindowDebounce {
			x.Delay = length
		}
	}
}

func (b bench) insertOne(x *step.Spec) store.Inserted {
	b.t.Helper()
	return b.insertSpecs([]*step.Spec{x})[0]
}

// n returns the number in the state of an instance.
func (b bench) n(id int64) int {
	b.t.Helper()
	return b.number(`SELECT (state->>'n')::int FROM gendurable.gen_durable WHERE id = $1`, id)
}

func (b bench) clear() {
	b.t.Helper()
	b.exec(`DELETE FROM gendurable.gen_durable`)
	b.exec(`DELETE FROM gendurable.windows`)
}

// inserting inserts in a separate session.
func (b bench) inserting(list ...*step.Spec) <-chan store.Inserted {
	out := make(chan store.Inserted, 1)
	go func() {
		got, err := b.Insert(b.t.Context(), list)
		if err != nil {
			b.t.Error(err)
			got = []store.Inserted{{}}
		}
		out <- got[0]
	}()
	return out
}

func TestThrottle(t *testing.T) {
	b := newBench(t)
	const length = 10_000 * 24 * time.Hour // no period of it ends while this runs
	for _, kind := range []step.WindowKind{step.WindowThrottle, step.WindowOnce} {
		b.clear()
		x := func(n int) *step.Spec { return specWith(n, windowed(kind, "k", length, 0)) }
		first := b.insertOne(x(1))
		require.Equal(t, store.Inserted{ID: first.ID}, first)
		second := b.insertOne(x(2))
		require.WithinDuration(t, time.Now().Add(length), second.Until, length)
		require.Equal(t, store.Inserted{ID: first.ID, Duplicate: true, Throttled: true, Until: second.Until}, second)
		require.False(t, b.insertOne(specWith(3, windowed(kind, "other", length, 0))).Throttled)
		b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, first.ID)
		require.Equal(t, first.ID, b.insertOne(x(4)).ID, "the window outlives its instance")

		b.exec(`UPDATE gendurable.windows SET until = now()`)
		third := b.insertOne(x(5))
		require.Equal(t, store.Inserted{ID: third.ID}, third)
		require.Equal(t, third.ID, b.insertOne(x(6)).ID)
		require.Equal(t, 2, b.instances(), "of the other key, and the third")
	}
	until := b.text(`SELECT to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') FROM gendurable.windows WHERE name = 'once:k'`)
	require.Equal(t, "2028-05-19 00:00:00.000000", until, "10,000 days after 2001-01-01")
}

// An insert that opens a window, and then finds its key occupied, leaves the window closed.
func TestThrottleOfAnOccupiedKey(t *testing.T) {
	b := newBench(t)
	x := func(n int) *step.Spec {
		x := specWith(n, windowed(step.WindowThrottle, "k", time.Hour, 0))
		x.Key = "occupied"
		return x
	}
	held := b.keyed("occupied")
	require.Equal(t, dup(held), b.insertOne(x(1)))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.windows`))
	b.exec(`DELETE FROM gendurable.gen_durable`)
	require.False(t, b.insertOne(x(2)).Duplicate)
	require.True(t, b.insertOne(x(3)).Throttled)
}

// A debounced instance becomes what the newest spec says, later by the quiet time, and no later
// than the bound. One that has begun is left alone, and the next window has its own bound.
func TestDebounce(t *testing.T) {
	b := newBench(t)
	x := func(n int) *step.Spec {
		return specWith(n, windowed(step.WindowDebounce, "k", time.Hour, 90*time.Minute))
	}
	due := func(id int64) time.Duration {
		seconds := b.number(`SELECT extract(epoch FROM eligible_at - clock_timestamp())::int FROM gendurable.gen_durable WHERE id = $1`, id)
		return time.Duration(seconds) * time.Second
	}
	first := b.insertOne(x(1))
	require.Equal(t, store.Inserted{ID: first.ID}, first)
	require.InDelta(t, time.Hour, due(first.ID), float64(10*time.Minute))
	// An operator or a busy queue may have moved it. What the newest spec says replaces all of that.
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now(), pick_lane = 3, gate = 'g', place = 1 WHERE id = $1`, first.ID)
	second := x(2)
	second.Queue, second.Step, second.Priority, second.PartitionKey, second.Labels = "q", "t", 7, "p", []byte(`{"a": "b"}`)
	require.Equal(t, store.Inserted{ID: first.ID, Replaced: true}, b.insertOne(second))
	require.InDelta(t, time.Hour, due(first.ID), float64(10*time.Minute))
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE queue = 'q' AND step = 't' AND priority = 7
		AND partition_key = 'p' AND labels = '{"a": "b"}' AND pick_lane = 0 AND gate IS NULL AND place IS NULL AND state = '{"n": 2}'`))
	b.exec(`UPDATE gendurable.windows SET opened_at = opened_at - interval '1 hour'`)
	require.True(t, b.insertOne(x(3)).Replaced)
	require.InDelta(t, 30*time.Minute, due(first.ID), float64(10*time.Minute), "the bound counts from the first")
	b.exec(`UPDATE gendurable.windows SET opened_at = opened_at - interval '1 hour'`)
	require.True(t, b.insertOne(x(4)).Replaced)
	require.InDelta(t, -30*time.Minute, due(first.ID), float64(10*time.Minute), "so it does where it has passed")

	require.Equal(t, first.ID, b.claimOne().ID)
	next := b.insertOne(x(5))
	require.Equal(t, store.Inserted{ID: next.ID}, next)
	require.InDelta(t, time.Hour, due(next.ID), float64(10*time.Minute))
	require.Equal(t, 4, b.n(first.ID))
	require.Equal(t, store.Inserted{ID: next.ID, Replaced: true}, b.insertOne(x(6)))
	require.InDelta(t, time.Hour, due(next.ID), float64(10*time.Minute))
	require.Equal(t, 2, b.instances())
}

// A waiting instance is runnable and was never claimed.
func TestReplaceWhatWaits(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		row      columns
		replaced bool
	}{
		"new":                        {nil, true},
		"paused":                     {columns{"paused": `true`}, true},
		"behind its partition key":   {columns{"partition_key": `'p'`, "pick_lane": `1`}, true},
		"of another machine":         {columns{"fsm": `'other'`}, true},
		"given back before it began": {columns{"claim_token": `7`}, false},
		"waits for a retry":          {columns{"claim_token": `7`, "attempt": `1`}, false},
		"executes":                   {columns{"status": `'executing'`, "claim_token": `7`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 hour'`}, false},
		"awaits":                     {columns{"status": `'awaiting_signal'`, "awaits": `'{go}'`, "claim_token": `7`}, false},
	} {
		b.clear()
		id := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "correlation_key": `'k'`, "correlation_scope": liveScope}.with(c.row))
		got := b.insertOne(specWith(2, onConflict("k", step.ConflictReplace)))
		if c.replaced {
			require.Equal(t, store.Inserted{ID: id, Replaced: true}, got, name)
			require.Equal(t, 2, b.n(id), name)
			require.Equal(t, c.row["paused"] != "", b.text(`SELECT paused::text FROM gendurable.gen_durable WHERE id = $1`, id) == "true", name)
		} else {
			require.Equal(t, dup(id), got, name)
		}
		require.Equal(t, 1, b.instances(), name)
	}
	b.clear()
	require.Equal(t, 1, b.n(b.insertOne(specWith(1, onConflict("k", step.ConflictReplace))).ID), "nothing waits")
}

// A replaced instance leaves its partition key, whose next one comes forward.
func TestReplacePromotesThePartitionKey(t *testing.T) {
	b := newBench(t)
	x := specWith(1, onConflict("k", step.ConflictReplace))
	x.PartitionKey = "p"
	head := b.insertOne(x)
	behind := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'p'`, "pick_lane": `1`})
	y := specWith(2, onConflict("k", step.ConflictReplace))
	y.PartitionKey = "q"
	insertion := b.Insertion([]*step.Spec{y})
	got, err := insertion.Try(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Inserted{{ID: head.ID, Replaced: true}}, got)
	require.Contains(t, insertion.Effects().Queues, "default")
	require.Zero(t, b.number(`SELECT pick_lane FROM gendurable.gen_durable WHERE id = $1`, behind))
}

// The newest instance of a key ends the one before, whatever that does, unless it has ended.
func TestNewest(t *testing.T) {
	b := newBench(t)
	all := `enum_range(NULL::gendurable.durable_status)`
	for name, c := range map[string]struct {
		row   columns
		taken bool
	}{
		"waits":           {nil, true},
		"executes":        {columns{"status": `'executing'`, "claim_token": `7`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 hour'`}, true},
		"awaits":          {columns{"status": `'awaiting_signal'`, "awaits": `'{go}'`, "claim_token": `7`}, true},
		"is done":         {columns{"status": `'done'`, "finished_at": `now()`, "correlation_scope": all}, false},
		"would outlive":   {columns{"correlation_scope": all}, false},
		"waits for a kid": {columns{"status": `'awaiting_children'`, "children_pending": `1`, "round": `9`}, true},
	} {
		b.clear()
		id := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "correlation_key": `'k'`, "correlation_scope": liveScope}.with(c.row))
		insertion := b.Insertion([]*step.Spec{specWith(2, onConflict("k", step.ConflictNewest))})
		done, err := insertion.Try(t.Context())
		require.NoError(t, err)
		got := done[0]
		switch {
		case c.taken:
			require.Equal(t, store.Inserted{ID: got.ID}, got, name)
			require.NotEqual(t, id, got.ID, name)
			require.Equal(t, "failed", b.status(id), name)
			require.Equal(t, "cancelled: a newer instance of its key was inserted", b.text(`SELECT last_error FROM gendurable.gen_durable WHERE id = $1`, id))
			require.Equal(t, []int64{id}, insertion.Effects().Ended, name)
		default:
			require.Equal(t, dup(id), got, name)
		}
	}
}

// The instance whose step inserts is not cancelled by that.
func TestNewestSparesItsOwner(t *testing.T) {
	b := newBench(t)
	id := b.keyed("k")
	tx := b.begin()
	hosted := b.Within(store.Pgx(tx))
	hosted.Spare(id)
	got, effects, err := hosted.Insert(t.Context(), []*step.Spec{specWith(2, onConflict("k", step.ConflictNewest))}, store.By{})
	require.NoError(t, err)
	require.Equal(t, []store.Inserted{dup(id)}, got)
	require.Empty(t, effects)
}

// Specs of one call follow each other: each finds what those before it have done.
func TestRuledSpecsOfOneCall(t *testing.T) {
	b := newBench(t)
	replace := func(n int) *step.Spec { return specWith(n, onConflict("r", step.ConflictReplace)) }
	newest := func(n int) *step.Spec { return specWith(n, onConflict("n", step.ConflictNewest)) }
	throttle := func(n int) *step.Spec { return specWith(n, windowed(step.WindowThrottle, "k", time.Hour, 0)) }
	debounce := func(n int) *step.Spec { return specWith(n, windowed(step.WindowDebounce, "k", time.Hour, 0)) }
	plain := func(n int) *step.Spec { return specWith(n, onConflict("r", step.ConflictRefuse)) }
	got := b.insertSpecs([]*step.Spec{
		debounce(0), newest(1), plain(2), throttle(3), specWith(4), replace(5), newest(6), debounce(7), plain(8), throttle(9), debounce(10), plain(11),
	})
	require.Equal(t, []store.Inserted{
		{ID: got[0].ID}, {ID: got[1].ID}, {ID: got[2].ID}, {ID: got[3].ID}, {ID: got[4].ID}, {ID: got[2].ID, Replaced: true}, {ID: got[6].ID},
		{ID: got[0].ID, Replaced: true}, dup(got[2].ID), {ID: got[3].ID, Duplicate: true, Throttled: true, Until: got[9].Until},
		{ID: got[0].ID, Replaced: true}, dup(got[2].ID),
	}, got)
	require.Equal(t, []int{10, 5, 3}, []int{b.n(got[0].ID), b.n(got[2].ID), b.n(got[3].ID)})
	require.Equal(t, "failed", b.status(got[1].ID))
	require.Equal(t, 6, b.instances())
}

// Two inserts meet: the first one's transaction is open when the second comes. The second waits,
// and then does what the end of the first leaves it to do.
func TestRuledInsertBehindAnother(t *testing.T) {
	b := newBench(t)
	type kind struct {
		name string
		spec func(n int) *step.Spec
	}
	throttle := kind{"throttle", func(n int) *step.Spec { return specWith(n, windowed(step.WindowThrottle, "k", time.Hour, 0)) }}
	once := kind{"once", func(n int) *step.Spec { return specWith(n, windowed(step.WindowOnce, "k", 1000*24*time.Hour, 0)) }}
	debounce := kind{"debounce", func(n int) *step.Spec { return specWith(n, windowed(step.WindowDebounce, "k", time.Hour, 0)) }}
	replace := kind{"replace", func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictReplace)) }}
	newest := kind{"newest", func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictNewest)) }}
	refuse := kind{"refuse", func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictRefuse)) }}
	const ( // what becomes of the second after the commit of the first
		existing = iota
		replaced
		cancels
	)
	for _, c := range []struct {
		first, second kind
		commit        int
	}{
		{throttle, throttle, existing}, {once, once, existing}, {debounce, debounce, replaced}, {replace, replace, replaced},
		{newest, newest, cancels}, {refuse, replace, replaced}, {replace, refuse, existing}, {refuse, newest, cancels},
		{newest, replace, replaced}, {replace, newest, cancels}, {newest, refuse, existing},
	} {
		for _, occupied := range []bool{false, true} { // by an instance that waits
			for _, commit := range []bool{true, false} {
				name := fmt.Sprintf("%s, %s, occupied %v, commit %v", c.first.name, c.second.name, occupied, commit)
				b.clear()
				if occupied {
					if c.first.name == "throttle" || c.first.name == "once" || c.first.name == "refuse" || c.second.name == "refuse" {
						continue // the first, or the second, would not write
					}
					b.insertOne(c.second.spec(0))
				}
				before := b.instances()
				tx := b.begin()
				first, _, err := b.Within(store.Pgx(tx)).Insert(t.Context(), []*step.Spec{c.first.spec(1)}, store.By{})
				require.NoError(t, err, name)
				second := b.inserting(c.second.spec(2))
				b.waiting(1)
				require.NoError(t, finish(t, tx, commit), name)
				got := <-second
				switch {
				case !commit && occupied && c.second.name != "newest":
					require.True(t, got.Replaced, name)
					require.Equal(t, before, b.instances(), name)
				case !commit:
					require.Equal(t, store.Inserted{ID: got.ID}, got, name)
					require.Equal(t, before+1, b.instances(), name)
				case c.commit == existing:
					require.Equal(t, first[0].ID, got.ID, name)
					require.True(t, got.Duplicate, name)
				case c.commit == replaced:
					require.Equal(t, store.Inserted{ID: first[0].ID, Replaced: true}, got, name)
				case c.commit == cancels:
					require.Equal(t, store.Inserted{ID: got.ID}, got, name)
					require.Equal(t, "failed", b.status(first[0].ID), name)
				}
				if !got.Duplicate {
					require.Equal(t, 2, b.n(got.ID), name)
				}
				require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable'`), name)
			}
		}
	}
}

// Another transaction changes the instance that an insert is about to replace, or to cancel.
func TestRuledInsertBehindAChange(t *testing.T) {
	b := newBench(t)
	const (
		claim  = `UPDATE gendurable.gen_durable SET status = 'executing', claim_token = 7, locked_by = 'w', lease_expires_at = now() + interval '1 hour'`
		end    = `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now()`
		cancel = `UPDATE gendurable.gen_durable SET status = 'failed', failure = 'cancelled', finished_at = now()`
		pause  = `UPDATE gendurable.gen_durable SET paused = true`
		drop   = `DELETE FROM gendurable.gen_durable`
	)
	debounce := func(n int) *step.Spec { return specWith(n, windowed(step.WindowDebounce, "k", time.Hour, 0)) }
	replace := func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictReplace)) }
	newest := func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictNewest)) }
	for _, c := range []struct {
		name, change string
		spec         func(n int) *step.Spec
		want         string // after the commit of the change
	}{
		{"debounce, claim", claim, debounce, "new"}, {"debounce, cancel", cancel, debounce, "new"}, {"debounce, pause", pause, debounce, "replaced"},
		{"debounce, delete", drop, debounce, "new"},
		{"replace, claim", claim, replace, "existing"}, {"replace, end", end, replace, "new"}, {"replace, pause", pause, replace, "replaced"},
		{"replace, delete", drop, replace, "new"},
		{"newest, claim", claim, newest, "cancels"}, {"newest, end", end, newest, "new"}, {"newest, delete", drop, newest, "new"},
	} {
		for _, commit := range []bool{true, false} {
			name := fmt.Sprintf("%s, commit %v", c.name, commit)
			b.clear()
			id := b.insertOne(c.spec(1)).ID
			tx := b.begin()
			b.inTx(tx, c.change)
			second := b.inserting(c.spec(2))
			b.waiting(1)
			require.NoError(t, finish(t, tx, commit), name)
			want, got := c.want, <-second
			if !commit {
				want = map[bool]string{true: "cancels", false: "replaced"}[c.spec(0).Conflict == step.ConflictNewest]
			}
			switch want {
			case "existing":
				require.Equal(t, dup(id), got, name)
				require.Equal(t, 1, b.n(id), name)
				continue
			case "replaced":
				require.Equal(t, store.Inserted{ID: id, Replaced: true}, got, name)
			case "cancels":
				require.Equal(t, "failed", b.status(id), name)
				require.NotEqual(t, id, got.ID, name)
			case "new":
				require.Equal(t, store.Inserted{ID: got.ID}, got, name)
				require.NotEqual(t, id, got.ID, name)
			}
			require.Equal(t, 2, b.n(got.ID), name)
		}
	}
}

// While the transaction of a replace is open, claims pass its instance by, and the one after its
// commit gets what it says.
func TestClaimBesideAReplace(t *testing.T) {
	b := newBench(t)
	x := func(n int) *step.Spec { return specWith(n, onConflict("k", step.ConflictReplace)) }
	id := b.insertOne(x(1)).ID
	tx := b.begin()
	_, _, err := b.Within(store.Pgx(tx)).Insert(t.Context(), []*step.Spec{x(2)}, store.By{})
	require.NoError(t, err)
	require.Empty(t, b.claim().Claims)
	require.NoError(t, tx.Commit(t.Context()))
	c := b.claimOne()
	require.Equal(t, id, c.ID)
	require.JSONEq(t, `{"n": 2}`, string(c.State))
}

// Many inserts contend for one key. One instance is left, and it is the last that was inserted.
func TestRuledInsertsContend(t *testing.T) {
	b := newBench(t)
	for _, conflict := range []step.Conflict{step.ConflictReplace, step.ConflictNewest} {
		b.clear()
		var all []<-chan store.Inserted
		for n := range 20 {
			all = append(all, b.inserting(specWith(n, onConflict("k", conflict))))
		}
		fresh := 0
		for _, one := range all {
			got := <-one
			require.False(t, got.Duplicate)
			if !got.Replaced {
				fresh++
			}
		}
		require.Equal(t, fresh, b.instances())
		require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable'`))
	}
}

// Two calls have the same keys in opposite orders. They lock windows, instances and keys in one
// order each, so neither is a deadlock's victim.
func TestRuledInsertsInOppositeOrders(t *testing.T) {
	b := newBench(t)
	specs := func(keys ...string) (out []*step.Spec) {
		for _, k := range keys {
			out = append(out, specWith(1, windowed(step.WindowDebounce, k, time.Hour, 0)), specWith(1, onConflict(k, step.ConflictReplace)))
		}
		return out
	}
	victim := b.begin()
	b.inTx(victim, `INSERT INTO gendurable.windows (name, uid, opened_at, until) VALUES ('debounce:b', gen_random_uuid(), now(), now())`)
	forth, back := b.inserting(specs("a", "b", "c")...), b.inserting(specs("c", "b", "a")...)
	b.waiting(2)
	require.NoError(t, victim.Rollback(t.Context()))
	<-forth
	<-back
	require.Equal(t, 6, b.instances())
	require.Zero(t, b.number(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}

// A spec that Postgres would not know again, should the answer to its COMMIT be lost, is not
// inserted twice.
func TestRuledInsertWithoutAnswer(t *testing.T) {
	b := newBench(t)
	_, err := b.cutting().Insert(t.Context(), []*step.Spec{specWith(1, onConflict("k", step.ConflictReplace))})
	require.ErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, 1, b.instances())
}

// The GC deletes windows that have closed a minute ago, except for the windows of waiting
// instances.
func TestPruneWindows(t *testing.T) {
	b := newBench(t)
	waits := b.insertOne(specWith(1, windowed(step.WindowDebounce, "waits", time.Millisecond, 0)))
	began := b.insertOne(specWith(1, windowed(step.WindowDebounce, "began", time.Millisecond, 0)))
	b.insertOne(specWith(1, windowed(step.WindowThrottle, "open", time.Hour, 0)))
	b.insertOne(specWith(1, windowed(step.WindowThrottle, "closed", time.Millisecond, 0)))
	b.insertOne(specWith(1, windowed(step.WindowThrottle, "held", time.Millisecond, 0)))
	b.exec(`UPDATE gendurable.gen_durable SET claim_token = 7 WHERE id = $1`, began.ID)
	b.exec(`UPDATE gendurable.windows SET until = until - interval '2 minutes'`)
	tx := b.begin()
	b.inTx(tx, `SELECT FROM gendurable.windows WHERE name = 'throttle:held' FOR NO KEY UPDATE`)
	p := store.PruneParams{Done: time.Hour, Failed: time.Hour, Tombstones: 10, Limit: 2}
	require.Equal(t, 2, b.prune(p).Windows)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"debounce:waits", "throttle:held", "throttle:open"}, b.column(`SELECT name FROM gendurable.windows ORDER BY name COLLATE "C"`))
	require.Equal(t, waits.ID, b.insertOne(specWith(2, windowed(step.WindowDebounce, "waits", time.Millisecond, 0))).ID)
	require.Equal(t, 1, b.prune(p).Windows)
}
