// Package engine runs durable machines on Postgres: it is what a host imports, with fsm.
//
// [New] takes a [Config] and touches no database. An engine with queues works on them between [Engine.Start] and [Engine.Stop], which
// [Engine.Run] does for a main. One without is a client: it inserts, signals, waits and queries, without Start and without any step's
// code. Several engines in a process, on whatever databases, share nothing.
//
// How long an outage of Postgres may last is for the caller's context to say: each verb and read repeats what met a
// transient fault until ctx ends, and the log names the fault. Only [Engine.Start] and [Engine.Health] do not wait.
//
// Errors are sentinels for questions (errors.Is); those with data also have a type (errors.As).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrations"
	"github.com/gendurable/gendurable/signal"
	"github.com/gendurable/gendurable/worker"
)

// Engine on one schema of one database. Safe for concurrent use.
type Engine struct {
	writer           // its verbs, each in a transaction of its own
	config    Config // as New uses it
	env       *step.Env
	store     *store.Store
	queries   *ent.Client
	machines  []*step.Machine
	schedules []declared
	worker    *worker.Worker // nil for a client
	waiters   *waiters
	counter   *counter

	surrounded bool // by middleware: its calls

	turn chan struct{} // held by the one Start or Stop that is at work, which alone changes life
	life atomic.Value  // a State
}

// State is where an engine is in its life.
type State string

// The states.
const (
	StateCreated  State = "created"  // not started yet; a client need not be
	StateStarted  State = "started"  // it works
	StateDraining State = "draining" // Stop is under way
	StateStopped  State = "stopped"  // for good
)

// State is where the engine is in its life.
func (e *Engine) State() State {
	s, _ := e.life.Load().(State)
	return s
}

// New makes an engine. It validates the whole Config, machines included, without the database: all faults are joined, each a
// *[ConfigError].
func New(c Config) (*Engine, error) {
	c = c.WithDefaults()
	machines, schedules, err := c.validate()
	if err != nil {
		return nil, err
	}
	db := entpgx.New(c.Pool)
	e := &Engine{
		config:   c,
		env:      &step.Env{Codec: c.Codec, Limits: c.Limits, Logger: c.Logger, Inject: c.Inject},
		store:    store.New(db, c.Schema),
		queries:  queries(db, c.Schema),
		machines: machines, schedules: schedules,
		turn: make(chan struct{}, 1),
	}
	e.writer = writer{
		engine: e, rows: e.insertRows, wake: e.nudge,
		sender: &signal.Sender{Inboxes: e.store, Inbox: c.Limits.Inbox, Logger: c.Logger},
	}
	e.life.Store(StateCreated)
	e.surrounded = slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m.Call != nil })
	e.env.Child = e.childMiddleware()
	e.env.Machine = registered(machines)
	e.waiters = newWaiters(e.store.Ended, c.Logger)
	e.counter = &counter{scan: e.store.Count}
	if len(c.Queues) > 0 {
		e.worker = worker.New(e.workerConfig())
	}
	return e, nil
}

func (e *Engine) workerConfig() worker.Config {
	queues := make(map[string]worker.Queue, len(e.config.Queues))
	for name, q := range e.config.Queues {
		queues[name] = worker.Queue(q)
	}
	c := e.config
	return worker.Config{
		Store: e.store, Env: e.env, Machines: e.machines, Queues: queues,
		Lease: c.Lease, Heartbeat: c.Heartbeat, Reap: c.Reap, DrainTimeout: c.DrainTimeout, DrainGrace: c.DrainGrace,
		RunAheadFor: c.RunAheadFor, RunAheadSteps: c.RunAheadSteps, LockByLease: c.PartitionLock == LockLease,
		RetainDone: c.RetainDone, RetainFailed: c.RetainFailed, NoReaper: c.NoReaper, NoGC: c.NoGC,
		Logger: c.Logger, Hooks: c.Hooks, Around: e.stepMiddleware(), Extract: c.Extract,
		Context:  func(ctx context.Context) context.Context { return context.WithValue(ctx, engineKey{}, e) },
		Fire:     e.fireDue,
		Terminal: e.waiters.ended,
	}
}

// Start checks the way to Postgres and the schema, stores Config.Schedules, and starts working; ctx bounds the start only. A client need
// not be started; if it is, it only checks and stores. After an error of ErrSchema, of the context or of Postgres it may be called again.
//
// Errors: ErrPooler, ErrRights, ErrSchema, ErrStarted, ErrStopped.
func (e *Engine) Start(ctx context.Context) (err error) {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	switch e.State() {
	case StateStarted:
		return ErrStarted
	case StateStopped, StateDraining:
		return ErrStopped
	case StateCreated:
	}
	// First of all: what follows goes through the same proxy.
	if err := e.checkPooler(ctx); err != nil {
		return err
	}
	defer e.explain(ctx, e.toStart(), &err)
	if err := migrations.Check(ctx, e.config.Pool, e.config.Schema); err != nil {
		if _, wrong := errors.AsType[*migrations.SchemaError](err); wrong {
			return fmt.Errorf("%w: %w", ErrSchema, err)
		}
		return err
	}
	if err := e.checkRights(ctx); err != nil {
		return err
	}
	if err := e.warn(ctx); err != nil {
		return err
	}
	if err := e.storeSchedules(ctx, time.Time{}); err != nil {
		return err
	}
	if e.worker != nil {
		e.worker.Start()
	}
	e.life.Store(StateStarted)
	return nil
}

// warn logs what is no fault but may be a surprise.
func (e *Engine) warn(ctx context.Context) error {
	unsafe, err := e.store.Durability(ctx)
	if err != nil {
		return err
	}
	if len(unsafe) > 0 {
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "Postgres may lose committed steps when it crashes",
			slog.String("off", strings.Join(unsafe, ", ")))
	}
	if e.worker == nil && len(e.machines) > 0 {
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "no queues: this engine is a client and runs none of its machines")
	}
	for _, m := range e.machines {
		if e.worker != nil && !e.worker.Serves(m.Queue) {
			e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "no worker here for a machine's own queue",
				slog.String("machine", m.Name), slog.Int("version", m.Version), slog.String("queue", m.Queue))
		}
	}
	return nil
}

// Stop ends the engine for good, in order: it stops claiming, gives unstarted claims back, lets running steps finish within
// DrainTimeout, cancels the others, and ends what waits in Wait with ErrStopped. ctx must be live: with the one whose end was the reason
// to stop, nothing would be drained. Where ctx ends first, its error is returned, and what still runs falls to its lease. Called again it
// does nothing. Insert, Signal, Get and Ent need only the pool, and go on working.
func (e *Engine) Stop(ctx context.Context) error {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	if e.State() == StateStopped {
		return nil
	}
	running := e.State() == StateStarted && e.worker != nil
	e.life.Store(StateDraining)
	defer e.life.Store(StateStopped)
	defer e.waiters.stop()
	if !running {
		return nil
	}
	if err := e.worker.Stop(ctx); err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

// flushTime is what Run allows for the commits that follow the last step.
const flushTime = 10 * time.Second

// Run is Start, wait until ctx ends, Stop with a context of its own: what a main calls. nil after an orderly stop, also where ctx ended
// before the start was through.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.Start(ctx); err != nil {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			return err
		}
	} else {
		<-ctx.Done()
	}
	drain := e.config.DrainTimeout + e.config.DrainGrace + flushTime
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	return e.Stop(ctx)
}

func (e *Engine) take(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) give() { <-e.turn }

// nudge tells the local schedulers, after a commit, that something became runnable.
func (e *Engine) nudge(queues ...string) {
	if e.worker == nil {
		return
	}
	queues = slices.DeleteFunc(queues, func(q string) bool { return !e.worker.Serves(q) })
	if len(queues) > 0 {
		e.worker.Nudge(queues...)
	}
}

type engineKey struct{}

// FromContext is the engine that runs this step, nil outside one: machines are defined before the engine exists, so it cannot be injected.
func FromContext(ctx context.Context) *Engine {
	e, _ := ctx.Value(engineKey{}).(*Engine)
	return e
}

// Codec decodes what Get, Wait and Ent return.
func (e *Engine) Codec() fsm.Codec { return e.config.Codec }

var _ fsm.Reader = (*Engine)(nil)
