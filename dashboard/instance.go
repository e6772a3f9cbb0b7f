package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

// The most that an instance's page shows of each.
const (
	maxTimeline = 200
	maxShown    = 256 << 10 // bytes of a document; more is there to download
)

// instanceBody is one instance. Row is nil where only its history is left.
type instanceBody struct {
	ID       fsm.ID
	Row      *ent.Instance
	Causes   []causeRow
	State    document
	Result   document
	Progress document
	Inbox    []message
	More     bool // in the inbox
	Timeline []event
	Cut      bool // there is more in the history
	// Ancestors are those that may be seen, the farthest first.
	Ancestors []engine.Relative
	Rounds    []round // of children, the newest first
	AtLeast   bool    // there may be more children than Rounds count
	Verbs     []oneVerb
	Machine   string
	Version   int
	Editable  bool
	Steps     []string
	Trace     map[string]string
	// TraceLink leads to the trace, if Options.TraceLink knows its address.
	TraceLink string
}

// Statuses are those that children have.
func (b *instanceBody) Statuses() (all []fsm.Status) {
	for _, status := range statuses {
		if slices.ContainsFunc(b.Rounds, func(r round) bool {
			return slices.ContainsFunc(r.Counts, func(c statusCount) bool { return c.Status == status })
		}) {
			all = append(all, status)
		}
	}
	return all
}

// ChildrenPath leads to all children.
func (b *instanceBody) ChildrenPath() string {
	return "instances?parent=" + strconv.FormatInt(int64(b.ID), 10)
}

// MachinePath leads to the drawing.
func (b *instanceBody) MachinePath() string { return machinePath(b.Machine, b.Version) }

// Live reports whether it has not ended.
func (b *instanceBody) Live() bool { return b.Row != nil && !b.Row.Status.Terminal() }

// causeRow is a cause with links.
type causeRow struct {
	engine.Cause

	Kind string
	Text string
	IDs  []fsm.ID
}

// message is a signal in the inbox.
type message struct {
	engine.PendingSignal

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
	Large   int // bytes of these that are too large to be shown
}

// round has the children that one visit joins. Counts is empty where the access is bounded: the
// numbers would be of all.
type round struct {
	Visit  int64
	Counts []statusCount
	First  []engine.Relative
	Rest   int64 // how many there are beside First
}

type statusCount struct {
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
	at, err := s.home(ctx, id)
	if err != nil {
		return nil, err
	}
	which, err := within(ctx)
	if err != nil {
		return nil, err
	}
	row, err := turned(ctx, at.turns.light, at.engine.Ent().Instance.Query().Where(append(which, instance.ID(id))...).Only)
	if ent.IsNotFound(err) {
		return nil, engine.ErrNotFound
	}
	return row, err
}

// portrait is what the database has about an instance, before an access decides what of it may be
// seen. Nobody changes it: all who look at the instance share it.
type portrait struct {
	row       *ent.Instance // nil: it is gone
	causes    []engine.Cause
	relations engine.Relations
	past      []engine.Transition // the newest first
	cut       bool                // there are older ones
}

// size is about how many bytes the portrait holds.
func (p *portrait) size() int {
	n := 64 << 10
	if p.row != nil {
		n += len(p.row.State) + len(p.row.Result) + len(p.row.Progress) + len(p.row.Errors)
	}
	for i := range p.relations.Inbox {
		n += len(p.relations.Inbox[i].Payload)
	}
	for i := range p.past {
		n += len(p.past[i].Diff) + len(p.past[i].Before) + len(p.past[i].After)
	}
	return n
}

// portrait reads all about an instance, for all who look at it within an interval. One that is gone
// still has its history.
func (s *server) portrait(ctx context.Context, id fsm.ID) (*portrait, error) {
	at, err := s.home(ctx, id)
	if err != nil {
		return nil, err
	}
	return light(ctx, s, at, fmt.Sprintf("instance %d", id), func(ctx context.Context) (p *portrait, err error) {
		p = &portrait{}
		p.row, p.causes, err = at.engine.Admin().Examine(ctx, id)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return nil, err
		}
		if p.row != nil {
			if p.relations, err = at.engine.Admin().Relations(ctx, id); err != nil {
				return nil, err
			}
		}
		for t, err := range at.engine.HistoryBack(ctx, id, maxPageShown) {
			if err != nil {
				return nil, err
			}
			if p.cut = len(p.past) == maxTimeline; p.cut {
				break
			}
			p.past = append(p.past, t)
		}
		if p.row == nil && len(p.past) == 0 {
			return nil, engine.ErrNotFound
		}
		return p, nil
	})
}

// others are the instances that the portrait names beside its own.
func (p *portrait) others() (ids []fsm.ID) {
	for _, c := range p.causes {
		ids = append(ids, c.IDs...)
	}
	for _, all := range [][]engine.Relative{p.relations.Ancestors, p.relations.Children} {
		for n := range all {
			ids = append(ids, all[n].ID)
		}
	}
	return ids
}

// shownOf returns a row without the parent and the worker, unless these may be seen: a worker works
// for others, too.
func shownOf(row *ent.Instance, seen covered) *ent.Instance {
	if row == nil || seen == nil {
		return row
	}
	own := *row // all who look share the other
	own.LockedBy = nil
	if own.ParentID != nil && !seen.has(*own.ParentID) {
		own.ParentID = nil
	}
	return &own
}

// about has all that the page shows of an instance. The queue of a deleted instance is unknown, so
// a user who is bound sees nothing of it.
func (s *server) about(ctx context.Context, id fsm.ID) (*instanceBody, error) {
	if !accessOf(ctx).everywhere() { // first, so that a hidden instance takes as long as one that is absent
		if _, err := s.row(ctx, id); err != nil {
			return nil, err
		}
	}
	p, err := s.portrait(ctx, id)
	if err != nil {
		return nil, err
	}
	row, access := p.row, accessOf(ctx)
	if row == nil && !access.everywhere() || row != nil && !access.Within.Cover(row.Queue, row.Machine, row.Labels) {
		return nil, engine.ErrNotFound
	}
	at, err := s.home(ctx, id)
	if err != nil {
		return nil, err
	}
	seen, err := s.covered(ctx, at, p.others())
	if err != nil {
		return nil, err
	}
	row = shownOf(row, seen)
	b := &instanceBody{ID: id, Row: row}
	if row == nil {
		s.timeline(ctx, b, p)
		for n := range b.Timeline {
			b.Machine, b.Version = cmp.Or(b.Machine, b.Timeline[n].Machine), cmp.Or(b.Version, b.Timeline[n].Version)
		}
		return b, nil
	}
	b.Machine, b.Version, b.Trace = row.Machine, row.Version, row.Trace
	b.TraceLink = s.traceLink(row.Trace)
	b.State = s.document(ctx, row.Machine, "state", s.decoded(row.State))
	b.Result = s.document(ctx, row.Machine, "result", s.decoded(row.Result))
	b.Progress = s.document(ctx, row.Machine, "progress", s.decoded(row.Progress))
	// A state that is shown otherwise than it is must not be stored as it is shown.
	b.Editable = b.State.Text != "" && row.Status != fsm.StatusDone && row.Status != fsm.StatusExecuting && s.shownWhole(ctx, row)
	for _, c := range p.causes {
		b.Causes = append(b.Causes, causeOf(c, seen))
	}
	b.family(&p.relations, seen)
	s.inbox(ctx, b, &p.relations)
	s.timeline(ctx, b, p)
	if access.Level >= Operate {
		b.Verbs = verbsFor(row, p.causes)
		if rewinds(row) {
			b.Steps, err = s.stepsOf(ctx, row)
		}
	}
	return b, err
}

// traceLink is where Options.TraceLink says that a trace is. Other links than web addresses are
// left out: it comes from what an instance holds.
func (s *server) traceLink(trace map[string]string) (link string) {
	if s.TraceLink == nil || len(trace) == 0 {
		return ""
	}
	defer func() {
		if fault := recover(); fault != nil {
			s.log.Error("dashboard: Options.TraceLink panicked", slog.Any("panic", fault))
			link = ""
		}
	}()
	link = s.TraceLink(maps.Clone(trace))
	if u, err := url.Parse(link); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return link
}

// causeOf describes a cause. A user within bounds learns nothing of instances outside of them, and
// nothing of the process that executes the instance.
func causeOf(c engine.Cause, seen covered) causeRow {
	if seen != nil {
		c = c.Within(seen.has)
	}
	return causeRow{c, string(c.Kind), c.String(), c.IDs}
}

// shownWhole reports whether the page shows the state exactly as it is stored.
func (s *server) shownWhole(ctx context.Context, row *ent.Instance) bool {
	return string(s.visible(ctx, row.Machine, "state", s.decoded(row.State))) == string(row.State)
}

// rewinds reports whether an instance may go back to an earlier step. A node of a graph may not
// once it has failed, nor while it waits for other nodes.
func rewinds(row *ent.Instance) bool {
	return row.Status != fsm.StatusExecuting && row.Status != fsm.StatusDone && (row.Node == nil || row.Status != fsm.StatusFailed && row.Visit > 0)
}

// stepsOf lists the steps from which an instance may have come to its step, and that step.
func (s *server) stepsOf(ctx context.Context, row *ent.Instance) (names []string, err error) {
	at, err := s.home(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	stored, err := s.definitionsAt(ctx, at)
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
	if len(stored) == 0 || s.sites[0].engine.Codec().Decode(stored, &plain) != nil {
		return stored
	}
	return plain
}

// timeline has the newest rows of the history, and the errors of attempts, which are there without
// a history, too. The newest is first.
func (s *server) timeline(ctx context.Context, b *instanceBody, p *portrait) {
	b.Cut = p.cut
	for _, t := range p.past {
		b.Timeline = append(b.Timeline, s.event(ctx, t))
	}
	if b.Row == nil {
		return
	}
	for _, e := range engine.ErrorsIn(b.Row) {
		if b.Cut && e.At.Before(b.Timeline[len(b.Timeline)-1].At) {
			continue // the history may have it, further back
		}
		known := e.Kind != fsm.AttemptReleased && slices.ContainsFunc(b.Timeline, func(t event) bool {
			return t.Visit == e.Visit && t.Attempt == e.Attempt && t.Error != ""
		})
		if !known {
			t := engine.Transition{
				At: e.At, Instance: b.ID, Visit: e.Visit, Kind: string(e.Kind), From: e.Step, Attempt: e.Attempt, Worker: e.Worker, Error: e.String(),
			}
			one := s.event(ctx, t)
			one.Bad, one.Title = true, string(e.Kind)
			b.Timeline = append(b.Timeline, one)
		}
	}
	slices.SortStableFunc(b.Timeline, func(a, c event) int { return c.At.Compare(a.At) })
}

func (s *server) event(ctx context.Context, t engine.Transition) event {
	if !accessOf(ctx).everywhere() {
		t.Worker = ""
	}
	e := event{Transition: t, Title: strings.TrimPrefix(t.Kind, "admin.")}
	e.Bad = t.Error != "" || t.Failure != ""
	e.Changed = s.document(ctx, t.Machine, "diff", s.decoded(t.Diff))
	e.Before = s.facts(ctx, t.Machine, "before", t.Before)
	e.After = s.facts(ctx, t.Machine, "after", t.After)
	if t.LeftOut > 0 && accessOf(ctx).Level >= Read {
		e.Large = int(t.LeftOut)
	}
	for _, d := range []document{e.Changed, e.Before, e.After} {
		e.Large += d.Large
	}
	return e
}

// family has of the ancestors and children those that may be seen.
func (b *instanceBody) family(r *engine.Relations, seen covered) {
	sees := func(x engine.Relative) bool { return seen.has(x.ID) }
	for _, x := range slices.Backward(r.Ancestors) {
		if sees(x) {
			b.Ancestors = append(b.Ancestors, x)
		}
	}
	for _, x := range r.Children { // the newest round first
		if n := len(b.Rounds); sees(x) && (n == 0 || b.Rounds[n-1].Visit != x.Round) {
			b.Rounds = append(b.Rounds, round{Visit: x.Round})
		}
		if sees(x) {
			last := &b.Rounds[len(b.Rounds)-1]
			last.First = append(last.First, x)
		}
	}
	if seen != nil {
		return
	}
	b.AtLeast = r.AtLeast
	for _, c := range slices.Backward(r.Counts) {
		n := slices.IndexFunc(b.Rounds, func(one round) bool { return one.Visit == c.Round })
		if n < 0 { // too far back to list its children
			n = len(b.Rounds)
			b.Rounds = append(b.Rounds, round{Visit: c.Round})
		}
		b.Rounds[n].add(c)
	}
	for n := range b.Rounds {
		b.Rounds[n].Rest -= int64(len(b.Rounds[n].First))
	}
}

// add counts children of one machine; there may be several.
func (r *round) add(c engine.ChildCount) {
	r.Rest += c.Count
	for n := range r.Counts {
		if r.Counts[n].Status == c.Status {
			r.Counts[n].Count += c.Count
			return
		}
	}
	r.Counts = append(r.Counts, statusCount{c.Status, c.Count})
}

func (s *server) inbox(ctx context.Context, b *instanceBody, r *engine.Relations) {
	b.More = r.More
	for _, one := range r.Inbox {
		shown := document{Large: int(one.Bytes)}
		if one.Payload != nil {
			shown = s.document(ctx, b.Machine, "payload", s.decoded(one.Payload))
		} else if accessOf(ctx).Level < Read {
			shown = document{Hidden: true}
		}
		b.Inbox = append(b.Inbox, message{one, shown})
	}
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

// InstancesPath leads to the instances with the same label.
func (b *instanceBody) InstancesPath(name, value string) string {
	return "instances?" + url.Values{"label": {name + "=" + value}}.Encode()
}

// Due reports whether it waits for a time that has not come.
func (b *instanceBody) Due() bool {
	return b.Row.Status == fsm.StatusRunnable && time.Until(b.Row.EligibleAt) > 0
}
