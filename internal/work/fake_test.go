package work

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// fake is the database on which workers are tested. It keeps rows in memory, follows the rules of
// the statements that package store sends, and gives answers that come late, wrong or never (see
// weather). If the form of a statement matters to a worker, the fake keeps it: a claim sees a
// window, rows that cannot run are moved out of it, and only promotion brings followers of a key
// forward.
type fake struct {
	weather weather
	keys    map[string]bool // correlation keys that strangers are inserting

	mu        sync.Mutex
	rows      map[int64]*row
	live      map[int64]*row // those that had not ended when they were last looked at
	seen      int            // how many rows there were then
	ids       int64
	tokens    int64
	booted    time.Time
	sent      []statement
	commits   []batchSent
	lines     map[*fakeLine]bool // that hold a liveness lock
	lost      []lostClaim
	paused    []store.PausedQueue
	gates     store.Gates
	own       map[string]int  // places of keys
	throttled []string        // what Throttle was called with
	rested    []store.Rested  // what CancelRest returns, call by call
	skipped   []store.Skipped // what Skip returns, call by call
	passedBy  int             // how often something that is to be skipped is left
	refiled   int             // how often Refile was called; the first page is full
	scheduled time.Time       // when the next schedule is due; zero: there is none
	// poisoned is a row that Postgres refuses to fail at its deadline.
	poisoned int64
	refused  time.Time           // when the last refusal was reported
	fronts   int                 // claims from the front
	walk     time.Duration       // the server time that a claim from the front reports
	flood    map[string]bool     // the verbs of the sweeps that find as much as they take, each time
	flying   int                 // statements of these that are under way,
	mostEver int                 // and the most that ever were
	old      int                 // instances past their retention
	rolled   store.Rolled        // what each roll of the history answers
	over     func(c *step.Claim) // called with each claim that ends
	changed  chan struct{}       // closed when a stranger has written to a row
}

// row is an instance in the form that its next claim gets, with further columns that no claim
// shows.
type row struct {
	step.Claim
	status   fsm.Status
	lane     int
	worker   string
	lease    time.Time
	eligible time.Time
	deadline time.Time // the deadline of an await
	held     time.Time // a stranger's transaction locks the row until then
	busy     bool      // one stranger after the other locks it: a statement that does not wait never gets it
	mark     string
	pending  int // children that have not ended
	failure  string
	paused   bool
	large    bool // its state does not come with a claim
	err      string
	outcomes []step.Kind // the committed ones
	begun    bool        // one of them is of a step that was called
}

// batchSent is one commit as the worker sent it.
type batchSent struct {
	from, to time.Time
	ids      []int64
	parents  []int64 // the parents that it joins
	slow     bool
	bytes    int
}

func newFake() *fake {
	return &fake{rows: map[int64]*row{}, live: map[int64]*row{}, changed: make(chan struct{}), lines: map[*fakeLine]bool{}, booted: time.Now().Add(-24 * time.Hour), over: func(*step.Claim) {}}
}

// insert adds runnable rows, after the given edits.
func (db *fake) insert(edits ...func(r *row)) *row {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.ids++
	r := &row{Claim: step.Claim{ID: db.ids, Machine: "m", Version: 1, Step: "s", Queue: "q"}, status: fsm.StatusRunnable, eligible: time.Now()}
	for _, edit := range edits {
		edit(r)
	}
	db.rows[r.ID] = r
	return r
}

// look returns a copy of a row.
func (db *fake) look(id int64) *row {
	db.mu.Lock()
	defer db.mu.Unlock()
	r := *db.rows[id]
	return &r
}

// all reads every row.
func (db *fake) all() (rows []row) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.rows {
		rows = append(rows, *r)
	}
	return rows
}

// change writes to a row like another session.
func (db *fake) change(id int64, edit func(r *row)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	edit(db.rows[id])
	db.live[id] = db.rows[id]
	close(db.changed)
	db.changed = make(chan struct{})
}

// sorted returns the rows that have not ended and that accept accepts, in the order of claims. The
// caller holds mu.
func (db *fake) sorted(accept func(r *row) bool) []*row {
	var out []*row
	for id, r := range db.unended() {
		if r.terminal() {
			delete(db.live, id)
		} else if accept(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.eligible.Compare(b.eligible), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// unended returns all rows that have not ended, and perhaps some that have. Scans of all rows took
// most of the time of these tests with the race detector.
func (db *fake) unended() map[int64]*row {
	if len(db.rows) != db.seen {
		db.live, db.seen = maps.Clone(db.rows), len(db.rows)
	}
	return db.live
}

func (r *row) due() bool { return r.status == fsm.StatusRunnable && !r.eligible.After(time.Now()) }
func (r *row) place() store.Place {
	return store.Place{Priority: int16(r.Priority), EligibleAt: r.eligible, ID: r.ID}
}

func (r *row) locked() bool { return r.held.After(time.Now()) }

func (r *row) terminal() bool  { return r.status.Terminal() }
func (r *row) machine() string { return store.MachineID(r.Machine, r.Version) }
func (r *row) fence(c *step.Claim, worker string) bool {
	return r != nil && r.status == fsm.StatusExecuting && r.worker == worker && r.Token == c.Token
}

func (db *fake) Claim(ctx context.Context, p store.ClaimParams) (store.Claimed, error) {
	out := store.Claimed{NextDue: -1}
	err := db.send(ctx, "claim", p.Queue, func() error {
		if db.weather.happens(db.weather.collision) {
			return refusal("23505")
		}
		if (p.After == store.Place{}) {
			db.fronts++
		}
		db.claim(p, &out)
		out.Took = db.walk
		return nil
	})
	if err == nil && p.Committed != nil && !(p.Plain && out.Keyed) {
		p.Committed(store.Sure{Rows: len(out.Claims), Last: out.Last, Took: out.Took, More: out.Moved == 0 && out.Blocked == 0})
		err = db.bring(ctx, p.Queue)
	}
	if err != nil {
		return store.Claimed{}, err
	}
	return out, nil
}

func (db *fake) claim(p store.ClaimParams, out *store.Claimed) {
	known := func(r *row) bool { return slices.Contains(p.Machines, r.machine()) }
	behind := func(r *row) bool {
		return r.place().Compare(p.After) > 0 || p.After != store.Place{} && r.Priority < int(p.After.Priority)
	}
	seen := db.sorted(func(r *row) bool { return r.Queue == p.Queue && r.due() && r.lane == 0 && !r.locked() && behind(r) })
	seen = seen[:min(len(seen), p.Window)]
	seen = append(seen, db.sorted(func(r *row) bool { return r.Queue == p.Queue && r.due() && r.lane == 2 && !r.locked() && known(r) })...)
	out.Keyed = slices.ContainsFunc(seen, func(r *row) bool { return r.PartitionKey != "" })
	if p.Plain && out.Keyed {
		return
	}
	for _, r := range seen {
		switch anchor, head := db.anchor(r); {
		case !known(r):
			r.lane = 2
			out.Moved, out.Aside = out.Moved+1, append(out.Aside, r.machine())
		case head && len(out.Claims) < p.Limit:
			db.tokens++
			r.status, r.lane, r.worker, r.Token, r.lease = fsm.StatusExecuting, 0, p.Worker, db.tokens, time.Now().Add(p.Lease)
			claim := r.Claim
			claim.FencingToken = r.Token
			claim.Lingers = r.PartitionKey != "" && db.lingers(r.PartitionKey, p.Worker)
			claim.Life = time.Until(r.Deadline)
			if r.large {
				claim.State, claim.Partial = nil, true
			}
			out.Claims = append(out.Claims, &claim)
			if place := r.place(); place.Compare(out.Last) > 0 {
				out.Last = place
			}
		case head:
		case anchor.lane == 1:
			anchor.lane = 0
			out.Moved++
		case !anchor.locked():
			r.lane = 1
			out.Moved++
		case p.MoveBlocked:
			r.lane = 1
			out.Moved, out.Unsettled = out.Moved+1, append(out.Unsettled, r.PartitionKey)
		default:
			out.Blocked++
		}
	}
	for _, r := range db.sorted(func(r *row) bool {
		return r.Queue == p.Queue && r.status == fsm.StatusRunnable && !r.due() && r.lane == 0 && behind(r)
	}) {
		if d := time.Until(r.eligible); out.NextDue < 0 || d < out.NextDue {
			out.NextDue = d
		}
	}
}

// anchor returns the row for which a row of a key has to wait: an executing one, or the head of the
// key in this queue.
func (db *fake) anchor(of *row) (anchor *row, head bool) {
	if of.PartitionKey == "" {
		return nil, true
	}
	for _, r := range db.rows {
		if r.PartitionKey == of.PartitionKey && r.status == fsm.StatusExecuting {
			return r, false
		}
	}
	first := db.head(of.PartitionKey, of.Queue)
	return first, first == of
}

func (db *fake) head(key, queue string) *row {
	rows := db.sorted(func(r *row) bool { return r.PartitionKey == key && r.Queue == queue && r.due() })
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// promote brings the heads of keys forward. The caller holds mu.
func (db *fake) promote(keys []string, p *store.Promotion) {
	for _, key := range keys {
		queues := map[string]bool{}
		for _, r := range db.rows {
			queues[r.Queue] = queues[r.Queue] || r.PartitionKey == key
		}
		for queue, has := range queues {
			switch head := db.head(key, queue); {
			case !has, head == nil, head.lane != 1:
			case head.locked() || db.weather.happens(db.weather.missed):
				p.Missed = append(p.Missed, key)
			default:
				head.lane = 0
				p.Queues = append(p.Queues, queue)
			}
		}
	}
}

// settle is promote for keys that no transaction has to promote. The caller holds mu.
func (db *fake) settle(keys []string, p *store.Promotion) {
	for _, key := range keys {
		heads, executing := map[string]*row{}, (*row)(nil)
		for _, r := range db.rows {
			switch {
			case r.PartitionKey != key:
			case r.status == fsm.StatusExecuting:
				executing = r
			default:
				heads[r.Queue] = db.head(key, r.Queue)
			}
		}
		if executing != nil {
			heads = map[string]*row{"": executing}
		}
		for queue, r := range heads {
			switch {
			case r == nil:
			case r.locked() || db.weather.happens(db.weather.missed):
				p.Missed = append(p.Missed, key)
			case r != executing:
				r.lane = 0
				p.Queues = append(p.Queues, queue)
			}
		}
	}
}

func (db *fake) Commit(ctx context.Context, worker, mark string, entries []store.Entry, wait time.Duration) (store.Committed, error) {
	slow := wait > 0
	out := store.Committed{Applied: map[int64]bool{}}
	sent := batchSent{from: time.Now(), slow: slow}
	entries = slices.Clone(entries)
	for i, e := range entries {
		asSent := *e.Claim // its owner may continue with it before an old backend commits
		entries[i].Claim = &asSent
		sent.ids = append(sent.ids, e.Claim.ID)
		sent.bytes += e.Bytes()
		if e.Claim.Parent != 0 && (e.Commit.Kind == step.Done || e.Commit.Kind == step.Fail) {
			sent.parents = append(sent.parents, e.Claim.Parent)
		}
	}
	err := db.lockAll(ctx, wait, append(slices.Clone(sent.ids), sent.parents...))
	if err == nil {
		err = db.lockKeys(ctx, wait, entries)
	}
	if err == nil {
		err = db.sendBatch(ctx, "commit", entries, func() error {
			for _, e := range entries {
				if r := db.rows[e.Claim.ID]; r.fence(e.Claim, worker) && r.Visit == e.Claim.Visit && poisonous(e.Commit) && (slow || !r.locked() && !r.busy) {
					return refusal("22P02")
				}
				if db.weather.older && e.Commit.Kind == step.Done {
					return &step.ReleaseError{Host: "old", PID: 42, Release: 1, Needed: 2}
				}
			}
			for _, e := range entries {
				db.apply(worker, mark, &e, slow, &out)
			}
			return nil
		})
	}
	db.mu.Lock()
	sent.to = time.Now()
	db.commits = append(db.commits, sent)
	db.mu.Unlock()
	if err != nil {
		return store.Committed{}, err
	}
	return out, nil
}

// apply applies one outcome under its fence.
func (db *fake) apply(worker, mark string, e *store.Entry, slow bool, out *store.Committed) {
	c, o, r := e.Claim, e.Commit, db.rows[e.Claim.ID]
	parent := db.rows[c.Parent]
	ends := o.Kind == step.Done || o.Kind == step.Fail
	if !r.fence(c, worker) || r.Visit != c.Visit || r.mark == mark {
		return
	}
	if !slow && (r.locked() || r.busy || ends && parent != nil && parent.locked() || db.weather.happens(db.weather.leftOut)) {
		return
	}
	out.Applied[r.ID] = true
	if r.outcomes, r.begun = append(r.outcomes, o.Kind), r.begun || !o.Unbegun; r.begun || c.Node == "" {
		r.mark = mark
	}
	if o.Version != 0 {
		r.Version, r.Step, r.State = o.Version, o.Step, o.State
	}
	if o.Kind == step.Retry {
		r.Attempt++
	} else if !ends && o.Kind != step.Again {
		r.Attempt, r.Crashes, r.Visit = 0, 0, r.Visit+1
		r.Step, r.State, r.TimedOut = cmp.Or(o.Step, r.Step), o.State, false
	}
	if e.Keep {
		return
	}
	r.status, r.eligible, r.lane = fsm.StatusRunnable, time.Now().Add(o.Delay), 0
	switch o.Kind {
	case step.Next, step.Retry, step.Again:
		switch soon, known := out.Soon[r.Queue]; {
		case o.Delay == 0:
			out.Queues = append(out.Queues, r.Queue)
		case out.Soon == nil:
			out.Soon = map[string]time.Duration{r.Queue: o.Delay}
		case !known || o.Delay < soon:
			out.Soon[r.Queue] = o.Delay
		}
	case step.Await:
		r.status, r.deadline = fsm.StatusAwaitingSignal, time.Now().Add(o.Timeout)
	case step.Children:
		r.status, r.pending, r.Round = fsm.StatusAwaitingChildren, len(o.Spawn), r.Visit
		for range o.Spawn {
			db.ids++
			db.rows[db.ids] = &row{Claim: step.Claim{ID: db.ids, Machine: r.Machine, Version: r.Version, Step: "s", Queue: r.Queue, Parent: r.ID, Depth: 1},
				status: fsm.StatusRunnable, eligible: time.Now()}
		}
		out.Queues = append(out.Queues, r.Queue)
	case step.Rejoin:
		panic("no test rejoins")
	case step.Done:
		r.status = fsm.StatusDone
	case step.Fail:
		r.status, r.failure, r.err = fsm.StatusFailed, o.Failure, o.Err
	}
	if ends && parent != nil {
		if parent.pending--; parent.pending == 0 {
			parent.status, parent.eligible = fsm.StatusRunnable, time.Now()
			out.Queues = append(out.Queues, parent.Queue)
		}
	}
	var p store.Promotion
	db.release(r, &p)
	out.Queues, out.Missed = append(out.Queues, p.Queues...), append(out.Missed, p.Missed...)
}

// release ends a row's claim. The caller holds mu.
func (db *fake) release(r *row, p *store.Promotion) {
	r.worker, r.lease = "", time.Time{}
	db.over(&r.Claim)
	if r.PartitionKey != "" {
		db.promote([]string{r.PartitionKey}, p)
	}
}

// Transact calls the function between two statements, each of which may have weather. It has no
// transaction to pass to it.
func (db *fake) Transact(ctx, finish context.Context, worker, mark string, c *step.Claim, tries int, decide func(tx any) (store.Entry, error)) (t store.Transacted, err error) {
	t.Wait = min(5*time.Second, time.Second<<min(tries, 3))
	current := false
	if err := db.send(ctx, "begin", fmt.Sprint(c.ID), func() error {
		r := db.rows[c.ID]
		current = r.fence(c, worker) && r.Visit == c.Visit
		return nil
	}); err != nil {
		return t, err
	}
	if t.Begun = true; !current {
		return t, nil
	}
	if t.Entry, err = decide(nil); err != nil {
		return t, err
	}
	t.Decided = true
	t.Committed, err = db.Commit(finish, worker, mark, []store.Entry{t.Entry}, t.Wait)
	return t, err
}

func (db *fake) Resolve(ctx context.Context, worker string, marks [][]string, entries []store.Entry, wait time.Duration) (map[int64]store.Verdict, error) {
	out := map[int64]store.Verdict{}
	ids := make([]int64, len(entries))
	for i := range entries {
		ids[i] = entries[i].Claim.ID
	}
	rows := slices.Clone(ids)
	for _, e := range entries {
		if e.Commit.Kind.Terminal() {
			rows = append(rows, e.Claim.Parent)
		}
	}
	if err := db.lockAll(ctx, wait, rows); err != nil {
		return nil, err
	}
	return out, db.send(ctx, "resolve", fmt.Sprint(ids), func() error {
		for i, e := range entries {
			switch r := db.rows[e.Claim.ID]; {
			case slices.Contains(marks[i], r.mark):
				out[r.ID] = store.Mine
			case r.fence(e.Claim, worker) && r.Visit == e.Claim.Visit:
				parent := db.rows[e.Claim.Parent]
				joins := parent != nil && (e.Commit.Kind == step.Done || e.Commit.Kind == step.Fail)
				if out[r.ID] = store.Current; wait == 0 && (r.locked() || r.busy || joins && parent.locked()) {
					out[r.ID] = store.Held
				}
			default:
				out[r.ID] = store.Stale
			}
		}
		return nil
	})
}

func (db *fake) Held(ctx context.Context, worker, queue string) (held []*step.Claim, err error) {
	err = db.send(ctx, "held", queue, func() error {
		for _, r := range db.sorted(func(r *row) bool { return r.status == fsm.StatusExecuting && r.worker == worker && r.Queue == queue }) {
			held = append(held, &step.Claim{ID: r.ID, Token: r.Token, Queue: r.Queue, PartitionKey: r.PartitionKey})
		}
		return nil
	})
	return held, err
}

// SetAside gives claims back, and sets their rows aside at their step, or pauses them.
func (db *fake) SetAside(ctx context.Context, worker string, aside []store.Aside) (out store.Released, err error) {
	err = db.send(ctx, "set aside", fmt.Sprint(len(aside)), func() error {
		for _, a := range aside {
			if r := db.rows[a.Claim.ID]; r.fence(a.Claim, worker) {
				if r.status, r.lane = fsm.StatusRunnable, 4; a.Fault != "" {
					r.lane, r.paused, r.err = 0, true, a.Fault
				}
				db.release(r, &out.Promotion)
				out.Claims++
			}
		}
		return nil
	})
	return out, err
}

// ClaimStrays claims strays at known steps, like the rows in front.
func (db *fake) ClaimStrays(ctx context.Context, p store.ClaimParams, steps []store.StepKey) (store.Claimed, error) {
	out := store.Claimed{NextDue: -1}
	err := db.send(ctx, "claim strays", p.Queue, func() error {
		for _, r := range db.sorted(func(r *row) bool {
			return r.Queue == p.Queue && r.due() && r.lane == 4 && !r.paused && slices.Contains(steps, store.StepKey{Machine: r.Machine, Version: r.Version, Step: r.Step})
		}) {
			r.lane = 0
		}
		db.claim(p, &out)
		return nil
	})
	return out, err
}

func (db *fake) Release(ctx context.Context, worker string, claims []*step.Claim) (out store.Released, err error) {
	ids := make([]int64, len(claims))
	for i, c := range claims {
		ids[i] = c.ID
	}
	err = db.send(ctx, "release", fmt.Sprint(ids), func() error {
		for _, c := range claims {
			switch r := db.rows[c.ID]; {
			case !r.fence(c, worker):
			case r.locked() || r.busy:
				out.Locked = append(out.Locked, r.ID)
			default:
				r.status, r.lane = fsm.StatusRunnable, 0
				db.release(r, &out.Promotion)
				out.Claims++
			}
		}
		return nil
	})
	return out, err
}
