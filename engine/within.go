package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Bounded is an engine as a caller sees it who is bound to some instances: see [Engine.Within].
type Bounded struct{ scope }

// Within returns the engine as a caller sees it who is bound to some instances, such as an operator
// of one tenant. To this caller an instance outside does not exist: reads leave it out, and reads
// and verbs that are given its address return ErrNotFound. A verb that would also change instances
// outside is an [ErrOutside]. A call that is about more than single instances, and whose answer
// does not tell them apart, returns a *[BoundsError]. Bounded has all methods of an Engine that can
// keep to that.
//
// The parent of an instance, the worker that executes it, and what a [Cause] knows of others are
// left out. Bounds of queues or machines tell apart counts, gates and loads; bounds of labels do
// not.
//
// The zero Bounds bind nothing: each method is the engine's.
//
//	ada := eng.Within(engine.Bounds{Labels: map[string]string{"tenant": "ada"}})
//	page, err := ada.List(ctx, engine.Query{})
//	_, err = ada.Admin().Cancel(ctx, id)
func (e *Engine) Within(b Bounds) *Bounded {
	own := Bounds{Queues: slices.Clone(b.Queues), Machines: slices.Clone(b.Machines), Labels: maps.Clone(b.Labels)}
	return &Bounded{scope{e, own}}
}

// ErrBounds is returned by [Bounded] and its [Admin], as a *[BoundsError], for a call that cannot
// keep to the bounds. Nothing was read or changed.
var ErrBounds = errors.New("gendurable: beyond the bounds")

// BoundsError says that a call is about more than the instances to which its caller is bound. It is
// an [ErrBounds].
type BoundsError struct {
	Call string // the method, e.g. "Workers"
	Err  error  // why it cannot keep to the bounds
}

func (e *BoundsError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrBounds, e.Call, e.Err) }

// Is reports whether target is ErrBounds.
func (e *BoundsError) Is(target error) bool { return target == ErrBounds }

// Unwrap returns why.
func (e *BoundsError) Unwrap() error { return e.Err }

// These are the reasons of a [BoundsError].
var (
	errOfAll     = errors.New("it is about all instances, and the caller is bound to some")
	errByQueue   = errors.New("it tells instances apart by their queues alone, and the caller is bound to other queues, or to machines or labels")
	errByMachine = errors.New("it tells instances apart by their machines alone, and the caller is bound to queues or labels")
	errByLabel   = errors.New("it does not tell instances apart by their labels, to which the caller is bound")
	errFamily    = errors.New("some of the instances lie outside of the bounds")
)

// scope is what the reads and verbs of a caller stay within. The zero Bounds are all instances.
type scope struct {
	engine *Engine
	within Bounds
}

func (s scope) bound() bool { return !s.within.IsZero() }

// whole returns an error for a call that is about all instances.
func (s scope) whole(call string) error {
	if s.bound() {
		return &BoundsError{call, errOfAll}
	}
	return nil
}

// byQueue returns an error for a call that tells instances apart by their queues alone, unless the
// bounds are of queues alone.
func (s scope) byQueue(call string) error {
	if s.within.Machines != nil || len(s.within.Labels) > 0 {
		return &BoundsError{call, errByQueue}
	}
	return nil
}

// byLabel returns an error for a call that does not tell instances apart by their labels.
func (s scope) byLabel(call string) error {
	if len(s.within.Labels) > 0 {
		return &BoundsError{call, errByLabel}
	}
	return nil
}

// ofQueue returns an error for a verb on a whole queue that does not lie within the bounds.
func (s scope) ofQueue(call, queue string) error {
	if err := s.byQueue(call); err != nil || s.sees(queue, "") {
		return err
	}
	return &BoundsError{call, errByQueue}
}

// byMachine returns an error for a call that tells instances apart by their machines alone.
func (s scope) byMachine(call string) error {
	if s.within.Queues != nil || len(s.within.Labels) > 0 {
		return &BoundsError{call, errByMachine}
	}
	return nil
}

// sees reports whether the bounds cover all instances of a queue and a machine. An empty name
// stands for any.
func (s scope) sees(queue, machine string) bool { return s.within.Cover(queue, machine, nil) }

// defines reports whether the bounds cover the definition of a machine, which is of no queue and
// has no labels. Bounds of no queue cover none.
func (s scope) defines(machine string) bool {
	none := s.within.Queues != nil && len(s.within.Queues) == 0
	return !none && (s.within.Machines == nil || slices.Contains(s.within.Machines, machine))
}

// and returns the bounds within which a call stays that is given further ones.
func (s scope) and(b Bounds) Bounds {
	out := Bounds{Queues: common(s.within.Queues, b.Queues), Machines: common(s.within.Machines, b.Machines)}
	for _, labels := range []map[string]string{s.within.Labels, b.Labels} {
		for name, value := range labels {
			if other, has := out.Labels[name]; has && other != value {
				return Bounds{Queues: []string{}} // no instance has both
			}
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels[name] = value
		}
	}
	return out
}

// common returns the names that are in both lists. A nil list is of all names.
func common(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := []string{}
	for _, name := range a {
		if slices.Contains(b, name) {
			out = append(out, name)
		}
	}
	return out
}

// find reads an instance that lies within the bounds, as [Engine.Get] addresses it. That it lies
// outside has the same error as that there is none.
func (s scope) find(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	address, err := send.Resolve(of)
	if err != nil {
		return fsm.RawInstance{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	i, err := s.occupant(ctx, of)
	if address.Key == "" || !errors.Is(err, ErrNotFound) {
		return i, err
	}
	found, unread := s.newest(ctx, address.Key)
	if unread != nil {
		return i, unread
	}
	if found == nil {
		return i, err
	}
	return *found, nil
}

// newest returns the newest instance within the bounds that has ended and left the scope of a key;
// nil: there is none.
func (s scope) newest(ctx context.Context, key string) (found *fsm.RawInstance, err error) {
	defer s.engine.explain(ctx, toRead("gen_durable"), &err)
	within, err := bounds(s.within)
	if err != nil {
		return nil, err
	}
	ended := []string{string(fsm.StatusDone), string(fsm.StatusFailed)}
	p := query.ListParams{Filter: store.Filter{EndedKey: key, Statuses: ended, Within: within}, Limit: 1, Visit: listVisit, Time: listTime}
	for {
		var page query.Listed
		err := s.engine.patiently(ctx, task{doing: "look for the newest instance of a key"}, func() error {
			page, err = s.engine.reads.List(ctx, p)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case len(page.Instances) > 0:
			return &page.Instances[0], nil
		case page.Next == nil:
			return nil, nil
		}
		p.After, p.Walk = page.Next, page.Walk
	}
}

// occupant is find for a key that an instance occupies.
func (s scope) occupant(ctx context.Context, of fsm.Target) (i fsm.RawInstance, err error) {
	defer s.engine.explain(ctx, toRead("gen_durable"), &err)
	address, err := send.Resolve(of)
	if err != nil {
		return i, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	i, err = s.engine.get(ctx, address)
	if err == nil && !s.within.Cover(i.Queue, i.Machine, i.Labels) {
		return fsm.RawInstance{}, fmt.Errorf("get %s: %w", address, ErrNotFound)
	}
	return i, err
}

// covered returns which of some instances lie within the bounds.
func (s scope) covered(ctx context.Context, ids []fsm.ID) (func(fsm.ID) bool, error) {
	which, err := Where(Filter{Within: s.within})
	if err != nil {
		return nil, err
	}
	var found []fsm.ID
	if len(ids) > 0 {
		err = s.engine.patiently(ctx, task{doing: "look which instances lie within bounds"}, func() error {
			found, err = s.engine.Ent().Instance.Query().Where(append(which, InstanceIn(ids...))...).IDs(ctx)
			return err
		})
	}
	seen := make(map[fsm.ID]bool, len(found))
	for _, id := range found {
		seen[id] = true
	}
	return func(id fsm.ID) bool { return seen[id] }, err
}

// Admin returns the operator's verbs, within the bounds. Verbs on gates and schedules, and
// [Admin.Migrate], are about all instances; those on a queue need bounds of queues alone that have
// it. [Admin.Audit] needs an instance. Bounds that a call is given hold as well.
func (b *Bounded) Admin() *Admin { return &Admin{b.scope} }

// Get is [Engine.Get] within the bounds.
func (b *Bounded) Get(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	return b.find(ctx, of)
}

// Wait is [Engine.Wait] within the bounds.
func (b *Bounded) Wait(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	return b.waiting(ctx, of, b.engine.Wait)
}

// WaitParked is [Engine.WaitParked] within the bounds.
func (b *Bounded) WaitParked(ctx context.Context, of fsm.Target, past int64) (fsm.RawInstance, error) {
	return b.waiting(ctx, of, func(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
		return b.engine.WaitParked(ctx, of, past)
	})
}

func (b *Bounded) waiting(ctx context.Context, of fsm.Target, wait func(context.Context, fsm.Target) (fsm.RawInstance, error)) (fsm.RawInstance, error) {
	if !b.bound() {
		return wait(ctx, of)
	}
	i, err := b.occupant(ctx, of)
	if err != nil {
		return i, err
	}
	if i, err = wait(ctx, i.ID); err == nil && !b.within.Cover(i.Queue, i.Machine, i.Labels) { // it has moved to another queue
		return fsm.RawInstance{}, fmt.Errorf("get %v: %w", of, ErrNotFound)
	}
	return i, err
}

// Errors is [Engine.Errors] within the bounds, without the workers.
func (b *Bounded) Errors(ctx context.Context, of fsm.Target) ([]fsm.AttemptError, error) {
	if !b.bound() {
		return b.engine.Errors(ctx, of)
	}
	i, err := b.find(ctx, of)
	if err != nil {
		return nil, err
	}
	list, err := b.engine.Errors(ctx, i.ID)
	for n := range list {
		list[n].Worker = ""
	}
	return list, err
}

// List is [Engine.List] within the bounds. The children of an instance outside are none.
func (b *Bounded) List(ctx context.Context, q Query) (Page, error) {
	if b.bound() && q.Parent > 0 {
		switch _, err := b.find(ctx, q.Parent); {
		case errors.Is(err, ErrNotFound):
			q.Within = Bounds{Queues: []string{}}
		case err != nil:
			return Page{}, err
		}
	}
	q.Within = b.and(q.Within)
	return b.engine.List(ctx, q)
}

// All is [Engine.All] within the bounds.
func (b *Bounded) All(ctx context.Context, q Query) iter.Seq2[fsm.RawInstance, error] {
	return pages(ctx, q, b.List)
}

// Counts is [Engine.Counts] within the bounds. It does not tell instances apart by labels.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Counts(ctx context.Context, o CountsOptions) (Counts, error) {
	if err := b.byLabel("Counts"); err != nil {
		return Counts{}, err
	}
	c, err := b.engine.Counts(ctx, o)
	if b.bound() && err == nil {
		own := make([]Count, 0, len(c.Counts)) // all callers share the other
		for _, one := range c.Counts {
			if b.sees(one.Queue, one.Machine) {
				own = append(own, one)
			}
		}
		c.Counts = own
	}
	return c, err
}

// Failures is [Engine.Failures] within the bounds.
func (b *Bounded) Failures(ctx context.Context, o FailuresOptions) (Failures, error) {
	o.Within = b.and(o.Within)
	return b.engine.Failures(ctx, o)
}

// ChildCounts is [Engine.ChildCounts], which counts instances within and outside of the bounds
// alike. [Bounded.List] with Filter.Parent lists those within.
//
// Errors: also a *[BoundsError].
func (b *Bounded) ChildCounts(ctx context.Context, of fsm.Target) (ChildCounts, error) {
	if err := b.whole("ChildCounts"); err != nil {
		return ChildCounts{}, err
	}
	return b.engine.ChildCounts(ctx, of)
}

// Graph is [Engine.Graph] within the bounds, which have to cover all nodes.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Graph(ctx context.Context, of fsm.Target) (GraphStatus, error) {
	if !b.bound() {
		return b.engine.Graph(ctx, of)
	}
	i, err := b.find(ctx, of)
	if err != nil {
		return GraphStatus{}, err
	}
	g, err := b.engine.Graph(ctx, i.ID)
	if err != nil {
		return GraphStatus{}, err
	}
	ids := make([]fsm.ID, len(g.Nodes))
	for n := range g.Nodes {
		ids[n] = g.Nodes[n].ID
	}
	seen, err := b.covered(ctx, ids)
	if err == nil && slices.ContainsFunc(ids, func(id fsm.ID) bool { return !seen(id) }) {
		err = &BoundsError{"Graph", errFamily}
	}
	if err != nil {
		return GraphStatus{}, err
	}
	return g, nil
}

// History is [Engine.History] within the bounds, without the workers. Which queue and labels an
// instance had that is gone is not known, so to a caller who is bound it has no history.
func (b *Bounded) History(ctx context.Context, of fsm.Target) iter.Seq2[Transition, error] {
	return b.past(ctx, of, b.engine.History)
}

// HistoryBack is [Engine.HistoryBack], likewise.
func (b *Bounded) HistoryBack(ctx context.Context, of fsm.Target, documents int64) iter.Seq2[Transition, error] {
	return b.past(ctx, of, func(ctx context.Context, of fsm.Target) iter.Seq2[Transition, error] {
		return b.engine.HistoryBack(ctx, of, documents)
	})
}

func (b *Bounded) past(ctx context.Context, of fsm.Target, read func(context.Context, fsm.Target) iter.Seq2[Transition, error]) iter.Seq2[Transition, error] {
	if !b.bound() {
		return read(ctx, of)
	}
	return func(yield func(Transition, error) bool) {
		i, err := b.find(ctx, of)
		if err != nil {
			yield(Transition{}, err)
			return
		}
		for t, err := range read(ctx, i.ID) {
			if t.Worker = ""; !yield(t, err) {
				return
			}
		}
	}
}

// Rates is [Engine.Rates] of the queues within the bounds, which have to be of queues alone.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Rates(ctx context.Context, o RatesOptions) (Rates, error) {
	if err := b.byQueue("Rates"); err != nil {
		return Rates{}, err
	}
	r, err := b.engine.Rates(ctx, o)
	r.Bins = slices.DeleteFunc(r.Bins, func(one RateBin) bool { return !b.sees(one.Queue, "") })
	return r, err
}

// Lag is [Engine.Lag] of the queues within the bounds, which have to be of queues alone. It is 0
// for others.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Lag(ctx context.Context, queues ...string) (map[string]time.Duration, error) {
	if err := b.byQueue("Lag"); err != nil {
		return nil, err
	}
	lag, err := b.engine.Lag(ctx, queues...)
	for name := range lag {
		switch {
		case b.sees(name, ""):
		case len(queues) == 0:
			delete(lag, name)
		default:
			lag[name] = 0
		}
	}
	return lag, err
}

// GateLag is [Engine.GateLag] of the gates that [Admin.Gates] lists within the bounds.
//
// Errors: also a *[BoundsError].
func (b *Bounded) GateLag(ctx context.Context, names ...string) (map[string]time.Duration, error) {
	return b.Admin().lag(ctx, names)
}

// Definitions is [Engine.Definitions] of the machines within the bounds.
func (b *Bounded) Definitions(ctx context.Context) ([]StoredDefinition, error) {
	list, err := b.engine.Definitions(ctx)
	return slices.DeleteFunc(list, func(d StoredDefinition) bool { return !b.defines(d.Machine) }), err
}

// Drawing is [Engine.Drawing] within the bounds, with what [Bounded.Counts] counts.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Drawing(ctx context.Context, machine string, version int, o CountsOptions) (Drawing, error) {
	if err := b.byLabel("Drawing"); err != nil {
		return Drawing{}, err
	}
	return b.engine.drawing(ctx, machine, version, b.defines(machine), func() (Counts, error) { return b.Counts(ctx, o) })
}

// StepTimes is [Engine.StepTimes] of a machine within the bounds, which have to be of machines
// alone.
//
// Errors: also a *[BoundsError].
func (b *Bounded) StepTimes(ctx context.Context, machine string, o HistoryOptions) ([]StepTimes, error) {
	return ofMachine(ctx, b, "StepTimes", machine, o, b.engine.StepTimes)
}

// StepFailures is [Engine.StepFailures], likewise.
//
// Errors: also a *[BoundsError].
func (b *Bounded) StepFailures(ctx context.Context, machine string, o HistoryOptions) ([]StepFailure, error) {
	return ofMachine(ctx, b, "StepFailures", machine, o, b.engine.StepFailures)
}

// StepEdges is [Engine.StepEdges], likewise.
//
// Errors: also a *[BoundsError].
func (b *Bounded) StepEdges(ctx context.Context, machine string, o HistoryOptions) ([]StepEdge, error) {
	return ofMachine(ctx, b, "StepEdges", machine, o, b.engine.StepEdges)
}

// ofMachine asks the history, which has neither queues nor labels. A machine outside has none.
func ofMachine[T any](ctx context.Context, b *Bounded, call, machine string, o HistoryOptions,
	ask func(context.Context, string, HistoryOptions) ([]T, error),
) ([]T, error) {
	if err := b.byMachine(call); err != nil {
		return nil, err
	}
	if !b.defines(machine) {
		if _, err := o.filter(machine); err != nil {
			return nil, err
		}
		return []T{}, nil
	}
	return ask(ctx, machine, o)
}

// Signal is [Engine.Signal] to an instance within the bounds. It keeps no message for a key that no
// such instance occupies: that is ErrNoTarget.
func (b *Bounded) Signal(ctx context.Context, to fsm.Target, m fsm.Message) (Delivery, error) {
	if !b.bound() {
		return b.engine.Signal(ctx, to, m)
	}
	i, err := b.occupant(ctx, to)
	if errors.Is(err, ErrNotFound) {
		return Delivery{}, fmt.Errorf("%w: %v", ErrNoTarget, to)
	}
	if err != nil {
		return Delivery{}, err
	}
	return b.engine.Signal(ctx, i.ID, m)
}

// Insert is [Engine.Insert] of an instance that lies within the bounds. It has no correlation key,
// partition key and window: all instances share these.
//
// Errors: also a *[BoundsError].
func (b *Bounded) Insert(ctx context.Context, spec fsm.Spec) (fsm.ID, error) {
	return b.writer().Insert(ctx, spec)
}

// InsertMany is [Engine.InsertMany], likewise.
//
// Errors: also a *[BoundsError].
func (b *Bounded) InsertMany(ctx context.Context, specs []fsm.Spec) ([]Inserted, error) {
	return b.writer().InsertMany(ctx, specs)
}

func (b *Bounded) writer() writer {
	w := b.engine.writer
	w.within = b.scope
	return w
}

// takes returns an error of a spec that a caller may not insert: outside of the bounds, or with
// something that all instances share.
func (s scope) takes(spec *step.Spec) error {
	switch {
	case !s.bound():
		return nil
	case !s.within.Cover(spec.Queue, spec.Machine, step.Texts(spec.Labels)):
		return &BoundsError{"Insert", errors.New("the bounds do not cover the queue, the machine and the labels of the instance")}
	case spec.Key != "" || spec.PartitionKey != "" || spec.Window.Kind != "":
		// A key would tell whether another instance has it, take signals that are kept for it, or keep
		// others in line.
		return &BoundsError{"Insert", errors.New("all instances share correlation keys, partition keys and windows, so insert without them")}
	}
	return nil
}

// Codec is [Engine.Codec].
func (b *Bounded) Codec() fsm.Codec { return b.engine.Codec() }

// Definition is [Engine.Definition], of what the program itself has declared.
func (b *Bounded) Definition(machine string, version int) fsm.Definition {
	return b.engine.Definition(machine, version)
}

var (
	_ fsm.Lister       = (*Bounded)(nil)
	_ fsm.ParkedReader = (*Bounded)(nil)
	_ fsm.Definer      = (*Bounded)(nil)
)
