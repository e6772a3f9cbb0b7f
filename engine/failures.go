package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/signal"
)

const (
	// MaxFailures is how many of the newest ended instances [Engine.Failures] looks at.
	MaxFailures = 10_000
	// MaxChildren is how many children of an instance [Engine.ChildCounts] counts.
	MaxChildren = 100_000
)

// FailuresOptions say which failures [Engine.Failures] groups. The zero value is the newest of all.
type FailuresOptions struct {
	Machine string    // only of this machine; "": of all
	Queue   string    // only of this queue; "": of all
	Since   time.Time // only of instances that ended at this time or later; zero: any
	Limit   int       // groups: 1 to fsm.MaxLimit; 0: fsm.DefaultLimit
	Within  Bounds    // only of instances within these; others are not counted as looked at either
}

// Failures are the newest failures in groups, the most frequent first.
type Failures struct {
	Groups []FailureGroup `json:"groups"`
	Looked int64          `json:"looked"` // how many ended instances were looked at, those that are done included
	Since  time.Time      `json:"since"`  // when the oldest of them ended; zero: none has ended
	More   bool           `json:"more"`   // MaxFailures were looked at: what ended before Since was not
}

// FailureGroup are instances that failed alike: the same machine and version, at the same step, in
// the same queue and way, with the same error but for numbers in it.
type FailureGroup struct {
	Machine string      `json:"machine"`
	Version int         `json:"version"`
	Step    string      `json:"step"`
	Queue   string      `json:"queue"`
	Failure fsm.Failure `json:"failure"`
	Error   string      `json:"error"` // of the newest, its first 200 characters
	Count   int64       `json:"count"`
	First   time.Time   `json:"first"` // when the oldest of them failed
	Last    time.Time   `json:"last"`
	Newest  fsm.ID      `json:"newest"` // the one that failed last
}

// Failures groups what has failed lately: which machine, at which step, by which error, how often.
// It looks at the newest MaxFailures ended instances, by the index of when they ended, in one
// statement. It needs no history; [Engine.StepFailures] has what the history says, retries
// included.
//
// Errors: a *[QueryError].
func (e *Engine) Failures(ctx context.Context, o FailuresOptions) (out Failures, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	f := store.FailureFilter{Machine: o.Machine, Queue: o.Queue, Most: MaxFailures, Limit: o.Limit}
	if _, _, err := criteria(&fsm.Filter{Machine: o.Machine, Queue: o.Queue}); err != nil {
		return Failures{}, err
	}
	if f.Within, err = bounds(o.Within); err != nil {
		return Failures{}, err
	}
	if f.Since, err = instant("Since", o.Since); err != nil {
		return Failures{}, err
	}
	switch {
	case o.Limit == 0:
		f.Limit = fsm.DefaultLimit
	case o.Limit < 0 || o.Limit > fsm.MaxLimit:
		return Failures{}, badQuery("Limit", "%d, want 1 to %d", o.Limit, fsm.MaxLimit)
	}
	var found store.Failures
	err = e.patiently(ctx, task{doing: "group failures"}, func() error {
		found, err = e.store.Failures(ctx, &f)
		return err
	})
	if err != nil {
		return Failures{}, err
	}
	out = Failures{Groups: make([]FailureGroup, len(found.Groups)), Looked: found.Looked, Since: fieldOf(found.Since).UTC(),
		More: found.More}
	for i, g := range found.Groups {
		out.Groups[i] = FailureGroup{Machine: g.Machine, Version: int(g.Version), Step: g.Step, Queue: g.Queue, Failure: fsm.Failure(g.Failure),
			Error: g.Error, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(), Newest: fsm.ID(g.Newest)}
	}
	return out, nil
}

// ChildCounts are the numbers of an instance's children, in groups.
type ChildCounts struct {
	Counts  []ChildCount `json:"counts"`   // by round, machine, status
	AtLeast bool         `json:"at_least"` // MaxChildren were counted: there may be more
}

// ChildCount is the number of children of one round, machine and status.
type ChildCount struct {
	Round   int64      `json:"round"` // the visit that joins them
	Machine string     `json:"machine"`
	Status  fsm.Status `json:"status"`
	Count   int64      `json:"count"`
}

// ChildCounts counts the children of an instance, by id or by the correlation key that it occupies.
// [Engine.List] with Filter.Parent pages through them.
//
// Errors: ErrNotFound.
func (e *Engine) ChildCounts(ctx context.Context, of fsm.Target) (out ChildCounts, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	address, err := signal.Resolve(of)
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	parent, err := e.get(ctx, address)
	if err != nil {
		return out, err
	}
	var found []store.ChildCount
	err = e.patiently(ctx, task{doing: "count children"}, func() error {
		found, err = e.store.ChildCounts(ctx, int64(parent.ID), MaxChildren)
		return err
	})
	if err != nil {
		return out, err
	}
	out.Counts = make([]ChildCount, len(found))
	var all int64
	for i, c := range found {
		out.Counts[i] = ChildCount{c.Round, c.Machine, fsm.Status(c.Status), c.Count}
		all += c.Count
	}
	out.AtLeast = all >= MaxChildren
	return out, nil
}
