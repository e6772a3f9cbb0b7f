// Package worker claims, runs and commits steps.
//
// The way of one step: a scheduler claims rows of its queue and feeds them to slots; an execution runs the step and hands its outcome to
// the committer, which makes it durable together with others; then the execution runs ahead with the kept claim, or frees its slot. Beside
// them work the poller (idle queues, await deadlines), the heartbeat, the keyring (partition keys) and the sweeps (reaper, GC).
//
// It imports fsm, internal/step and internal/store, never ent or engine. Hosts meet only its Hooks and Queue, under engine's names.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Worker is one running engine process, identified by a random UUID: never by host name or pid, which repeat (T15). Use it once: Start,
// Stop.
type Worker struct {
	c   Config
	id  string
	log *slog.Logger
	db  backend

	machines   map[machineKey]*step.Machine
	machineIDs []string
	queues     map[string]*scheduler

	flights    flights
	flying     sync.WaitGroup // flights in a slot
	runners    runners
	keys       *keyring
	commits    *committer
	promotions *promotions
	line       beater

	began  time.Time
	lostAt atomic.Int64 // when a connection was last lost, by since
	last   last

	base        context.Context //nolint:containedctx // the worker's own life
	abort       context.CancelFunc
	steps       context.Context //nolint:containedctx // what steps derive from
	cancelSteps context.CancelCauseFunc
	draining    chan struct{}
	fireIn      chan time.Duration // until the next schedule is due, as the poller sees it
	looking     context.Context    //nolint:containedctx // of polls and sweeps: they may be cut off at any time
	stopLooking context.CancelFunc
	claiming    context.Context //nolint:containedctx // of claims: what is cut off may have taken effect, and waits for its lease
	stopClaims  context.CancelFunc
	loops       sync.WaitGroup // ended by draining
	lifelines   sync.WaitGroup // heartbeat and keyring: ended last
	endLife     context.CancelFunc

	presence store.Presence
	hooks    listeners
	quiet    quiet
}

// New makes a worker. c is complete and valid.
func New(c Config) *Worker {
	var locks keyLocks
	if !c.LockByLease {
		locks = c.Store.KeyLocks()
	}
	return assemble(c, c.Store, c.Store.Line(), locks, c.Store.KeyHash)
}

func assemble(c Config, db backend, line beater, locks keyLocks, hash func(string) int64) *Worker {
	w := &Worker{c: c, id: uuid.NewString(), db: db, line: line, machines: map[machineKey]*step.Machine{}, queues: map[string]*scheduler{},
		flights: flights{byID: map[int64]*flight{}}, runners: runners{atOnce: runtime.GOMAXPROCS(0)}, hooks: listen(c.Hooks), began: time.Now(), draining: make(chan struct{}),
		fireIn: make(chan time.Duration, 1)}
	w.log = c.Logger.With(slog.String("worker", w.id))
	w.quiet.last = map[string]time.Time{}
	w.lostAt.Store(int64(-24 * time.Hour))
	for _, m := range c.Machines {
		w.machines[machineKey{m.Name, m.Version}] = m
		w.machineIDs = append(w.machineIDs, store.MachineID(m.Name, m.Version))
	}
	w.presence = w.self()
	for name, conf := range c.Queues {
		w.queues[name] = newScheduler(w, name, conf)
	}
	w.keys = newKeyring(w, locks, hash)
	w.commits = newCommitter(w)
	w.promotions = newPromotions(w)
	w.base, w.abort = context.WithCancel(context.Background())
	w.looking, w.stopLooking = context.WithCancel(w.base)
	w.claiming, w.stopClaims = context.WithCancel(w.base)
	steps := w.base
	if c.Context != nil {
		steps = c.Context(steps)
	}
	w.steps, w.cancelSteps = context.WithCancelCause(steps)
	return w
}

// ID is the worker's UUID: locked_by of its claims.
func (w *Worker) ID() string { return w.id }

// Start begins to work. It does not wait for the database: what fails is retried, and logged.
func (w *Worker) Start() {
	life, end := context.WithCancel(context.Background())
	w.endLife = end
	w.lifelines.Go(func() { w.heartbeat(life, w.line) })
	w.lifelines.Go(func() { w.deadlines(life) })
	w.lifelines.Go(func() { w.keys.run(life) })
	w.commits.start()
	for _, s := range w.queues {
		w.loops.Go(s.run)
	}
	w.loops.Go(newPoller(w).run)
	w.loops.Go(w.promotions.run)
	w.loops.Go(w.sweeper)
	if w.c.Fire != nil {
		w.loops.Go(w.schedules)
	}
	if !w.c.NoReaper {
		w.loops.Go(w.reaper)
	}
	if !w.c.NoGC {
		w.loops.Go(w.pruner)
	}
}

// Stop drains, in this order (spec §6): no more claims and no more run-ahead; what was never started goes back untouched; running steps
// may finish for DrainTimeout, then their contexts are cancelled, and they have DrainGrace; outcomes are committed all the while; heartbeat
// and key locks end last. A step that still runs then falls to its lease, and Stop returns an error that names them. With or without a
// database it takes no longer than DrainTimeout and DrainGrace; the end of ctx shortens the first.
func (w *Worker) Stop(ctx context.Context) error {
	close(w.draining)
	w.stopLooking()
	drain, cancel := context.WithTimeout(ctx, w.c.DrainTimeout)
	defer cancel()
	grace, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	inTime := context.AfterFunc(drain, func() {
		w.cancelSteps(fsm.ErrDraining)
		if sleep(grace, w.c.DrainGrace) {
			giveUp()
		}
	})
	defer inTime()
	looped := wait(&w.loops)
	await(drain, looped)
	// A claim that is cut off may take effect all the same, after everyone has looked: it gets half of the grace to answer.
	answer, cancel := context.WithTimeout(grace, w.c.DrainGrace/2)
	defer cancel()
	await(answer, looped)
	w.stopClaims()
	<-looped
	var unstarted []*flight
	for _, f := range w.flights.all() {
		if !f.started.Load() {
			unstarted = append(unstarted, f)
		}
	}
	w.flying.Go(func() {
		w.giveBack(w.base, unstarted)
		for _, f := range unstarted {
			w.land(f)
		}
	})
	landed := wait(&w.flying)
	await(drain, landed)
	w.cancelSteps(fsm.ErrDraining)
	await(grace, landed)
	abandoned := w.flights.all()
	w.abort()
	w.commits.stop()
	w.endLife()
	w.lifelines.Wait()
	for _, tell := range w.hooks.drain {
		w.survive(func() { tell(context.WithoutCancel(ctx), len(unstarted), len(abandoned)) })
	}
	w.log.Info("stopped", slog.Int("released", len(unstarted)), slog.Int("abandoned", len(abandoned)))
	if len(abandoned) > 0 {
		return fmt.Errorf("stop: %d steps did not end, or could not be committed, in time: their instances run again when the leases expire: %s",
			len(abandoned), names(abandoned))
	}
	return nil
}

// names lists some flights: whose code it is that does not listen.
func names(fs []*flight) string {
	const most = 10
	var list []string
	for _, f := range fs[:min(most, len(fs))] {
		list = append(list, fmt.Sprintf("%d (%s)", f.beat.ID, f.beat.Machine))
	}
	if len(fs) > most {
		list = append(list, "…")
	}
	return strings.Join(list, ", ")
}

// wait turns a group's end into a channel.
func wait(group *sync.WaitGroup) chan struct{} {
	over := make(chan struct{})
	go func() {
		group.Wait()
		close(over)
	}()
	return over
}

// await waits for something to be over, at most until ctx ends.
func await(ctx context.Context, over chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Nudge says that something became runnable in queues. Cheap, never blocks; queues of other processes are none of its business.
func (w *Worker) Nudge(queues ...string) {
	last := ""
	for i, name := range queues {
		if i > 0 && name == last {
			continue
		}
		last = name
		if s := w.queues[name]; s != nil {
			s.nudge()
		}
	}
}

// Serves reports whether this worker works on a queue.
func (w *Worker) Serves(queue string) bool { return w.queues[queue] != nil }

// giveBack releases claims whose step has no outcome. Trouble is retried until ctx ends; then the lease decides.
func (w *Worker) giveBack(ctx context.Context, fs []*flight) {
	for n := 0; sleep(ctx, backoff(n, 50*time.Millisecond, time.Second)); n++ {
		var claims []*step.Claim
		for _, f := range fs {
			if w.flights.current(f) {
				claims = append(claims, f.claim)
			}
		}
		if len(claims) == 0 {
			return
		}
		timed, cancel := context.WithTimeout(ctx, statementTimeout)
		_, p, err := w.db.Release(timed, w.id, claims)
		cancel()
		if err == nil {
			w.promotions.add(p.Missed)
			w.Nudge(p.Queues...)
			for _, f := range fs {
				f.queue.nudge()
			}
			return
		}
		w.trouble("give claims back", err)
	}
}

// releaseStrays gives back what a claim took whose answer never came: nobody here knows of it, it would wait for its lease, and be counted as
// a crash. No other claim of the queue may be under way. What is no stray any more when it is released is safe behind its token.
func (w *Worker) releaseStrays(ctx context.Context, queue string) error {
	held, err := w.db.Held(ctx, w.id, queue)
	if err != nil {
		return err
	}
	strays := slices.DeleteFunc(held, func(c *step.Claim) bool { return w.flights.has(c) })
	if len(strays) == 0 {
		return nil
	}
	_, p, err := w.db.Release(ctx, w.id, strays)
	if err != nil {
		return err
	}
	w.promotions.add(p.Missed)
	w.Nudge(p.Queues...)
	return nil
}

// ended tells whoever waits that instances are terminal.
func (w *Worker) ended(ids []int64) {
	if len(ids) > 0 && w.c.Terminal != nil {
		w.c.Terminal(ids)
	}
}

// since is the time since the worker was made: a monotonic clock.
func (w *Worker) since() time.Duration { return time.Since(w.began) }

func (w *Worker) isDraining() bool {
	select {
	case <-w.draining:
		return true
	default:
		return false
	}
}

// pause waits, and reports whether there is still work to do: false once the worker drains.
func (w *Worker) pause(d time.Duration) bool {
	if d <= 0 {
		return !w.isDraining()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.draining:
		return false
	case <-t.C:
		return true
	}
}
