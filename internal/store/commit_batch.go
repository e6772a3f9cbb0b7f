package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sort"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// Needs is a set of bits. Each bit stands for a statement that a batch sends for an entry.
type Needs uint16

// NeedsMost is the number of values that Needs can have.
const NeedsMost = 1 << 15

// Needs returns the statements that the entry needs. Two entries with the same needs differ in
// their rows only: if Postgres commits one, the other cannot lack a right or a table.
func (e *Entry) Needs() (n Needs) {
	kind := e.Commit.Kind
	signals := kind == step.Next || kind == step.Children || kind == step.Rejoin
	dedup := func(s step.Signal) bool { return s.DedupKey != "" }
	for i, needed := range [...]bool{
		e.Keep, e.plainEnd(), kind == step.Await, kind == step.Done, kind.Terminal() && e.Claim.Parent != 0,
		len(e.Commit.Spawn) > 0, e.Keyed(), e.Claim.PartitionKey != "" && !e.Keep,
		signals && slices.ContainsFunc(e.Claim.Awaited, dedup),
		signals && slices.ContainsFunc(e.Claim.Awaited, func(s step.Signal) bool { return !dedup(s) }),
		e.Commit.Unless != nil,
		e.Record != nil,
		e.drops(),
		e.policed() || kind == step.Rejoin || e.streamed(), // a park, or an end: the bit of its kind tells
		e.graphic(),
	} {
		if needed {
			n |= 1 << i
		}
	}
	return n
}

// batch holds the arguments of one commit's statements, gathered from the entries in one pass.
type batch struct {
	worker, mark string
	slow         bool
	revocable    bool // undo a promotion that fails, and nothing else
	entries      []Entry

	kept  kept
	ended ended
	general
	inbox
	unless    unless
	undecided undecided
	brood
	joins
	freed
	dropped []int64 // instances whose rows go with their Done
}

// fences holds the values that a row must still have for its outcome to count.
type fences struct{ ids, tokens, visits []int64 }

func (f *fences) add(c *step.Claim) {
	f.ids, f.tokens, f.visits = append(f.ids, c.ID), append(f.tokens, c.Token), append(f.visits, c.Visit)
}

// kept holds the outcomes that keep their claim.
type kept struct {
	fences
	trail         trail
	steps, states []string
}

// ended holds the Done outcomes of instances without a parent.
type ended struct {
	fences
	trail   trail
	results []*string
}

// general holds the columns of all other outcomes.
type general struct {
	fences
	trail trail
	kinds []string

	// These columns stay nil until an entry needs them.
	steps, states, results, errs, failures []*string
	micros                                 []*int64
	times                                  []*time.Time
	lo, hi, children, versions             []*int32
	unbegun                                []*bool
	parent                                 []*int64

	names []string
}

// add adds an entry, and returns its place in the columns. n is the number of entries to come.
func (g *general) add(n int, e *Entry) int {
	o := e.Commit
	i := len(g.ids)
	g.fences.add(e.Claim)
	g.trail.add(i, e)
	g.kinds = append(g.kinds, string(o.Kind))
	set(&g.steps, n, i, optional(o.Step))
	set(&g.states, n, i, jsonText(o.State))
	set(&g.results, n, i, jsonText(o.Result))
	set(&g.errs, n, i, optional(o.Err))
	set(&g.failures, n, i, optional(o.Failure))
	if o.Version != 0 {
		version := int32(o.Version) //nolint:gosec // a version fits the column
		set(&g.versions, n, i, &version)
	}
	if d := o.Delay + o.Timeout; d > 0 {
		us := micros(d)
		set(&g.micros, n, i, &us)
	}
	if !o.At.IsZero() {
		set(&g.times, n, i, &o.At)
	}
	if e.unbegun() {
		set(&g.unbegun, n, i, new(true))
	}
	return i
}

// inbox holds what outcomes make of the signals of their instances.
type inbox struct {
	consumed     []int64 // presented signals without a dedup key
	tombstones   []int64 // presented signals with one
	parked       []int64 // instances that look for a signal once more
	presented    []int64 // signals presented to entries that park towards their own step
	done         []int64
	received     []int64 // signals presented to entries that are done
	doneRecorded []int64 // those of done that the history keeps
}

func (in *inbox) consume(c *step.Claim) {
	for _, s := range c.Awaited {
		if s.DedupKey == "" {
			in.consumed = append(in.consumed, s.ID)
		} else {
			in.tombstones = append(in.tombstones, s.ID)
		}
	}
}

// end adds an entry that is done.
func (in *inbox) end(e *Entry) {
	in.done = append(in.done, e.Claim.ID)
	if e.Record != nil {
		in.doneRecorded = append(in.doneRecorded, e.Claim.ID)
	}
	for _, s := range e.Claim.Awaited {
		in.received = append(in.received, s.ID)
	}
}

// joins holds what parents learn of their children.
type joins struct {
	parents  []int64  // distinct parents of terminal children
	policies policies // of the joins that have one
	rejoins  rejoins  // the policies of Rejoins
	joiners  joiners  // terminal children
	nodes    []int64  // those of joiners that are nodes of graphs
	streams  streams
}

// freed holds the partition keys that the outcomes free.
type freed struct {
	keys    []string
	holders []int64  // the instance whose claim held each of keys
	left    []string // those that are promoted later
}

func (f *freed) add(e *Entry) {
	switch key := e.Claim.PartitionKey; {
	case key == "":
	case e.unbegun(): // a rider would not know it by its mark
		f.left = append(f.left, key)
	default:
		f.keys, f.holders = append(f.keys, key), append(f.holders, e.Claim.ID)
	}
}

// unless holds the entries that end only if no signal of some names waits.
type unless struct {
	ids           []int64
	steps, states []*string
	lo, hi        []int32
	names         []string
	presented     []int64
}

func (u *unless) add(c *step.Claim, o *step.Unless) {
	u.ids, u.steps, u.states = append(u.ids, c.ID), append(u.steps, &o.Step), append(u.states, jsonText(o.State))
	u.lo, u.hi = append(u.lo, int32(len(u.names)+1)), append(u.hi, int32(len(u.names)+len(o.Names))) //nolint:gosec // bounded by the limits
	u.names = append(u.names, o.Names...)
	for _, s := range c.Awaited {
		u.presented = append(u.presented, s.ID)
	}
}

// drops reports whether the row goes with the outcome. A child's result is its parent's to read,
// and a parent goes after its children, whose rows the deletion would have to write.
func (e *Entry) drops() bool { return e.Drop && e.plainEnd() && e.Claim.Round == 0 }

// plainEnd reports whether the narrow statement for instances that are done may end it: that one
// writes no version.
func (e *Entry) plainEnd() bool {
	return e.Commit.Kind == step.Done && e.Claim.Parent == 0 && e.Commit.Version == 0
}

// unbegun reports whether the entry is of a node that stays unbegun: see begun.
func (e *Entry) unbegun() bool { return e.Commit.Unbegun && e.Claim.Node != "" && e.Claim.Visit == 0 }

func newBatch(worker, mark string, entries []Entry, slow bool) *batch {
	entries = slices.Clone(entries)
	sort.Slice(entries, func(i, j int) bool { return entries[i].Claim.ID < entries[j].Claim.ID })
	b := &batch{worker: worker, mark: mark, slow: slow, entries: entries}
	if len(entries) == 1 && entries[0].Commit.Add != nil && entries[0].Claim.Parent != 0 {
		b.slow, b.growth = true, &growth{Additions: entries[0].Commit.Add, claim: entries[0].Claim} // growLockSQL locks all
	}
	n := len(entries)
	for i := range entries {
		if entries[i].Keep || entries[i].plainEnd() {
			n--
		}
	}
	for i := range entries {
		b.add(n, &entries[i])
	}
	slices.Sort(b.parents)
	b.parents = slices.Compact(b.parents)
	if b.graph == nil { // a node that waits must not be in front of others of its partition key
		b.spawn.chain()
	}
	return b
}

// add adds an entry. n is the number of entries that the general statement takes.
func (b *batch) add(n int, e *Entry) {
	c, o := e.Claim, e.Commit
	if o.Unless != nil {
		b.unless.add(c, o.Unless)
		b.undecided.add(e)
	}
	if o.Kind == step.Done {
		b.end(e)
	}
	switch {
	case e.Keep:
		b.kept.trail.add(len(b.kept.ids), e)
		b.kept.add(c)
		b.kept.steps, b.kept.states = append(b.kept.steps, o.Step), append(b.kept.states, string(o.State))
		b.consume(c)
		return
	case e.plainEnd():
		if e.drops() {
			b.dropped = append(b.dropped, c.ID)
		}
		b.ended.trail.add(len(b.ended.ids), e)
		b.ended.add(c)
		b.ended.results = append(b.ended.results, jsonText(o.Result))
	default:
		b.addAny(n, e)
	}
	b.freed.add(e)
}

// addAny adds an entry to the columns of the general statement.
func (b *batch) addAny(n int, e *Entry) {
	c, o := e.Claim, e.Commit
	i := b.general.add(n, e)
	switch o.Kind {
	case step.Await:
		lo, hi := int32(len(b.names)+1), int32(len(b.names)+len(o.Names)) //nolint:gosec // bounded by the limits
		set(&b.lo, n, i, &lo)
		set(&b.hi, n, i, &hi)
		b.names, b.parked = append(b.names, o.Names...), append(b.parked, c.ID)
		if o.Step == c.Step {
			for _, s := range c.Awaited {
				b.presented = append(b.presented, s.ID)
			}
		}
	case step.Children:
		b.streams.add(c, o.Join)
		count := int32(len(o.Spawn)) //nolint:gosec // bounded by the limits
		set(&b.children, n, i, &count)
		if o.Graph != nil {
			b.graph = newGraph(o)
		}
		b.addChildren(c, o.Spawn)
		b.consume(c)
		if e.policed() {
			join := cmp.Or(o.Join, &step.Join{})
			b.policies.add(c, join)
			if len(join.Names) > 0 {
				b.parked = append(b.parked, c.ID)
			}
		}
	case step.Rejoin:
		b.consume(c)
		b.rejoins.add(c, o.Join)
		if len(o.Join.Names) > 0 {
			b.parked = append(b.parked, c.ID)
		}
	case step.Next:
		b.consume(c)
	case step.Retry, step.Again, step.Done, step.Fail:
	}
	if e.Commit.Kind.Terminal() && c.Parent != 0 {
		b.joiners.add(c.ID, e.streamed())
		b.parents = append(b.parents, c.Parent)
		if c.Node != "" {
			b.nodes = append(b.nodes, c.ID)
		}
		if !b.slow {
			set(&b.parent, n, i, &c.Parent)
		}
	}
}

// Runnable notes the queues in which the applied outcomes of entries made an instance runnable, as
// far as the entries know. The server reports the others: parents, and the next instances of
// partition keys.
func (out *Committed) Runnable(entries []Entry) {
	note := func(queue string, delay time.Duration, at time.Time) {
		if !at.IsZero() {
			delay = time.Until(at)
		}
		switch soonest, known := out.Soon[queue]; {
		case delay <= 0:
			if n := len(out.Queues); n == 0 || out.Queues[n-1] != queue {
				out.Queues = append(out.Queues, queue)
			}
		case out.Soon == nil:
			out.Soon = map[string]time.Duration{queue: delay}
		case !known || delay < soonest:
			out.Soon[queue] = delay
		}
	}
	for i := range entries {
		e := &entries[i]
		if !out.Applied[e.Claim.ID] {
			continue
		}
		if a := e.Commit.Add; a != nil {
			for j := range a.Specs {
				note(a.Specs[j].Queue, a.Specs[j].Delay, a.Specs[j].At)
			}
		}
		switch o := e.Commit; {
		case o.Kind == step.Next && !e.Keep, o.Kind == step.Retry, o.Kind == step.Again:
			note(e.Claim.Queue, o.Delay, o.At)
		case o.Kind == step.Children && len(o.Spawn) == 0:
			note(e.Claim.Queue, 0, time.Time{})
		case o.Kind == step.Children:
			for j := range o.Spawn {
				note(o.Spawn[j].Queue, o.Spawn[j].Delay, o.Spawn[j].At)
			}
		}
	}
}

// set puts a value into a column, and makes the column with its first value.
func set[T any](column *[]*T, n, i int, v *T) {
	if v == nil {
		return
	}
	if *column == nil {
		*column = make([]*T, n)
	}
	(*column)[i] = v
}

func jsonText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	s := string(raw)
	return &s
}

// pause sleeps before the n-th repetition, for 10 ms to 1 s. It returns ctx's error if ctx ends
// first.
func pause(ctx context.Context, n int) error {
	if !pace.Sleep(ctx, pace.Backoff(n, 10*time.Millisecond, time.Second)) {
		return ctx.Err()
	}
	return nil
}
