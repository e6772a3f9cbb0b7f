package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// operate carries an order out.
func (b bench) operate(o store.Order, ids ...int64) store.Operated {
	b.t.Helper()
	o.Mark = uuid.NewString()
	got, err := b.Operate(b.t.Context(), ids, &o)
	require.NoError(b.t, err)
	return got
}

type answer struct {
	store.Operated
	err error
}

// operating carries an order out in a separate session.
func (b bench) operating(o store.Order, ids ...int64) <-chan answer {
	out := make(chan answer, 1)
	o.Mark = uuid.NewString()
	go func() {
		got, err := b.Operate(b.t.Context(), ids, &o)
		out <- answer{got, err}
	}()
	return out
}

// child inserts a child of round 9 of a parent.
func (b bench) child(parent int64, depth int, more columns) int64 {
	return b.insert(columns{"fsm": `'kid'`, "step": `'work'`, "parent_id": number(parent), "parent_round": `9`, "depth": number(depth)}.with(more))
}

func waitsFor(n int) columns {
	return columns{"status": `'awaiting_children'`, "round": `9`, "children_pending": number(n)}
}

// A family has four generations, one of which has ended. The cancel ends all live members and
// settles every barrier, including the barrier of the root's parent, once.
func TestCancelWithDescendants(t *testing.T) {
	b := newBench(t)
	above := b.insert(columns{"fsm": `'m'`, "step": `'s'`}.with(waitsFor(2)))
	root := b.child(above, 1, waitsFor(2))
	sibling := b.child(above, 1, nil)
	middle := b.child(root, 2, waitsFor(1))
	over := b.child(root, 2, columns{"status": `'failed'`, "failure": `'error'`, "finished_at": `now()`, "joined": `gen_random_uuid()`, "round": `9`})
	leaf, orphan := b.child(middle, 3, nil), b.child(over, 3, columns{"status": `'awaiting_signal'`, "awaits": `'{go}'`})
	got := b.operate(store.Order{Verb: store.Cancel, Descendants: true, Most: 6, By: store.By{Reason: "no"}}, root)
	require.Empty(t, got.Refused)
	require.Equal(t, []store.Change{
		{ID: root, Was: "awaiting_children", Is: "failed", Asked: true},
		{ID: middle, Was: "awaiting_children", Is: "failed"},
		{ID: leaf, Was: "runnable", Is: "failed"},
		{ID: orphan, Was: "awaiting_signal", Is: "failed"},
	}, got.Changed)
	require.Equal(t, []string{"1", "1", "0"}, []string{
		number(b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, above)),
		number(b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, root)),
		number(b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, middle)),
	}, "of root one child had joined before it was counted here: the fixture's")
	require.Equal(t, []string{"runnable", "failed"}, []string{b.status(sibling), b.status(over)})
	require.Equal(t, 4, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE failure = 'cancelled' AND last_error = 'cancelled: no'`))
}

// An instance that has ended may have descendants that have not.
func TestCancelDescendantsOfWhatHasEnded(t *testing.T) {
	b := newBench(t)
	root := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "status": `'done'`, "finished_at": `now()`})
	kid := b.child(root, 1, nil)
	order := store.Order{Verb: store.Cancel, Descendants: true, Most: 10}
	got := b.operate(order, root)
	require.Equal(t, []store.Change{{ID: kid, Was: "runnable", Is: "failed"}}, got.Changed)
	require.Equal(t, []store.Refusal{{ID: root, Status: "done", Why: store.ErrApplies}}, got.Refused)
	require.Empty(t, b.operate(order, root).Changed)
}

func TestCancelOfTooLargeAFamily(t *testing.T) {
	b := newBench(t)
	root := b.insert(columns{"fsm": `'m'`, "step": `'s'`})
	b.child(root, 1, nil)
	before := b.everything()
	_, err := b.Operate(t.Context(), []int64{root}, &store.Order{Verb: store.Cancel, Mark: uuid.NewString(), Descendants: true, Most: 1})
	var many *store.TooManyError
	require.ErrorAs(t, err, &many)
	require.Equal(t, 1, many.Most)
	require.Equal(t, before, b.everything())
}

// The cancel also locks descendants that are born while it locks the family. If one has a lower id
// than a locked one, the transaction begins anew.
func TestCancelOfAFamilyThatGrows(t *testing.T) {
	b := newBench(t)
	root := b.insert(columns{"fsm": `'m'`, "step": `'s'`})
	b.child(root, 1, nil)
	between := &interloper{text: "ORDER BY g.id FOR NO KEY UPDATE OF g", act: func() {
		b.child(root, 1, nil)
		b.exec(`INSERT INTO gendurable.gen_durable (id, fsm, step, parent_id, depth) OVERRIDING SYSTEM VALUE VALUES (-5, 'late', 's', $1, 1)`, root)
	}}
	operator := b.beside(func(c *pgxpool.Config) { c.ConnConfig.Tracer = between })
	require.Len(t, operator.operate(store.Order{Verb: store.Cancel, Descendants: true, Most: 10}, root).Changed, 4)
	require.True(t, between.acted.Load())
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status <> 'failed'`))
}

// A cancel and an outcome run in both orders. Whichever comes second sees the other.
func TestCancelBesideAnOutcome(t *testing.T) {
	b := newBench(t)
	first, second := b.executing(nil), b.executing(nil)
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), result = '{}', locked_by = NULL,
		lease_expires_at = NULL WHERE id = $1`, first.ID)
	waits := b.operating(store.Order{Verb: store.Cancel}, first.ID)
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	got := <-waits
	require.NoError(t, got.err)
	require.Equal(t, []store.Refusal{{ID: first.ID, Status: "done", Why: store.ErrApplies}}, got.Refused)

	require.Len(t, b.operate(store.Order{Verb: store.Cancel}, second.ID).Changed, 1)
	before := b.everything()
	committed, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: second, Commit: &step.Commit{Kind: step.Done}}}, patient)
	require.NoError(t, err)
	require.Empty(t, committed.Applied)
	require.Equal(t, before, b.everything())
}

// The heartbeat reports which claims were cancelled, which were lost otherwise, and which instances
// are paused.
func TestHeartbeatTellsOfOperators(t *testing.T) {
	b := newBench(t)
	cancelled, lost, paused := b.executing(nil), b.executing(nil), b.executing(nil)
	b.operate(store.Order{Verb: store.Cancel}, cancelled.ID)
	b.operate(store.Order{Verb: store.Pause}, paused.ID)
	b.exec(`UPDATE gendurable.gen_durable SET claim_token = 77 WHERE id = $1`, lost.ID)
	line := b.Line()
	defer func() { require.NoError(t, line.Close(t.Context())) }()
	got, err := line.Beat(t.Context(), me, []*step.Claim{cancelled, lost, paused}, lease)
	require.NoError(t, err)
	require.Equal(t, store.Beaten{Extended: []int64{paused.ID}, Paused: []int64{paused.ID}, Lost: []int64{cancelled.ID, lost.ID},
		Cancelled: []int64{cancelled.ID}}, got)
}

// T56: another instance has occupied the key by now, or is about to.
func TestRetryOfAnInstanceWhoseKeyIsTaken(t *testing.T) {
	b := newBench(t)
	failed := func() int64 {
		return b.insert(columns{"fsm": `'m'`, "step": `'s'`, "status": `'failed'`, "failure": `'error'`, "finished_at": `now()`,
			"correlation_key": `'k'`, "correlation_scope": liveScope})
	}
	id := failed()
	stranger := b.begin()
	b.inTx(stranger, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'k', `+liveScope+`)`)
	waits := b.operating(store.Order{Verb: store.Retry}, id)
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	var occupied *store.OccupiedError
	require.ErrorAs(t, (<-waits).err, &occupied)
	require.Equal(t, "k", occupied.Key)
	require.Equal(t, int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = 'k'`)), occupied.Occupant)
	require.Equal(t, "failed", b.status(id))

	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = $1`, occupied.Occupant)
	_, err := b.Operate(t.Context(), []int64{id, failed()}, &store.Order{Verb: store.Retry})
	require.True(t, store.IsUniqueViolation(err), "of two together, both are refused: %v", err)
	require.Len(t, b.operate(store.Order{Verb: store.Retry}, id).Changed, 1)
}

// Operate checks the caller's conditions under the lock.
func TestOperateComparesBeforeItSets(t *testing.T) {
	b := newBench(t)
	id := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "queue": `'q'`, "visit": `3`, "correlation_key": `'k'`, "correlation_scope": liveScope})
	row, err := b.Get(t.Context(), byID(id))
	require.NoError(t, err)
	seen := store.Seen{Status: string(row.Status), Visit: row.Visit, Attempt: row.Attempt, Crashes: row.Crashes, EligibleAt: row.EligibleAt}
	before := b.everything()
	for why, order := range map[error]store.Order{
		store.ErrMoved:     {Key: "other"},
		store.ErrUnmatched: {Filter: store.Filter{Machine: "m", Queue: "other"}},
	} {
		order.Verb = store.Cancel
		require.Equal(t, []store.Refusal{{ID: id, Status: "runnable", Why: why}}, b.operate(order, id).Refused)
	}
	for name, change := range map[string]func(s *store.Seen){
		"status":   func(s *store.Seen) { s.Status = "executing" },
		"visit":    func(s *store.Seen) { s.Visit++ },
		"attempt":  func(s *store.Seen) { s.Attempt++ },
		"crashes":  func(s *store.Seen) { s.Crashes++ },
		"eligible": func(s *store.Seen) { s.EligibleAt = s.EligibleAt.Add(time.Microsecond) },
		"paused":   func(s *store.Seen) { s.Paused = true },
	} {
		other := seen
		change(&other)
		require.Equal(t, []store.Refusal{{ID: id, Status: "runnable", Why: store.ErrChanged}},
			b.operate(store.Order{Verb: store.Cancel, Seen: &other}, id).Refused, name)
	}
	require.Equal(t, []store.Refusal{{ID: id + 1, Why: store.ErrGone}}, b.operate(store.Order{Verb: store.Cancel}, id+1).Refused)
	require.Equal(t, before, b.everything())
	order := store.Order{Verb: store.Cancel, Seen: &seen, Key: "k", Filter: store.Filter{Machine: "m", Version: 1, Step: "s", Queue: "q",
		Statuses: []string{"runnable"}, KeyPrefix: "k"}}
	require.Len(t, b.operate(order, id).Changed, 1)
}

// If another transaction has locked the head of a key, Operate cannot bring it forward, and reports
// the key.
func TestOperateReportsKeysItMissed(t *testing.T) {
	b := newBench(t)
	head, next := b.ofKey("k", 10, nil), b.ofKey("k", 5, columns{"pick_lane": `1`})
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, next)
	require.Equal(t, []string{"k"}, b.operate(store.Order{Verb: store.Pause}, head).Missed)
	require.NoError(t, stranger.Commit(t.Context()))
}

func TestSelect(t *testing.T) {
	b := newBench(t)
	a := b.insert(columns{"fsm": `'a'`, "step": `'s'`, "correlation_key": `'x:1'`, "eligible_at": `now() + interval '1 hour'`})
	c := b.insert(columns{"fsm": `'a'`, "step": `'t'`, "fsm_version": `2`, "queue": `'q'`, "paused": `true`})
	d := b.insert(columns{"fsm": `'d'`, "step": `'s'`, "status": `'failed'`, "failure": `'error'`, "finished_at": `now()`})
	for name, want := range map[string]struct {
		verb   store.Verb
		filter store.Filter
		ids    []int64
	}{
		"all":        {store.Cancel, store.Filter{}, []int64{a, c}},
		"machine":    {store.Cancel, store.Filter{Machine: "a"}, []int64{a, c}},
		"version":    {store.Cancel, store.Filter{Machine: "a", Version: 2}, []int64{c}},
		"step":       {store.Cancel, store.Filter{Step: "t"}, []int64{c}},
		"queue":      {store.Cancel, store.Filter{Queue: "q"}, []int64{c}},
		"prefix":     {store.Cancel, store.Filter{KeyPrefix: "x:"}, []int64{a}},
		"no pattern": {store.Cancel, store.Filter{KeyPrefix: "%"}, nil},
		"status":     {store.Cancel, store.Filter{Statuses: []string{"failed"}}, nil},
		"retry":      {store.Retry, store.Filter{}, []int64{d}},
		"failure":    {store.Retry, store.Filter{Failures: []string{"error", "decided"}}, []int64{d}},
		"no failure": {store.Retry, store.Filter{Failures: []string{"decided"}}, nil},
		"run now":    {store.RunNow, store.Filter{}, []int64{a}},
		"pause":      {store.Pause, store.Filter{}, []int64{a}},
		"resume":     {store.Resume, store.Filter{}, []int64{c}},
	} {
		got, err := b.Select(t.Context(), want.verb, &want.filter, 2)
		require.NoError(t, err, name)
		require.Equal(t, want.ids, got, name)
	}
	_, err := b.Select(t.Context(), store.Cancel, &store.Filter{}, 1)
	var many *store.TooManyError
	require.ErrorAs(t, err, &many)
}

// The table has more than one page.
func TestSelectGoesThroughPages(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority) SELECT 'm', 's', i % 2 FROM generate_series(1, 45000) i`)
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id % 7 = 0`)
	got, err := b.Select(t.Context(), store.Cancel, &store.Filter{Machine: "m"}, 50_000)
	require.NoError(t, err)
	require.Equal(t, b.column(`SELECT g.id::text FROM gendurable.gen_durable g ORDER BY g.id`), texts(got))
}

func texts(ids []int64) (out []string) {
	for _, id := range ids {
		out = append(out, number(id))
	}
	return out
}
