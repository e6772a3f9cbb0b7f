package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/migrations"
	"github.com/gendurable/gendurable/worker"
)

// Limits bound what one outcome, insert or signal may hold (spec §4, §5). A zero field means its
// default.
type Limits = step.Limits

// These are the defaults of Config and Queue. The others follow from a formula, which the field's
// comment gives.
const (
	DefaultSchema        = migrations.DefaultSchema
	DefaultLease         = 60 * time.Second
	DefaultHeartbeat     = 20 * time.Second
	DefaultReap          = 30 * time.Second
	DefaultRetention     = 24 * time.Hour
	DefaultHistory       = 90 * 24 * time.Hour
	DefaultDrainTimeout  = 30 * time.Second
	DefaultDrainGrace    = 5 * time.Second
	DefaultRunAheadSteps = 100
	DefaultRunAheadFor   = time.Second
	DefaultPollMin       = 250 * time.Millisecond //nolint:revive // the least, no minutes
	DefaultPollMax       = time.Second
)

// Config configures an engine. Only Pool, or Driver instead, is required. A zero field means its
// default, which its comment gives. Nothing negative is accepted.
type Config struct {
	// Pool is the host's, and is not closed by the engine. A worker dials two connections beside it,
	// with its configuration: for heartbeats and partition locks, and for claims and polls. It needs
	// MaxConns of at least 2, a client 1.
	Pool *pgxpool.Pool
	// Driver is what all statements of the engine go through, hot or not: a driver on Pool, or instead
	// of Pool, which a host has surrounded, e.g. to trace them, by [entpgx.Driver.Around]. What a step
	// or a host sends itself in its transactions does not go through it. Nil is entpgx.New(Pool).
	Driver *entpgx.Driver
	// Schema is the Postgres schema that holds the engine's tables: "gendurable". There is one
	// engine's data per schema; the host's own tables stay apart.
	Schema string
	// Company joins this engine with others of the process that work on other schemas of the same
	// Pool. Together they poll at the same times, in one round trip. One connection serves the
	// heartbeats and partition locks of all, and another one their polls. An engine that is slow or
	// broken does not hold up the others: it works by itself for a while. An engine whose schema Citus
	// distributes shares its polls only, with those on the same node, whatever their pools. An engine
	// with LockLease shares nothing. Nil: the engine works by itself.
	Company *Company
	// Machines are the machines that this process can run; a client needs none. Versions of one
	// machine stand side by side.
	Machines []fsm.Definition
	// Queues are the queues that this process works on, by name. An engine without queues is a client,
	// which inserts, signals, waits and queries.
	Queues map[string]Queue
	// Schedules insert instances at their times. Start stores them, and from then on every engine with
	// queues fires them. A schedule that is removed from here stays until [Admin.DeleteSchedule],
	// since an older process may still declare it.
	Schedules []Schedule

	// Lease is how long a claim outlives its last heartbeat: 60 s. After it another process may run
	// the step again.
	Lease time.Duration
	// Heartbeat is how often the process extends its leases: 20 s, but at most a third of Lease, which
	// is also the bound.
	Heartbeat time.Duration
	// Reap is how often the process looks for expired leases: 30 s, but at most half of Lease.
	Reap time.Duration
	// RetainDone is how long a done instance is kept after its end: 24 h.
	RetainDone time.Duration
	// RetainFailed is how long a failed instance is kept after its end: 24 h. A parent is deleted
	// after the last of its children.
	RetainFailed time.Duration
	// History says what the history keeps of machines whose definition does not say so:
	// fsm.KeepNothing. Operators' verbs are kept in any case.
	History fsm.Keep
	// RetainHistory is the time for which the history is kept, also of deleted instances: 90 days, at
	// least one. Whole days go, so up to a day later. The GC of every process removes what is past
	// its own RetainHistory, so give all the same.
	RetainHistory time.Duration
	// Redact returns what the history keeps of a difference of two states, with fsm.KeepStates: an
	// RFC 7386 merge patch of at most 8 KiB. It is also given each whole state that the audit of an
	// Edit or a Rewind would keep. It may change its argument. Nil, an error of JSON and a panic keep
	// nothing of it. A Redact that is nil keeps all.
	Redact func(machine string, diff json.RawMessage) json.RawMessage
	// RetainCancelled is how long an instance is kept that was cancelled: as long as RetainFailed.
	RetainCancelled time.Duration
	// Archive is called with instances that the GC is about to delete: up to 100 of one queue, each
	// as Get returns it. If it returns an error, panics, or takes longer than a minute, they stay,
	// the log says so, and the next sweep tries that queue's again; other queues go on. It gets each
	// instance at least once: again where a process dies before it has deleted it, or where several
	// processes collect at a time. One that an operator's Retry has revived in between goes on. Nil:
	// the GC deletes without it.
	Archive func(ctx context.Context, ended []fsm.RawInstance) error
	// DrainTimeout is how long Stop lets running steps finish before it cancels their contexts: 30 s.
	DrainTimeout time.Duration
	// DrainGrace is how long steps have to return after Stop has cancelled their contexts: 5 s. A step
	// that still runs then falls to its lease.
	DrainGrace time.Duration
	// RunAheadSteps is how many steps in a row an instance may take under one claim: 100; 1 is off.
	RunAheadSteps int
	// RunAheadFor is how long an instance may take steps under one claim: 1 s.
	RunAheadFor time.Duration
	// PartitionLock says how partition keys are guarded beyond the lease: LockAdvisory.
	PartitionLock PartitionLock
	// Limits bound payloads, awaits, inboxes, rounds of children and nesting: see its fields. The
	// sender of a signal checks Inbox, and the process that creates a value checks the other
	// bounds. So give all processes the same Limits.
	Limits Limits
	// NoReaper leaves expired leases to the reapers of other processes.
	NoReaper bool
	// NoGC leaves instances past their retention to the garbage collection of other processes.
	NoGC bool

	// Codec encodes and decodes states, results and payloads: fsm.JSON. All processes need the same.
	Codec fsm.Codec
	// Logger receives what the engine logs: slog.Default().
	Logger *slog.Logger
	// Hooks are called in this order after each event.
	Hooks []Hooks
	// Middleware surrounds inserts, signals and steps. The first is the outermost.
	Middleware []Middleware
	// Inject returns what of a context is stored with an instance that is inserted in it, or a signal
	// that is sent in it, e.g. the trace context of OpenTelemetry's propagator. The engine stores at
	// most 8 entries of at most 1 KiB and leaves out what it cannot store. Children get the context
	// of their parent's step. Nil stores nothing.
	Inject func(ctx context.Context) map[string]string
	// Extract puts what Inject has stored with an instance into the context of its steps and handlers.
	// Nil leaves the context as it is.
	Extract func(ctx context.Context, stored map[string]string) context.Context
	// Context returns the context from which the contexts of all steps, handlers and functions of
	// InTx derive, with the values that they are to find in it. New calls it once. Nil leaves the
	// context as it is.
	Context func(context.Context) context.Context
}

// Queue says how this process works on a queue. The zero value has good defaults.
type Queue = worker.Queue

// PartitionLock is a way to guard partition keys (spec §6).
type PartitionLock string

// The ways. In both a unique index and the fence keep two steps of a key from committing side by
// side.
const (
	// LockAdvisory also keeps them from running side by side when a process stalls past its lease: the
	// next step waits until that step has ended, or the process' connection has. Each process holds
	// one advisory lock for it, in the session of its heartbeats.
	LockAdvisory PartitionLock = "advisory"
	// LockLease does without sessions, for proxies that pool transactions: a stalled step may overlap
	// with its successor, until its outcome is refused.
	LockLease PartitionLock = "lease"
)

// WithDefaults returns a copy as New uses it: each zero field has its default. It validates
// nothing.
func (c Config) WithDefaults() Config {
	if c.Driver == nil && c.Pool != nil {
		c.Driver = entpgx.New(c.Pool)
	} else if c.Pool == nil && c.Driver != nil {
		c.Pool = c.Driver.Pool()
	}
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.Machines = slices.Clone(c.Machines)
	c.Queues = maps.Clone(c.Queues)
	c.Schedules = slices.Clone(c.Schedules)
	for name, q := range c.Queues {
		c.Queues[name] = queueWithDefaults(q)
	}
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	// A default that follows from another field is always valid: only what was set is blamed.
	c.Heartbeat = cmp.Or(c.Heartbeat, max(shortest, min(DefaultHeartbeat, c.Lease/3)))
	c.Reap = cmp.Or(c.Reap, max(shortest, min(DefaultReap, c.Lease/2)))
	c.RetainDone = cmp.Or(c.RetainDone, DefaultRetention)
	c.RetainFailed = cmp.Or(c.RetainFailed, DefaultRetention)
	c.History = cmp.Or(c.History, fsm.KeepNothing)
	c.RetainHistory = cmp.Or(c.RetainHistory, DefaultHistory)
	c.RetainCancelled = cmp.Or(c.RetainCancelled, min(max(shortest, c.RetainFailed), fsm.MaxDelay))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.DrainGrace = cmp.Or(c.DrainGrace, DefaultDrainGrace)
	c.RunAheadSteps = cmp.Or(c.RunAheadSteps, DefaultRunAheadSteps)
	c.RunAheadFor = cmp.Or(c.RunAheadFor, DefaultRunAheadFor)
	c.PartitionLock = cmp.Or(c.PartitionLock, LockAdvisory)
	c.Limits = c.Limits.WithDefaults()
	if c.Codec == nil {
		c.Codec = fsm.JSON{}
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Hooks = slices.Clone(c.Hooks)
	c.Middleware = slices.Clone(c.Middleware)
	return c
}

func queueWithDefaults(q Queue) Queue {
	q.Concurrency = cmp.Or(q.Concurrency, 10*runtime.GOMAXPROCS(0))
	if q.PollMin == 0 {
		if q.PollMin = DefaultPollMin; q.PollMax != 0 {
			q.PollMin = max(shortest, min(q.PollMin, q.PollMax))
		}
	}
	q.PollMax = cmp.Or(q.PollMax, max(DefaultPollMax, q.PollMin))
	return q
}
