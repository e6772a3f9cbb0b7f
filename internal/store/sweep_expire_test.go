package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

var overdueRow = plain.with(columns{"deadline": `now() - interval '1 s'`})

func (b bench) sweepOverdue() store.Expired {
	b.t.Helper()
	got, err := b.Expire(b.t.Context(), newMark(), 100)
	require.NoError(b.t, err)
	return got
}

// The sweep fails instances in the order of their deadlines, at most so many at a time. Instances
// without a deadline, or before it, stay.
func TestExpireInOrder(t *testing.T) {
	b := newBench(t)
	var want []int64
	for n := range 5 {
		want = append(want, b.insert(plain.with(columns{"deadline": fmt.Sprintf(`now() - interval '%d s'`, 10-n)})))
	}
	b.insert(plain)
	b.insert(plain.with(columns{"deadline": `now() + interval '1 h'`}))
	for i := range want {
		got, err := b.Expire(t.Context(), newMark(), 1)
		require.NoError(t, err)
		require.Equal(t, want[i:i+1], got.Failed)
	}
	require.Empty(t, b.sweepOverdue().Failed)
}

// A poll reports an overdue instance if there is work for the sweep, and only then.
func TestPollSaysWhatIsOverdue(t *testing.T) {
	b := newBench(t)
	overdue := func() bool {
		t.Helper()
		found, err := b.Poll(t.Context(), []string{"default"}, []string{"m/1"}, nil)
		require.NoError(t, err)
		require.False(t, found.Awaits)
		require.NotContains(t, found.Due, "")
		return found.Overdue
	}
	require.False(t, overdue())
	b.insert(plain.with(columns{"deadline": `now() + interval '1 h'`}))
	b.executing(columns{"deadline": `now() - interval '1 h'`})
	require.False(t, overdue())
	b.insert(overdueRow)
	require.True(t, overdue())
	b.sweepOverdue()
	require.False(t, overdue())
}

// Children join. A parent that is over its own deadline in the same sweep does not wake, and its
// children stay.
func TestExpireOfFamilies(t *testing.T) {
	b := newBench(t)
	waits, over := b.joiner(2), b.joiner(2)
	b.exec(`UPDATE gendurable.gen_durable SET deadline = now() WHERE id = $1`, over)
	var late []int64
	for _, parent := range []int64{waits, waits, over} {
		c := b.kidOf(parent)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL, deadline = now() WHERE id = $1`, c.ID)
		late = append(late, c.ID)
	}
	stays := b.kidOf(over).ID
	got := b.sweepOverdue()
	require.ElementsMatch(t, append(late, over), got.Failed)
	require.Len(t, got.Queues, 1, "of the parent that wakes")
	require.Equal(t, "runnable", b.status(waits))
	require.Equal(t, "failed", b.status(over))
	require.Equal(t, "executing", b.status(stays))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE joined IS NULL AND failure = 'deadline' AND parent_id IS NOT NULL`))
}

// The sweep leaves locked rows, and children whose parent is locked, to the next sweep. It does not
// wait.
func TestExpireLeavesToOthers(t *testing.T) {
	b := newBench(t)
	parent := b.joiner(1)
	child := b.kidOf(parent).ID
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL, deadline = now() WHERE id = $1`, child)
	held, free := b.insert(overdueRow), b.insert(overdueRow)
	holder := b.begin()
	b.inTx(holder, `SELECT FROM gendurable.gen_durable WHERE id IN ($1, $2) FOR NO KEY UPDATE`, parent, held)
	require.Equal(t, []int64{free}, b.sweepOverdue().Failed) // a lock that it waits for is an error
	require.NoError(t, holder.Rollback(t.Context()))
	require.ElementsMatch(t, []int64{child, held}, b.sweepOverdue().Failed)
	require.Equal(t, "runnable", b.status(parent))
}

// A key goes on with its next row, or is reported if it could not.
func TestExpirePassesTheKeyOn(t *testing.T) {
	b := newBench(t)
	keyed := plain.with(columns{"partition_key": `'k'`})
	head, next := b.insert(keyed.with(columns{"deadline": `now()`})), b.insert(keyed.with(columns{"pick_lane": `1`}))
	holder := b.begin()
	b.inTx(holder, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, next)
	got := b.sweepOverdue()
	require.Equal(t, []int64{head}, got.Failed)
	require.Equal(t, []string{"k"}, got.Missed)
	require.NoError(t, holder.Rollback(t.Context()))
	p, err := b.Promote(t.Context(), got.Missed)
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, p.Queues)
}

// T22: the sweep names a row that Postgres refuses to change, and fails the others.
func TestExpireAroundARowThatCannotChange(t *testing.T) {
	b := newBench(t)
	var rows []int64
	for range 5 {
		rows = append(rows, b.insert(overdueRow))
	}
	b.exec(fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ADD CHECK (id <> %d OR failure IS NULL)`, rows[2]))
	got := b.sweepOverdue()
	require.Len(t, got.Failed, 4)
	requireRefused(t, rows[2:3], got.Refused)
}

// The dedup keys and signals of a failed instance stay for a Retry, as after a Fail, but it accepts
// no more signals.
func TestTheInboxOfWhatIsOverdue(t *testing.T) {
	b := newBench(t)
	id := b.insert(overdueRow.with(columns{"status": `'awaiting_signal'`, "awaits": `'{go}'`}))
	_, err := b.Deliver(t.Context(), byID(id), named("other"), 10)
	require.NoError(t, err)
	require.Equal(t, []int64{id}, b.sweepOverdue().Failed)
	_, err = b.Deliver(t.Context(), byID(id), named("go"), 10)
	require.ErrorIs(t, err, store.ErrNoTarget)
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.signals`))
	inbox, _, err := b.Inbox(t.Context(), id, 0)
	require.NoError(t, err)
	require.Empty(t, inbox)
}

// A claim brings the time left until the deadline by the server's clock.
func TestClaimSaysWhatIsLeft(t *testing.T) {
	b := newBench(t)
	b.insert(plain.with(columns{"deadline": `now() + interval '1 h'`}))
	b.insert(plain.with(columns{"deadline": `now() - interval '1 h'`}))
	b.insert(plain)
	got := b.claim(most(10)).Claims
	require.Len(t, got, 3)
	require.InDelta(t, time.Hour, got[0].Life, float64(time.Minute))
	require.InDelta(t, -time.Hour, got[1].Life, float64(time.Minute))
	require.Zero(t, got[2].Life)
	require.True(t, got[2].Deadline.IsZero())
}

// Within one sweep the children of a locked parent are skipped, however many they are and although
// they come first.
func TestSweepsPassTheChildrenOfAHeldParent(t *testing.T) {
	const limit, children = 20, 500
	kids := func(b bench, more string) (parent int64) {
		parent = b.joiner(children)
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round, `+more+` FROM generate_series(1, $2) n`, parent, children)
		return parent
	}
	limits := store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}
	for name, x := range map[string]struct {
		kids, free string // the rows to sweep: children, and then rows of strangers
		sweep      func(b bench) (ids []int64, refused []store.Refused)
	}{
		"deadlines": {`deadline) SELECT 'm', 's', $1, 3, now() - interval '1 h'`, `deadline) SELECT 'm', 's', now() - interval '1 min'`,
			func(b bench) ([]int64, []store.Refused) {
				got, err := b.Expire(t.Context(), newMark(), limit)
				require.NoError(t, err)
				return got.Failed, got.Refused
			}},
		"leases": {`crashes, status, locked_by, lease_expires_at) SELECT 'm', 's', $1, 3, 1, 'executing', 'w', now() - interval '1 h'`,
			`crashes, status, locked_by, lease_expires_at) SELECT 'm', 's', 1, 'executing', 'w', now() - interval '1 min'`,
			func(b bench) ([]int64, []store.Refused) {
				got, err := b.Reap(t.Context(), newMark(), limits, limit)
				require.NoError(t, err)
				require.Zero(t, got.Released)
				return got.Failed, got.Refused
			}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			parent := kids(b, x.kids)
			b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, ` + x.free + ` FROM generate_series(1, 5)`)
			holder := b.begin()
			b.inTx(holder, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, parent)
			swept, refused := x.sweep(b)
			require.Len(t, swept, 5, "the strangers")
			require.Empty(t, refused)
			require.NoError(t, holder.Rollback(t.Context()))
			swept, _ = x.sweep(b)
			require.Len(t, swept, limit, "now the children")
			require.Equal(t, children-limit, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, parent))
		})
	}
}
