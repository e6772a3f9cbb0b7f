package engine

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// MaxFailures is how many failures [Engine.Failures] counts; within bounds of labels, how many it
	// looks at is a fifth of that.
	MaxFailures = 20_000
	// MaxFailuresAlike is how many failures of one group it counts, if it is not asked for that one.
	MaxFailuresAlike = 10_000
	// MaxFailureKinds is how many groups it looks at.
	MaxFailureKinds = 300
	// MaxChildren is how many children of an instance [Engine.ChildCounts] counts.
	MaxChildren = 100_000
)

// labelsCost is how many times as much a failure costs of which the labels are to be read.
const labelsCost = 5

// FailuresOptions say which failures [Engine.Failures] groups. The zero value is all.
type FailuresOptions struct {
	Machine     string    // only of this machine; "": of all
	Queue       string    // only of this queue; "": of all
	Fingerprint string    // only this group; "": all
	Since       time.Time // only of instances that ended at this time or later; zero: any
	Limit       int       // groups: 1 to fsm.MaxLimit; 0: fsm.DefaultLimit
	Within      Bounds    // only of instances within these; others are not counted as looked at either
}

// Failures are the instances that have failed, in groups, the most frequent first.
type Failures struct {
	Groups []FailureGroup `json:"groups"`
	Looked int64          `json:"looked"` // how many failures were counted
	Since  time.Time      `json:"since"`  // when the oldest of them ended; zero: none has failed
	More   bool           `json:"more"`   // there may be other groups: it looks at MaxFailureKinds, of the newest failures first
}

// FailureGroup are instances that failed alike: the same machine and version, at the same step, in
// the same queue and way, with the same error. Errors are compared by their first 500 characters,
// without texts in quotation marks, numbers, addresses, and words that have digits or hexadecimal
// digits only. The newest entry of the instance's list of errors has step and error; instances that
// foreign SQL has failed without such an entry count as equal in these.
type FailureGroup struct {
	Fingerprint string      `json:"fingerprint"` // for Filter.Fingerprint, which selects exactly the instances of the group
	Machine     string      `json:"machine"`
	Version     int         `json:"version"`
	Step        string      `json:"step"`
	Queue       string      `json:"queue"`
	Failure     fsm.Failure `json:"failure"`
	Error       string      `json:"error"` // of the newest, its first 200 characters
	Count       int64       `json:"count"`
	AtLeast     bool        `json:"at_least"` // there may be more: of those inserted before the counted ones
	First       time.Time   `json:"first"`    // when the oldest of them failed
	Last        time.Time   `json:"last"`
	Newest      fsm.ID      `json:"newest"` // the one that failed last
}

// Failures groups what has failed: which machine, at which step, by which error, how often. Each
// failed instance has the fingerprint of its group, with an index, along which Failures goes in one
// statement: from group to group, and along the newest inserted instances of each to count them.
// It looks at MaxFailureKinds groups, and counts MaxFailures instances, the groups of the newest
// first, and at least ten of each, however many instances there are. It needs no history;
// [Engine.StepFailures] goes by the history, and so includes retries.
//
// Errors: a *[QueryError].
func (e *Engine) Failures(ctx context.Context, o FailuresOptions) (out Failures, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	f := store.FailureFilter{Machine: o.Machine, Queue: o.Queue, Fingerprint: store.FingerprintOf(o.Fingerprint), Kinds: MaxFailureKinds,
		Most: MaxFailures, Each: MaxFailuresAlike, Limit: o.Limit}
	if _, _, err := criteria(&fsm.Filter{Machine: o.Machine, Queue: o.Queue, Fingerprint: o.Fingerprint}); err != nil {
		return Failures{}, err
	}
	if o.Fingerprint != "" {
		f.Each = MaxFailures
	}
	if len(o.Within.Labels) > 0 {
		f.Most /= labelsCost
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
		out.Groups[i] = FailureGroup{Fingerprint: store.FingerprintText(g.Fingerprint), Machine: g.Machine, Version: int(g.Version), Step: g.Step, Queue: g.Queue, Failure: fsm.Failure(g.Failure),
			Error: g.Error, Count: g.Count, AtLeast: g.AtLeast, First: g.First.UTC(), Last: g.Last.UTC(), Newest: fsm.ID(g.Newest)}
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

// ChildCounts counts the children of an instance, by id or by correlation key, as [Engine.Get]
// finds it. [Engine.List] with Filter.Parent pages through them.
//
// Errors: ErrNotFound.
func (e *Engine) ChildCounts(ctx context.Context, of fsm.Target) (out ChildCounts, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	parent, err := e.Get(ctx, of)
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
