// Package engine runs durable machines on Postgres. A host imports it together with package fsm,
// whose documentation shows the machine of this program:
//
//	eng, err := engine.New(engine.Config{
//		Pool:     pool,
//		Machines: []fsm.Definition{machine},
//		Queues:   map[string]engine.Queue{"default": {Concurrency: 10}},
//	})
//	id, err := eng.Insert(ctx, Invoice.New(bill).Key("invoice:7"))
//	_, err = eng.Signal(ctx, fsm.Key("invoice:7"), Paid.With(4200).DedupKey(event))
//	at, err := Invoice.Get(ctx, eng, id) // its status, its step and its typed state
//	_, err = eng.Admin().Retry(ctx, id)  // lets a failed instance go on
//	err = eng.Run(ctx)                   // runs steps until ctx ends
//
// [New] takes a [Config] and touches no database. An engine with queues works on them between
// [Engine.Start] and [Engine.Stop]; a main calls [Engine.Run], which does both. An engine without
// queues is a client: it inserts, signals, waits and queries, needs no Start, and links no step's
// code. Several engines in a process, on whatever databases, share nothing.
//
// The caller's context says how long an outage of Postgres may last: each verb and read repeats
// what met a transient fault until ctx ends, and the log names the fault. Only [Engine.Start] and
// [Engine.Health] do not wait.
//
// Errors are sentinels, for errors.Is. Those with data also have a type, for errors.As.
//
// In comments, § followed by a number is a section of docs/specification.md, and T followed by a
// number is a hazard of docs/hazards.txt.
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

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/work"
	"github.com/gendurable/gendurable/migrations"
)

// Engine is an engine on one schema of one database. It is safe for concurrent use.
type Engine struct {
	writer           // its verbs, each in a transaction of its own
	config    Config // as New uses it
	env       *step.Env
	store     *store.Store
	reads     *query.Reader
	machines  []*step.Machine
	schedules []declared
	warnings  []fsm.Warning
	worker    *work.Worker // nil for a client
	waiters   *waiters[int64]
	parks     *waiters[rest]
	counter   *counter

	surrounded bool        // by middleware: its calls
	unstored   atomic.Bool // Start could not store all that the Config declares

	turn chan struct{} // held by the one Start or Stop that is at work, which alone changes life
	life atomic.Value  // a State
}

// State is where an engine is in its life.
type State string

// These are the states of an engine.
const (
	StateCreated  State = "created"  // not started yet; a client need not be
	StateStarted  State = "started"  // it works
	StateDraining State = "draining" // Stop is under way
	StateStopped  State = "stopped"  // for good
)

// State returns where the engine is in its life.
func (e *Engine) State() State {
	s, _ := e.life.Load().(State)
	return s
}

// New makes an engine. It validates the whole Config, machines included, without the database. It
// joins all faults, each a *[ConfigError], and logs what is odd: see [Engine.Warnings].
func New(c Config) (*Engine, error) {
	c = c.WithDefaults()
	machines, schedules, err := c.validate()
	if err != nil {
		return nil, err
	}
	stored := store.New(c.Driver, c.Schema)
	if c.Company != nil && c.PartitionLock != LockLease {
		stored.Join(c.Company.stores)
	}
	e := &Engine{
		config:   c,
		env:      &step.Env{Codec: c.Codec, Limits: c.Limits, Logger: c.Logger, Inject: c.Inject},
		store:    stored,
		reads:    query.New(stored),
		machines: machines, schedules: schedules, warnings: c.warned(),
		turn: make(chan struct{}, 1),
	}
	e.writer = writer{
		engine: e, rows: e.insertRows, beside: e.besides, wake: e.nudge,
		sender: &send.Sender{Inboxes: e.store, Inbox: c.Limits.Inbox, Logger: c.Logger},
	}
	e.life.Store(StateCreated)
	e.surrounded = slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m.Call != nil })
	e.env.Child = e.childMiddleware()
	e.env.Machine = registered(machines)
	e.waiters = newWaiters(e.store.Ended, c.Logger)
	e.parks = newWaiters(e.resting, c.Logger)
	e.counter = &counter{scan: e.store.Count}
	if len(c.Queues) > 0 {
		e.worker = work.New(e.workerConfig())
	}
	return e, nil
}

func (e *Engine) workerConfig() work.Config {
	c := e.config
	sweeps := 1
	if pool := c.Driver.Pool(); pool != nil {
		sweeps = max(1, int(pool.Config().MaxConns)/2) // the other half is for claims, commits and polls
	}
	return work.Config{
		Store: e.store, Company: e.store.Company(), Env: e.env, Machines: e.machines, Queues: c.Queues,
		Lease: c.Lease, Heartbeat: c.Heartbeat, Reap: c.Reap, DrainTimeout: c.DrainTimeout, DrainGrace: c.DrainGrace,
		RunAheadFor: c.RunAheadFor, RunAheadSteps: c.RunAheadSteps, LockByLease: c.PartitionLock == LockLease,
		RetainDone: c.RetainDone, RetainFailed: c.RetainFailed, RetainCancelled: c.RetainCancelled, Archive: e.archive(),
		RetainHistory: c.RetainHistory, Redact: c.Redact, NoReaper: c.NoReaper, NoGC: c.NoGC, Sweeps: sweeps,
		Logger: c.Logger, Hooks: c.Hooks, Around: e.stepMiddleware(), Extract: c.Extract,
		Context:  e.stepContext,
		Fire:     e.fireDue,
		Terminal: e.ended,
		Parked:   e.parked,
	}
}

// Start checks the way to Postgres and the schema, stores the definitions of its machines and
// Config.Schedules, and starts working. A changed schedule whose row stays locked it stores later,
// and logs so; such a definition the next Start stores. ctx bounds the start only. A client need
// not be started; Start only checks and stores there. After an ErrSchema, the end of the context
// or an error of Postgres Start may be called again.
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
	// This check comes first, since all others go through the same proxy.
	if err := e.onASession(ctx, e.checkPooler); err != nil {
		return err
	}
	defer e.explain(ctx, e.toStart(), &err)
	if err := e.onASession(ctx, e.store.Locate); err != nil {
		return err
	}
	current := func(ctx context.Context) error { return migrations.Check(ctx, e.config.Driver, e.config.Schema) }
	if err := e.onASession(ctx, current); err != nil {
		if _, wrong := errors.AsType[*migrations.SchemaError](err); wrong {
			return fmt.Errorf("%w: %w", ErrSchema, err)
		}
		return err
	}
	if err := e.onASession(ctx, e.checkRights); err != nil {
		return err
	}
	if err := e.onASession(ctx, e.warn); err != nil {
		return err
	}
	if err := e.store.NoteKeeping(ctx); err != nil {
		// The polls note it later, and hand over what inserts have not taken.
		e.config.Logger.LogAttrs(ctx, slog.LevelDebug, "cannot look whether signals are kept", slog.Any("error", err))
	}
	declare := func(ctx context.Context) error { return e.storeDeclared(ctx, time.Time{}) }
	if err := e.onASession(ctx, declare); err != nil {
		if e.worker == nil || !repeatable(err) || ctx.Err() != nil {
			return err
		}
		// A row that has changed is locked, or this is a standby: work that does not need it goes on.
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot store definitions and schedules yet, trying again", slog.Any("error", err))
		e.unstored.Store(true)
	}
	if e.worker != nil {
		e.worker.Start()
	}
	e.life.Store(StateStarted)
	return nil
}

// storeDeclared stores what the Config declares: schedules as of a time, by Postgres' clock if it
// is zero, and of an engine with queues its definitions, and which of them are recorded. What
// cannot be stored keeps nothing else from being stored.
func (e *Engine) storeDeclared(ctx context.Context, at time.Time) error {
	schedules := e.storeSchedules(ctx, at)
	if e.worker == nil {
		return schedules
	}
	noted, err := e.storeDefinitions(ctx)
	return errors.Join(schedules, err, e.startRecording(ctx, noted, err == nil))
}

// warn logs what is no fault but may surprise.
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

// Stop ends the engine for good, in this order: it stops claiming, gives unstarted claims back,
// lets running steps finish within DrainTimeout, cancels the others, and ends calls of Wait with
// ErrStopped. ctx must be live: an ended context would leave no time to drain. Where ctx ends
// first, Stop returns its error, and the steps that still run fall to their leases. A second call
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
	defer e.parks.stop()
	if !running {
		return nil
	}
	if err := e.worker.Stop(ctx); err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

// flushTime is the time that Run allows for the commits that follow the last step.
const flushTime = 10 * time.Second

// Run starts the engine, waits until ctx ends, and stops it with a new context. A main calls it.
// It returns nil after an orderly stop, also where ctx ended before the start was through.
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

// stepContext is the context from which the contexts of steps derive.
func (e *Engine) stepContext(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, engineKey{}, e)
	if e.config.Context == nil {
		return ctx
	}
	return e.config.Context(ctx)
}

// FromContext returns the engine that runs this step, nil outside of a step. Machines are defined
// before the engine exists, so it cannot be injected.
func FromContext(ctx context.Context) *Engine {
	e, _ := ctx.Value(engineKey{}).(*Engine)
	return e
}

// Codec returns the codec that decodes what Get, Wait and Ent return.
func (e *Engine) Codec() fsm.Codec { return e.config.Codec }

var _ fsm.Reader = (*Engine)(nil)
