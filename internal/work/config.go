package work

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// Config configures a worker. It must be complete and valid: package engine fills in defaults and
// checks bounds.
type Config struct {
	Store    *store.Store
	Company  *store.Company // of the store; nil: it has none
	Env      *step.Env
	Machines []*step.Machine
	Queues   map[string]worker.Queue

	Lease         time.Duration
	Heartbeat     time.Duration
	Reap          time.Duration
	DrainTimeout  time.Duration // how long Stop lets steps finish
	DrainGrace    time.Duration // how long Stop waits after cancelling them
	RunAheadFor   time.Duration
	RunAheadSteps int  // 1: off
	LockByLease   bool // no liveness lock for partition keys
	RetainDone    time.Duration
	RetainFailed  time.Duration
	RetainHistory time.Duration
	// RetainCancelled is how long cancelled instances are kept; 0: as failed ones.
	RetainCancelled time.Duration
	// Archive gets instances before they are deleted; an error keeps them. Nil: there is no archive.
	Archive  func(ctx context.Context, ids []int64) error
	Sweeps   int // how many sweeps may have a connection at a time; 0: any number
	NoReaper bool
	NoGC     bool

	Logger *slog.Logger
	Hooks  []worker.Hooks
	// Context returns the context from which steps derive, so that a step finds the engine in it. Nil
	// leaves the context unchanged.
	Context func(context.Context) context.Context
	// Around surrounds the steps; the first is the outermost.
	Around []Around
	// Extract puts the values that were stored with an instance into its steps' contexts. Nil leaves
	// the contexts unchanged.
	Extract func(ctx context.Context, stored map[string]string) context.Context
	// Fire fires due schedules, calls told for each one it advanced, and returns when to call again.
	// They are due at the given time, or if that is zero, by Postgres' clock. The poller notices a
	// schedule that is due in two seconds or later. Nil: this worker fires no schedules.
	Fire func(ctx context.Context, at time.Time, told func(worker.FireEvent)) (wait time.Duration, err error)
	// Redact returns what the history keeps of a difference of states, nil for nothing. Nil keeps all.
	Redact func(machine string, diff json.RawMessage) json.RawMessage
	// Terminal gets the ids of instances that ended here, after the commit. Nil: nobody waits.
	Terminal func(ids []int64)
	// Parked gets the ids of instances that parked here, after the commit. Nil: nobody waits.
	Parked func(ids []int64)
}

// backend is the part of package store that a worker needs. It is an interface so that tests need
// no database.
type backend interface {
	Claim(ctx context.Context, p store.ClaimParams) (store.Claimed, error)
	ClaimStrays(ctx context.Context, p store.ClaimParams, steps []store.StepKey) (store.Claimed, error)
	Commit(ctx context.Context, worker, mark string, entries []store.Entry, wait time.Duration) (store.Committed, error)
	Transact(ctx, finish context.Context, worker, mark string, c *step.Claim, tries int, decide func(tx any) (store.Entry, error)) (store.Transacted, error)
	Resolve(ctx context.Context, worker string, marks [][]string, entries []store.Entry, wait time.Duration) (map[int64]store.Verdict, error)
	Held(ctx context.Context, worker, queue string) ([]*step.Claim, error)
	Release(ctx context.Context, worker string, claims []*step.Claim) (store.Released, error)
	SetAside(ctx context.Context, worker string, aside []store.Aside) (store.Released, error)
	Reap(ctx context.Context, mark string, limits store.CrashLimits, limit int) (store.Reaped, error)
	Uptime(ctx context.Context) (time.Duration, error)
	Poll(ctx context.Context, queues, machines, lines []string) (store.Polled, error)
	TimeOut(ctx context.Context, limit int) (store.TimedOut, error)
	CancelRest(ctx context.Context, mark string, after int64, limit int) (store.Rested, error)
	Skip(ctx context.Context, mark string, after int64, limit int) (store.Skipped, error)
	ToSkip(ctx context.Context) (bool, error)
	Expire(ctx context.Context, mark string, limit int) (store.Expired, error)
	Promote(ctx context.Context, keys []string) (store.Promotion, error)
	Throttle(ctx context.Context, key string, after time.Duration) error
	Scout(ctx context.Context, queue, from string, most int, sparse bool, soon time.Duration) (store.Scouted, error)
	Refile(ctx context.Context, from *store.Filed, most int) (queues []string, more bool, err error)
	Lingering(ctx context.Context, worker string, keys []string) ([]string, error)
	Landed(ctx context.Context, worker string, tokens []int64) error
	Sweep(ctx context.Context, after string, limit int, own *store.InFlight) (last string, p store.Promotion, err error)
	Prune(ctx context.Context, p store.PruneParams) (store.Pruned, error)
	HandOver(ctx context.Context, after string) (store.Handed, error)
	FreeRows(ctx context.Context, silent time.Duration) (ended int, err error)
	RollHistory(ctx context.Context, keep time.Duration) (store.Rolled, error)
	Holder(ctx context.Context, of store.Address) (h store.Holder, ok bool, err error)
	Complete(ctx context.Context, worker string, c *step.Claim, most int) (held bool, err error)
	Inbox(ctx context.Context, id, after int64) (page []step.Signal, more bool, err error)
	Publish(ctx context.Context, worker string, id, token int64, progress []byte) (held bool, err error)
	Round(ctx context.Context, parent, round int64) (page []step.Child, behind []int64, err error)
	Portion(ctx context.Context, c *step.Claim, wait time.Duration) (store.Portion, error)
	Shorten(ctx context.Context, c *step.Claim, to []int64) (store.Portion, error)
	EndIsFree(ctx context.Context, c *step.Claim) (bool, error)
	Children(ctx context.Context, ids []int64) (page []step.Child, behind []int64, err error)
	Feed(ctx context.Context, claims []*step.Claim, most int) error
}

// beater extends leases on a separate connection.
type beater interface {
	Beat(ctx context.Context, worker string, claims []*step.Claim, lease time.Duration) (store.Beaten, error)
	Insist(ctx context.Context, worker string, c *step.Claim, lease, wait time.Duration) (store.Beaten, error)
	Present(ctx context.Context, p *store.Presence) error
	Absent(ctx context.Context, worker string) error
	Check(ctx context.Context) error
	Connected() bool
	Close(ctx context.Context) error
}
