package engine

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/nodeedge"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// CauseKind says why an instance is not running, or that it is.
type CauseKind string

// These are the causes. Each comment names the fields of [Cause] that are set.
const (
	CauseEnded       CauseKind = "ended"        // Since then; IDs: see UseRestart
	CauseRunning     CauseKind = "running"      // Worker has it, Until its lease ends; it was claimed, or came to this visit, Since
	CauseLost        CauseKind = "lost"         // the lease ended Since: the next reaper lets it run again
	CauseSignals     CauseKind = "signals"      // parked Since on Names, Until the timeout if it has one
	CauseChildren    CauseKind = "children"     // parked Since on Count of them, the first of which are IDs; Join, Until and Names if it may go on before
	CauseNodes       CauseKind = "nodes"        // a node of a graph, waiting since Since for Count others, the first of which are Names and IDs
	CauseSkip        CauseKind = "skip"         // it will not run: a node that is about to be skipped, within a poll, since an edge is not met
	CausePaused      CauseKind = "paused"       // by an operator
	CauseUnconverted CauseKind = "unconverted"  // and so paused: its state cannot become that of a newer version, as Names[0] says
	CauseQueuePaused CauseKind = "queue paused" // Since then
	CauseDelayed     CauseKind = "delayed"      // Until then
	CauseNoWorker    CauseKind = "no worker"    // that is live serves its queue
	CauseNoMachine   CauseKind = "no machine"   // some serve its queue, Count of them; none registers its machine and version
	CauseNoStep      CauseKind = "no step"      // a worker that met it has no step Names[0] in its version of the machine
	CauseKeyBusy     CauseKind = "key busy"     // IDs[0] executes under the same partition key
	CauseKeyBehind   CauseKind = "key behind"   // IDs[0] is before it under the same partition key
	CauseGate        CauseKind = "gate"         // all Count places of Names[0] are taken, by IDs among others: of a gate's key, or a whole gate
	CauseGateRun     CauseKind = "gate run"     // the same of places of whole runs; IDs[0] has the status Names[1], and is at step Names[2]
	CauseGateClosed  CauseKind = "gate closed"  // the gate, or its key, Names[0] is closed Until then, or GateForGood; zero: by SetGate
	CauseGateRate    CauseKind = "gate rate"    // the rate of Names[0] lets the next begin Until; Count others are in line before it, or more
	CauseSlots       CauseKind = "slots"        // all Count slots of its queue are taken
	CauseBehind      CauseKind = "behind"       // Count others of its queue are before it, or more
	CauseRepeats     CauseKind = "repeats"      // holds nothing back: its step has begun Count times at this visit and lost its process, or was cut off, each time
	CauseSoon        CauseKind = "soon"         // nothing: whoever serves its queue finds it when it looks next
)

// These bound what Why counts and lists.
const (
	whyMost = 1000
	whyList = 20
)

// Cause is one reason why an instance is not running. Kind determines which fields are set.
type Cause struct {
	Kind  CauseKind `json:"kind"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Names []string  `json:"names,omitempty"`
	IDs   []fsm.ID  `json:"ids,omitempty"`
	Count int       `json:"count,omitempty"`
	// WorkerID is the worker that executes it; Worker is nil where that worker is not registered.
	WorkerID string  `json:"worker_id,omitempty"`
	Worker   *Worker `json:"worker,omitempty"`
	// UseRestart: it has failed, and Retry would be ErrUseRestart. IDs has the instance whose
	// [Admin.Restart] runs it again; without one, nothing waits for it any more.
	UseRestart bool `json:"use_restart,omitempty"`
	// Join is the policy of the join; nil: all children must end.
	Join *JoinPolicy `json:"join,omitempty"`

	// said is the text for a caller who is bound; "": what the fields say.
	said string
}

// JoinPolicy is what a parent waits for before it goes on, and how far that is: see
// fsm.ChildrenOutcome. A zero Quorum, Failures or Ends wakes nothing.
type JoinPolicy struct {
	Children int `json:"children"` // of the round
	Done     int `json:"done"`     // of them
	Failed   int `json:"failed"`   // of them
	Quorum   int `json:"quorum,omitempty"`
	Failures int `json:"failures,omitempty"`
	Ends     int `json:"ends,omitempty"`
	// Stream is how many ends the parent is shown at most when it goes on; 0: it waits for no stream.
	Stream int `json:"stream,omitempty"`
	// CancelRest: the others are cancelled then.
	CancelRest bool `json:"cancel_rest,omitempty"`
}

// String returns e.g. "2 of 5 children to be done, 1 is done, 0 failed".
func (p JoinPolicy) String() string {
	var goals []string
	for _, goal := range []struct {
		number int
		what   string
	}{{p.Quorum, "to be done"}, {p.Failures, "to fail"}, {p.Ends, "to end"}} {
		if goal.number > 0 {
			goals = append(goals, fmt.Sprintf("%d of %d children %s", goal.number, p.Children, goal.what))
		}
	}
	if len(goals) == 0 {
		goals = append(goals, fmt.Sprintf("%d children to end", p.Children))
	}
	rest := ""
	if p.CancelRest {
		rest = ", and then cancels the others"
	}
	return fmt.Sprintf("%s, %d done, %d failed so far%s", strings.Join(goals, ", or "), p.Done, p.Failed, rest)
}

// String returns the cause as a sentence for operators.
func (c Cause) String() string { //nolint:gocyclo // one flat switch over the kinds
	if c.said != "" {
		return c.said
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }
	until := func(what string) string {
		if c.Until.IsZero() {
			return ""
		}
		return what + at(c.Until)
	}
	switch c.Kind { //nolint:exhaustive // the others are in plainCauses
	case CauseEnded:
		text := "it ended at " + at(c.Since)
		switch {
		case c.UseRestart && len(c.IDs) > 0:
			text += fmt.Sprintf("; a Restart of instance %d runs it again, a Retry does not", c.IDs[0])
		case c.UseRestart:
			text += "; its graph has gone on without it, and nobody waits for it any more"
		}
		return text
	case CauseRunning:
		return "it is running since " + at(c.Since) + ", " + c.who() + until("; the lease ends at ")
	case CauseLost:
		return "its lease ended at " + at(c.Since) + ", held " + c.who() + ": the next reaper lets it run again"
	case CauseSignals:
		return fmt.Sprintf("it awaits a signal, %s, since %s%s", strings.Join(c.Names, " or "), at(c.Since), until(", until "))
	case CauseChildren:
		if c.Join != nil {
			or := ""
			if len(c.Names) > 0 {
				or = ", or for a signal, " + strings.Join(c.Names, " or ")
			}
			return fmt.Sprintf("it waits for %s%s, since %s%s: %v", c.Join, or, at(c.Since), until(", until "), c.IDs)
		}
		return fmt.Sprintf("it awaits %d children since %s: %v", c.Count, at(c.Since), c.IDs)
	case CauseNodes:
		return fmt.Sprintf("it waits for %d nodes of its graph since %s: %s", c.Count, at(c.Since), strings.Join(c.Names, ", "))
	case CauseUnconverted:
		return "it " + c.Names[0]
	case CauseQueuePaused:
		return "an operator paused its queue at " + at(c.Since)
	case CauseDelayed:
		return "it is not due before " + at(c.Until)
	case CauseNoMachine:
		return fmt.Sprintf("of the %d live workers of its queue none registers its machine and version", c.Count)
	case CauseNoStep:
		return fmt.Sprintf("a worker that met it has no step %q in this version of its machine, and set it aside: a process that has the step runs it",
			c.Names[0])
	case CauseKeyBusy:
		return fmt.Sprintf("instance %d executes under the same partition key", c.IDs[0])
	case CauseKeyBehind:
		return fmt.Sprintf("instance %d is before it under the same partition key", c.IDs[0])
	case CauseGate:
		return fmt.Sprintf("all %d places of gate %s are taken: %v", c.Count, c.Names[0], c.IDs)
	case CauseGateRun:
		if c.Count == 1 {
			return fmt.Sprintf("it is behind run %d at gate %s, which is %s at step %s", c.IDs[0], c.Names[0], c.Names[1], c.Names[2])
		}
		return fmt.Sprintf("all %d places of gate %s are taken by whole runs: %v; run %d is %s at step %s",
			c.Count, c.Names[0], c.IDs, c.IDs[0], c.Names[1], c.Names[2])
	case CauseGateClosed:
		switch {
		case c.Until.IsZero():
			return fmt.Sprintf("gate %s is set to let none begin", c.Names[0])
		case c.Until.Equal(GateForGood):
			return fmt.Sprintf("gate %s is closed until somebody opens it", c.Names[0])
		}
		return fmt.Sprintf("gate %s is closed until %s", c.Names[0], at(c.Until))
	case CauseGateRate:
		return fmt.Sprintf("the rate of gate %s lets the next begin at %s; %d are in line before it", c.Names[0], at(c.Until), c.Count)
	case CauseSlots:
		return fmt.Sprintf("all %d slots of its queue are taken", c.Count)
	case CauseBehind:
		if c.Count == whyMost {
			return fmt.Sprintf("%d others of its queue or more are before it", c.Count)
		}
		return fmt.Sprintf("%d others of its queue are before it", c.Count)
	case CauseRepeats:
		return fmt.Sprintf("its step has begun %d times at this visit, and each time its process was lost, or the engine cut it off: see the errors of its attempts",
			c.Count)
	}
	return cmp.Or(plainCauses[c.Kind], string(c.Kind))
}

// plainCauses are the sentences of causes without data.
var plainCauses = map[CauseKind]string{
	CausePaused:   "an operator paused it",
	CauseSkip:     "an edge of it is not met, so it runs no step: the next sweep skips it",
	CauseNoWorker: "no live worker serves its queue",
	CauseSoon:     "nothing holds it back: whoever serves its queue finds it when it looks next",
}

// Within returns the cause as a caller sees it who is bound to the instances for which covers is
// true: without the others, without numbers of which others are a part, and without the process
// that executes the instance.
func (c Cause) Within(covers func(fsm.ID) bool) Cause {
	all, full := c.IDs, c.String()
	c.Worker, c.WorkerID, c.IDs = nil, "", nil
	var names []string
	for n, id := range all {
		if !covers(id) {
			continue
		}
		c.IDs = append(c.IDs, id)
		if c.Kind == CauseNodes && n < len(c.Names) {
			names = append(names, c.Names[n])
		}
	}
	if c.Kind == CauseNodes {
		c.Names = names
	}
	switch {
	case c.Kind == CauseRunning:
		c.said = "it is running since " + c.Since.UTC().Format("2006-01-02 15:04:05.000Z")
	case c.Kind == CauseLost:
		c.said = "its lease has ended: the next reaper lets it run again"
	case c.Kind == CauseGateRun:
		c.Names = c.Names[:1] // the others are of an instance
		c.said = "it is behind a run at gate " + c.Names[0]
	case c.Kind == CauseGate:
		c.said = "all places of gate " + c.Names[0] + " are taken"
	case neutralCauses[c.Kind] != "":
		c.said = neutralCauses[c.Kind]
	case len(c.IDs) == len(all):
		c.said = full
	default:
		c.said = hiddenCauses[c.Kind]
	}
	if c.said != full {
		c.Count, c.Join = 0, nil
	}
	return c
}

// neutralCauses say why an instance does not run without a number. A cause names the first of all
// that it counts, so the rest may lie outside of the bounds even if these do not.
var neutralCauses = map[CauseKind]string{
	CauseChildren: "it awaits children",
	CauseNodes:    "it waits for other nodes of its graph",
	CauseGateRate: "the rate of its gate lets the next begin later",
	CauseBehind:   "others of its queue are before it",
}

// hiddenCauses say why an instance does not run if the reason is another that lies outside.
var hiddenCauses = map[CauseKind]string{
	CauseEnded:     "it has ended; only a Restart of an instance that your access does not cover runs it again",
	CauseKeyBusy:   "an instance that your access does not cover executes under the same partition key",
	CauseKeyBehind: "an instance that your access does not cover is before it under the same partition key",
}

func (c Cause) who() string {
	if c.Worker == nil {
		return "by worker " + c.WorkerID + ", which is not registered any more"
	}
	return fmt.Sprintf("by worker %s on %s, process %d, heard of at %s", c.WorkerID, c.Worker.Host, c.Worker.PID,
		c.Worker.Beat.UTC().Format("15:04:05.000Z"))
}

// Why says why an instance is not running now. Each cause would hold it back by itself; begin with
// the first. The answer is one snapshot, reads a bounded number of rows, and is never empty. By
// a key it is about the instance that [Engine.Get] finds.
//
// Errors: ErrNotFound.
func (a *Admin) Why(ctx context.Context, of fsm.Target) ([]Cause, error) {
	_, causes, err := a.Examine(ctx, of)
	return causes, err
}

// Examine is [Admin.Why] with the instance itself; both are of the same snapshot.
//
// Errors: ErrNotFound.
func (a *Admin) Examine(ctx context.Context, of fsm.Target) (row *ent.Instance, causes []Cause, err error) {
	defer a.engine.explain(ctx, toRead("gen_durable", "signals", "paused_queues", "gates", "gate_keys", "workers", "edges"), &err)
	address, err := send.Resolve(of)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	ask := func() error {
		row, causes, err = a.why(ctx, address)
		return err
	}
	if !a.bound() {
		err = a.engine.patiently(ctx, task{doing: "look why an instance is not running"}, ask)
	}
	if a.bound() || address.Key != "" && errors.Is(err, ErrNotFound) {
		i, err := a.find(ctx, of)
		if err != nil {
			return nil, nil, err
		}
		address = store.Address{ID: int64(i.ID)}
		if err := a.engine.patiently(ctx, task{doing: "look why an instance is not running"}, ask); err != nil {
			return nil, nil, err
		}
	}
	if !a.bound() || err != nil {
		return row, causes, err
	}
	return a.outline(ctx, row, causes)
}

// outline leaves out of an answer what a caller may not see who is bound: the parent that lies
// outside, and the worker, which works for others, too.
func (s scope) outline(ctx context.Context, row *ent.Instance, causes []Cause) (*ent.Instance, []Cause, error) {
	if !s.within.Cover(row.Queue, row.Machine, row.Labels) { // it has moved meanwhile
		return nil, nil, fmt.Errorf("why instance %d: %w", row.ID, ErrNotFound)
	}
	var others []fsm.ID
	if row.ParentID != nil {
		others = append(others, *row.ParentID)
	}
	for _, c := range causes {
		others = append(others, c.IDs...)
	}
	seen, err := s.covered(ctx, others)
	if err != nil {
		return nil, nil, err
	}
	own := *row
	own.LockedBy = nil
	if own.ParentID != nil && !seen(*own.ParentID) {
		own.ParentID = nil
	}
	for n := range causes {
		causes[n] = causes[n].Within(seen)
	}
	return &own, causes, nil
}

// why takes the snapshot and asks it.
func (a *Admin) why(ctx context.Context, address store.Address) (row *ent.Instance, causes []Cause, err error) {
	tx, err := a.engine.Ent().BeginTx(ctx, &entsql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	which := instance.IDEQ(fsm.ID(address.ID))
	if address.Key != "" {
		which = instance.CorrelationGuard(address.Key)
	}
	schema := a.engine.store.Schema()
	row, err = tx.Instance.Query().Where(which, withSurroundings(schema)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, nil, fmt.Errorf("why %s: %w", address, ErrNotFound)
	}
	if err != nil {
		return nil, nil, err
	}
	w := why{row: row, schema: schema}
	if w.around, err = surroundingsOf(row); err != nil {
		return nil, nil, fmt.Errorf("why %s: read its surroundings: %w", address, err)
	}
	w.now = w.around.Now
	w.ask()
	if err := w.send(ctx, tx); err != nil {
		return nil, nil, fmt.Errorf("why %s: %w", address, err)
	}
	for _, say := range w.said {
		say()
	}
	return row, w.causes, nil
}

// why is one question about one instance. Its methods look at the row and its surroundings, note
// the questions that are left, and say in the order of the causes what to make of the answers. So
// all that is left takes one statement.
type why struct {
	schema    string
	row       *ent.Instance
	now       time.Time
	around    surroundings
	questions []question
	said      []func()
	changed   map[string]time.Time // when each gate was changed
	certain   int                  // causes that depend on no answer
	causes    []Cause
}

// add adds a cause that depends on no answer.
func (w *why) add(c Cause) {
	w.certain++
	w.said = append(w.said, func() { w.causes = append(w.causes, c) })
}

// say is called with the answers. It returns a cause, if there is one.
func (w *why) say(say func() (Cause, bool)) {
	w.said = append(w.said, func() {
		if c, is := say(); is {
			w.causes = append(w.causes, c)
		}
	})
}

func (w *why) ask() {
	switch w.row.Status {
	case fsm.StatusDone, fsm.StatusFailed:
		c := Cause{Kind: CauseEnded, Since: *w.row.FinishedAt}
		if instead := w.around.Restart; instead != nil {
			if c.UseRestart = true; *instead != 0 {
				c.IDs = []fsm.ID{*instead}
			}
		}
		w.add(c)
		return
	case fsm.StatusExecuting:
		w.executing()
		w.repeats()
		return
	case fsm.StatusAwaitingSignal:
		c := Cause{Kind: CauseSignals, Since: w.row.UpdatedAt, Names: w.row.Awaits}
		if w.row.AwaitDeadline != nil {
			c.Until = *w.row.AwaitDeadline
		}
		w.add(c)
	case fsm.StatusAwaitingChildren:
		w.children()
	case fsm.StatusRunnable:
	}
	switch last := w.row.LastError; {
	case w.row.Paused && last != nil && strings.HasPrefix(*last, step.Unconverted):
		w.add(Cause{Kind: CauseUnconverted, Names: []string{*last}})
	case w.row.Paused:
		w.add(Cause{Kind: CausePaused})
	}
	switch {
	case w.row.Status != fsm.StatusRunnable:
	case w.row.PickLane == skipLane:
		w.add(Cause{Kind: CauseSkip})
	default:
		w.runnable()
		w.repeats()
	}
}

// repeats looks whether its step begins again and again.
func (w *why) repeats() {
	w.say(func() (Cause, bool) {
		n := Repeats(w.row)
		return Cause{Kind: CauseRepeats, Count: n}, n > 1
	})
}

func (w *why) executing() {
	c := Cause{Kind: CauseRunning, Since: w.row.UpdatedAt, WorkerID: *w.row.LockedBy, Until: *w.row.LeaseExpiresAt}
	if w.now.After(c.Until) {
		c = Cause{Kind: CauseLost, WorkerID: c.WorkerID, Since: c.Until}
	}
	for _, one := range w.around.Workers {
		if one.ID == c.WorkerID {
			c.Worker = new(presentWorker(one, w.now))
		}
	}
	w.add(c)
}

func (w *why) children() {
	if w.row.Node != nil && w.row.Visit == 0 {
		w.nodes()
		return
	}
	c := Cause{Kind: CauseChildren, Since: w.row.UpdatedAt, Count: int(w.row.ChildrenPending)}
	if r := w.row; r.JoinRound != nil && *r.JoinRound >= r.Round {
		c.Join = &JoinPolicy{Children: number(r.JoinSize), Done: number(r.JoinDone), Failed: number(r.JoinFailed),
			Quorum: number(r.WakeDone), Failures: number(r.WakeFailed), Ends: number(r.WakeEnded),
			CancelRest: slices.Contains(r.Losers, r.Round)}
		if r.Round < 0 {
			c.Join.Stream = number(r.StreamMost)
		}
		c.Names = r.Awaits
		if r.AwaitDeadline != nil {
			c.Until = *r.AwaitDeadline
		}
	}
	live := w.find(whyList, byID(), instance.ParentID(w.row.ID), instance.ParentRound(w.row.Round), instance.FinishedAtIsNil())
	w.say(func() (Cause, bool) {
		c.IDs = foundIDs(*live)
		return c, true
	})
}

// nodes looks which nodes of its graph it still waits for.
func (w *why) nodes() {
	c := Cause{Kind: CauseNodes, Since: w.row.UpdatedAt, Count: int(w.row.ChildrenPending)}
	if left := number(w.row.WakeDone) - number(w.row.JoinDone); left > 0 { // of a quorum, which counts as one edge
		c.Count += left - 1
	}
	left := w.find(whyList, byID(), instance.FinishedAtIsNil(), func(s *entsql.Selector) {
		edges := entsql.Dialect(dialect.Postgres).Table(nodeedge.Table).Schema(query.Quoted(w.schema))
		from := entsql.Dialect(dialect.Postgres).Select(edges.C(nodeedge.FieldFromID)).From(edges)
		nodeedge.ToID(w.row.ID)(from)
		s.Where(entsql.In(s.C(instance.FieldID), from))
	})
	w.say(func() (Cause, bool) {
		c.IDs = foundIDs(*left)
		for _, one := range *left {
			c.Names = append(c.Names, one.Node)
		}
		return c, true
	})
}

// runnable looks at the causes in this order: what an operator or the instance itself has decided,
// then what is a matter of time.
func (w *why) runnable() {
	if w.around.Paused != nil {
		w.add(Cause{Kind: CauseQueuePaused, Since: w.around.Paused.Local()})
	}
	due := !w.row.EligibleAt.After(w.now)
	if !due {
		w.add(Cause{Kind: CauseDelayed, Until: w.row.EligibleAt})
	}
	slots := w.workers()
	if w.row.PickLane == 4 {
		w.add(Cause{Kind: CauseNoStep, Names: []string{w.row.Step}})
	}
	if w.row.PartitionKey != nil {
		w.key()
	}
	if due {
		w.gates()
	}
	if due && w.certain == 0 {
		w.queue(slots)
	}
	w.say(func() (Cause, bool) { return Cause{Kind: CauseSoon}, len(w.causes) == 0 })
}

// workers looks which workers could run it, and counts their slots.
func (w *why) workers() (slots int) {
	serve, know := 0, 0
	for _, one := range w.around.Workers {
		n, serves := one.Queues[w.row.Queue]
		if !serves || one.Draining || !one.ExpiresAt.After(w.now) {
			continue
		}
		serve++
		if slices.Contains(one.Machines, fmt.Sprintf("%s/%d", w.row.Machine, w.row.Version)) {
			know++
			slots += n
		}
	}
	switch {
	case serve == 0:
		w.add(Cause{Kind: CauseNoWorker})
	case know == 0:
		w.add(Cause{Kind: CauseNoMachine, Count: serve})
	}
	return slots
}

// key looks which instance is before it under its partition key.
func (w *why) key() {
	busy := w.find(whyList, byID(), instance.PartitionKey(*w.row.PartitionKey), instance.StatusEQ(fsm.StatusExecuting))
	head := w.find(1, inOrder(), instance.PartitionKey(*w.row.PartitionKey), w.before())
	w.say(func() (Cause, bool) {
		if len(*busy) > 0 {
			return Cause{Kind: CauseKeyBusy, IDs: foundIDs(*busy)}, true
		}
		return Cause{Kind: CauseKeyBehind, IDs: foundIDs(*head)}, len(*head) > 0
	})
}

func number(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// queue counts what is before it in its queue, if nothing else holds it back.
func (w *why) queue(slots int) {
	among := instance.PickLane(0)
	if w.row.PickLane == lineLane {
		among = instance.And(instance.PickLane(lineLane), instance.Gate(text(w.row.Gate)))
	}
	ahead := w.find(whyMost, nil, among, w.before())
	w.said = append(w.said, func() {
		if len(w.causes) > 0 {
			return
		}
		if slots > 0 && w.around.Running >= min(slots, whyRunning) {
			w.causes = append(w.causes, Cause{Kind: CauseSlots, Count: slots})
		}
		if len(*ahead) > 0 {
			w.causes = append(w.causes, Cause{Kind: CauseBehind, Count: len(*ahead)})
		}
	})
}

// Variables would link ent's builders into every host.
func inOrder() []instance.OrderOption {
	return []instance.OrderOption{instance.ByPriority(), instance.ByEligibleAt(), instance.ByID()}
}

func byID() []instance.OrderOption { return []instance.OrderOption{instance.ByID()} }

// before selects what the pick takes first: runnable and due instances of the same queue that are
// earlier in the order.
func (w *why) before() func(*entsql.Selector) {
	r := w.row
	return instance.And(
		instance.Queue(r.Queue), instance.StatusEQ(fsm.StatusRunnable), instance.Paused(false), instance.EligibleAtLTE(w.now), instance.IDNEQ(r.ID),
		instance.Or(
			instance.PriorityLT(r.Priority),
			instance.And(instance.PriorityEQ(r.Priority), instance.EligibleAtLT(r.EligibleAt)),
			instance.And(instance.PriorityEQ(r.Priority), instance.EligibleAtEQ(r.EligibleAt), instance.IDLT(r.ID)),
		))
}
