package fsm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Bounds and defaults of batch steps.
const (
	DefaultBatchSize = 100         // instances of one call, unless [BatchOf] says otherwise
	MaxBatchSize     = 1000        // the most that BatchOf may say
	DefaultBatchWait = time.Second // how long a batch waits for more, unless [Within] says otherwise
	MaxBatchWait     = time.Minute // the most that Within may say
)

// BatchFunc is a batch step: one call for several instances of the machine that stand at this step.
// It returns one outcome for each visit, at the visit's index.
//
// Each instance keeps its own claim, attempt and deadline, and its fate depends on its own outcome
// alone. [Visit.Raise] is the outcome of an instance that failed by itself. An error or a panic of
// the call fails those that have no outcome: their handlers get it as a [BatchError]. An instance
// without an outcome, where the call returned no error, fails with an [OutcomeError] of the field
// "outcomes[i]". More outcomes than visits are an error of the call, and none of them counts.
//
// An instance that has failed, or lost its process, runs in smaller batches from then on, of those
// that failed as often: of a quarter of the size for each attempt, and alone in the last attempt
// that its [RetryPolicy] allows. So one instance that poisons its batch fails alone in the end.
//
// The call's context ends when no instance of the batch could use an outcome any more: the engine
// stops, the step's Timeout has passed, or each instance was cancelled, lost its lease or is over
// its deadline. [Visit.Context] is the context of one instance. [InfoFrom] does not work with the
// call's context.
type BatchFunc[S, R any] = func(ctx context.Context, visits []*Visit[S, R]) ([]Outcome, error)

// BatchOption changes which instances a batch step is called for: [BatchOf], [Within], [ByLabel],
// [ByState].
type BatchOption func(*batching)

type batching struct {
	most      int
	within    time.Duration
	keys      []batchKey
	nilOption bool
}

// batchKey is one criterion of which instances may share a call.
type batchKey struct {
	of    func(c *step.Claim) (string, error)
	label string // the label that it is about; "" if it is about the state
	fault error
}

// BatchOf sets how many instances one call may be for, from 1 to [MaxBatchSize]: [DefaultBatchSize]
// (100) unless given.
func BatchOf(n int) BatchOption { return func(b *batching) { b.most = n } }

// Within sets how long the first instance of a batch waits for others, from 0 to [MaxBatchWait]:
// [DefaultBatchWait] (1 s) unless given. With 0 it does not wait: the batch consists of what one
// look at the queue has found. A full batch never waits for more.
func Within(d time.Duration) BatchOption { return func(b *batching) { b.within = d } }

// ByLabel lets only those instances share a call that have the same value of a label; those without
// the label are one group. Several options of this kind apply together.
func ByLabel(name string) BatchOption {
	return func(b *batching) {
		key := batchKey{label: name, of: func(c *step.Claim) (string, error) {
			value, ok := c.Labels[name]
			return strconv.FormatBool(ok) + value, nil
		}}
		if name == "" {
			key.fault = errors.New("label with an empty name")
		}
		b.keys = append(b.keys, key)
	}
}

// ByState lets only those instances share a call for whose state f returns the same. S may be any
// type into which the state decodes: one with only the fields that f needs costs less. f runs once
// per claim, outside of a slot, before the instance waits for others; it should do no I/O. If it
// panics, or the state does not decode, the instance fails alone with that error. An instance
// whose state is too large to come with its claim (several MiB) runs alone. So does one for which
// f takes longer than a second, and every instance claimed within ten seconds after that.
func ByState[S any](f func(S) string) BatchOption {
	return func(b *batching) {
		if f == nil {
			b.keys = append(b.keys, batchKey{fault: errors.New("nil function")})
			return
		}
		b.keys = append(b.keys, batchKey{of: func(c *step.Claim) (string, error) {
			state, err := decode[S](envOf(c.Env).Codec, c.State, "state")
			if err != nil {
				return "", err
			}
			return f(state), nil
		}})
	}
}

// BatchStep gives a batch step its durable name. The other properties of steps hold for it, too:
// its Timeout bounds the call.
//
// The process collects the claimed instances of the step, outside of the queue's slots, until there
// are enough or the first has waited for long enough. A call takes one slot, until the outcomes of
// all its instances are durable. An outcome of the step that leads on by [Visit.Next] gives its
// claim up, and so does a step that leads to a batch step.
func BatchStep[S, R any](name string, f BatchFunc[S, R], opts ...BatchOption) StepDef[S, R] {
	b := &batching{most: DefaultBatchSize, within: DefaultBatchWait}
	for _, option := range opts {
		if option == nil {
			b.nilOption = true
			continue
		}
		option(b)
	}
	return StepDef[S, R]{stepPlan: stepPlan{name: name, runs: f != nil, batch: b}, call: f}
}

func (b *batching) faults(add func(field string, err error)) {
	if b.most < 1 || b.most > MaxBatchSize {
		add(".batch_of", fmt.Errorf("%d, want 1 to %d", b.most, MaxBatchSize))
	}
	if b.within < 0 || b.within > MaxBatchWait {
		add(".within", fmt.Errorf("%v, want 0 to %v", b.within, MaxBatchWait))
	}
	for i, key := range b.keys {
		if key.fault != nil {
			add(fmt.Sprintf(".by[%d]", i), key.fault)
		}
	}
	if b.nilOption {
		add(".options", errors.New("nil option"))
	}
}

// key returns a text that two instances share if they may share a call.
func (b *batching) key(c *step.Claim) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	var all strings.Builder
	for _, k := range b.keys {
		part, err := k.of(c)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%d:%s", len(part), part)
	}
	return all.String(), nil
}

// batches makes the untyped form of a batch step.
func batches[S, R any](m *step.Machine, b *batching, call BatchFunc[S, R]) *step.Batch {
	erased := &step.Batch{Most: b.most, Within: b.within, Run: func(ctx context.Context, members []step.Member) []step.Decided {
		return runBatch(ctx, m, call, members)
	}}
	if len(b.keys) > 0 {
		erased.Key = b.key
		for _, k := range b.keys {
			if k.label != "" {
				erased.Alike = append(erased.Alike, k.label)
			}
		}
	}
	return erased
}

// runsAlone calls a batch step for one instance, as an ordinary step would be called.
func runsAlone(b *step.Batch) func(context.Context, *step.Claim) (*step.Commit, error) {
	return func(ctx context.Context, c *step.Claim) (*step.Commit, error) {
		decided := b.Run(ctx, []step.Member{{Context: ctx, Claim: c}})[0]
		return decided.Commit, decided.Err
	}
}

// runBatch decodes the states, calls the step once for all that decode, and validates and encodes
// the outcomes. It survives panics. If user code calls runtime.Goexit, it does not return.
func runBatch[S, R any](ctx context.Context, m *step.Machine, call BatchFunc[S, R], members []step.Member) []step.Decided {
	visits := make([]*Visit[S, R], 0, len(members))
	return runMembers(ctx, m, members, func(c *step.Claim) (*execution, error) {
		v, err := newVisit[S, R](m, c)
		if err == nil {
			visits = append(visits, v)
		}
		return v.exec, err
	}, func(ctx context.Context) ([]Outcome, error) {
		return call(ctx, append([]*Visit[S, R]{}, visits...)) // the step may change the slice
	})
}

// runMembers is runBatch without the types.
func runMembers(ctx context.Context, m *step.Machine, members []step.Member,
	visit func(*step.Claim) (*execution, error), call func(context.Context) ([]Outcome, error),
) []step.Decided {
	decided := make([]step.Decided, len(members))
	visits := make([]*execution, 0, len(members))
	of := make([]*step.Decided, 0, len(members)) // what is decided for each visit
	for i, member := range members {
		decided[i].Err = unpanicked(func() error {
			x, err := visit(member.Claim)
			if err == nil {
				x.context(member.Context)
				visits, of = append(visits, x), append(of, &decided[i])
			}
			return err
		})
	}
	if len(visits) == 0 {
		return decided
	}
	outcomes, failed := callBatch(ctx, m, call, visits)
	for i, x := range visits {
		d := of[i]
		switch {
		case i < len(outcomes) && outcomes[i] != nil:
			d.Err = unpanicked(func() (err error) {
				d.Commit, err = outcomes[i].erase(x.claim)
				return indexed(err, i)
			})
		case failed != nil:
			d.Err = failed
		default:
			d.Err = outcomeFault(outcomeAt(i), errors.New("nil, without an error: return an outcome for each visit, or an error"))
		}
	}
	return decided
}

// callBatch calls the step, and returns its outcomes and the error that counts for visits without
// one.
func callBatch(ctx context.Context, m *step.Machine, call func(context.Context) ([]Outcome, error), visits []*execution) (outcomes []Outcome, failed error) {
	first := visits[0]
	ctx = context.WithValue(ctx, infoKey{}, &running{logger: first.env.Logger, batch: true,
		claim: &step.Claim{Machine: m.Name, Version: m.Version, Step: first.claim.Step}})
	failed = unpanicked(func() (err error) {
		outcomes, err = call(ctx)
		return err
	})
	if len(outcomes) > len(visits) {
		failed = errors.Join(failed, outcomeFault(outcomeAt(len(visits)), fmt.Errorf("%d outcomes for %d visits: return one for each, in their order", len(outcomes), len(visits))))
		outcomes = nil
	}
	if failed != nil && len(visits) > 1 {
		failed = &BatchError{Size: len(visits), Err: failed}
	}
	return outcomes, failed
}

func outcomeAt(i int) string { return fmt.Sprintf("outcomes[%d]", i) }

// indexed names the index where an outcome as a whole is at fault.
func indexed(err error, i int) error {
	if fault, ok := err.(*OutcomeError); ok && fault.Field == "outcome" { //nolint:errorlint // erase has made it
		return outcomeFault(outcomeAt(i), fault.Err)
	}
	return err
}

// unpanicked turns a panic into an error.
func unpanicked(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return do()
}

// BatchError is the error of a batch step's call for several instances, as the handlers of the
// instances without an outcome get it. Which of them is to blame is not known: so a [RetryPolicy]
// retries also what wraps [Permanent], which counts once the instance runs alone.
type BatchError struct {
	Size int   // instances that the call was for, at least 2
	Err  error // the error of the call, or its *PanicError
}

func (e *BatchError) Error() string { return fmt.Sprintf("in a batch of %d: %v", e.Size, e.Err) }

// Unwrap returns the error of the call.
func (e *BatchError) Unwrap() error { return e.Err }

// Raise is the outcome of an instance whose step failed, for batch steps, which return outcomes of
// other instances beside it. The machine's handler gets err, as if a step for this instance alone
// had returned it. A nil err is an [OutcomeError].
func (v *Visit[S, R]) Raise(err error) Outcome { return &raising{exec: v.execution(), err: err} }

type raising struct {
	exec *execution
	err  error
}

func (f *raising) erase(of *step.Claim) (*step.Commit, error) {
	if err := f.exec.owns(of); err != nil {
		return nil, err
	}
	if f.err == nil {
		return nil, outcomeFault("error", errors.New("nil: Raise needs the error of the instance"))
	}
	return nil, f.err
}

// Context returns the context of this instance's step, which is the step's own. In a batch step it
// is the context of one instance beside the call's: it ends when an outcome for this instance
// cannot count any more, context.Cause says why, and [InfoFrom] answers in it.
func (v *Visit[S, R]) Context() context.Context {
	if ctx := v.execution().ctx; ctx != nil {
		return ctx
	}
	return context.Background()
}
