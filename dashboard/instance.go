package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/fsm"
)

// The most that an instance's page shows of each.
const (
	maxTimeline = 200
	maxInbox    = 50
	maxChildren = 50
	maxShown    = 256 << 10 // bytes of a document; more is there to download
)

// instanceBody is one instance. Row is nil where only its history is left.
type instanceBody struct {
	ID       fsm.ID
	Row      *ent.Instance
	Causes   []causeRow
	State    document
	Result   document
	Inbox    []message
	More     bool // in the inbox
	Timeline []event
	Cut      bool // there is more in the history
	Children []*ent.Instance
	Rounds   []round
	Verbs    []oneVerb
	Machine  string
	Version  int
	Editable bool
	Steps    []string
	Trace    map[string]string
}

// ChildrenPath leads to all children.
func (b *instanceBody) ChildrenPath() string {
	return "instances?parent=" + strconv.FormatInt(int64(b.ID), 10)
}

// MachinePath leads to the drawing.
func (b *instanceBody) MachinePath() string { return machinePath(b.Machine, b.Version) }

// Live reports whether it has not ended.
func (b *instanceBody) Live() bool { return b.Row != nil && !b.Row.Status.Terminal() }

// document is JSON as it may be seen.
type document struct {
	Tree   *node
	Text   string // indented, for forms
	Hidden bool   // there is something that may not be seen
	Large  int    // bytes, if there is too much to show
}

// causeRow is a cause with links.
type causeRow struct {
	engine.Cause

	Kind string
	Text string
	IDs  []fsm.ID
}

// message is a signal in the inbox.
type message struct {
	*ent.Signal

	Payload document
}

// event is something that happened to the instance: a row of its history, or the error of an
// attempt that the history does not have.
type event struct {
	engine.Transition

	Bad     bool
	Title   string
	Changed document
	Before  document
	After   document
}

// round counts children by status.
type round struct {
	Status fsm.Status
	Count  int64
}

func (s *server) instance(r *http.Request) (string, *page, error) {
	id, err := idOf(r)
	if err != nil {
		return "", nil, err
	}
	b, err := s.about(r.Context(), id)
	if err != nil {
		return "", nil, err
	}
	p := &page{Title: fmt.Sprintf("%s %d", b.Machine, id), Section: "instances", Body: b}
	if b.Live() {
		p.Refresh = 1
	}
	return "instance", p, nil
}

func idOf(r *http.Request) (fsm.ID, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, &misuse{http.StatusNotFound, fmt.Sprintf("%q is no id of an instance.", cut(r.PathValue("id"), 40)), "Ids are whole numbers; the search finds instances by key or label, too."}
	}
	return fsm.ID(id), nil
}

// row reads an instance that the access of ctx may see.
func (s *server) row(ctx context.Context, id fsm.ID) (*ent.Instance, error) {
	row, err := s.engine.Ent().Instance.Query().Where(instance.ID(id)).Only(ctx)
	if ent.IsNotFound(err) || err == nil && !accessOf(ctx).sees(row.Queue, row.Machine) {
		return nil, engine.ErrNotFound
	}
	return row, err
}

// about reads all that the page shows of an instance. One that is gone still has its history.
func (s *server) about(ctx context.Context, id fsm.ID) (*instanceBody, error) {
	b := &instanceBody{ID: id}
	row, err := s.row(ctx, id)
	if err != nil && (!errors.Is(err, engine.ErrNotFound) || !accessOf(ctx).everywhere()) {
		return nil, err
	}
	b.Row = row
	if err := s.timeline(ctx, b); err != nil {
		return nil, err
	}
	if row == nil {
		for n := range b.Timeline {
			b.Machine, b.Version = cmp.Or(b.Timeline[n].Machine, b.Machine), cmp.Or(b.Timeline[n].Version, b.Version)
		}
		return b, nil
	}
	b.Machine, b.Version, b.Trace = row.Machine, row.Version, row.Trace
	state := s.decoded(row.State)
	b.State = s.document(ctx, row.Machine, "state", state)
	b.Result = s.document(ctx, row.Machine, "result", s.decoded(row.Result))
	// A state that is shown otherwise than it is must not be stored as it is shown.
	b.Editable = b.State.Text != "" && row.Status != fsm.StatusDone && row.Status != fsm.StatusExecuting &&
		string(s.visible(ctx, row.Machine, "state", state)) == string(row.State)
	causes, err := s.engine.Admin().Why(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, c := range causes {
		b.Causes = append(b.Causes, causeRow{c, string(c.Kind), c.String(), c.IDs})
	}
	if err := s.family(ctx, b); err != nil {
		return nil, err
	}
	if err := s.inbox(ctx, b); err != nil {
		return nil, err
	}
	if accessOf(ctx).Level >= Operate {
		b.Verbs = verbsFor(row)
		b.Steps, err = s.stepsOf(ctx, row)
	}
	return b, err
}

func (s *server) stepsOf(ctx context.Context, row *ent.Instance) (names []string, err error) {
	stored, err := s.definitions(ctx)
	for _, d := range stored {
		if d.Machine == row.Machine && d.Version == row.Version {
			for _, step := range d.Graph.Steps {
				if d.Graph.Leads(step.Name, row.Step) || step.Name == row.Step {
					names = append(names, step.Name)
				}
			}
		}
	}
	return names, err
}

// decoded is a document as the codec decodes it; what it cannot decode stays as it is stored.
func (s *server) decoded(stored json.RawMessage) json.RawMessage {
	var plain json.RawMessage
	if len(stored) == 0 || s.engine.Codec().Decode(stored, &plain) != nil {
		return stored
	}
	return plain
}

func (s *server) document(ctx context.Context, machine, field string, v json.RawMessage) document {
	if len(v) == 0 || string(v) == "null" {
		return document{}
	}
	shown := s.visible(ctx, machine, field, v)
	switch {
	case len(shown) == 0:
		return document{Hidden: true}
	case len(shown) > maxShown:
		return document{Large: len(shown)}
	}
	return document{Tree: tree(shown), Text: indented(shown)}
}

// timeline reads the history, and the errors of attempts, which are there without a history, too.
func (s *server) timeline(ctx context.Context, b *instanceBody) error {
	for t, err := range s.engine.History(ctx, b.ID) {
		if err != nil {
			if b.Row != nil && errors.Is(err, engine.ErrNotFound) {
				break // it ended and was collected in between
			}
			return err
		}
		if len(b.Timeline) == maxTimeline {
			b.Cut = true
			break
		}
		b.Timeline = append(b.Timeline, s.event(ctx, t))
	}
	if b.Row == nil || len(b.Row.Errors) == 0 {
		return nil
	}
	failed, err := s.engine.Errors(ctx, b.ID)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}
	for _, e := range failed {
		known := slices.ContainsFunc(b.Timeline, func(t event) bool {
			return t.Visit == e.Visit && t.Attempt == e.Attempt && t.Error != ""
		})
		if !known {
			t := engine.Transition{
				At: e.At, Instance: b.ID, Visit: e.Visit, Kind: string(e.Kind), From: e.Step, Attempt: e.Attempt, Worker: e.Worker, Error: e.Message,
			}
			b.Timeline = append(b.Timeline, event{Transition: t, Bad: true, Title: string(e.Kind)})
		}
	}
	slices.SortStableFunc(b.Timeline, func(a, c event) int { return c.At.Compare(a.At) })
	return nil
}

func (s *server) event(ctx context.Context, t engine.Transition) event {
	e := event{Transition: t, Title: strings.TrimPrefix(t.Kind, "admin.")}
	e.Bad = t.Error != "" || t.Failure != ""
	e.Changed = s.document(ctx, t.Machine, "diff", s.decoded(t.Diff))
	e.Before = s.document(ctx, t.Machine, "before", t.Before)
	e.After = s.document(ctx, t.Machine, "after", t.After)
	return e
}

// family reads the children: how many are in which status, and the first of them.
func (s *server) family(ctx context.Context, b *instanceBody) error {
	if b.Row.Round == 0 && b.Row.ChildrenPending == 0 && b.Row.Status != fsm.StatusAwaitingChildren {
		children, err := s.engine.Ent().Instance.Query().Where(instance.ParentID(b.ID)).Order(instance.ByID()).Limit(1).Exist(ctx)
		if err != nil || !children {
			return err
		}
	}
	query := s.engine.Ent().Instance.Query().Where(instance.ParentID(b.ID))
	err := query.Clone().GroupBy(instance.FieldStatus).Aggregate(ent.Count()).Scan(ctx, &b.Rounds)
	if err != nil {
		return err
	}
	slices.SortFunc(b.Rounds, func(a, c round) int {
		return cmp.Compare(slices.Index(statuses, a.Status), slices.Index(statuses, c.Status))
	})
	b.Children, err = query.Order(instance.ByID()).Limit(maxChildren).Select(
		instance.FieldID, instance.FieldMachine, instance.FieldVersion, instance.FieldStep, instance.FieldStatus, instance.FieldQueue,
		instance.FieldCorrelationKey, instance.FieldLastError, instance.FieldPaused, instance.FieldParentRound,
	).All(ctx)
	access := accessOf(ctx)
	b.Children = slices.DeleteFunc(b.Children, func(c *ent.Instance) bool { return !access.sees(c.Queue, c.Machine) })
	return err
}

func (s *server) inbox(ctx context.Context, b *instanceBody) error {
	all, err := s.engine.Ent().Signal.Query().Where(signal.TargetID(b.ID), signal.ConsumedAtIsNil()).Order(signal.ByID()).Limit(maxInbox + 1).All(ctx)
	if b.More = len(all) > maxInbox; b.More {
		all = all[:maxInbox]
	}
	for _, one := range all {
		b.Inbox = append(b.Inbox, message{one, s.document(ctx, b.Machine, "payload", s.decoded(one.Payload))})
	}
	return err
}

// download sends a state or result whole.
func (s *server) download(w http.ResponseWriter, r *http.Request) {
	id, err := idOf(r)
	var row *ent.Instance
	if err == nil {
		row, err = s.row(r.Context(), id)
	}
	if err != nil {
		status, text, _ := explain(err)
		s.refuse(w, r, status, text)
		return
	}
	field := r.PathValue("field")
	v := map[string]json.RawMessage{"state": row.State, "result": row.Result}[field]
	shown := s.visible(r.Context(), row.Machine, field, s.decoded(v))
	if len(shown) == 0 {
		s.refuse(w, r, http.StatusNotFound, "There is nothing to show.")
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%d-%s.json"`, id, field))
	_, _ = w.Write(shown) //nolint:gosec // a download of JSON, which no browser sniffs; who asked may have gone
}

// InstancesPath leads to what has the same label.
func (b *instanceBody) InstancesPath(name, value string) string {
	return "instances?" + url.Values{"label": {name + "=" + value}}.Encode()
}

// Due reports whether it waits for a time that has not come.
func (b *instanceBody) Due() bool {
	return b.Row.Status == fsm.StatusRunnable && time.Until(b.Row.EligibleAt) > 0
}
