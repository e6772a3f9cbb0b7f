package soak

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// client has undertakings: it inserts, signals, waits for the end, and repeats its calls through
// every fault, as a host must.
type client struct {
	hand
	pool *pgxpool.Pool // the host's, in which its transactions begin
	db   *sql.DB       // over the same connections
	r    role

	councils atomic.Int64 // begun
}

// quick bounds, in ms, the steps of instances that share a partition key with many others: they run
// one at a time.
const quick = 30

const (
	undertakings = 60               // at a time: more would only wait for the client's connections
	patience     = 10 * time.Second // for one call, which is then repeated
	finishWithin = 90 * time.Second // for one more undertaking to end, once no new one begins
)

var errUnfinished = fmt.Errorf("not all that was begun has come to its end, and nothing more did within %v", finishWithin)

// playClient begins new undertakings until SIGTERM, and returns when all of them have ended.
func (r role) playClient(ctx context.Context, pool *pgxpool.Pool, log *journal, ready func()) error {
	eng, err := engine.New(engine.Config{Pool: pool})
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	c := &client{hand: hand{eng, log}, pool: pool, db: db, r: r}
	life, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ready()
	late := time.AfterFunc(finishWithin, func() { cancel(errUnfinished) })
	defer late.Stop()
	late.Stop()
	var running sync.WaitGroup
	if r.Calls != "" {
		running.Go(func() {
			if err := c.callAboutPurses(ctx, life); err != nil {
				cancel(err)
			}
		})
	}
	slots := make(chan struct{}, undertakings)
	tick := time.NewTicker(time.Duration(float64(time.Second) / r.Pace))
	defer tick.Stop()
	random := rand.New(rand.NewPCG(r.Seed, 1)) //nolint:gosec // repeatable
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		if s := pool.Stat(); s.AcquiredConns() == s.MaxConns() {
			continue // what has begun wants them all: on a busy machine, more would only wait until its calls are given up
		}
		select {
		case <-ctx.Done():
			continue
		case slots <- struct{}{}:
		}
		u := &undertaking{client: c, name: fmt.Sprintf("%s-%d", r.Name, n),
			Rand: rand.New(rand.NewPCG(r.Seed, random.Uint64()))} //nolint:gosec // repeatable
		running.Go(func() {
			u.pursue(life)
			if ctx.Err() != nil {
				late.Reset(finishWithin)
			}
			<-slots
		})
	}
	late.Reset(finishWithin)
	running.Wait()
	if err := context.Cause(life); err != nil {
		return err
	}
	return eng.Stop(context.Background())
}

// undertaking is the work of one goroutine of a client.
type undertaking struct {
	*client
	*rand.Rand
	name    string
	refused bool // a target that wants signals has ended
}

// kinds are the undertakings, each with its share of a hundred.
var kinds = []struct {
	share  int
	pursue func(*undertaking, context.Context)
}{
	{6, (*undertaking).single},
	{6, (*undertaking).queueUp},
	{6, (*undertaking).reserve},
	{6, (*undertaking).chain},
	{3, (*undertaking).muster},
	{25, (*undertaking).correspond},
	{5, (*undertaking).crowd},
	{16, (*undertaking).collect},
	{5, (*undertaking).council},
	{4, (*undertaking).clock},
	{5, (*undertaking).raise},
	{5, (*undertaking).order},
	{4, (*undertaking).arrive},
	{4, (*undertaking).book},
}

func (u *undertaking) pursue(ctx context.Context) {
	for n, i := u.IntN(100), 0; ; i++ {
		if n -= kinds[i].share; n < 0 {
			kinds[i].pursue(u, ctx)
			return
		}
	}
}

func (u *undertaking) work() work {
	w := work{Label: u.name, Fate: "done", Seed: u.Uint64(), Busy: u.IntN(60), Deaf: u.IntN(10) == 0}
	if u.IntN(12) == 0 {
		w.Busy = 300 + u.IntN(500)
	}
	if u.IntN(8) == 0 {
		w.Fails = 1 + u.IntN(2)
	}
	if u.IntN(150) == 0 {
		w.Heavy = []int{100_000, 300_000, 1_000_000}[u.IntN(3)]
		w.Ballast = u.ballast(w.Heavy)
	}
	return w
}

// ballast returns a text of this length that does not compress well.
func (u *undertaking) ballast(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[u.IntN(len(letters))]
	}
	return string(text)
}

// single inserts a job, of any fate.
func (u *undertaking) single(ctx context.Context) {
	w := u.work()
	spec := job.New(w)
	switch u.IntN(8) {
	case 0:
		w.Fate = "error"
		spec = job.New(w)
	case 1:
		w.Fate = "exhausted"
		spec = doomed.New(w)
	case 2:
		spec = spec.After(time.Duration(u.IntN(1000)) * time.Millisecond)
	case 3:
		spec = spec.Queue("narrow").Priority(u.IntN(5) - 2)
	}
	if id, ok := u.insert(ctx, spec); ok {
		u.outcome(ctx, id)
	}
}

// queueUp inserts jobs of one partition key, one after the other or several at once. They must run
// in this order.
func (u *undertaking) queueUp(ctx context.Context) {
	key := u.name
	place := 0
	for range 1 + u.IntN(3) {
		var specs []fsm.Spec
		for range 1 + u.IntN(3) {
			place++
			w := u.work()
			w.Place, w.Label, w.Busy = place, fmt.Sprintf("%s/%d", u.name, place), u.IntN(80)
			specs = append(specs, job.New(w).PartitionKey(key))
		}
		// A lost answer ends the queue, since the jobs sent then may appear at any time.
		if _, ok := u.insertMany(ctx, specs); !ok {
			return
		}
	}
	// This job has the same key in another queue: there is no order between the two queues, but they
	// never run side by side.
	w := u.work()
	w.Label = u.name + "/elsewhere"
	if id, ok := u.insert(ctx, job.New(w).PartitionKey(key).Queue("post")); ok {
		u.outcome(ctx, id)
	}
}

// scopes are the scopes of the contended keys, by the first part of the key.
var scopes = []struct {
	name  string
	keys  int
	scope fsm.Scope
}{
	{"live", 4, fsm.ScopeLive},
	{"good", 200, fsm.ScopeLiveOrDone},
	{"bad", 200, fsm.ScopeLiveOrFailed},
	{"once", 400, fsm.ScopeAll},
	{"none", 2, fsm.ScopeNone},
}

// reserve inserts under a key that other undertakings want, too.
func (u *undertaking) reserve(ctx context.Context) {
	s := scopes[u.IntN(len(scopes))]
	w := u.work()
	if u.IntN(4) == 0 {
		w.Fate = "error"
	}
	key := fsm.Key(fmt.Sprintf("%s:%d", s.name, u.IntN(s.keys)))
	if id, ok := u.insert(ctx, job.New(w).Key(key).Scope(s.scope)); ok {
		u.outcome(ctx, id)
	}
}

// chain inserts an instance of many steps, of either version.
func (u *undertaking) chain(ctx context.Context) {
	w := u.work()
	w.Steps = 3 + u.IntN(8)
	if u.IntN(3) == 0 {
		w.Nap = 50 + u.IntN(800)
	}
	if u.IntN(6) == 0 {
		w.Fate = string(fsm.FailureDecided)
	}
	machine := chainOne
	if u.IntN(2) == 0 {
		machine = chainTwo
	}
	spec := machine.New(w).Priority(u.IntN(3) - 1)
	if u.IntN(5) == 0 {
		w.Busy %= quick
		spec = machine.New(w).PartitionKey(fmt.Sprintf("chains:%d", u.IntN(10)))
	}
	if id, ok := u.insert(ctx, spec); ok {
		u.outcome(ctx, id)
	}
}

// correspond sends letters to a mailbox, which takes each when it comes.
func (u *undertaking) correspond(ctx context.Context) {
	w := u.work()
	w.Want = 3 + u.IntN(7)
	if u.IntN(4) == 0 {
		w.Within = 100 + u.IntN(1000)
	}
	u.send(ctx, mailbox, w)
}

// collect sends letters to a collector, which waits until it has them all.
func (u *undertaking) collect(ctx context.Context) {
	w := u.work()
	w.Want = 3 + u.IntN(7)
	if u.IntN(4) == 0 {
		w.Until = time.Now().Add(time.Duration(u.IntN(1500)) * time.Millisecond)
	}
	u.send(ctx, collector, w)
}

// send inserts an instance that wants signals, and sends them.
func (u *undertaking) send(ctx context.Context, to *fsm.Machine[work, ending], w work) {
	key := fsm.Key("letters:" + u.name)
	spec := to.New(w).Key(key)
	if u.IntN(6) == 0 {
		w.Busy %= quick
		spec = to.New(w).Key(key).PartitionKey(fmt.Sprintf("letters:%d", u.IntN(10)))
	}
	id, ok := u.insert(ctx, spec)
	if !ok {
		return
	}
	for i := range w.Want {
		var target fsm.Target = id
		if u.IntN(2) == 0 {
			target = key
		}
		if !u.deliver(ctx, target, u.name, i, u.IntN(3) > 0) {
			return
		}
		if u.IntN(3) == 0 {
			pause(ctx, time.Duration(u.IntN(150))*time.Millisecond)
		}
		if u.IntN(60) == 0 {
			u.revive(ctx, id)
		}
	}
	u.outcome(ctx, id)
	u.tooLate(ctx, id, key)
}

// revive cancels an instance that is a target of signals and retries it, though another has
// cancelled it: its inbox is still there. It leaves alone an instance that has refused a signal,
// which would wait for that without end.
func (u *undertaking) revive(ctx context.Context, id fsm.ID) {
	if u.refused {
		return
	}
	for _, verb := range []engine.Verb{engine.VerbCancel, engine.VerbRetry} {
		for ctx.Err() == nil {
			if _, ok := u.operate(ctx, verb, id); ok {
				break
			}
			pause(ctx, 100*time.Millisecond)
		}
		pause(ctx, time.Duration(u.IntN(100))*time.Millisecond)
	}
}

// clock inserts an instance whose await times out, unless a signal that races with it comes first;
// or one that only its deadline ends.
func (u *undertaking) clock(ctx context.Context) {
	w := u.work()
	if u.IntN(3) == 0 {
		w.Fate = string(fsm.FailureDeadline)
		if id, ok := u.insert(ctx, timer.New(w).Deadline(time.Duration(u.IntN(2000))*time.Millisecond+time.Millisecond)); ok {
			u.outcome(ctx, id)
		}
		return
	}
	w.Within = 50 + u.IntN(1500)
	id, ok := u.insert(ctx, timer.New(w))
	if !ok {
		return
	}
	if u.IntN(2) == 0 {
		pause(ctx, time.Duration(w.Within)*time.Millisecond)
		u.stray(ctx, id)
	}
	u.outcome(ctx, id)
}

// raise inserts a family of several generations.
func (u *undertaking) raise(ctx context.Context) {
	w := u.work()
	w.Brood, w.Rounds, w.Depth = 2+u.IntN(6), 1+u.IntN(2), 2
	if u.IntN(2) == 0 {
		w.Want = 1
	}
	key := fsm.Key("family:" + u.name)
	id, ok := u.insert(ctx, family.New(w).Key(key))
	if !ok {
		return
	}
	if w.Want > 0 && !u.deliver(ctx, key, u.name, 0, true) {
		return
	}
	u.outcome(ctx, id)
}

// tooLate signals to an instance that has ended, which must be refused.
func (u *undertaking) tooLate(ctx context.Context, id fsm.ID, key fsm.Key) {
	if ctx.Err() != nil || u.IntN(4) > 0 {
		return
	}
	u.stray(ctx, id)
	u.stray(ctx, key)
}

// outcome waits for the end of an instance.
func (u *undertaking) outcome(ctx context.Context, id fsm.ID) {
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, patience)
		i, err := u.eng.Wait(waiting, id)
		cancel()
		if err == nil {
			u.log.write(event{Kind: evResult, ID: int64(id), Label: u.name, Outcome: string(i.Status), Detail: string(i.Failure)})
			return
		}
		u.again(ctx, "wait", err)
	}
}

// again pauses before a call is repeated.
func (u *undertaking) again(ctx context.Context, doing string, err error) {
	slog.Warn("again", slog.String("doing", doing), slog.String("undertaking", u.name), slog.Any("error", err))
	pause(ctx, time.Duration(50+u.IntN(200))*time.Millisecond)
}
