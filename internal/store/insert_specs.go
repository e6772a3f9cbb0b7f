package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gendurable/gendurable/internal/step"
)

// specs holds instances to insert, as the columns of one statement.
type specs struct {
	uids       []pgtype.UUID
	machines   []string
	versions   []int32
	steps      []string
	queues     []string
	priorities []int16
	states     []string
	partitions []*string
	keys       []*string
	scopes     []int16
	micros     []*int64
	times      []*time.Time
	lanes      []int16
	labels     []*string
	traces     []*string
	lives      []*int64  // µs until the deadline
	keyed      bool      // some entry has a correlation key
	ids        []int64   // drawn before the insertion; nil: it draws them
	gates      []*string // those at which they are in line; nil: none is
	retains    []*string // their own retentions; nil: none has one
	claiming   *claiming // who inserts them as claimed; nil: nobody does

	// The following columns are for children only.
	parents []int64 // the distinct parents
	places  []int32 // the place of each child's parent among parents, from 1
	depths  []int32
}

func (c *specs) len() int { return len(c.uids) }

// grow makes room for n more specs.
func (c *specs) grow(n int) {
	c.uids, c.machines, c.versions, c.steps = slices.Grow(c.uids, n), slices.Grow(c.machines, n), slices.Grow(c.versions, n), slices.Grow(c.steps, n)
	c.queues, c.priorities, c.states = slices.Grow(c.queues, n), slices.Grow(c.priorities, n), slices.Grow(c.states, n)
	c.partitions, c.keys, c.scopes = slices.Grow(c.partitions, n), slices.Grow(c.keys, n), slices.Grow(c.scopes, n)
	c.micros, c.times, c.lanes = slices.Grow(c.micros, n), slices.Grow(c.times, n), slices.Grow(c.lanes, n)
	c.labels, c.traces, c.lives = slices.Grow(c.labels, n), slices.Grow(c.traces, n), slices.Grow(c.lives, n)
}

func (c *specs) add(x *step.Spec) {
	c.uids = append(c.uids, pgtype.UUID{Bytes: x.UID, Valid: true})
	c.machines = append(c.machines, x.Machine)
	c.versions = append(c.versions, int32(x.Version)) //nolint:gosec // fsm bounds it
	c.steps = append(c.steps, x.Step)
	c.queues = append(c.queues, x.Queue)
	c.priorities = append(c.priorities, x.Priority)
	c.states = append(c.states, string(x.State))
	c.partitions = append(c.partitions, optional(x.PartitionKey))
	c.keys = append(c.keys, optional(x.Key))
	c.scopes = append(c.scopes, int16(x.Scope))
	c.keyed = c.keyed || x.Key != ""
	var us *int64
	if x.Delay > 0 {
		n := micros(x.Delay)
		us = &n
	}
	var at *time.Time
	if !x.At.IsZero() {
		at = &x.At
	}
	c.micros, c.times = append(c.micros, us), append(c.times, at)
	c.lanes = append(c.lanes, laneFront)
	c.labels, c.traces = append(c.labels, jsonText(x.Labels)), append(c.traces, jsonText(x.Trace))
	var life *int64
	if x.Deadline > 0 {
		n := micros(x.Deadline)
		life = &n
	}
	c.lives = append(c.lives, life)
	if x.Retain != (step.Retain{}) {
		for len(c.retains) < c.len()-1 {
			c.retains = append(c.retains, nil)
		}
		c.retains = append(c.retains, new(retainText(x.Retain)))
	}
}

// addChild adds a child. The children of one parent must follow each other.
func (c *specs) addChild(parent int64, depth int, x *step.Spec) {
	c.add(x)
	if n := len(c.parents); n == 0 || c.parents[n-1] != parent {
		c.parents = append(c.parents, parent)
	}
	c.places = append(c.places, int32(len(c.parents))) //nolint:gosec // at most one for each outcome of a batch
	c.depths = append(c.depths, int32(depth))          //nolint:gosec // at most 100
}

// parts splits the specs, in order, into parts that one message holds each. The parts share the
// columns' memory.
func (c *specs) parts() (parts []*specs) {
	from, bytes := 0, 0
	for i := range c.uids {
		size := len(c.states[i]) + len(text(c.labels[i])) + len(text(c.traces[i])) + len(text(c.keys[i])) + 150
		if bytes > 0 && bytes+size > messageBytes {
			parts = append(parts, c.between(from, i))
			from, bytes = i, 0
		}
		bytes += size
	}
	return append(parts, c.between(from, c.len()))
}

// between returns the specs from i to before j, none of which may be a child.
func (c *specs) between(i, j int) *specs {
	return &specs{
		uids: c.uids[i:j], machines: c.machines[i:j], versions: c.versions[i:j], steps: c.steps[i:j], queues: c.queues[i:j],
		priorities: c.priorities[i:j], states: c.states[i:j], partitions: c.partitions[i:j], keys: c.keys[i:j], scopes: c.scopes[i:j],
		micros: c.micros[i:j], times: c.times[i:j], lanes: c.lanes[i:j], labels: c.labels[i:j], traces: c.traces[i:j], lives: c.lives[i:j],
		keyed: c.keyed, claiming: c.claiming, ids: c.ids[min(i, len(c.ids)):min(j, len(c.ids))],
		gates: c.gates[min(i, len(c.gates)):min(j, len(c.gates))], retains: c.retains[min(i, len(c.retains)):min(j, len(c.retains))],
	}
}

// byKey returns the specs in the order of their keys, those without first. Each has its id, from
// ids in input order. None is in line: so large an insertion puts all in front.
func (c *specs) byKey(ids []int64) *specs {
	for i, gate := range c.gates {
		if gate != nil {
			c.lanes[i] = laneFront
		}
	}
	if c.retains != nil {
		c.retains = append(c.retains, make([]*string, c.len()-len(c.retains))...)
	}
	order := make([]int, c.len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(text(c.keys[a]), text(c.keys[b])) })
	return &specs{
		uids: permuted(c.uids, order), machines: permuted(c.machines, order), versions: permuted(c.versions, order),
		steps: permuted(c.steps, order), queues: permuted(c.queues, order), priorities: permuted(c.priorities, order),
		states: permuted(c.states, order), partitions: permuted(c.partitions, order), keys: permuted(c.keys, order),
		scopes: permuted(c.scopes, order), micros: permuted(c.micros, order), times: permuted(c.times, order),
		lanes: permuted(c.lanes, order), labels: permuted(c.labels, order), traces: permuted(c.traces, order),
		lives: permuted(c.lives, order), keyed: c.keyed, ids: permuted(ids, order), retains: permutedSome(c.retains, order),
	}
}

func permuted[T any](column []T, order []int) []T {
	out := make([]T, len(order))
	for i, from := range order {
		out[i] = column[from]
	}
	return out
}

// permutedSome is permuted, for a column that may be missing.
func permutedSome[T any](column []T, order []int) []T {
	if column == nil {
		return nil
	}
	return permuted(column, order)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// chain puts rows of one partition key and queue that are due at once into lane key, behind the
// first of them, so that a bulk insert for one key costs the picks nothing. The first row must be
// sure to be inserted if the others are: one with a correlation key may be dropped, and the
// children of another parent are not inserted if its outcome is stale or left out.
func (c *specs) chain() {
	type place struct {
		key, queue string
		parent     int32
	}
	order := make([]int, 0, c.len())
	for i, k := range c.partitions {
		if k != nil && c.micros[i] == nil && c.times[i] == nil {
			order = append(order, i)
		}
	}
	if len(order) < 2 {
		return
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.priorities[a], c.priorities[b]) })
	anchored := map[place]bool{}
	for _, i := range order {
		at := place{key: *c.partitions[i], queue: c.queues[i]}
		if len(c.places) > 0 {
			at.parent = c.places[i]
		}
		switch {
		case anchored[at]:
			c.lanes[i] = laneKey
		case c.keys[i] == nil:
			anchored[at] = true
		}
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
