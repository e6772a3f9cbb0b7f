package durabletest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// KindInTx is the kind that [RunStep] returns for engine.InTx; [Outcome.InTx] decides such an
// outcome.
const KindInTx fsm.OutcomeKind = "in tx"

// Visit is what a step that [RunStep] runs will see. The zero value is the first run of an instance
// with a zero state.
type Visit struct {
	State    any           // of the machine's type; nil: the zero value; a json.RawMessage is not encoded again
	Awaited  []fsm.Message // the signals that woke it, oldest first: Paid.With(…)
	TimedOut bool          // the await's timeout woke it
	Children []Child       // of the round that joins here, in spawn order
	Dropped  []fsm.Dropped // the children of that round that were not inserted
	Stream   bool          // the round is a stream, and Children are the portion that the visit is shown
	Left     int           // of a stream: the children that no visit was shown yet

	Node     string           // its name, as a node of a graph
	Upstream map[string]Child // what a node has waited for, by name; only the first visit of a node gets it

	// From is the version that State is of, where a migration of the definition is to convert it (the
	// step is then one of that version); 0: the definition's own.
	From int

	Attempt      int   // from 0
	Crashes      int   // how often this visit lost its process
	Number       int64 // of the visit; idempotency keys depend on it and on ID
	ID           fsm.ID
	Key          fsm.Key
	PartitionKey string
	Queue        string // "": the machine's own
	Priority     int
	FencingToken int64
	Parent       fsm.ID // 0: it is nobody's child
	Depth        int    // levels of parents above it
	InsertedAt   time.Time

	Codec  fsm.Codec     // nil: fsm.JSON
	Limits engine.Limits // zero fields: the defaults
	Logger *slog.Logger  // nil: slog.Default()
}

// Child is a child of the round that joins; [DoneChild], [FailedChild] and [LiveChild] make it.
type Child struct {
	machine string
	version int
	status  fsm.Status
	failure fsm.Failure
	text    string
	state   any
	result  any
}

// DoneChild returns a child that is done, with this state and result.
func DoneChild[S, R any](m *fsm.Machine[S, R], state S, result R) Child {
	return Child{machine: m.Name(), version: m.Version(), status: fsm.StatusDone, state: state, result: result}
}

// FailedChild returns a child that failed, with this state and last error.
func FailedChild[S, R any](m *fsm.Machine[S, R], state S, why fsm.Failure, text string) Child {
	return Child{machine: m.Name(), version: m.Version(), status: fsm.StatusFailed, failure: why, text: text, state: state}
}

// LiveChild returns a child that has not ended, with this state: its parent's join did not wait for
// it.
func LiveChild[S, R any](m *fsm.Machine[S, R], state S) Child {
	return Child{machine: m.Name(), version: m.Version(), status: fsm.StatusRunnable, state: state}
}

// Outcome is the outcome of a step, validated and encoded as it would be committed.
type Outcome struct {
	Kind     fsm.OutcomeKind
	Step     string          // Next, Await, Children, Rejoin: the step to go on at
	State    json.RawMessage // as it would be stored; nil: unchanged (Done, Fail, Again)
	Result   json.RawMessage // Done
	Delay    time.Duration   // Next, Retry, Again
	At       time.Time       // Next: not before it; Await, Children, Rejoin: wake no later. Zero: none
	Timeout  time.Duration   // Await, Children, Rejoin; 0: none
	Names    []string        // Await, Children, Rejoin: the names of the signals, as given
	Children []Spawn         // in order
	Join     Join            // Children, Rejoin: how many of them it waits for
	Edges    []Edge          // Children: of a graph, in order of the nodes to which they lead
	Err      string          // Retry, Fail: the last error
	Failure  fsm.Failure     // Fail
	Unless   []string        // Done, Fail: it goes on if a signal of one of these names waits,
	Else     string          // at this step, with State

	codec  fsm.Codec
	within func(ctx context.Context, tx any) (*step.Commit, error)
}

// Join says how many children an instance waits for. The zero value waits until all have ended.
// Otherwise it goes on earlier, by the first of these that is so; a zero field is none. The numbers
// of a Rejoin are of the children that its step has seen live.
type Join struct {
	Quorum   int // so many are done, or cannot be any more
	Failures int // so many have failed
	Ends     int // so many have ended

	CancelRest bool // the others are cancelled when it does not wait for them any more
	Stream     int  // it waits for a portion of a stream, of so many children at most; 0: for none
}

// Spawn is a child to insert.
type Spawn struct {
	fsm.Options

	Node   string          // of a graph: its name
	Quorum int             // of a node: how many of its edges with Any are to be met; 0: it has none
	State  json.RawMessage // as it would be stored
}

// Edge lets a node of a graph wait for another.
type Edge struct {
	From, To string
	Needs    fsm.Status // StatusDone, StatusFailed; "": it waits for any end
	Any      bool       // it is one of a quorum: see Spawn.Quorum
}

// DecodeState decodes the state into v, a pointer.
func (o Outcome) DecodeState(v any) error { return o.decode(o.State, "state", v) }

// DecodeResult decodes the result into v, a pointer.
func (o Outcome) DecodeResult(v any) error { return o.decode(o.Result, "result", v) }

func (o Outcome) decode(raw json.RawMessage, what string, v any) error {
	if raw == nil {
		return fmt.Errorf("an outcome of kind %s has no %s", o.Kind, what)
	}
	return o.codec.Decode(raw, v)
}

// InTx decides an outcome of [KindInTx] inside a transaction, e.g. one of [Kit.Pool]. The caller
// commits it or rolls it back.
func (o Outcome) InTx(ctx context.Context, tx pgx.Tx) (Outcome, error) {
	if o.within == nil {
		return Outcome{}, fmt.Errorf("an outcome of kind %s is decided already", o.Kind)
	}
	return settled(o.codec, func() (*step.Commit, error) { return o.within(ctx, tx) })
}

// RunStep runs one step of a definition without any database, by the same decoding, validation and
// encoding as the engine. It returns the error that the machine's handler would get: the step's
// error, a *fsm.PanicError, an fsm.DecodeError, or an *fsm.OutcomeError for a fault of the
// outcome. [RunOnError] runs the handler. A step's Timeout applies; Visit.Inbox returns the
// awaited signals; the context holds no engine.
//
// The step runs on this goroutine, so a t.FailNow in it ends the test. A batch step runs for one
// instance alone: see [RunBatch].
func RunStep(ctx context.Context, d fsm.Definition, name string, v Visit) (Outcome, error) {
	m, claim, err := v.claim(d, name)
	if err != nil {
		return Outcome{}, err
	}
	s := m.Steps[claim.Step] // where a migration has brought it
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fsm.ErrStepTimeout)
		defer cancel()
	}
	return settled(claim.Env.Codec, func() (*step.Commit, error) { return s.Run(ctx, claim) })
}

// RunBatch is [RunStep] for a batch step: one call for several instances. Both results have an
// element for each visit: the outcome, or the error that the machine's handler would get for it
// alone. A fault of the definition or of a visit is the error of all. The call gets the instances
// in this order, however many there are, and whatever their keys are.
func RunBatch(ctx context.Context, d fsm.Definition, name string, visits []Visit) ([]Outcome, []error) {
	outcomes, errs := make([]Outcome, len(visits)), make([]error, len(visits))
	members := make([]step.Member, len(visits))
	var b step.Step
	var fault error
	for i, v := range visits {
		m, claim, err := v.claim(d, name)
		if err == nil {
			b = m.Steps[claim.Step]
		}
		if err == nil && b.Batch == nil {
			err = fmt.Errorf("step %q of machine %q version %d is not a batch step", name, m.Name, m.Version)
		}
		if err != nil {
			fault = errors.Join(fault, fmt.Errorf("visit %d: %w", i, err))
			continue
		}
		members[i] = step.Member{Context: hidden.WithClaim(ctx, claim), Claim: claim}
	}
	if fault != nil {
		for i := range errs {
			errs[i] = fault
		}
	}
	if fault != nil || len(visits) == 0 {
		return outcomes, errs
	}
	if b.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Timeout, fsm.ErrStepTimeout)
		defer cancel()
	}
	for i, decided := range b.Batch.Run(ctx, members) {
		outcomes[i], errs[i] = settled(members[i].Claim.Env.Codec, func() (*step.Commit, error) { return decided.Commit, decided.Err })
	}
	return outcomes, errs
}

// RunOnError runs the machine's handler, or its retry policy, as after a step that failed with this
// error.
func RunOnError(ctx context.Context, d fsm.Definition, name string, v Visit, failed error) (Outcome, error) {
	m, claim, err := v.claim(d, name)
	if err != nil {
		return Outcome{}, err
	}
	return settled(claim.Env.Codec, func() (*step.Commit, error) { return m.OnError(ctx, claim, failed) })
}

// settled runs user code as the engine does: it turns a panic into an error.
func settled(codec fsm.Codec, run func() (*step.Commit, error)) (out Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = Outcome{}, &fsm.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	c, err := run()
	if err != nil {
		return Outcome{}, err
	}
	if c == nil {
		return Outcome{}, errors.New("the step returned neither an outcome nor an error: return one of the two")
	}
	if c.Within != nil {
		return Outcome{Kind: KindInTx, codec: codec, within: c.Within}, nil
	}
	out = Outcome{Kind: c.Kind, Step: c.Step, State: c.State, Result: c.Result, Delay: c.Delay, At: c.At, Timeout: c.Timeout,
		Names: c.Names, Err: c.Err, Failure: fsm.Failure(c.Failure), codec: codec}
	if c.Unless != nil {
		out.Unless, out.Else, out.State = c.Unless.Names, c.Unless.Step, c.Unless.State
	}
	if j := c.Join; j != nil {
		out.Join, out.Timeout, out.At, out.Names = Join{Quorum: j.Done, Failures: j.Failed, Ends: j.Ended, CancelRest: j.Cancel, Stream: j.Stream}, j.Timeout, j.At, j.Names
	}
	graph, specs := c.Graph, c.Spawn
	if c.Add != nil {
		graph, specs = &c.Add.Graph, c.Add.Specs
	}
	out.Edges = edgesOf(graph)
	for i, s := range specs {
		node, quorum := "", 0
		if graph != nil {
			node = graph.Nodes[i]
			if graph.Quorum != nil {
				quorum = graph.Quorum[i]
			}
		}
		out.Children = append(out.Children, Spawn{Node: node, Quorum: quorum, State: s.State, Options: fsm.Options{Machine: s.Machine, Version: s.Version, Step: s.Step,
			Queue: s.Queue, Priority: int(s.Priority), Key: fsm.Key(s.Key), Scope: fsm.Scope(s.Scope), PartitionKey: s.PartitionKey,
			Delay: s.Delay, At: s.At}})
	}
	return out, nil
}

func edgesOf(g *step.Graph) (edges []Edge) {
	if g == nil {
		return nil
	}
	needs := map[step.Need]fsm.Status{step.NeedsDone: fsm.StatusDone, step.NeedsAny: fsm.StatusDone, step.NeedsFailed: fsm.StatusFailed}
	for _, e := range g.Edges {
		edges = append(edges, Edge{From: g.Nodes[e.From], To: g.Nodes[e.To], Needs: needs[e.Needs], Any: e.Needs == step.NeedsAny})
	}
	return edges
}

// claim returns the visit as a worker would have claimed it.
func (v Visit) claim(d fsm.Definition, name string) (*step.Machine, *step.Claim, error) {
	if d == nil {
		return nil, nil, errors.New("durabletest: the definition is nil")
	}
	m := hidden.Machine(d)
	env := &step.Env{Codec: v.Codec, Limits: v.Limits.WithDefaults(), Logger: cmp.Or(v.Logger, slog.Default())}
	if env.Codec == nil {
		env.Codec = fsm.JSON{}
	}
	faults := m.Faults
	if m.TypeFaults != nil {
		faults = slices.Concat(faults, m.TypeFaults(env.Codec))
	}
	if len(faults) > 0 {
		return nil, nil, errors.Join(faults...)
	}
	chain := m.Chain(v.From)
	if v.From != 0 && v.From != m.Version {
		to, ok := step.Arrives(chain, name)
		if !ok {
			return nil, nil, fmt.Errorf("machine %q version %d has no migration from version %d at step %q", m.Name, m.Version, v.From, name)
		}
		name = to
	}
	if _, ok := m.Steps[name]; !ok {
		return nil, nil, fmt.Errorf("machine %q version %d has no step %q, only %q", m.Name, m.Version, name, slices.Sorted(maps.Keys(m.Steps)))
	}
	c := &step.Claim{
		Env: env, ID: int64(v.ID), UID: uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%s %d", m.Name, v.ID)), Machine: m.Name, Version: m.Version,
		Step: name, Queue: cmp.Or(v.Queue, m.Queue), Priority: v.Priority, CorrelationKey: string(v.Key), PartitionKey: v.PartitionKey,
		Attempt: v.Attempt, Crashes: v.Crashes, Visit: v.Number, FencingToken: v.FencingToken, Parent: int64(v.Parent), Depth: v.Depth,
		TimedOut: v.TimedOut, InsertedAt: v.InsertedAt, Node: v.Node,
	}
	if len(v.Children)+len(v.Dropped) > 0 || v.Stream {
		c.Visit = max(1, c.Visit) // no instance has children that join at its first visit
		c.Round = c.Visit
	}
	if v.Stream {
		c.Round, c.Portion = -c.Round, &step.Portion{Left: v.Left}
	}
	return m, c, errors.Join(v.fill(c), convert(c, chain), v.receive(c))
}

// convert converts the state of an older version.
func convert(c *step.Claim, chain []*step.Migration) error {
	for _, one := range chain {
		state, err := one.Convert(c.Env, c.State)
		if err != nil {
			return fmt.Errorf("convert the state from version %d to %d: %w", one.From, one.To, err)
		}
		c.State, c.Migrated = state, cmp.Or(c.Migrated, one.From)
	}
	return nil
}

// fill encodes the state and the children.
func (v Visit) fill(c *step.Claim) (err error) {
	if c.State, err = encoded(c.Env.Codec, v.State); err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	for i, child := range v.Children {
		sc, err := child.erase(c.Env.Codec, int64(v.ID)+int64(i)+1)
		if err != nil {
			return fmt.Errorf("child %d: %w", i, err)
		}
		c.Children = append(c.Children, sc)
	}
	for i, name := range slices.Sorted(maps.Keys(v.Upstream)) {
		sc, err := v.Upstream[name].erase(c.Env.Codec, int64(i)+1)
		if err != nil {
			return fmt.Errorf("node %q: %w", name, err)
		}
		sc.Node = name
		c.Upstream = append(c.Upstream, step.Upstream{Child: sc, Needs: step.NeedsEnd})
	}
	for _, d := range v.Dropped {
		c.Dropped = append(c.Dropped, step.Dropped{Index: d.Index, Key: string(d.Key), Occupant: int64(d.Occupant)})
	}
	return nil
}

// erase returns the child as the store reads it.
func (child Child) erase(codec fsm.Codec, id int64) (sc step.Child, err error) {
	sc = step.Child{ID: id, Machine: child.machine, Version: child.version, Status: string(child.status), Failure: string(child.failure),
		LastError: child.text}
	if sc.State, err = encoded(codec, child.state); err != nil {
		return sc, fmt.Errorf("encode the state: %w", err)
	}
	if child.status == fsm.StatusDone {
		if sc.Result, err = encoded(codec, child.result); err != nil {
			return sc, fmt.Errorf("encode the result: %w", err)
		}
	}
	return sc, nil
}

// receive encodes the signals, with the same checks as when they are sent.
func (v Visit) receive(c *step.Claim) error {
	for i, message := range v.Awaited {
		s, err := hidden.Signal(message, c.Env)
		if err != nil {
			return fmt.Errorf("signal %d: %w", i, err)
		}
		s.ID = int64(i) + 1
		c.Awaited = append(c.Awaited, *s)
	}
	return nil
}

// encoded returns a value as it is stored. A nil value decodes as the zero value of any type.
func encoded(codec fsm.Codec, v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw, nil
	}
	return codec.Encode(step.Addressed(v))
}
