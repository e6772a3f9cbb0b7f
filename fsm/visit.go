package fsm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Visit is what a step works with, until it returns: where the instance is, its state, and what it was woken for. Its methods
// make the step's [Outcome]. A visit and its outcomes are for one goroutine and one execution: an outcome of another one is refused.
type Visit[S, R any] struct {
	Info
	// State as committed. A change to it counts only if it is passed on in the outcome. A handler gets it decoded anew; it is the
	// zero value in the handler of a state that does not decode, and passing that on keeps what is stored.
	State S

	exec *execution
}

// execution is the part of a visit that does not depend on its types.
type execution struct {
	claim   *step.Claim // this visit's own copy: its address tells one execution from another
	env     *step.Env
	machine *step.Machine
	failed  error // what a handler was called for
	running running
	ctx     context.Context //nolint:containedctx // what the step was given, for what it returns is still its doing

	unreadable bool // the stored state does not decode; the visit has
	zero       any  // this one instead
}

// newVisit decodes the claim. The visit is usable even if the state does not decode: then its State is zero.
func newVisit[S, R any](m *step.Machine, c *step.Claim) (*Visit[S, R], error) {
	own := &struct { // of one piece: a visit is made for each step that runs
		visit Visit[S, R]
		exec  execution
		claim step.Claim
	}{claim: *c}
	x, v := &own.exec, &own.visit
	x.claim, x.env, x.machine = &own.claim, envOf(c.Env), m
	x.running = running{claim: x.claim, logger: x.env.Logger}
	v.Info, v.exec = InfoOf(c), x
	raw := c.State
	if x.env.Codec != (JSON{}) {
		raw = bytes.Clone(raw) // a codec may hand it out as the value; the handler must not see what a step did to it
	}
	var err error
	if v.State, err = decode[S](x.env.Codec, raw, "state"); err != nil {
		x.unreadable, x.zero = true, v.State
	}
	return v, err
}

// execution is never nil: in a visit that a test made by hand, outcomes can be made and only erasing them fails.
func (v *Visit[S, R]) execution() *execution {
	if v == nil || v.exec == nil {
		return &execution{claim: &step.Claim{}, env: envOf(nil), machine: &step.Machine{}}
	}
	return v.exec
}

// context is what the step gets.
func (x *execution) context(of context.Context) context.Context {
	x.ctx = context.WithValue(of, infoKey{}, &x.running)
	return x.ctx
}

// AnyVisit is a *[Visit] of any machine.
type AnyVisit interface{ execution() *execution }

// Received is a signal in the inbox, undecoded; [Signal.First], [Signal.All] and [Signal.Decode] are typed.
type Received struct {
	ID       int64 // in order of insertion, which is not quite that of commit
	Name     string
	Payload  json.RawMessage   // as the codec encoded it
	DedupKey string            // "": none
	At       time.Time         // of insertion
	Trace    map[string]string // of the sender, as engine.Config.Inject made it; nil: none
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
		return nil // foreign SQL wrote there
	}
	return carrier
}

// Awaited is what this visit was woken for: the signals of the awaited names that were there at the claim, oldest first. Next,
// ScheduleChildren and Done consume them; Await and Retry do not.
func (v *Visit[S, R]) Awaited() []Received { return received(v.execution().claim.Awaited) }

// TimedOut reports whether the await's timeout woke the instance. Look for signals first: one may have arrived
// between the wake and the claim, and then both are true.
func (v *Visit[S, R]) TimedOut() bool { return v.execution().claim.TimedOut }

// Inbox reads the whole inbox now, oldest first, and consumes nothing. It may hold more than Awaited: signals of other names, and
// those that arrived since the claim. Without a database (in unit tests) it is Awaited.
func (v *Visit[S, R]) Inbox(ctx context.Context) ([]Received, error) {
	c := v.execution().claim
	if c.Inbox == nil {
		return v.Awaited(), nil
	}
	signals, err := c.Inbox(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the inbox of instance %d: %w", c.ID, err)
	}
	return received(signals), nil
}

// Children of the round that joins at this visit, in spawn order; empty at any other. [Machine.Children] is typed.
func (v *Visit[S, R]) Children() []Child[json.RawMessage] {
	return children[json.RawMessage](v, func(step.Child) bool { return true })
}

// Dropped is a child that was not inserted, since its correlation key was occupied.
type Dropped struct {
	Index    int // in the ScheduleChildren that named it
	Key      Key
	Occupant ID // who has the key; 0: freed again meanwhile
}

// Dropped are those of the round that joins at this visit, in the order of ScheduleChildren.
func (v *Visit[S, R]) Dropped() []Dropped {
	c := v.execution().claim
	out := make([]Dropped, len(c.Dropped))
	for i, d := range c.Dropped {
		out[i] = Dropped{Index: d.Index, Key: Key(d.Key), Occupant: ID(d.Occupant)}
	}
	return out
}
