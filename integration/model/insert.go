package model

import "time"

// Inserted is the result of one spec.
type Inserted struct {
	ID        ID // the new instance or, with Duplicate, the one that occupies its key
	Duplicate bool
}

// Insert inserts instances, all at the same moment, and returns their results in input order. Ids
// follow the input order. Of two equal keys the first wins. New instances that occupy their keys
// take the signals that are kept for them.
func (w *World) Insert(specs []Spec) []Inserted {
	out := make([]Inserted, len(specs))
	var keys []string
	for n := range specs {
		if out[n] = w.insert(&specs[n], nil); !out[n].Duplicate && specs[n].Scope != ScopeNone {
			keys = append(keys, specs[n].Key)
		}
	}
	w.take(keys)
	return out
}

// InsertUnknowing inserts an instance by a process that does not know of kept signals, and leaves
// them to the next hand over.
func (w *World) InsertUnknowing(s Spec) Inserted { return w.insert(&s, nil) }

// insert inserts one instance, as a child of the parent's current round if there is one.
func (w *World) insert(s *Spec, parent *Instance) Inserted {
	if s.Scope != ScopeNone {
		if o := w.Occupant(s.Key); o != nil {
			return Inserted{ID: o.ID, Duplicate: true}
		}
	}
	w.lastID++
	i := &Instance{
		ID: w.lastID, UID: s.UID, Machine: s.Machine, Queue: s.Queue, Priority: s.Priority, PartitionKey: s.PartitionKey,
		Key: s.Key, Scope: s.Scope, Status: Runnable, Step: s.Step, State: s.State,
		EligibleAt: w.due(s.Delay, s.At), FinishedAt: Never, Lease: Never, Deadline: Never, Expiry: Never, Label: s.Label,
	}
	if s.Life > 0 {
		i.Expiry = w.after(s.Life)
	}
	if s.Key == "" {
		i.Scope = ScopeNone // without a key a scope has no meaning
	}
	if parent != nil {
		i.Parent, i.ParentRound, i.Depth = parent.ID, parent.Round, parent.Depth+1
	}
	w.instances = append(w.instances, i)
	if w.born == nil {
		w.born = map[ID]Moment{}
	}
	w.born[i.ID] = w.Now
	return Inserted{ID: i.ID}
}

// due returns when something may run that has a delay or a time. A past time means now.
func (w *World) due(delay time.Duration, at Moment) Moment {
	if at != Never {
		return max(at, w.Now)
	}
	return w.after(delay)
}
