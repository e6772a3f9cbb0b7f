package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Queue is how one queue is worked on in this process.
type Queue struct {
	Concurrency int           // steps at once
	Buffer      int           // claims that wait for a slot; 0: adaptive
	PollMin     time.Duration // first idle interval
	PollMax     time.Duration // and the longest
}

// Config of a worker. It is complete and valid: package engine fills in defaults and checks bounds.
type Config struct {
	Store    *store.Store
	Env      *step.Env
	Machines []*step.Machine
	Queues   map[string]Queue

	Lease         time.Duration
	Heartbeat     time.Duration
	Reap          time.Duration
	DrainTimeout  time.Duration // how long Stop lets steps finish
	DrainGrace    time.Duration // and how long after cancelling them
	RunAheadFor   time.Duration
	RunAheadSteps int  // 1: off
	LockByLease   bool // no advisory locks for partition keys
	RetainDone    time.Duration
	RetainFailed  time.Duration
	NoReaper      bool
	NoGC          bool

	Logger *slog.Logger
	Hooks  []Hooks
	// Context makes the context that steps derive from, so that the engine is found in it. Nil: as
	// it is.
	Context func(context.Context) context.Context
	// Around surrounds the steps; the first is the outermost.
	Around []Around
	// Extract puts what was stored with an instance into its steps' contexts. Nil: as they are.
	Extract func(ctx context.Context, stored map[string]string) context.Context
	// Fire fires the schedules that are due at a time, by Postgres' clock where it is zero, calls
	// told for each one that it advanced, and returns when to call it again. The poller sees what is
	// due in two seconds or later. Nil: this worker fires no schedules.
	Fire func(ctx context.Context, at time.Time, told func(FireEvent)) (wait time.Duration, err error)
	// Terminal is told the ids of instances that ended here, after the commit. Nil: nobody waits.
	Terminal func(ids []int64)
}

// backend is what a worker needs of package store: as an interface, so that its logic can be tested
// without a database.
type backend interface {
	Claim(ctx context.Context, p store.ClaimParams) (store.Claimed, error)
	Commit(ctx context.Context, worker, mark string, entries []store.Entry, wait time.Duration) (store.Committed, error)
	Transact(ctx, finish context.Context, worker, mark string, c *step.Claim, decide func(tx any) (store.Entry, error)) (store.Transacted, error)
	Resolve(ctx context.Context, worker string, marks []string, entries []store.Entry, wait time.Duration) (map[int64]store.Verdict, error)
	Held(ctx context.Context, worker, queue string) ([]*step.Claim, error)
	Release(ctx context.Context, worker string, claims []*step.Claim) (int, store.Promotion, error)
	Reap(ctx context.Context, mark string, limits store.CrashLimits, limit int) (store.Reaped, error)
	Uptime(ctx context.Context) (time.Duration, error)
	Poll(ctx context.Context, queues, machines []string) (store.Polled, error)
	TimeOut(ctx context.Context, limit int) (store.TimedOut, error)
	Expire(ctx context.Context, mark string, limit int) (store.Expired, error)
	Promote(ctx context.Context, keys []string) (store.Promotion, error)
	Sweep(ctx context.Context, after string, limit int) (last string, p store.Promotion, err error)
	Prune(ctx context.Context, p store.PruneParams) (store.Pruned, error)
	Holder(ctx context.Context, of store.Address) (h store.Holder, ok bool, err error)
	Complete(ctx context.Context, worker string, c *step.Claim, most int) (held bool, err error)
	Inbox(ctx context.Context, id, after int64) (page []step.Signal, more bool, err error)
	Round(ctx context.Context, parent, round int64) ([]int64, error)
	Children(ctx context.Context, ids []int64) (page []step.Child, behind []int64, err error)
}

// beater extends leases on a connection of its own.
type beater interface {
	Beat(ctx context.Context, worker string, claims []*step.Claim, lease time.Duration) (store.Beaten, error)
	Insist(ctx context.Context, worker string, c *step.Claim, lease, wait time.Duration) (store.Beaten, error)
	Present(ctx context.Context, p *store.Presence) error
	Absent(ctx context.Context, worker string) error
	Close(ctx context.Context) error
}

// keyLocks are the advisory locks of partition keys, on a connection of their own.
type keyLocks interface {
	TryLock(ctx context.Context, hashes []int64) ([]bool, error)
	Unlock(ctx context.Context, hashes []int64) error
	Alive(ctx context.Context) error
	Close(ctx context.Context) error
}
