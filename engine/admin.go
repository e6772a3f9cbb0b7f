package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/store"
)

// Admin has the operator's verbs. Each verb compares and sets: in one transaction it locks the
// instance, looks whether the verb applies to it, and changes it. It returns what it changed, or a
// *[ConflictError] that says why it changed nothing. Admin is safe for concurrent use and needs no
// Start.
//
// A verb waits until ctx ends for a row that another transaction keeps locked, and for the end of a
// transient fault: give ctx a deadline.
//
// Errors of all verbs: ErrNotFound; a *[ConflictError]; a *[VerbError] for bad input; ErrUnknown
// where the COMMIT got no answer: look, and call again.
//
// The Admin of [Engine.Within] stays within bounds, and may also return a *[BoundsError].
type Admin struct{ scope }

// Admin returns the operator's verbs of this engine.
func (e *Engine) Admin() *Admin { return &Admin{e.everything()} }

// Verb is the name of an operator's verb.
type Verb string

// method returns the name of the verb's method of [Admin]: SetGate of set_gate.
func (v Verb) method() string {
	words := strings.Split(string(v), "_")
	for i, word := range words {
		if word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// appliesTo names the instances that a verb may change.
var appliesTo = map[Verb]string{
	VerbCancel:     "instances that have not ended",
	VerbRetry:      "failed instances",
	VerbRunNow:     "runnable instances that wait for their time",
	VerbReschedule: "runnable instances",
	VerbPause:      "instances that are neither paused nor ended",
	VerbResume:     "paused instances that have not ended",
	VerbEdit:       "instances that neither execute nor are done",
	VerbRewind:     "instances that neither execute nor are done",
	VerbRestart:    "failed instances, and those that wait for failed ones",
}

// applies returns the error of the verb for other instances.
func (v Verb) applies() error { return fmt.Errorf("%s is for %s", v.method(), appliesTo[v]) }

// These are the verbs, also for [Admin.Bulk].
const (
	VerbCancel     = Verb(store.Cancel)
	VerbRetry      = Verb(store.Retry)
	VerbRunNow     = Verb(store.RunNow)
	VerbReschedule = Verb(store.Reschedule)
	VerbPause      = Verb(store.Pause)
	VerbResume     = Verb(store.Resume)
	VerbEdit       = Verb(store.Edits)
	VerbRewind     = Verb(store.Rewind)
	VerbRestart    = Verb(store.Restart)
)

const (
	// MaxReasonBytes bounds the text of [Reason].
	MaxReasonBytes = 4096
	// MaxFamily bounds how many instances one Cancel with [Descendants] may look at, ended ones
	// included, and how many one Restart may change, since each is one transaction.
	MaxFamily = 100_000
)

// VerbOption refines a verb.
type VerbOption func(*order)

type order struct {
	store.Order
	seen  fsm.ID // of Order.Seen
	times int    // that were given

	within *Bounds                // of Within
	watch  func(Applied)          // of Watching
	visit  *int64                 // of AtVisit
	change *fsm.Change            // of Edit and Rewind
	to     *string                // of Rewind
	graphs map[string]fsm.Diagram // of Rewind: the definitions, once read
}

// Reason is an option of all verbs: the reason of an act, in at most MaxReasonBytes. The audit
// keeps it. Cancel also stores "cancelled: " and the text as last_error. Without it the audit has
// the reason of [WithReason].
func Reason(text string) VerbOption { return func(o *order) { o.Reason = text } }

// Descendants is an option of Cancel. It cancels all live descendants as well, children before
// their parents, in one transaction of at most MaxFamily instances. An instance that has ended
// already keeps its end; its descendants are cancelled.
func Descendants() VerbOption { return func(o *order) { o.Descendants = true } }

// At is an option of a plan of VerbReschedule, which needs it: the one time at which all instances
// of the plan become eligible. It is at most 100 years from now; a past time means now.
// [Admin.Reschedule] takes its time as a parameter.
func At(t time.Time) VerbOption {
	return func(o *order) {
		o.At = t
		o.times++
	}
}

// Within is an option of all verbs on one instance: the verb stays within these bounds. Of an
// instance that lies outside it returns ErrNotFound. If it would also change instances that lie
// outside, such as the nodes of a graph whose root is cancelled, it changes nothing, and returns an
// [ErrOutside] within a *[ConflictError]. A plan has the bounds of its filter instead: see
// [fsm.Filter].
func Within(b Bounds) VerbOption {
	return func(o *order) { o.within = &b }
}

// IfUnchanged is an option of all verbs but [Plan.Apply]'s. The verb applies only if the
// instance's status, visit, attempt, crashes, eligible_at and paused are as they were read.
func IfUnchanged[S, R any](seen fsm.Instance[S, R]) VerbOption {
	return func(o *order) {
		o.seen = seen.ID
		o.Seen = &store.Seen{Status: string(seen.Status), Visit: seen.Visit, Attempt: seen.Attempt, Crashes: seen.Crashes,
			EligibleAt: seen.EligibleAt, Paused: seen.Paused}
	}
}

// Changed says what a verb changed.
type Changed struct {
	ID          fsm.ID     `json:"id"`
	Was         fsm.Status `json:"was"`
	Is          fsm.Status `json:"is"`
	Descendants []fsm.ID   `json:"descendants,omitempty"` // that were cancelled or restarted, too; ascending
}

// Cancel ends a live instance as failed, with fsm.FailureCancelled, whatever it is doing. A child
// leaves its parent's barrier, like any child that fails. From here on the instance's key is free,
// and a signal to it is an ErrNoTarget.
//
// If one of its steps is running, the fence refuses that step's outcome. The step's context ends
// with the cause fsm.ErrCancelled: at once in this process, in others at their next heartbeat. Its
// handler is not called. The step runs until it returns; with LockLease the next step of its
// partition key may run beside it.
//
// Descendants go on, unless the option Descendants says otherwise. Retry undoes a Cancel.
func (a *Admin) Cancel(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbCancel, options)
}

// Retry makes a failed instance runnable at the step in which it failed, with what that step saw:
// state, idempotency keys, awaited signals, TimedOut, children. Attempts and crashes count from 0
// again, and a deadline in the past is removed. The instance is neither parked again nor paused,
// and its parent's barrier does not count it a second time. A node of a graph, a root that joins
// nodes which have failed, and a child of a node that has failed are restarted instead: see
// [Admin.Restart]. Only the id addresses it, unless the scope of its key includes failed.
//
// Errors: also ErrUseRestart, within the *[ConflictError]; a *[DuplicateError] where another
// instance occupies its correlation key by now.
func (a *Admin) Retry(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbRetry, options)
}

// Restart runs again the failed instances beneath an instance, and the nodes that were skipped for
// them, and lets the instance wait for them. Instances that are done stay done. It is one
// transaction of at most MaxFamily instances. It applies to
//
//   - an instance that waits for children or for the nodes of its graph: those that have failed run
//     again as after Retry, each with the failed instances beneath it, and the instance waits for
//     them;
//   - one that has failed: the failed instances beneath it run again, and then the step in which it
//     failed. If its children join at that step, it waits until all of them have ended, with any
//     policy of its join; a Timeout and signals do not count any more. If nothing beneath it has
//     failed, it is a Retry;
//   - a node of a graph, or another child, that has failed while its parent waits: the parent waits
//     for it again. Of a node, those that were skipped for it alone run again as well.
//
// A node at its first visit waits again for the nodes behind which it stands and that run again,
// and so does one that such an end has woken and that no worker has claimed yet. A node that has
// begun or ended, like one that undoes what had failed, stays as it is. An edge to a node that
// waits counts again, with the next end of its origin.
//
// A Restart is a *[ConflictError] where what waits for the instance has gone on, by FailFast maybe:
// restart that one once it has failed. It is one also where nothing has failed, for a skipped node,
// a stream, and where nodes have been collected since; and, as ErrUseRestart, for a child of a node
// that has failed: restart the node.
//
// Errors: also ErrUseRestart; a *[DuplicateError] where another instance occupies a correlation key
// by now; a *[VerbError] for more than MaxFamily instances.
func (a *Admin) Restart(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbRestart, options)
}

// RunNow makes a runnable instance eligible now that was to wait: a delayed Next or Retry, or an
// insert for later.
func (a *Admin) RunNow(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbRunNow, options)
}

// Reschedule makes a runnable instance eligible at a time, at most 100 years from now. A past time
// means now.
func (a *Admin) Reschedule(ctx context.Context, t fsm.Target, at time.Time, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbReschedule, append([]VerbOption{At(at)}, options...))
}

// Pause keeps a live instance from being claimed until Resume. A signal, a timeout or its last
// child still wakes it; it then waits as runnable, and holds up no other instance of its partition
// key. A step of it that is running goes on, but does not run ahead.
func (a *Admin) Pause(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbPause, options)
}

// Resume ends a Pause of a live instance. Retry makes a paused instance run that has ended
// meanwhile.
func (a *Admin) Resume(ctx context.Context, t fsm.Target, options ...VerbOption) (Changed, error) {
	return a.one(ctx, t, VerbResume, options)
}

func (a *Admin) one(ctx context.Context, t fsm.Target, verb Verb, options []VerbOption) (changed Changed, err error) {
	defer a.engine.explain(ctx, toOperate, &err)
	o, address, err := a.orderOf(ctx, t, verb, options)
	if err != nil {
		return Changed{}, err
	}
	if address.Key != "" {
		row, err := a.engine.get(ctx, address)
		if err == nil {
			err = o.sees(row, address)
		}
		if err != nil {
			return Changed{}, err
		}
		address.ID = int64(row.ID)
	}
	if o.Seen != nil && o.seen != fsm.ID(address.ID) {
		return Changed{}, &VerbError{verb, "IfUnchanged", fmt.Errorf("it saw instance %d, but the target is instance %d", o.seen, address.ID)}
	}
	done, err := a.patiently(ctx, []int64{address.ID}, o)
	if err != nil {
		return Changed{}, err
	}
	return a.told(verb, fsm.ID(address.ID), done)
}

// told turns what became of one instance into the answer of a verb.
func (a *Admin) told(verb Verb, id fsm.ID, done store.Operated) (Changed, error) {
	out := Changed{ID: id}
	for _, c := range done.Changed {
		if c.Asked {
			out.Was, out.Is = fsm.Status(c.Was), fsm.Status(c.Is)
		} else {
			out.Descendants = append(out.Descendants, fsm.ID(c.ID))
		}
	}
	if len(done.Refused) == 0 {
		return out, nil
	}
	switch r := done.Refused[0]; {
	case errors.Is(r.Why, store.ErrGone), errors.Is(r.Why, store.ErrHidden): // one answer for both
		return Changed{}, fmt.Errorf("%w: instance %d", ErrNotFound, id)
	case errors.Is(r.Why, store.ErrMoved):
		return Changed{}, fmt.Errorf("%w: instance %d: %w", ErrNotFound, id, r.Why)
	case len(out.Descendants) == 0:
		why := r.Why
		if errors.Is(why, store.ErrApplies) {
			why = verb.applies()
		}
		return Changed{}, &ConflictError{Verb: verb, ID: id, Status: fsm.Status(r.Status), Err: why}
	default: // it had ended, its descendants had not
		out.Was, out.Is = fsm.Status(r.Status), fsm.Status(r.Status)
		return out, nil
	}
}

// sees returns ErrNotFound of an instance that lies outside of the bounds of an order: the error
// that get has for an address without an instance.
func (o *order) sees(row fsm.RawInstance, at store.Address) error {
	if o.within != nil && !o.within.Cover(row.Queue, row.Machine, row.Labels) {
		return fmt.Errorf("get %s: %w", at, ErrNotFound)
	}
	return nil
}

// orderOf returns the order of a verb for one instance, and where that is.
func (a *Admin) orderOf(ctx context.Context, t fsm.Target, verb Verb, options []VerbOption) (*order, store.Address, error) {
	o, err := a.newOrder(ctx, verb, options)
	if err != nil {
		return nil, store.Address{}, err
	}
	address, err := send.Resolve(t)
	if err != nil {
		return nil, address, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	o.Key = address.Key
	return o, address, nil
}

func (s scope) newOrder(ctx context.Context, verb Verb, options []VerbOption) (o *order, err error) {
	o = &order{}
	for _, option := range options {
		option(o)
	}
	if s.bound() {
		all := s.and(*cmp.Or(o.within, &Bounds{}))
		o.within = &all
	}
	if err := o.asked(ctx, verb); err != nil {
		return nil, err
	}
	o.Verb, o.Mark, o.Most = store.Verb(verb), uuid.NewString(), MaxFamily
	if o.within != nil {
		if o.Filter.Within, err = bounds(*o.within); err != nil {
			bad, _ := errors.AsType[*QueryError](err)
			return nil, &VerbError{verb, bad.Field, bad.Err}
		}
	}
	if o.Descendants && verb != VerbCancel {
		return nil, &VerbError{verb, "Descendants", errors.New("an option of Cancel only")}
	}
	if err := o.checkTime(); err != nil {
		return nil, &VerbError{verb, "At", err}
	}
	return o, o.checkEdit()
}

func (o *order) checkTime() error {
	switch {
	case o.Verb != store.Reschedule && o.times > 0:
		return errors.New("an option of Reschedule only")
	case o.Verb != store.Reschedule:
		return nil
	case o.times > 1:
		return errors.New("given twice, with two times")
	case o.At.IsZero():
		return errors.New("the zero time: give a time, or use RunNow")
	case o.At.After(time.Now().Add(fsm.MaxDelay)):
		return fmt.Errorf("%d is over 100 years from now", o.At.Year())
	case o.At.Before(time.Unix(0, 0)):
		o.At = time.Unix(0, 0) // Postgres refuses far earlier ones
	}
	return nil
}

// patiently carries an order out.
func (a *Admin) patiently(ctx context.Context, ids []int64, o *order) (done store.Operated, err error) {
	t := task{doing: "carry out an operator's verb", row: store.Address{ID: ids[0]},
		attrs: []slog.Attr{slog.String("verb", string(o.Verb)), slog.Int64("instance", ids[0]), slog.Int("instances", len(ids))}}
	err = a.engine.patiently(ctx, t, func() error {
		done, err = a.operate(ctx, ids, o)
		return err
	})
	return done, err
}

// operate carries an order out once, and tells whom it concerns in this process.
func (a *Admin) operate(ctx context.Context, ids []int64, o *order) (store.Operated, error) {
	e := a.engine
	done, err := e.store.Operate(ctx, ids, &o.Order)
	if occupied, ok := errors.AsType[*store.OccupiedError](err); ok {
		if !o.Filter.Within.IsZero() { // it may lie outside
			occupied.Occupant = 0
		}
		return done, &DuplicateError{Key: fsm.Key(occupied.Key), Occupant: fsm.ID(occupied.Occupant)}
	}
	if family, ok := errors.AsType[*store.TooManyError](err); ok && o.Verb == store.Restart {
		return done, &VerbError{VerbRestart, "target", fmt.Errorf("it would restart %w: restart parts of them first", family)}
	} else if ok {
		return done, &VerbError{Verb(o.Verb), "Descendants", fmt.Errorf("%w: cancel parts of the family first", family)}
	}
	if err != nil {
		return done, err
	}
	changed := make([]int64, len(done.Changed))
	for i, c := range done.Changed {
		changed[i] = c.ID
	}
	switch {
	case o.Verb == store.Cancel:
		e.tell(ctx, changed)
	case o.Verb == store.Pause && e.worker != nil:
		e.worker.Paused(changed)
	}
	e.nudge(done.Queues...)
	e.promote(ctx, done.Missed)
	return done, nil
}

// tell says, after the commit, which instances were cancelled: to their steps and to the calls of
// Wait in this process, and to the hooks.
func (e *Engine) tell(ctx context.Context, cancelled []int64) {
	if e.worker != nil {
		e.worker.Cancelled(cancelled)
	}
	e.ended(cancelled)
	e.cancelled(ctx, len(cancelled))
}

// promoteTries bounds how often a verb promotes a key whose head was locked. After that the sweep
// of the keys does.
const promoteTries = 10

func (e *Engine) promote(ctx context.Context, keys []string) {
	for n := 1; len(keys) > 0 && n <= promoteTries && pause(ctx, n); n++ {
		p, err := e.store.Promote(ctx, keys)
		if err == nil {
			e.nudge(p.Queues...)
			keys = p.Missed
		}
	}
}
