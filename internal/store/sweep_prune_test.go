package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// aDay holds the parameters of the GC in these tests, with a hundred rows per transaction.
var aDay = store.PruneParams{Done: 24 * time.Hour, Failed: 24 * time.Hour, Tombstones: 1000, Limit: 100}

// ended inserts a terminal instance that ended the given number of hours ago.
func (b bench) ended(status string, hours int, columns, values string, args ...any) int64 {
	b.t.Helper()
	if columns != "" {
		columns, values = ", "+columns, ", "+values
	}
	return b.row("status, failure, finished_at"+columns,
		fmt.Sprintf("'%s', CASE '%s' WHEN 'failed' THEN 'error' END, now() - %d * interval '1 hour'", status, status, hours)+values, args...)
}

func (b bench) prune(p store.PruneParams) store.Pruned {
	b.t.Helper()
	sum, err := b.Prune(b.t.Context(), p)
	require.NoError(b.t, err)
	return sum
}

func (b bench) left() (ids []int64) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), byHand(`SELECT id FROM gendurable.gen_durable ORDER BY id`))
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		require.NoError(b.t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(b.t, rows.Err())
	return ids
}

func TestPruneByRetention(t *testing.T) {
	b := newBench(t)
	b.ended("done", 30, "", "")
	old := b.ended("failed", 30, "", "")
	stay := []int64{old, b.ended("done", 1, "", ""), b.ended("failed", 60, "", ""), b.row("", ""), b.parked("go")}
	b.exec(`INSERT INTO gendurable.signals (target_id, name) SELECT id, 'go' FROM gendurable.gen_durable`)

	p := aDay
	p.Failed = 72 * time.Hour
	require.Equal(t, store.Pruned{Instances: 1, Unread: 1}, b.prune(p))
	require.Equal(t, stay, b.left())
	require.Equal(t, len(stay), b.number(`SELECT count(*) FROM gendurable.signals`), "the inbox goes with its instance")

	p.Done, p.Failed = 72*time.Hour, 24*time.Hour
	require.Equal(t, store.Pruned{Instances: 2, Unread: 2}, b.prune(p))
	require.Equal(t, []int64{stay[1], stay[3], stay[4]}, b.left())
	require.Equal(t, store.Pruned{}, b.prune(p))
}

func TestPruneGoesThroughManyBatches(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at)
		SELECT 'm', 's', 'done', now() - interval '30 hours' FROM generate_series(1, 1050)`) // all at one time: the id decides
	require.Equal(t, 1050, b.prune(aDay).Instances)
	require.Empty(t, b.left())
}

// T88: the joining step, or an operator's Retry of the parent, still needs the children of the
// current round. The children of earlier rounds are not needed.
func TestPruneSparesTheCurrentRound(t *testing.T) {
	b := newBench(t)
	live := b.row("round", "2")
	fresh := b.ended("failed", 1, "round", "2")
	due := b.ended("done", 30, "round", "2")
	want := []int64{live, fresh}
	for _, parent := range []int64{live, fresh, due} {
		b.ended("done", 40, "parent_id, parent_round", "$1, 1", parent)
		child := b.ended("done", 40, "parent_id, parent_round", "$1, 2", parent)
		if parent != due {
			want = append(want, child)
		}
	}
	require.Equal(t, store.Pruned{Instances: 5}, b.prune(aDay))
	require.Equal(t, want, b.left())
}

// An instance that is kept for its parent keeps all below it, however deep: an operator may run it
// again, and its joining step reads its children. Below an earlier round, or an instance that is
// not kept, due instances go.
func TestPruneSparesAllBelowWhatIsKept(t *testing.T) {
	b := newBench(t)
	live := b.row("round", "2")
	gone := b.ended("failed", 30, "round", "1")
	want := []int64{live}
	for _, top := range []struct {
		parent, round int64
		stays         bool
	}{{live, 2, true}, {live, 1, false}, {gone, 1, false}} {
		parent, round := top.parent, top.round
		for range 3 {
			parent = b.ended("failed", 40, "round, parent_id, parent_round", "1, $1, $2", parent, round)
			round = 1
			leaf := b.ended("done", 40, "parent_id, parent_round", "$1, 1", parent)
			earlier := b.ended("done", 40, "parent_id, parent_round", "$1, 0", parent)
			require.Less(t, leaf, earlier)
			if top.stays {
				want = append(want, parent, leaf)
			}
		}
	}
	require.Equal(t, store.Pruned{Instances: 1 + 3*3 + 2*2*3}, b.prune(aDay))
	require.Equal(t, want, b.left())
	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() - interval '40 hours' WHERE id = $1`, live)
	require.Equal(t, store.Pruned{Instances: len(want)}, b.prune(aDay))
}

// A failed instance that is kept for one below it, which lives or is kept longer, keeps all below
// it, however deep: a Restart runs it again. A done instance runs no more, and keeps nothing that
// is due. All goes once nothing below is kept.
func TestPruneSparesAllBelowWhatIsKeptForAnother(t *testing.T) {
	b := newBench(t)
	const child = "round, parent_id, parent_round"
	for _, kept := range []string{"lives", "its own retention"} {
		for deep := range 3 {
			for _, archived := range []bool{false, true} {
				top := b.ended("failed", 50, "round", "1")
				done := b.ended("done", 50, "round", "1")
				other := b.ended("failed", 50, "round", "1")
				b.ended("done", 45, child, "1, $1, 1", other)
				b.ended("done", 45, child, "1, $1, 1", done)
				b.ended("done", 45, child, "1, $1, 0", top) // of an earlier round
				want := []int64{top, done, b.ended("done", 45, child, "1, $1, 1", top)}
				below := b.ended("failed", 45, child, "1, $1, 1", top)
				want = append(want, below, b.ended("done", 44, child, "1, $1, 1", below))
				under := func(of int64) int64 { // what is kept, so deep below
					for range deep {
						of = b.ended("done", 45, child, "1, $1, 0", of)
						want = append(want, of)
					}
					if kept == "lives" {
						return b.row(child, "1, $1, 0", of)
					}
					return b.ended("done", 45, child+", retain", "1, $1, 0, $2", of, []int64{time.Hour.Microseconds() * 500})
				}
				keeps := []int64{under(top), under(done)}
				want = append(want, keeps...)
				p := aDay
				p.Limit = 4 // pages end within a family
				var seen []int64
				if archived {
					p.Archive = func(_ context.Context, _ string, ids []int64) error { seen = append(seen, ids...); return nil }
				}
				gone := b.prune(p).Instances
				require.ElementsMatch(t, want, b.left(), "%s, %d below", kept, deep)
				require.Equal(t, 4, gone)
				require.Zero(t, b.prune(p).Instances)
				if archived {
					require.Len(t, seen, 4, "only what goes is archived")
				}
				b.exec(`UPDATE gendurable.gen_durable SET status = 'done', retain = NULL, finished_at = now() - interval '40 hours' WHERE id = ANY($1)`, keeps)
				for left := len(want); left > 0; { // parents may come in an earlier page than their last child
					gone := b.prune(p).Instances
					require.Positive(t, gone)
					left -= gone
				}
				require.Empty(t, b.left())
			}
		}
	}
}

// A node that is done stays while one behind it is at its first visit, which reads its result, also
// where the root has left that round.
func TestPruneSparesWhatANodeWaitsFor(t *testing.T) {
	b := newBench(t)
	live := b.row("round", "2")
	node := func(name, status string, visit int) int64 {
		if status == "done" {
			return b.ended("done", 40, "parent_id, parent_round, node, visit", fmt.Sprintf("$1, 1, '%s', %d", name, visit), live)
		}
		return b.row("status, parent_id, parent_round, node, visit, children_pending", fmt.Sprintf("'%s', $1, 1, '%s', %d, 1", status, name, visit), live)
	}
	a, waits := node("a", "done", 1), node("waits", "awaiting_children", 0)
	c, runs := node("c", "done", 1), node("runs", "runnable", 0)
	e, begun := node("e", "done", 1), node("begun", "runnable", 1)
	g, ended := node("g", "done", 1), node("ended", "done", 0)
	b.exec(`INSERT INTO gendurable.edges (from_id, to_id, needs) SELECT unnest($1::bigint[]), unnest($2::bigint[]), 0`,
		[]int64{a, c, e, g}, []int64{waits, runs, begun, ended})
	require.Equal(t, store.Pruned{Instances: 3}, b.prune(aDay))
	require.Equal(t, []int64{live, a, waits, c, runs, begun}, b.left())
	b.exec(`UPDATE gendurable.gen_durable SET visit = 1 WHERE node IN ('waits', 'runs')`)
	require.Equal(t, store.Pruned{Instances: 2}, b.prune(aDay))
}

// Children and parents that are due go in one sweep, however deep they are. An instance that is not
// due keeps its ancestors.
func TestPruneChildrenBeforeParents(t *testing.T) {
	b := newBench(t)
	tree := func(leaf int) {
		parent := b.ended("done", 30, "round", "1")
		for range 4 {
			parent = b.ended("done", 30, "round, parent_id, parent_round", "1, $1, 1", parent)
		}
		b.ended("done", leaf, "parent_id, parent_round", "$1, 1", parent)
	}
	tree(30)
	tree(1)
	require.Equal(t, store.Pruned{Instances: 6}, b.prune(aDay))
	require.Len(t, b.left(), 6)
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id IS NULL AND depth > 0`))
	require.Equal(t, 5, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`))
}

// Many rows that have to stay do not keep the sweep from the rows behind them.
func TestPrunePassesWhatStays(t *testing.T) {
	b := newBench(t)
	parent := b.row("round", "1")
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, parent_id, parent_round)
		SELECT 'm', 's', 'done', now() - interval '40 hours', $1, 1 FROM generate_series(1, 350)`, parent)
	b.ended("done", 30, "", "")
	require.Equal(t, store.Pruned{Instances: 1}, b.prune(aDay))
	require.Len(t, b.left(), 351)
}

// T22: a row that Postgres refuses to delete, since the host refers to it, keeps no other.
func TestPruneNarrowsARefusalDown(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE invoice (instance bigint REFERENCES gendurable.gen_durable)`)
	var kept []int64
	for n := range 150 {
		id := b.ended("done", 30, "", "")
		if n%60 == 7 {
			kept = append(kept, id)
			b.exec(`INSERT INTO invoice VALUES ($1)`, id)
		}
	}
	require.Equal(t, store.Pruned{Instances: 147, Refused: kept}, b.prune(aDay))
	require.Equal(t, kept, b.left())
}

// The same holds if a host's row refers to an instance, would be deleted with it, and is locked.
func TestPruneNarrowsALockDown(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE invoice (instance bigint REFERENCES gendurable.gen_durable ON DELETE CASCADE)`)
	stuck := b.ended("done", 30, "", "")
	b.ended("done", 30, "", "")
	b.exec(`INSERT INTO invoice VALUES ($1)`, stuck)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM invoice FOR UPDATE`)
	require.Equal(t, store.Pruned{Instances: 1}, b.prune(aDay))
	require.NoError(t, stranger.Rollback(t.Context()))
	require.Equal(t, store.Pruned{Instances: 1}, b.prune(aDay))
}

// T6: the sweep leaves locked instances for later. It neither waits nor narrows down: it sends a
// look, a delete, a look for rows with their own retention, and the statements of the kept signals,
// the tombstones and the windows.
func TestPruneSkipsWhatIsLocked(t *testing.T) {
	b := newBench(t)
	count := &interloper{}
	sweeper := b.beside(count.on)
	count.afresh()
	held := []int64{b.ended("done", 30, "", ""), b.ended("done", 30, "", "")}
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable FOR NO KEY UPDATE`)
	require.Equal(t, store.Pruned{}, sweeper.prune(aDay))
	require.EqualValues(t, 6, count.attempts())

	b.ended("done", 30, "", "")
	require.Equal(t, store.Pruned{Instances: 1}, sweeper.prune(aDay))
	require.Equal(t, held, b.left())
}

// T45: only one sweeper works at a time, and the others return at once.
func TestPruneAlone(t *testing.T) {
	b := newBench(t)
	id := b.ended("done", 30, "", "")
	b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at) SELECT $1, 'go', n, now() FROM generate_series(1, 9) n`,
		b.parked("go"))
	b.exec(`CREATE TABLE gate (open boolean)`)
	b.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN PERFORM FROM gate FOR UPDATE; RETURN OLD; END $$`)
	b.exec(`CREATE TRIGGER gate BEFORE DELETE ON gendurable.gen_durable FOR EACH ROW EXECUTE FUNCTION gate()`)
	b.exec(`INSERT INTO gate VALUES (true)`)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gate FOR UPDATE`)
	first := make(chan error, 1)
	go func() {
		_, err := b.Prune(t.Context(), aDay)
		first <- err
	}()
	b.waiting(1)
	require.Equal(t, store.Pruned{}, b.prune(store.PruneParams{Tombstones: 1, Limit: 100}), "the first is at it")
	require.NoError(t, stranger.Rollback(t.Context()))
	require.NoError(t, <-first)
	require.NotContains(t, b.left(), id)
}

// A trigger of the host that reports a conflict for one row each time keeps no other row from
// going: neither an instance nor an inbox.
func TestPruneBesideWhatConflictsEachTime(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE FUNCTION gendurable.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE USING ERRCODE = '40001'; END $$`)
	bad := b.ended("done", 31, "", "")
	for range 20 {
		b.ended("done", 30, "", "")
	}
	stuck, other := b.parked("go"), b.parked("go")
	require.Less(t, stuck, other)
	b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at)
		SELECT g.id, 'go', n, now() FROM gendurable.gen_durable g, generate_series(1, 5) n WHERE g.status = 'awaiting_signal'`)
	b.exec(`CREATE TRIGGER conflict BEFORE DELETE ON gendurable.gen_durable FOR EACH ROW WHEN (old.id = ` + number(bad) + `) EXECUTE FUNCTION gendurable.conflict()`)
	b.exec(`CREATE TRIGGER conflict BEFORE DELETE ON gendurable.signals FOR EACH ROW WHEN (old.target_id = ` + number(stuck) + `) EXECUTE FUNCTION gendurable.conflict()`)
	b.exec(`INSERT INTO gendurable.kept_signals (key, name, expires_at) VALUES ('k', 'go', now())`)
	b.exec(`CREATE TRIGGER conflict BEFORE DELETE ON gendurable.kept_signals FOR EACH ROW EXECUTE FUNCTION gendurable.conflict()`)
	p := aDay
	p.Tombstones = 2
	got, err := b.Prune(t.Context(), p)
	require.ErrorContains(t, err, "40001", "a kept signal that cannot be deleted is told")
	require.Equal(t, store.Pruned{Instances: 20, Tombstones: 3, Refused: []int64{bad, stuck}}, got)
	require.Equal(t, []int64{bad, stuck, other}, b.left())
}

func TestPruneTombstonesOldestFirst(t *testing.T) {
	b := newBench(t)
	many, few := b.parked("go"), b.parked("go")
	for id, n := range map[int64]int{many: 250, few: 20} {
		b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at)
			SELECT $1, 'go', n, now() - n * interval '1 minute' FROM generate_series(1, $2) n`, id, n)
		b.exec(`INSERT INTO gendurable.signals (target_id, name) SELECT $1, 'go' FROM generate_series(1, 30)`, id)
	}
	p := aDay
	p.Tombstones = 20
	require.Equal(t, store.Pruned{Tombstones: 230}, b.prune(p))
	require.Equal(t, 20, b.number(`SELECT count(*) FROM gendurable.signals WHERE target_id = $1 AND consumed_at IS NOT NULL`, few))
	require.Equal(t, 20, b.number(`SELECT count(*) FROM gendurable.signals WHERE target_id = $1 AND dedup_key::int <= 20`, many))
	require.Equal(t, 30, b.signals(many), "what is not consumed stays")

	held := b.begin()
	b.inTx(held, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, many)
	p.Tombstones = 10
	require.Equal(t, store.Pruned{Tombstones: 10}, b.prune(p), "of the one that nobody is busy with")
}

// A sweep takes as many transactions as it needs. Each is a slice, which its caller may delay,
// bound or refuse.
func TestPruneIsGivenUpByTheClient(t *testing.T) {
	b := newBench(t)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() - interval '1 year' WHERE id = $1`, b.row("", ""))
	p, late, slices := aDay, true, 0
	p.Slice = func(ctx context.Context, do func(context.Context) error) error {
		slices++
		if late {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Nanosecond)
			defer cancel()
		}
		return do(ctx)
	}
	_, err := b.Prune(t.Context(), p)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, slices, "the others are given up with it")
	late, slices = false, 0
	done, err := b.Prune(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, 1, done.Instances)
	require.Greater(t, slices, 1)
}
