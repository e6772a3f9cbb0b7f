package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	entsignal "github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

// inboxShown bounds how many unconsumed signals are shown.
const inboxShown = 50

type instanceGet struct {
	Target address `arg:"" help:"An id, or key: and a correlation key."`
}

// detail is an instance with everything that is stored of it.
type detail struct {
	summary

	UpdatedAt       time.Time          `json:"updated_at"`
	ParentID        *fsm.ID            `json:"parent_id"`
	ChildrenPending int32              `json:"children_pending"`
	Awaits          []string           `json:"awaits"`
	AwaitDeadline   *time.Time         `json:"await_deadline"`
	Worker          string             `json:"worker,omitempty"`
	LeaseExpiresAt  *time.Time         `json:"lease_expires_at"`
	Retention       *fsm.Retention     `json:"retention,omitempty"` // its own
	State           json.RawMessage    `json:"state"`
	Result          json.RawMessage    `json:"result"`
	Errors          []fsm.AttemptError `json:"errors"`  // of its newest attempts, oldest first
	Signals         []inboxed          `json:"signals"` // not consumed yet, oldest first

	left bool // the scope of its key, since it has ended
}

// inboxed is a signal in the inbox.
type inboxed struct {
	ID         int64           `json:"id"`
	Name       string          `json:"name"`
	Payload    json.RawMessage `json:"payload"`
	InsertedAt time.Time       `json:"inserted_at"`
}

// row reads an instance with all of its columns. By a key that no instance occupies it finds the
// newest that had it.
func (d *database) row(ctx context.Context, to fsm.Target) (*ent.Instance, error) {
	which := instance.ID(0)
	switch to := to.(type) {
	case fsm.ID:
		which = instance.ID(to)
	case fsm.Key:
		which = instance.CorrelationGuard(string(to))
	}
	row, err := d.only(ctx, which)
	if _, key := to.(fsm.Key); key && ent.IsNotFound(err) {
		ended, unfound := d.Get(ctx, to)
		if unfound != nil {
			return nil, unfound
		}
		row, err = d.only(ctx, instance.ID(ended.ID))
	}
	if ent.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %v", engine.ErrNotFound, to)
	}
	if err != nil {
		return nil, err
	}
	return row, d.outline(ctx, row)
}

// only reads the one instance within the bounds that a predicate selects.
func (d *database) only(ctx context.Context, which predicate.Instance) (*ent.Instance, error) {
	query, err := d.instances(which)
	if err != nil {
		return nil, err
	}
	return query.
		WithSignals(func(q *ent.SignalQuery) {
			q.Where(entsignal.ConsumedAtIsNil()).Order(entsignal.ByID()).Limit(inboxShown)
		}).Only(ctx)
}

func detailed(r *ent.Instance) detail {
	out := detail{
		summary: summarizeRow(r), UpdatedAt: r.UpdatedAt.UTC(), ParentID: r.ParentID, ChildrenPending: r.ChildrenPending,
		Awaits: some([]string(r.Awaits)), AwaitDeadline: absent(shown.At(r.AwaitDeadline)), Signals: []inboxed{}, Retention: retained(r.Retain),
		State: r.State, Result: r.Result, Errors: []fsm.AttemptError{}, left: r.Status.Terminal() && r.CorrelationGuard == nil && r.CorrelationKey != nil,
	}
	if r.Status == fsm.StatusExecuting { // else they are those of the last claim
		out.Worker, out.LeaseExpiresAt = shown.At(r.LockedBy), absent(shown.At(r.LeaseExpiresAt))
	}
	for _, s := range r.Edges.Signals {
		out.Signals = append(out.Signals, inboxed{s.ID, s.Name, s.Payload, s.InsertedAt.UTC()})
	}
	return out
}

// retained returns an instance's own retention, if it has one.
func retained(stored []int64) *fsm.Retention {
	if stored == nil {
		return nil
	}
	var out fsm.Retention
	for i, to := range []*time.Duration{&out.Done, &out.Failed, &out.Cancelled} {
		switch {
		case i >= len(stored) || stored[i] < 0:
		case stored[i] == 0:
			*to = fsm.RetainNone
		default:
			*to = time.Duration(stored[i]) * time.Microsecond
		}
	}
	return &out
}

// retention returns the text of an instance's own retention.
func (d *detail) retention() string {
	if d.Retention == nil {
		return ""
	}
	var parts []string
	for _, end := range []struct {
		name string
		time.Duration
	}{{"done", d.Retention.Done}, {"failed", d.Retention.Failed}, {"cancelled", d.Retention.Cancelled}} {
		switch end.Duration {
		case 0:
		case fsm.RetainNone:
			parts = append(parts, end.name+": none")
		default:
			parts = append(parts, end.name+": "+span(end.Duration))
		}
	}
	return strings.Join(parts, ", ")
}

// Run runs the command.
func (c *instanceGet) Run(ctx context.Context, a *app, db *database) error {
	row, err := db.row(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	out := detailed(row)
	failed, err := db.Errors(ctx, row.ID)
	if err != nil {
		return err
	}
	for _, e := range failed {
		e.At = e.At.UTC()
		out.Errors = append(out.Errors, e)
	}
	return a.show(out, out.write)
}

// keyed is the key, and whether the instance has it no longer.
func (d *detail) keyed() string {
	if d.left {
		return string(d.Key) + ", until it ended: the key is free, or another instance has it"
	}
	return string(d.Key)
}

func (d *detail) write(w io.Writer) {
	line := func(name string, value any) {
		if s := text(value); s != "" {
			fmt.Fprintf(w, "%-15s %s\n", name, printable(s, false))
		}
	}
	line("id", d.ID)
	line("key", d.keyed())
	line("machine", fmt.Sprintf("%s/%d", d.Machine, d.Version))
	line("step", d.Step)
	line("status", d.standing())
	line("queue", fmt.Sprintf("%s, priority %d", d.Queue, d.Priority))
	line("partition key", d.PartitionKey)
	line("labels", labelled(d.Labels))
	line("progress", fmt.Sprintf("visit %d, attempt %d, crashes %d", d.Visit, d.Attempt, d.Crashes))
	if d.ParentID != nil {
		line("parent", *d.ParentID)
	}
	if d.ChildrenPending > 0 {
		line("children", fmt.Sprintf("%d have not ended", d.ChildrenPending))
	}
	line("awaits", strings.Join(d.Awaits, ", "))
	line("await deadline", d.AwaitDeadline)
	line("worker", d.Worker)
	line("lease until", d.LeaseExpiresAt)
	line("inserted", d.InsertedAt)
	line("eligible", d.EligibleAt)
	line("updated", d.UpdatedAt)
	line("finished", d.FinishedAt)
	line("deadline", d.Deadline)
	line("kept after", d.retention())
	line("published", string(d.Progress))
	line("last error", d.LastError)
	block := func(name string, raw json.RawMessage) {
		if len(raw) > 0 {
			fmt.Fprintf(w, "%s\n  %s\n", name, indented(raw, "  "))
		}
	}
	block("state", d.State)
	block("result", d.Result)
	for _, e := range d.Errors {
		fmt.Fprintf(w, "error at %s in step %s, attempt %d: %s\n  %s\n", text(e.At), printable(e.Step, false), e.Attempt, e.Kind,
			printable(fsm.AttemptError{Message: e.Message, Times: e.Times}.String(), false))
	}
	for _, s := range d.Signals {
		fmt.Fprintf(w, "signal %d %s, %s\n  %s\n", s.ID, printable(s.Name, false), text(s.InsertedAt), indented(s.Payload, "  "))
	}
}

type instanceTree struct {
	Target address `arg:""        help:"An id, or key: and a correlation key."`
	Depth  int     `default:"10"  help:"How many generations of children to show."`
	Limit  int     `default:"500" help:"How many instances to show at most."`
}

// node is an instance of a tree. More says that it has children that are not shown.
type node struct {
	summary

	Children []*node `json:"children"`
	More     bool    `json:"more"`
}

// family is an instance with the instances above it, the topmost first, and those below.
type family struct {
	Parents []summary `json:"parents"`
	Tree    *node     `json:"tree"`
}

// Validate checks the values.
func (c *instanceTree) Validate() error {
	if c.Depth < 0 || c.Limit < 1 {
		return errors.New("--depth is at least 0, --limit at least 1")
	}
	return nil
}

// Run runs the command.
func (c *instanceTree) Run(ctx context.Context, a *app, db *database) error {
	row, err := db.row(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	out := family{Parents: []summary{}, Tree: &node{summary: summarizeRow(row), Children: []*node{}}}
	for up := row.ParentID; up != nil && len(out.Parents) <= maxDepth; {
		above, err := db.instances(instance.ID(*up))
		if err != nil {
			return err
		}
		parent, err := above.Only(ctx)
		if ent.IsNotFound(err) {
			break // it was collected, or lies outside of the bounds
		}
		if err != nil {
			return err
		}
		out.Parents = append(out.Parents, summarizeRow(parent))
		up = parent.ParentID
	}
	slices.Reverse(out.Parents)
	if err := c.grow(ctx, db, out.Tree); err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) {
		indent := ""
		for n := range out.Parents {
			fmt.Fprintln(w, indent+out.Parents[n].line())
			indent += "  "
		}
		out.Tree.write(w, indent, "* ")
	})
}

// maxDepth is deeper than instances nest by default.
const maxDepth = 100

// grow reads the children, one statement for each generation.
func (c *instanceTree) grow(ctx context.Context, db *database, root *node) error {
	left := c.Limit - 1
	generation := map[fsm.ID]*node{root.ID: root}
	for depth := 0; len(generation) > 0; depth++ {
		var ids []fsm.ID
		for id := range generation {
			ids = append(ids, id)
		}
		most := left
		if depth >= c.Depth {
			most = 0
		}
		below, err := db.instances(instance.ParentIDIn(ids...))
		if err != nil {
			return err
		}
		children, err := below.Order(instance.ByID()).Limit(most + 1).All(ctx)
		if err != nil {
			return err
		}
		next := map[fsm.ID]*node{}
		for n, child := range children {
			parent := generation[*child.ParentID]
			if n == most {
				parent.More = true
				break
			}
			one := &node{summary: summarizeRow(child), Children: []*node{}}
			parent.Children = append(parent.Children, one)
			next[one.ID] = one
		}
		left -= len(next)
		if depth >= c.Depth || len(children) > most {
			return nil
		}
		generation = next
	}
	return nil
}

func (s *summary) line() string {
	out := fmt.Sprintf("%d %s/%d %s %s", s.ID, s.Machine, s.Version, s.Step, s.standing())
	if s.Key != "" {
		out += " " + keyMark + string(s.Key)
	}
	return printable(out, false)
}

func (n *node) write(w io.Writer, indent, mark string) {
	fmt.Fprintln(w, indent+mark+n.line())
	for _, child := range n.Children {
		child.write(w, indent+"  ", "")
	}
	if n.More {
		fmt.Fprintln(w, indent+"  …")
	}
}
