// Package work claims, runs and commits steps.
//
// A step takes this way. A scheduler claims rows of its queue and feeds them to slots. An execution
// runs the step and hands its outcome to the committer, which makes it durable together with
// others. Then the execution runs ahead with the kept claim, or frees its slot. Beside them work
// the poller (idle queues, await deadlines), the heartbeat, the keyring (partition keys) and the
// sweeps (reaper, GC).
//
// In comments, § followed by a number is a section of docs/specification.md, and T followed by a
// number is a hazard of docs/hazards.txt.
//
// The package imports fsm, internal/step, internal/store and worker, and never ent or engine. Hosts
// see its queues, events and activity as types of package worker.
package work

import (
	"context"
	"sync"
)

// Worker is one running engine process. A random UUID identifies it, never a host name or a pid,
// since those repeat (T15). It makes the parts, starts and stops them. Use it once: Start, Stop.
type Worker struct {
	*process
	flights    *flights
	claims     *claims
	executor   *executor
	commits    *committer
	keys       *keyring
	promotions *promotions
	heartbeat  *heartbeat
	expiry     *expiry
	rest       *rest
	skips      *skips
	schedules  *schedules
	schedulers []*scheduler

	// They make and end the connection beside the pool for claims and polls.
	prefer   func()
	unprefer func(ctx context.Context)

	lifelines sync.WaitGroup // heartbeat, deadlines and keyring, which end last
	endLife   context.CancelFunc
}

// New makes a worker. c must be complete and valid.
func New(c Config) *Worker {
	w := assemble(c, c.Store, func(worker string) beater {
		if c.LockByLease {
			return c.Store.Line()
		}
		return c.Store.LineOf(worker).Share(c.Heartbeat / 8)
	})
	w.prefer, w.unprefer = c.Store.Prefer, c.Store.Unprefer
	return w
}

func assemble(c Config, db backend, line func(worker string) beater) *Worker {
	p := newProcess(c, db)
	w := &Worker{process: p, prefer: func() {}, unprefer: func(context.Context) {}}
	w.keys = newKeyring(p)
	w.flights = newFlights(p, w.keys)
	w.promotions = newPromotions(p)
	w.claims = &claims{process: p, flights: w.flights, promotions: w.promotions}
	w.commits = newCommitter(p, w.flights, w.promotions)
	w.executor = newExecutor(p, w.flights, w.claims, w.commits)
	w.heartbeat = newHeartbeat(p, w.flights, w.keys, line(p.id))
	w.expiry = &expiry{process: p, promotions: w.promotions}
	w.rest = &rest{process: p, flights: w.flights, promotions: w.promotions}
	w.skips = &skips{process: p, promotions: w.promotions}
	w.schedules = newSchedules(p)
	for _, q := range p.queues {
		w.schedulers = append(w.schedulers, newScheduler(p, q, w.flights, w.claims, w.keys, w.executor, w.promotions))
	}
	return w
}

// Start begins to work. It does not wait for the database: failures are retried, and logged.
func (w *Worker) Start() {
	life, end := context.WithCancel(context.Background())
	w.endLife = end
	w.prefer()
	w.lifelines.Go(func() { w.heartbeat.run(life) })
	w.lifelines.Go(func() { newDeadlines(w.process, w.flights).run(life) })
	w.lifelines.Go(func() { w.keys.run(life) })
	w.commits.run()
	for _, s := range w.schedulers {
		w.loops.Go(s.run)
	}
	w.loops.Go(newPoller(w.process, w.schedules).run)
	for _, s := range w.sweepLoops() {
		w.loops.Go(s.run)
	}
	if w.config.Fire != nil {
		w.loops.Go(w.schedules.run)
	}
}
