// Package model is the engine's specification as a program: what instances and signals are, and what each operation does to them, in
// memory, one operation at a time. It knows no database, no SQL and no package of the engine, only rules, and where a rule has a reason
// or a subtlety it says so. Its tests drive it and the real store through the same random histories and compare all that can be seen.
//
// It leaves out what one operation at a time cannot show: locks, interleavings, lost answers. Those are other suites' business.
package model

import (
	"cmp"
	"slices"
	"time"
)

// Moment is a time, as its distance from the beginning of the World, to the microsecond.
type Moment time.Duration

// Never is the absence of a time.
const Never Moment = -1

// ID of an instance. Ids grow in the order of insertion, which decides ties. 0 is no instance.
type ID int

// Status of an instance.
type Status string

// The statuses. The first four are live, the others terminal.
const (
	Runnable         Status = "runnable"
	Executing        Status = "executing"
	AwaitingSignal   Status = "awaiting_signal"
	AwaitingChildren Status = "awaiting_children"
	Done             Status = "done"
	Failed           Status = "failed"
)

// Terminal reports whether an instance of this status has ended.
func (s Status) Terminal() bool { return s == Done || s == Failed }

// Machine is a definition's name and version.
type Machine struct {
	Name    string
	Version int
}

// Scope says in which statuses a correlation key is occupied. An instance that has left its scope has no address but its id.
type Scope int

// The five scopes: the live statuses and any terminal ones, or none at all.
const (
	ScopeLive Scope = iota
	ScopeLiveOrDone
	ScopeLiveOrFailed
	ScopeAll
	ScopeNone
)

func (s Scope) covers(status Status) bool {
	switch {
	case s == ScopeNone:
		return false
	case status == Done:
		return s == ScopeLiveOrDone || s == ScopeAll
	case status == Failed:
		return s == ScopeLiveOrFailed || s == ScopeAll
	default:
		return true
	}
}

// Spec is an instance to insert.
type Spec struct {
	UID          int // made by whoever inserts
	Machine      Machine
	Step         string
	Queue        string
	Priority     int
	State        string
	PartitionKey string // "": none
	Key          string // correlation key; "": none
	Scope        Scope
	Delay        time.Duration // of the first step
	At           Moment        // of the first step; Never: at once, or after Delay
	Life         time.Duration // until it fails unless it has ended; 0: for ever
}

// Instance is one instance. The zero values of its columns are those of a new one, but for the times.
type Instance struct {
	ID           ID
	UID          int
	Machine      Machine
	Queue        string
	Priority     int
	PartitionKey string
	Key          string
	Scope        Scope

	Status     Status
	Step       string
	State      string
	Result     string // "": none
	EligibleAt Moment
	FinishedAt Moment // Never, exactly while live
	Failure    string // why it failed; "" unless failed
	Paused     bool   // by an operator: not to be claimed
	LastError  string
	Errors     []Error // of its attempts, the newest last
	Expiry     Moment  // when it fails unless it has ended

	Attempt int   // runs of this visit that ended in Retry or a crash
	Crashes int   // those that ended in a crash
	Visit   int64 // moves with every progress

	Worker string // who holds the claim; "" unless executing
	Token  int64  // of the newest claim
	Lease  Moment // Never unless executing

	Awaits   []string // what it was parked for; nil: nothing
	Deadline Moment   // of the await
	TimedOut bool     // the deadline woke it

	Parent      ID
	ParentRound int64 // the round of the parent that this child belongs to
	Depth       int
	Joined      bool // it has been counted at its parent's barrier

	Round   int64 // the visit at which the newest children join
	Pending int   // the barrier: children of the round that have not ended
	Dropped []Dropped
}

// Dropped is a child that was not inserted, since its key was occupied.
type Dropped struct {
	Index    int // in the outcome that named it
	Key      string
	Occupant ID
}

// Error is one error of an attempt.
type Error struct {
	At      Moment
	Step    string
	Visit   int64
	Attempt int
	Kind    string
	Text    string
	Worker  string // that was lost
}

// remembered is how many errors an instance keeps.
const remembered = 20

// remember adds an error of the attempt that ends.
func (w *World) remember(i *Instance, kind, text, worker string) {
	i.Errors = append(i.Errors, Error{At: w.Now, Step: i.Step, Visit: i.Visit, Attempt: i.Attempt, Kind: kind, Text: text, Worker: worker})
	i.Errors = i.Errors[max(0, len(i.Errors)-remembered):]
}

// Signal is one signal of an inbox.
type Signal struct {
	ID       int // grows in order of delivery
	Target   ID
	Name     string
	Payload  string
	DedupKey string // "": none
	Consumed Moment // Never, or since when it is a tombstone: hidden, and there only to recognise duplicates
}

// World is all there is.
type World struct {
	Now Moment

	instances []*Instance // ascending ids
	signals   []*Signal   // ascending ids
	lastID    ID
	lastSent  int
	lastToken int64
	paused    []string    // queues
	held      map[ID]bool // rows that a stranger's transaction has locked
}

// Advance lets time pass.
func (w *World) Advance(d time.Duration) { w.Now += Moment(d) }

func (w *World) after(d time.Duration) Moment { return w.Now + Moment(d) }

// Get returns an instance, or nil.
func (w *World) Get(id ID) *Instance {
	if i, found := slices.BinarySearchFunc(w.instances, id, func(i *Instance, id ID) int { return cmp.Compare(i.ID, id) }); found {
		return w.instances[i]
	}
	return nil
}

// Occupant returns the instance that occupies a correlation key, or nil. There is never more than one.
func (w *World) Occupant(key string) *Instance {
	return w.first(func(i *Instance) bool { return i.Key == key && key != "" && i.Scope.covers(i.Status) })
}

// Instances returns all instances that meet a condition, by ascending id.
func (w *World) Instances(where func(*Instance) bool) []*Instance {
	var out []*Instance
	for _, i := range w.instances {
		if where(i) {
			out = append(out, i)
		}
	}
	return out
}

func (w *World) first(where func(*Instance) bool) *Instance {
	if i := slices.IndexFunc(w.instances, where); i >= 0 {
		return w.instances[i]
	}
	return nil
}

// Inbox returns the unconsumed signals of a live instance, oldest first. The inbox of an ended one is over.
func (w *World) Inbox(id ID) []Signal {
	i := w.Get(id)
	if i == nil || i.Status.Terminal() {
		return nil
	}
	return w.Signals(func(s *Signal) bool { return s.Target == id && s.Consumed == Never })
}

// Signals returns all signals that meet a condition, by ascending id.
func (w *World) Signals(where func(*Signal) bool) []Signal {
	var out []Signal
	for _, s := range w.signals {
		if where(s) {
			out = append(out, *s)
		}
	}
	return out
}

// Children returns the children of a parent's current round, in spawn order.
func (w *World) Children(parent *Instance) []*Instance {
	return w.Instances(func(i *Instance) bool { return i.Parent == parent.ID && i.ParentRound == parent.Round })
}
