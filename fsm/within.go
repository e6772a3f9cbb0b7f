package fsm

import (
	"maps"
	"slices"
)

// Bounds are the part of all instances within which reads and verbs stay: instances of one of these
// queues, of one of these machines, with all of these labels. A list that is nil does not bound, so
// the zero Bounds are all instances. A list that is empty but not nil covers no instance: the
// queues of a user who has none are not all queues. Labels that are empty do not bound.
//
// Bounds are no filter that a user chooses: [Filter.Within] adds them to all criteria of a list or
// a plan, and to a user who is bound an instance outside does not exist.
type Bounds struct {
	Queues   []string          `json:"queues,omitzero"`
	Machines []string          `json:"machines,omitzero"`
	Labels   map[string]string `json:"labels,omitempty"` // the instance has all of these, and maybe others
}

// IsZero reports whether the bounds are all instances.
func (b Bounds) IsZero() bool {
	return b.Queues == nil && b.Machines == nil && len(b.Labels) == 0
}

// Cover reports whether an instance of a queue and a machine, with labels, lies within the bounds.
func (b Bounds) Cover(queue, machine string, labels map[string]string) bool {
	if b.Queues != nil && !slices.Contains(b.Queues, queue) || b.Machines != nil && !slices.Contains(b.Machines, machine) {
		return false
	}
	for name, value := range b.Labels {
		if got, has := labels[name]; !has || got != value {
			return false
		}
	}
	return true
}

// Equal reports whether two bounds are the same, in whatever order their names are.
func (b Bounds) Equal(other Bounds) bool {
	same := func(a, b []string) bool {
		return (a == nil) == (b == nil) && slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
	}
	return same(b.Queues, other.Queues) && same(b.Machines, other.Machines) && maps.Equal(b.Labels, other.Labels)
}
