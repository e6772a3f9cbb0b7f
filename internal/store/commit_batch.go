package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// Needs are the statements that a batch sends for the sake of an entry, as a set of bits.
type Needs uint16

// NeedsMost is how many values of Needs there are.
const NeedsMost = 1 << 10

// Needs returns what the entry needs. Two entries that need the same are told apart by nothing but
// their rows: where one is committed, no other can lack a right or a table.
func (e *Entry) Needs() (n Needs) {
	kind, signals := e.Commit.Kind, e.Commit.Kind == step.Next || e.Commit.Kind == step.Children
	dedup := func(s step.Signal) bool { return s.DedupKey != "" }
	for i, needed := range [...]bool{
		e.Keep, e.plainEnd(), kind == step.Await, kind == step.Done, kind.Terminal() && e.Claim.Parent != 0,
		len(e.Commit.Spawn) > 0, e.Keyed(), e.Claim.PartitionKey != "" && !e.Keep,
		signals && slices.ContainsFunc(e.Claim.Awaited, dedup),
		signals && slices.ContainsFunc(e.Claim.Awaited, func(s step.Signal) bool { return !dedup(s) }),
	} {
		if needed {
			n |= 1 << i
		}
	}
	return n
}

// batch is the columns of one commit: what its statements take, gathered from the entries in one pass.
type batch struct {
	worker, mark string
	slow         bool
	entries      []Entry

	kept  kept
	ended ended
	fences
	kinds []string

	// Columns that stay nil until an entry needs them.
	steps, states, results, errs, failures []*string
	micros                                 []*int64
	times                                  []*time.Time
	lo, hi, children                       []*int32
	parent                                 []*int64

	names      []string
	parents    []int64 // distinct parents of terminal children
	consumed   []int64 // presented signals without a dedup key
	tombstones []int64 // and with one
	parked     []int64
	presented  []int64 // to those that park towards their own step
	done       []int64
	joiners    []int64  // terminal children
	keys       []string // partition keys that these outcomes set free
	holders    []int64  // and whose claim held each
	spawn      specs    // children, up to messageBytes
	spawned    int      // bytes of those
	later      []part   // the children that are too many for one message
	kids       []kid    // those with correlation keys, of both
}

// fences are what a row must still be for its outcome to count.
type fences struct{ ids, tokens, visits []int64 }

func (f *fences) add(c *step.Claim) {
	f.ids, f.tokens, f.visits = append(f.ids, c.ID), append(f.tokens, c.Token), append(f.visits, c.Visit)
}

// kept are the outcomes that keep their claim.
type kept struct {
	fences
	steps, states []string
}

// ended are outcomes that are Done, of instances that are nobody's children.
type ended struct {
	fences
	results []*string
}

func (e *Entry) plainEnd() bool { return e.Commit.Kind == step.Done && e.Claim.Parent == 0 }

func newBatch(worker, mark string, entries []Entry, slow bool) *batch {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Claim.ID, b.Claim.ID) })
	b := &batch{worker: worker, mark: mark, slow: slow, entries: entries}
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
	b.spawn.chain()
	return b
}

// add adds an entry; n are those of the general statement.
func (b *batch) add(n int, e *Entry) {
	c, o := e.Claim, e.Commit
	switch {
	case e.Keep:
		b.kept.add(c)
		b.kept.steps, b.kept.states = append(b.kept.steps, o.Step), append(b.kept.states, string(o.State))
		b.consume(c)
		return
	case e.plainEnd():
		b.ended.add(c)
		b.ended.results = append(b.ended.results, jsonText(o.Result))
		b.done = append(b.done, c.ID)
	default:
		b.addAny(n, e)
	}
	if c.PartitionKey != "" {
		b.keys, b.holders = append(b.keys, c.PartitionKey), append(b.holders, c.ID)
	}
}

// addAny adds an entry to the columns of the general statement.
func (b *batch) addAny(n int, e *Entry) {
	c, o := e.Claim, e.Commit
	i := len(b.ids)
	b.fences.add(c)
	b.kinds = append(b.kinds, string(o.Kind))
	set(&b.steps, n, i, optional(o.Step))
	set(&b.states, n, i, jsonText(o.State))
	set(&b.results, n, i, jsonText(o.Result))
	set(&b.errs, n, i, optional(o.Err))
	set(&b.failures, n, i, optional(o.Failure))
	if d := o.Delay + o.Timeout; d > 0 {
		us := micros(d)
		set(&b.micros, n, i, &us)
	}
	if !o.At.IsZero() {
		set(&b.times, n, i, &o.At)
	}
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
		count := int32(len(o.Spawn)) //nolint:gosec // bounded by the limits
		set(&b.children, n, i, &count)
		b.addChildren(c, o.Spawn)
		b.consume(c)
	case step.Next:
		b.consume(c)
	case step.Done:
		b.done = append(b.done, c.ID)
	case step.Retry, step.Stop:
	}
	if e.Commit.Kind.Terminal() && c.Parent != 0 {
		b.joiners, b.parents = append(b.joiners, c.ID), append(b.parents, c.Parent)
		if !b.slow {
			set(&b.parent, n, i, &c.Parent)
		}
	}
}

func (b *batch) consume(c *step.Claim) {
	for _, s := range c.Awaited {
		if s.DedupKey == "" {
			b.consumed = append(b.consumed, s.ID)
		} else {
			b.tombstones = append(b.tombstones, s.ID)
		}
	}
}

// Runnable notes where the applied ones of some outcomes made something runnable, as far as the entries
// themselves know. What else they made so (a parent, the next of a key) the server says.
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
		switch o := e.Commit; {
		case o.Kind == step.Next && !e.Keep, o.Kind == step.Retry:
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

// set puts a value into a column that is made when its first value comes.
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

// pause sleeps before the n-th repetition, 10 ms to 1 s. It returns ctx's error when that ends first.
func pause(ctx context.Context, n int) error {
	if !pace.Sleep(ctx, pace.Backoff(n, 10*time.Millisecond, time.Second)) {
		return ctx.Err()
	}
	return nil
}
