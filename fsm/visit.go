package fsm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Visit holds what a step works with until it returns: where the instance is, its state, and the
// signals that woke it. Its methods make the step's [Outcome]. A visit and its outcomes are for one
// goroutine and one execution: the engine refuses an outcome of another execution.
type Visit[S, R any] struct {
	Info
	// State is the state as committed. A change to it counts only if the outcome carries it. A handler
	// gets the state decoded anew. If the state does not decode, the handler gets the zero value; an
	// outcome that carries this keeps the stored state.
	State S

	exec *execution
}

// execution is the part of a visit that does not depend on its types.
type execution struct {
	claim   *step.Claim // this visit's own copy: its address tells one execution from another
	env     *step.Env
	machine *step.Machine
	failed  error // the error that a handler was called for
	running running
	ctx     context.Context //nolint:containedctx // of the step, whose middleware also sees the children of its outcome

	unreadable bool // the stored state does not decode; the visit has
	zero       any  // this zero value in its place
}

// newVisit decodes the claim. The visit is usable also if the state does not decode: then its State
// is zero.
func newVisit[S, R any](m *step.Machine, c *step.Claim) (*Visit[S, R], error) {
	own := &struct { // one allocation, since each step that runs needs a visit
		visit Visit[S, R]
		exec  execution
		claim step.Claim
	}{claim: *c}
	v := &own.visit
	v.exec = &own.exec
	if err := v.exec.begin(m, &own.claim, &v.Info, &v.State); err != nil {
		v.exec.zero = v.State
		return v, err
	}
	return v, nil
}

// begin makes the execution one of a claim, and decodes the state.
func (x *execution) begin(m *step.Machine, c *step.Claim, info *Info, state any) error {
	x.claim, x.env, x.machine = c, envOf(c.Env), m
	x.running = running{claim: x.claim, logger: x.env.Logger}
	*info = infoOf(c)
	raw := c.State
	if x.env.Codec != (JSON{}) {
		raw = bytes.Clone(raw) // a codec may return parts of raw; the handler must not see a step's changes to them
	}
	err := decodeInto(x.env.Codec, raw, "state", state)
	x.unreadable = err != nil
	return err
}

// execution never returns nil. A visit that a test made by hand can make outcomes; only their erase
// fails.
func (v *Visit[S, R]) execution() *execution {
	if v == nil || v.exec == nil {
		return noExecution()
	}
	return v.exec
}

func noExecution() *execution {
	return &execution{claim: &step.Claim{}, env: envOf(nil), machine: &step.Machine{}}
}

// context returns the context of the step.
func (x *execution) context(of context.Context) context.Context {
	x.ctx = context.WithValue(of, infoKey{}, &x.running)
	return x.ctx
}

// AnyVisit is a *[Visit] of any machine.
type AnyVisit interface{ execution() *execution }

// Received is a signal in the inbox, not decoded. [Signal.First], [Signal.All] and [Signal.Decode]
// return its payload typed.
type Received struct {
	ID       int64             `json:"id"` // grows in the order of insertion, which may differ from that of commits
	Name     string            `json:"name"`
	Payload  json.RawMessage   `json:"payload"`             // as the codec encoded it
	DedupKey string            `json:"dedup_key,omitempty"` // "": none
	At       time.Time         `json:"at"`                  // the time of insertion
	Trace    map[string]string `json:"trace,omitempty"`     // of the sender, as engine.Config.Inject returned it; nil: none
}

func received(signals []step.Signal) []Received {
	out := make([]Received, len(signals))
	for i, s := range signals {
		out[i] = Received{ID: s.ID, Name: s.Name, Payload: bytes.Clone(s.Payload), DedupKey: s.DedupKey, At: s.At, Trace: trace(s.Trace)}
	}
	return out
}

func trace(raw json.RawMessage) (carrier map[string]string) {
	if len(raw) > 0 && json.Unmarshal(raw, &carrier) != nil {
		return nil // foreign SQL wrote it
	}
	return carrier
}

// Awaited returns the signals that woke this visit: the signals of the awaited names that were in
// the inbox at the claim, oldest first, as far as Limits.AwaitedBytes goes: see MoreAwaited. Next,
// ScheduleChildren and Done consume them; Await and Retry do not.
func (v *Visit[S, R]) Awaited() []Received { return received(v.execution().claim.Awaited) }

// MoreAwaited reports whether the inbox held awaited signals that are not in Awaited, since all
// together are over Limits.AwaitedBytes. They come once those in Awaited are consumed: go on with
// Next, and await again. An Await towards this same step, which consumes nothing, is refused here
// with an [OutcomeError] that wraps ErrTooLarge: the step would be given the same signals again and
// again.
func (v *Visit[S, R]) MoreAwaited() bool { return v.execution().claim.Omitted }

// TimedOut reports whether the await's timeout woke the instance. Look for signals first: if one
// arrived between the wake and the claim, both are true.
func (v *Visit[S, R]) TimedOut() bool { return v.execution().claim.TimedOut }

// Inbox reads the whole inbox now, oldest first, and consumes nothing. It may return more than
// Awaited: signals of other names, and those that arrived since the claim. For an inbox over
// Limits.AwaitedBytes it returns an ErrTooLarge: see EachSignal. Without a database, as in unit
// tests, it returns the same as Awaited.
func (v *Visit[S, R]) Inbox(ctx context.Context) ([]Received, error) { return v.execution().inbox(ctx) }

func (x *execution) inbox(ctx context.Context) ([]Received, error) {
	size, most := 0, x.env.Limits.AwaitedBytes
	var all []Received
	for r, err := range x.eachSignal(ctx) {
		if err != nil {
			return nil, err
		}
		if size += len(r.Payload) + signalBytes; size > most && len(all) > 0 {
			return nil, fmt.Errorf("read the inbox of instance %d: over %d bytes (Limits.AwaitedBytes), see Visit.EachSignal: %w",
				x.claim.ID, most, ErrTooLarge)
		}
		all = append(all, r)
	}
	return all, nil
}

// signalBytes is what a signal counts beside its payload.
const signalBytes = 100

// EachSignal reads the inbox as Inbox does, in pages of about 1 MiB, so that it may be of any size.
// An error ends it. Each page is as of when it is read.
func (v *Visit[S, R]) EachSignal(ctx context.Context) iter.Seq2[Received, error] {
	return v.execution().eachSignal(ctx)
}

//go:noinline
func (x *execution) eachSignal(ctx context.Context) iter.Seq2[Received, error] {
	return func(yield func(Received, error) bool) {
		c := x.claim
		page, more, after := c.Awaited, false, int64(0)
		for first := true; first || more; first = false {
			if c.Inbox != nil {
				var err error
				if page, more, err = c.Inbox(ctx, after); err != nil {
					yield(Received{}, fmt.Errorf("read the inbox of instance %d: %w", c.ID, err))
					return
				}
			}
			for i := range page {
				if after = page[i].ID; !yield(received(page[i : i+1])[0], nil) {
					return
				}
			}
			more = more && len(page) > 0
		}
	}
}

// Children returns the children of the round that joins at this visit, in spawn order; none at any
// other visit, and none in a step that reads them itself ([StepDef.ChildrenOnDemand]).
// [Machine.Children] returns them typed.
func (v *Visit[S, R]) Children() []Child[json.RawMessage] {
	return children[json.RawMessage](v.execution(), nil)
}

// EachChild reads the children of the round that joins at this visit, in spawn order, in pages of
// about 1 MiB, so that a round may be of any size. An error ends it. [Machine.EachChild] is typed.
func (v *Visit[S, R]) EachChild(ctx context.Context) iter.Seq2[Child[json.RawMessage], error] {
	return eachRawChild(ctx, v.execution())
}

// Dropped is a child that was not inserted, since its correlation key was occupied.
type Dropped struct {
	Index    int `json:"index"` // its index in the children of the ScheduleChildren
	Key      Key `json:"key"`
	Occupant ID  `json:"occupant,omitempty"` // the instance that has the key; 0: the key has become free since
}

// Dropped returns the children that were not inserted of the round that joins at this visit, in the
// order of ScheduleChildren.
func (v *Visit[S, R]) Dropped() []Dropped { return v.execution().dropped() }

func (x *execution) dropped() []Dropped {
	c := x.claim
	out := make([]Dropped, len(c.Dropped))
	for i, d := range c.Dropped {
		out[i] = Dropped{Index: d.Index, Key: Key(d.Key), Occupant: ID(d.Occupant)}
	}
	return out
}
