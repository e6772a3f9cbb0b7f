package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	historyPage     = 500
	historyBackPage = 250 // mostly the first page is enough
	// historyMost and historyLong bound what a query on many instances reads.
	historyMost           = 5_000_000
	historyLong           = 31 * 24 * time.Hour
	historyTimeout        = 30 * time.Second
	maxHistoryTimeout     = 10 * time.Minute
	stepFailures          = 100
	defaultHistorySince   = 24 * time.Hour
	historyClockTolerance = time.Minute
)

// Transition is a row of the history: a transition of an instance, what a sweep did to it, or what
// an operator did. A field that a row of its kind does not have is zero.
type Transition struct {
	At       time.Time `json:"at"`       // of the commit, by Postgres' clock
	Instance fsm.ID    `json:"instance"` // 0: an operator's verb that concerned no instance
	Visit    int64     `json:"visit"`    // the visit that ended
	// Kind is the kind of the outcome, an fsm.OutcomeKind; or "crash", where a lease expired; or
	// "deadline"; or "join.cancel", where the parent did not wait for the instance any more; or
	// "node.skip", where an edge of a node was not met; or "admin." and an operator's verb; or
	// "signal.unread", where Done deleted unconsumed signals of one name, with their number in Error.
	Kind    string        `json:"kind"`
	Machine string        `json:"machine,omitempty"`
	Version int           `json:"version,omitempty"`
	From    string        `json:"from,omitempty"` // the step that was left
	To      string        `json:"to,omitempty"`   // the step that was entered; empty: none
	Attempt int           `json:"attempt"`        // of the step, from 0
	Waited  time.Duration `json:"waited_ns"`      // from when the step was due until it was claimed
	Took    time.Duration `json:"took_ns"`        // to run the step, its handler left out
	Worker  string        `json:"worker,omitempty"`
	Failure fsm.Failure   `json:"failure,omitempty"` // of an instance that failed by it
	Error   string        `json:"error,omitempty"`   // its first 1,024 characters
	Actor   string        `json:"actor,omitempty"`   // of an operator's verb
	Reason  string        `json:"reason,omitempty"`  // of an operator's verb
	Subject string        `json:"subject,omitempty"` // what a verb was about, if that is no instance
	// Diff is the difference of the states, an RFC 7386 merge patch: see fsm.KeepStates.
	Diff   json.RawMessage `json:"diff,omitempty"`
	Before json.RawMessage `json:"before,omitempty"` // of an operator's verb: what it found
	After  json.RawMessage `json:"after,omitempty"`  // of an operator's verb: what it left
	// LeftOut is how many bytes Diff, Before and After have, where HistoryBack did not read them.
	LeftOut int64 `json:"left_out,omitempty"`
}

// History yields what happened to an instance, oldest first, by id or by correlation key,
// as [Engine.Get] finds it. By id it also finds instances that the GC has deleted, until the
// history is past [Config.RetainHistory]. It has the transitions of machines whose definition, or
// [Config.History], asks for it, and operators' verbs of all machines. It reads in pages; after an
// error it ends.
//
// Errors: ErrNotFound if there is neither the instance nor a row about it.
func (e *Engine) History(ctx context.Context, of fsm.Target) iter.Seq2[Transition, error] {
	return e.happened(ctx, of, historyPage, true, e.store.Timeline)
}

// HistoryBack is [Engine.History], newest first. It reads Diff, Before and After of the newest
// transitions, as long as they have no more bytes together than documents says; 0: of all. Of the
// others it says in LeftOut how large they are. Without a row about an id it yields nothing, and
// does not look whether there is an instance.
//
// Errors: ErrNotFound if no instance has the key.
func (e *Engine) HistoryBack(ctx context.Context, of fsm.Target, documents int64) iter.Seq2[Transition, error] {
	return func(yield func(Transition, error) bool) {
		left := documents
		if documents <= 0 {
			left = math.MaxInt64
		}
		e.happened(ctx, of, historyBackPage, false, func(ctx context.Context, id int64, beyond store.HistoryPlace, limit int) ([]store.Happened, error) {
			page, err := e.store.TimelineBack(ctx, id, beyond, limit, left)
			for i := range page {
				left -= int64(len(page[i].Diff) + len(page[i].Before) + len(page[i].After))
				if page[i].LeftOut > 0 {
					left = 0 // nor of any that is older
				}
			}
			return page, err
		})(yield)
	}
}

// happened yields the history of an instance in the order in which read has it. exists asks for an
// error if there is neither a row nor the instance.
func (e *Engine) happened(ctx context.Context, of fsm.Target, size int, exists bool, read timelineRead) iter.Seq2[Transition, error] {
	return func(yield func(Transition, error) bool) {
		id, err := e.historyOf(ctx, of)
		if err != nil {
			yield(Transition{}, err)
			return
		}
		var beyond store.HistoryPlace
		for n := 0; ; {
			page, err := e.timeline(ctx, id, beyond, size, read)
			if err == nil && exists && len(page) == 0 && n == 0 {
				_, err = e.Get(ctx, id) // an instance that has not been recorded, or none
			}
			if err != nil {
				yield(Transition{}, err)
				return
			}
			for i := range page {
				if !yield(transition(&page[i]), nil) {
					return
				}
			}
			if n += len(page); len(page) < size {
				return
			}
			beyond = page[len(page)-1].Place()
		}
	}
}

// historyOf returns the id of a target.
func (e *Engine) historyOf(ctx context.Context, of fsm.Target) (fsm.ID, error) {
	if id, ok := of.(fsm.ID); ok {
		if _, err := send.Resolve(id); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return id, nil
	}
	i, err := e.Get(ctx, of)
	return i.ID, err
}

// timelineRead reads a page of a timeline, beyond a place.
type timelineRead func(ctx context.Context, id int64, beyond store.HistoryPlace, limit int) ([]store.Happened, error)

func (e *Engine) timeline(ctx context.Context, id fsm.ID, beyond store.HistoryPlace, size int, read timelineRead) (page []store.Happened, err error) {
	defer e.explain(ctx, toRead("history"), &err)
	err = e.patiently(ctx, task{doing: "read the history of an instance"}, func() error {
		page, err = read(ctx, int64(id), beyond, size)
		return err
	})
	return page, err
}

func transition(h *store.Happened) Transition {
	return Transition{
		At: h.At, Instance: fsm.ID(fieldOf(h.Instance)), Visit: fieldOf(h.Visit), Kind: h.Kind, Machine: fieldOf(h.Machine), Version: int(fieldOf(h.Version)),
		From: fieldOf(h.Step), To: fieldOf(h.To), Attempt: int(fieldOf(h.Attempt)), Waited: microseconds(fieldOf(h.Waited)), Took: microseconds(fieldOf(h.Took)),
		Worker: fieldOf(h.Worker), Failure: fsm.Failure(fieldOf(h.Failure)), Error: fieldOf(h.Error), Actor: fieldOf(h.Actor), Reason: fieldOf(h.Reason),
		Subject: fieldOf(h.Subject), Diff: h.Diff, Before: h.Before, After: h.After, LeftOut: h.LeftOut,
	}
}

// fieldOf returns what a pointer points at, or the zero value.
func fieldOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// HistoryOptions say of which time a query on the history of a machine is. The zero value is the
// last 24 hours of all versions.
type HistoryOptions struct {
	Version int           // only of this version; 0: of all
	Since   time.Time     // zero: 24 h before Until. At most 31 days before it
	Until   time.Time     // zero: now
	Timeout time.Duration // of the query, up to 10 min; 0: 30 s
}

// Percentiles of a time.
type Percentiles struct {
	P50 time.Duration `json:"p50_ns"`
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// StepTimes has what the history says about the runs of a step.
type StepTimes struct {
	Step    string      `json:"step"`
	Runs    int64       `json:"runs"`    // transitions from it, retries and crashes included
	Retried int64       `json:"retried"` // that ended in a retry
	Failed  int64       `json:"failed"`  // that ended the instance as failed
	Crashed int64       `json:"crashed"` // that lost their process
	Took    Percentiles `json:"took"`    // to run it
	Waited  Percentiles `json:"waited"`  // from when it was due until it was claimed
}

// StepTimes returns how long the steps of a machine run and wait, by the name of the step, from the
// history: recorded transitions only. It reads the days in question from end to end.
//
// Errors: a *[QueryError], also for a time of more than 5,000,000 transitions.
func (e *Engine) StepTimes(ctx context.Context, machine string, o HistoryOptions) ([]StepTimes, error) {
	list, err := queryHistory(ctx, e, machine, o, e.store.StepTimes)
	out := make([]StepTimes, len(list))
	for i, t := range list {
		out[i] = StepTimes{Step: t.Step, Runs: t.Runs, Retried: t.Retried, Failed: t.Failed, Crashed: t.Crashed, Took: percentiles(t.Took),
			Waited: percentiles(t.Waited)}
	}
	return out, err
}

func percentiles(us []int64) Percentiles {
	if len(us) != 3 {
		return Percentiles{}
	}
	return Percentiles{microseconds(us[0]), microseconds(us[1]), microseconds(us[2])}
}

// StepFailure is one way in which a step fails, and how often.
type StepFailure struct {
	Step    string      `json:"step"`
	Kind    string      `json:"kind"`              // retry, stop, crash, deadline
	Failure fsm.Failure `json:"failure,omitempty"` // of an instance that failed by it
	Error   string      `json:"error"`             // its first 200 characters
	Count   int64       `json:"count"`
	Of      int64       `json:"of"` // transitions from the step
	Last    time.Time   `json:"last"`
}

// StepFailures returns what goes wrong at the steps of a machine, the 100 most frequent first, as
// StepTimes does.
//
// Errors: a *[QueryError].
func (e *Engine) StepFailures(ctx context.Context, machine string, o HistoryOptions) ([]StepFailure, error) {
	list, err := queryHistory(ctx, e, machine, o, func(ctx context.Context, f *store.HistoryFilter) ([]store.StepFailure, error) {
		return e.store.StepFailures(ctx, f, stepFailures)
	})
	out := make([]StepFailure, len(list))
	for i, x := range list {
		out[i] = StepFailure{Step: x.Step, Kind: x.Kind, Failure: fsm.Failure(x.Failure), Error: x.Error, Count: x.Count, Of: x.Of, Last: x.Last}
	}
	return out, err
}

// StepEdge is a way from a step that instances have taken.
type StepEdge struct {
	From  string `json:"from"`
	To    string `json:"to,omitempty"` // empty: the instance ended
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
}

// StepEdges returns which ways between its steps the instances of a machine have really taken, as
// StepTimes does.
//
// Errors: a *[QueryError].
func (e *Engine) StepEdges(ctx context.Context, machine string, o HistoryOptions) ([]StepEdge, error) {
	list, err := queryHistory(ctx, e, machine, o, e.store.StepEdges)
	out := make([]StepEdge, len(list))
	for i, x := range list {
		out[i] = StepEdge(x)
	}
	return out, err
}

// queryHistory checks the options of a query, and sends it.
func queryHistory[T any](ctx context.Context, e *Engine, machine string, o HistoryOptions,
	send func(context.Context, *store.HistoryFilter) ([]T, error),
) (list []T, err error) {
	defer e.explain(ctx, toRead("history"), &err)
	f, err := o.filter(machine)
	if err != nil {
		return nil, err
	}
	err = e.patiently(ctx, task{doing: "read the history of a machine"}, func() error {
		list, err = send(ctx, f)
		return err
	})
	if many, ok := errors.AsType[*store.HistoryError](err); ok {
		return nil, badQuery("Since", "%w: choose a shorter time", many)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (o HistoryOptions) filter(machine string) (*store.HistoryFilter, error) {
	if o.Until.IsZero() {
		o.Until = time.Now().Add(historyClockTolerance)
	}
	if o.Since.IsZero() {
		o.Since = o.Until.Add(-defaultHistorySince)
	}
	if o.Timeout == 0 {
		o.Timeout = historyTimeout
	}
	if err := checkName(machine, fsm.MaxNameBytes); err != nil {
		return nil, badQuery("Machine", "%w", err)
	}
	switch {
	case o.Version < 0:
		return nil, badQuery("Version", "%d is negative", o.Version)
	case !o.Since.Before(o.Until):
		return nil, badQuery("Since", "%v, want a time before Until, %v", o.Since, o.Until)
	case o.Until.Sub(o.Since) > historyLong:
		return nil, badQuery("Since", "%v before Until, at most %v", o.Until.Sub(o.Since), historyLong)
	case o.Timeout < time.Millisecond || o.Timeout > maxHistoryTimeout:
		return nil, badQuery("Timeout", "%v, want 1ms to %v", o.Timeout, maxHistoryTimeout)
	}
	return &store.HistoryFilter{Machine: machine, Version: o.Version, Since: o.Since, Until: o.Until, Most: historyMost, Timeout: o.Timeout}, nil
}

// startRecording notes which machines are recorded here, and makes the history's partitions, so
// that the first transition does not go to the one for days without. It sends nothing if no machine
// is recorded, here or by a program before. noted are the machines that are noted already; known is
// whether that could be read.
func (e *Engine) startRecording(ctx context.Context, noted []string, known bool) error {
	keeps := map[string]bool{} // whether some version of the machine is recorded
	for _, m := range e.machines {
		keeps[m.Name] = keeps[m.Name] || m.History.Recorded()
	}
	var recorded, others []string
	changed := !known
	for name, keep := range keeps {
		if keep {
			recorded = append(recorded, name)
		} else {
			others = append(others, name)
		}
		changed = changed || keep != slices.Contains(noted, name)
	}
	slices.Sort(recorded)
	slices.Sort(others)
	if changed {
		if err := e.store.SetRecorded(ctx, recorded, others); err != nil {
			return err
		}
	}
	if len(recorded) == 0 {
		return nil
	}
	if _, err := e.store.RollHistory(ctx, e.config.RetainHistory); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot make the partitions of the history yet", slog.Any("error", err))
	}
	return nil
}
