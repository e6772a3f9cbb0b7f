package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Happened is a row of the history.
type Happened struct {
	At       Moment
	Instance ID
	Visit    int64 // before what happened
	Attempt  int   // likewise
	Kind     string
	From     string // the step
	To       string // "": none
	Worker   string // "": none
	Failure  string
	Error    string
}

// Record makes the history keep the transitions of a machine, of all its versions. Operators' verbs
// are always kept.
func (w *World) Record(machine string) { w.recorded = machine }

// Recorded reports whether the history keeps the transitions of an instance of a machine.
func (w *World) Recorded(m Machine) bool { return w.recorded != "" && m.Name == w.recorded }

// History returns what has happened, sorted. It outlives the instances.
func (w *World) History() []Happened {
	list := slices.Clone(w.history)
	slices.SortFunc(list, Happened.Compare)
	return list
}

// Compare orders rows of the history.
func (h Happened) Compare(other Happened) int {
	return cmp.Or(cmp.Compare(h.At, other.At), cmp.Compare(h.Instance, other.Instance), cmp.Compare(h.Visit, other.Visit),
		cmp.Compare(h.Attempt, other.Attempt), strings.Compare(h.Kind, other.Kind), strings.Compare(h.Error, other.Error),
		strings.Compare(h.Worker, other.Worker), strings.Compare(h.To, other.To))
}

// kinds are the names of outcomes in the history.
var kinds = map[Kind]string{Next: "next", Retry: "retry", Await: "await", ScheduleChildren: "children", Finish: "done", Fail: "fail", Again: "again", Rejoin: "rejoin"}

// happened keeps an outcome that was applied: exactly one row for each. was is the instance before
// it.
func (w *World) happened(was, i *Instance, e *Entry) {
	if !w.Recorded(i.Machine) {
		return
	}
	o := &e.Outcome
	h := Happened{At: w.Now, Instance: i.ID, Visit: was.Visit, Attempt: was.Attempt, Kind: kinds[o.Kind], From: was.Step, Worker: was.Worker,
		Failure: i.Failure}
	switch {
	case e.turned:
		h.Kind, h.To = kinds[Next], i.Step
	case o.Kind == Next || o.Kind == Await || o.Kind == ScheduleChildren || o.Kind == Rejoin:
		h.To = i.Step
	case o.Kind == Retry || o.Kind == Fail:
		h.Error = o.Err
	}
	w.history = append(w.history, h)
}

// swept keeps what a sweep did to an instance.
func (w *World) swept(was *Instance, i *Instance, kind, text string) {
	if w.Recorded(i.Machine) {
		w.history = append(w.history, Happened{At: w.Now, Instance: i.ID, Visit: was.Visit, Attempt: was.Attempt, Kind: kind, From: was.Step,
			Worker: was.Worker, Failure: i.Failure, Error: text})
	}
}

// operated keeps an operator's verb, which says how it left the instance.
func (w *World) operated(i *Instance, verb string) {
	w.history = append(w.history, Happened{At: w.Now, Instance: i.ID, Visit: i.Visit, Attempt: i.Attempt, Kind: "admin." + verb, From: i.Step})
}

// unread keeps how many signals of each name go with the inbox of an instance that is done, though
// no step has consumed them. This execution has consumed those that it was given.
func (w *World) unread(i *Instance, c *Claim) {
	if !w.Recorded(i.Machine) {
		return
	}
	number := map[string]int{}
	for _, s := range w.Signals(func(s *Signal) bool { return s.Target == i.ID && s.Consumed == Never }) {
		if !slices.ContainsFunc(c.Awaited, func(g Signal) bool { return g.ID == s.ID }) {
			number[s.Name]++
		}
	}
	for name, n := range number {
		w.history = append(w.history, Happened{At: w.Now, Instance: i.ID, Visit: i.Visit, Kind: "signal.unread", From: i.Step, Worker: c.Worker,
			Error: fmt.Sprintf("%d × %s", n, name)})
	}
}
