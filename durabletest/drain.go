package durabletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/work"
)

// DefaultLimit is how many steps one Drain or Advance runs unless [Limit] says otherwise.
const DefaultLimit = 10_000

// Option changes how Drain, DrainOne and Advance run.
type Option func(*options)

type options struct {
	queues []string
	limit  int
}

// Queue restricts the run to this queue; given several times, to all of these.
func Queue(name string) Option { return func(o *options) { o.queues = append(o.queues, name) } }

// Limit sets how many steps may run before a [StepLimitError]: [DefaultLimit] unless given, at
// least 1.
func Limit(steps int) Option { return func(o *options) { o.limit = max(1, steps) } }

func chosen(opts []Option) options {
	o := options{limit: DefaultLimit}
	for _, option := range opts {
		option(&o)
	}
	return o
}

// Ran is one execution of a step, including its handler's if the step failed.
type Ran struct {
	Info    fsm.Info
	Outcome fsm.OutcomeKind // as committed; [fsm.OutcomeNone] if there was none, and the claim was given back
	Took    time.Duration   // by the step, without its commit
	Err     error           // of the step, and the handler decided the outcome; a *fsm.PanicError if the step panicked
}

// String describes the run in one line.
func (r Ran) String() string {
	text := fmt.Sprintf("%s/%d instance %d step %s (visit %d, attempt %d): %s", r.Info.Machine, r.Info.Version, r.Info.ID, r.Info.Step,
		r.Info.Visit, r.Info.Attempt, r.Outcome)
	if r.Err != nil {
		text += fmt.Sprintf(" after error: %v", r.Err)
	}
	return text
}

// Drained says what a Drain or Advance did.
type Drained struct {
	Steps    int                     // executions
	Ran      []Ran                   // each of them, in order
	Outcomes map[fsm.OutcomeKind]int // how many steps ended with each kind

	// These count the instances that ran, by their state at the end.
	Done, Failed int
	Parked       int // they await a signal or children
	Waiting      int // they are runnable, but not now: delayed, paused, or in a queue that was left out

	// Unknown lists the machines of instances that could run now if the kit had them, as
	// "name/version", in order.
	Unknown []string
	// Unserved lists the queues of instances that could run now if the kit's Config had them, in
	// order. A node is in its graph's queue, a child in "default", unless its spec or its machine
	// names another.
	Unserved []string
}

// StepLimitError is returned when a Drain or Advance would run more steps than its [Limit]: the
// machines loop for ever, or the limit is too low. The steps that ran are committed; the next one
// has not begun.
type StepLimitError struct {
	Limit int
	Ran   []Ran  // the last steps that ran, at most ten
	Next  string // the step that would run next
}

func (e *StepLimitError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "over the limit of %d steps, next would be %s; the last were:", e.Limit, e.Next)
	for _, r := range e.Ran {
		text.WriteString("\n  " + r.String())
	}
	return text.String()
}

// ErrNotRunnable is returned by [Kit.Step] for an instance that no worker would claim now.
var ErrNotRunnable = errors.New("durabletest: not runnable now")

// Drain runs everything that can run now, one step after the other, until nothing can. That
// includes the instances that the steps themselves make runnable, insert, signal or spawn, awaits
// whose timeout has passed, and the occurrences of schedules that are due. Drain does not wait for
// delays, a retry's back-off included: [Kit.Advance] does. A batch step is called once for all
// that can run with the most urgent instance now, without regard to its Within; each counts as a
// step.
//
// The order within a queue is production's (priority, time, id; one key's head first). Drain
// empties the queues one after the other, by name, until all are empty.
//
// It returns a *[StepLimitError], or the cause of ctx's end; it then cancels the step that is
// running and gives its claim back. The error of a step is not an error of Drain: it is in
// [Drained.Ran].
func (k *Kit) Drain(ctx context.Context, opts ...Option) (Drained, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var d Drained
	err := k.drain(ctx, chosen(opts), &d)
	return d, errors.Join(err, k.sum(ctx, &d))
}

// DrainOne runs the step that Drain would run first; ok is false if there is none. A batch step
// runs for one instance alone.
func (k *Kit) DrainOne(ctx context.Context, opts ...Option) (ran Ran, ok bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	queues, err := k.ready(ctx, chosen(opts))
	if err != nil {
		return Ran{}, false, err
	}
	for _, queue := range queues {
		taken, err := k.hand.Take(ctx, queue, 1)
		if err != nil {
			return Ran{}, false, err
		}
		if taken != nil {
			all, err := k.run(ctx, taken)
			return all[0], true, err
		}
	}
	return Ran{}, false, nil
}

// Step runs one step of one instance, whatever else could run. It uses the same claim, from which
// it hides all other instances for a moment.
//
// It returns [ErrNotRunnable] if no worker would claim the instance now, since it is parked,
// delayed, paused, ended, or not the head of its partition key; and engine.ErrNotFound if there is
// no such instance.
func (k *Kit) Step(ctx context.Context, of fsm.Target) (Ran, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.hold(ctx); err != nil {
		return Ran{}, err
	}
	if _, err := k.hand.Wake(ctx); err != nil {
		return Ran{}, err
	}
	at, err := k.Engine.Get(ctx, of)
	if err != nil {
		return Ran{}, err
	}
	taken, err := k.single(ctx, at)
	if err != nil {
		return Ran{}, err
	}
	if taken == nil {
		return Ran{}, fmt.Errorf("%w: instance %d at step %q is %s%s, eligible at %s", ErrNotRunnable, at.ID, at.Step, at.Status,
			map[bool]string{true: " and paused"}[at.Paused], at.EligibleAt.Format(time.RFC3339Nano))
	}
	all, err := k.run(ctx, taken)
	return all[0], err
}

// single claims one instance. It locks all others: a claim skips locked rows, so it sees this one
// alone.
func (k *Kit) single(ctx context.Context, at fsm.RawInstance) (*work.Taken, error) {
	tx, err := k.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // the transaction only locks
	_, err = tx.Exec(ctx, `SELECT id FROM `+k.instances()+` WHERE queue = $1 AND id <> $2 AND status = 'runnable' FOR NO KEY UPDATE`,
		at.Queue, int64(at.ID))
	if err != nil {
		return nil, err
	}
	taken, err := k.hand.Take(ctx, at.Queue, 1)
	if err != nil || taken == nil {
		return nil, err
	}
	if taken.Info().ID != at.ID { // someone has inserted it since
		taken.GiveBack()
		return nil, nil
	}
	return taken, nil
}

func (k *Kit) drain(ctx context.Context, o options, d *Drained) error {
	for more := true; more; {
		queues, err := k.ready(ctx, o)
		if err != nil {
			return err
		}
		more = false
		for _, queue := range queues {
			ran, err := k.drainQueue(ctx, queue, o.limit, d)
			if err != nil {
				return err
			}
			more = more || ran
		}
	}
	return nil
}

func (k *Kit) drainQueue(ctx context.Context, queue string, limit int, d *Drained) (ran bool, err error) {
	for ; ; ran = true {
		if err := k.hold(ctx); err != nil {
			return ran, err
		}
		taken, err := k.hand.Take(ctx, queue, max(1, limit-d.Steps))
		if err != nil || taken == nil {
			return ran, err
		}
		if d.Steps == limit {
			next := taken.Info()
			taken.GiveBack()
			return ran, &StepLimitError{Limit: limit, Ran: slices.Clone(d.Ran[max(0, len(d.Ran)-10):]),
				Next: fmt.Sprintf("step %s of %s/%d instance %d", next.Step, next.Machine, next.Version, next.ID)}
		}
		all, err := k.run(ctx, taken)
		d.Steps += len(all)
		d.Ran = append(d.Ran, all...)
		if err != nil {
			return true, err
		}
	}
}

// run runs the step of a claim, or of each claim for which a batch step is called, and returns them
// in the order of the claims.
func (k *Kit) run(ctx context.Context, taken *work.Taken) (all []Ran, err error) {
	k.noted()
	at := map[fsm.ID]int{}
	for i, info := range taken.Infos() {
		all, at[info.ID] = append(all, Ran{Info: info, Outcome: fsm.OutcomeNone}), i
	}
	if err := taken.Run(ctx); err != nil {
		return all, err
	}
	for _, note := range k.noted() {
		if i, ok := at[note.Info.ID]; ok {
			all[i] = note
		}
	}
	return all, nil
}

// ready fires due schedules, wakes due instances, and returns the queues in which something may run
// now.
func (k *Kit) ready(ctx context.Context, o options) ([]string, error) {
	if err := k.hold(ctx); err != nil {
		return nil, err
	}
	if err := k.hand.Fire(ctx, k.today); err != nil {
		return nil, err
	}
	paused, err := k.hand.Wake(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := k.Pool.Query(ctx, `SELECT DISTINCT queue COLLATE "C" FROM `+k.instances()+`
		WHERE status = 'runnable' AND NOT paused AND eligible_at <= clock_timestamp() ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	all, err := scanStrings(rows)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q string) bool {
		return slices.Contains(paused, q) || k.queues != nil && !k.queues[q] || o.queues != nil && !slices.Contains(o.queues, q)
	}), nil
}

// sum adds the counts of d, from what ran and from the present state of the instances.
func (k *Kit) sum(ctx context.Context, d *Drained) error {
	d.Outcomes = map[fsm.OutcomeKind]int{}
	ids := []int64{}
	for _, r := range d.Ran {
		d.Outcomes[r.Outcome]++
		ids = append(ids, int64(r.Info.ID))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout) // the steps have run, so their counts are due
	defer cancel()
	row := k.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE status = 'failed'),
			count(*) FILTER (WHERE status IN ('awaiting_signal', 'awaiting_children')), count(*) FILTER (WHERE status = 'runnable')
		FROM `+k.instances()+` WHERE id = ANY($1)`, ids)
	if err := row.Scan(&d.Done, &d.Failed, &d.Parked, &d.Waiting); err != nil {
		return err
	}
	rows, err := k.Pool.Query(ctx, `SELECT DISTINCT fsm || '/' || fsm_version FROM `+k.instances()+`
		WHERE status = 'runnable' AND NOT paused AND eligible_at <= clock_timestamp() AND fsm || '/' || fsm_version <> ALL ($1) ORDER BY 1`,
		k.hand.Machines())
	if err != nil {
		return err
	}
	if d.Unknown, err = scanStrings(rows); err != nil {
		return err
	}
	if k.queues != nil {
		rows, err := k.Pool.Query(ctx, `SELECT DISTINCT queue FROM `+k.instances()+`
			WHERE status = 'runnable' AND NOT paused AND eligible_at <= clock_timestamp() AND queue <> ALL ($1) ORDER BY 1`,
			slices.Collect(maps.Keys(k.queues)))
		if err != nil {
			return err
		}
		if d.Unserved, err = scanStrings(rows); err != nil {
			return err
		}
	}
	return k.holdNow(ctx) // what the last step has set is not older than this
}
