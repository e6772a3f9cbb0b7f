// Package model is the engine's specification as a program: it says what instances and signals are,
// and what each operation does to them, in memory, one operation at a time. It contains no
// database, no SQL and no package of the engine, only rules, and states a rule's reason or subtlety
// if it has one. Its tests drive it and the real store through the same random histories and
// compare everything that can be seen.
//
// It leaves out what one operation at a time cannot show: locks, interleavings, lost answers. Other
// suites cover those.
//
// In comments, § followed by a number is a section of docs/specification.md, and T followed by a
// number is a hazard of docs/hazards.txt.
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

// ID identifies an instance. Ids grow in the order of insertion, which decides ties. 0 is no
// instance.
type ID int

// Status is the status of an instance.
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

// Parked reports whether an instance waits for something other than its turn.
func (s Status) Parked() bool { return s == AwaitingSignal || s == AwaitingChildren }

// Machine is a definition's name and version.
type Machine struct {
	Name    string
	Version int
}

// Scope defines in which statuses a correlation key is occupied. An instance that has left its
// scope can be addressed by its id only.
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
	UID          int // the caller makes it
	Machine      Machine
	Step         string
	Queue        string // "": of a node that is added, its root's
	Priority     int
	State        string
	PartitionKey string // "": none
	Key          string // correlation key; "": none
	Scope        Scope
	Delay        time.Duration // of the first step
	At           Moment        // of the first step; Never: at once, or after Delay
	Life         time.Duration // time until it fails unless it has ended; 0: for ever
	Label        string        // the value of its label; "": it has none
}

// Instance is one instance. The zero values of its columns, except the times, are the values of a
// new one.
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
	FinishedAt Moment // Never, if and only if live
	Failure    string // why it failed; "" unless failed
	Paused     bool   // by an operator: it must not be claimed
	Stray      bool   // set aside: only a worker that knows its step may claim it
	LastError  string
	Errors     []Error // of its attempts, the newest last
	Expiry     Moment  // when it fails unless it has ended

	Attempt int   // runs of this visit that ended in Retry or a crash
	Crashes int   // those that ended in a crash
	Begun   bool  // the first visit of a node has begun, though it may have neither attempt nor crash
	Visit   int64 // moves with every progress

	Worker string // the holder of the claim; "" unless executing
	Token  int64  // of the newest claim
	Lease  Moment // Never unless executing

	Awaits   []string // the names for which it was parked; nil: none
	Deadline Moment   // of the await
	TimedOut bool     // the deadline woke it

	Parent      ID
	ParentRound int64 // the round of the parent that this child belongs to
	Depth       int
	Joined      bool   // it has been counted at its parent's barrier
	Retried     bool   // an operator has let it run again since, uncounted: for joins it has failed
	Node        string // its name in its parent's graph; "": it is no node

	Label    string
	Place    string // the key of the gate at which its claim has a place; "": none
	Seat     bool   // its claim has a place of its queue
	RunPlace string // the key of the gate at which its run has a place, until it ends

	Round   int64   // the visit at which the newest children join; below 0: of a stream, minus that
	Pending int     // the barrier: children of the round that have not ended; of a node that waits: edges to come
	Join    Join    // of the newest round that has a policy; Failed of a node at its first visit: edges that were not met
	Losers  []int64 // rounds whose rest is to be cancelled when it does not wait for them, oldest first; below 0: though it waits
	Graphs  []int64 // rounds that are graphs, oldest first: what is left of them is cancelled once it has ended
	Dropped []Dropped

	Most     int   // how many ends of a stream a visit is shown at most; 0: the newest join is no stream
	Numbered bool  // it has ended as a child of a stream
	Shown    int64 // the visit of its parent that was shown its end; 0: none was
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
	Worker  string // the worker that was lost
}

// remembered is the number of errors that an instance keeps.
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
	Consumed Moment // Never, or since when it is a tombstone: hidden, and only used to recognise duplicates
}

// World is the whole state of the model.
type World struct {
	Now Moment

	instances []*Instance // ascending ids
	signals   []*Signal   // ascending ids
	lastID    ID
	lastSent  int
	lastToken int64
	lost      []Lost      // in the order in which they were lost
	paused    []string    // queues
	held      map[ID]bool // rows that a stranger's transaction has locked
	gates     []Gate
	debts     map[string]debt // by key of a gate
	recorded  string          // the machine whose transitions the history keeps; "": none
	history   []Happened
	kept      []Kept // ascending ids
	lastKept  int
	born      map[ID]Moment // when each was inserted
	spawned   []string      // keys of the children that the commit in progress has inserted
	edges     []Edge        // by the ids of their ends
	ends      map[ID]int    // of streams: in which commit each first ended
	commits   int           // that have ended children of streams
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

// Occupant returns the instance that occupies a correlation key, or nil. There is never more than
// one.
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

// Inbox returns the unconsumed signals of a live instance, oldest first. The inbox of an ended one
// is empty.
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
