package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// texts are the names of constants, for an enumeration.
func texts[T ~string](all []T) []string {
	out := make([]string, len(all))
	for n, one := range all {
		out[n] = string(one)
	}
	return out
}

// apiFilter are the fields of a filter, which are filterFields.
var apiFilter = []apiParam{
	{name: "machine", kind: "string", description: "Only those of this machine."},
	{name: "version", kind: "integer", description: "Only those of this version of the machine."},
	{name: "step", kind: "string", description: "Only those in this step."},
	{name: "queue", kind: "string", description: "Only those in this queue."},
	{name: "status", kind: "string", description: "Only those in one of these statuses.", many: true, enum: texts(fsm.Statuses())},
	{name: "failure", kind: "string", description: "Only those that failed in one of these ways.", many: true, enum: texts(failureKinds)},
	{name: "key", kind: "string", description: "The one that occupies this correlation key."},
	{name: "prefix", kind: "string", description: "Only those whose correlation key begins with this text."},
	{name: "partition", kind: "string", description: "Only those with this partition key."},
	{name: "label", kind: "string", description: "Only those with this label, as name=value.", many: true},
	{name: "parent", kind: "string", description: "Only children of this instance."},
	{name: "since", kind: "string", description: "Only those inserted at or after this time. A cursor is of one time: give no ages to page by."},
	{name: "before", kind: "string", description: "Only those inserted before this time."},
	{name: "error", kind: "string", description: "Only those whose last error has this text in it, in upper or lower case."},
	{name: "fingerprint", kind: "string", description: "Only failed ones of this group: all that it counts, and no others."},
}

// apiRoutes lists all routes.
func apiRoutes() []apiRoute {
	return slices.Concat(apiReads(), apiChanges())
}

func apiReads() []apiRoute {
	return []apiRoute{
		reading("/api/overview", "overview", "What waits, who works, what fails, what is wrong.", nil, (*server).apiOverview),
		reading("/api/queues", "queues", "The queues: what is due, delayed and executing, and how many instances are in which status.", nil,
			func(s *server, r *http.Request) (out apiQueues, err error) {
				_, p, err := s.queues(r)
				if err != nil {
					return out, err
				}
				b, _ := p.Body.(*queuesBody)
				return apiQueues{At: b.At, Queues: apiQueuesOf(b.Rows)}, nil
			}),
		reading("/api/gates", "gates", "The limits: what they bound, how many places are taken, how many instances wait.",
			[]apiParam{
				{name: "keys", kind: "string", description: "Also the keys of this gate that are closed, slowed down, or have a weight or their own places."},
				{name: "place", kind: "integer", description: "Of a cluster, the place of that gate."},
			},
			func(s *server, r *http.Request) (out apiGates, err error) {
				_, p, err := s.limits(r)
				if err != nil {
					return out, err
				}
				b, _ := p.Body.(*limitsBody)
				return apiGates{Gates: b.Gates, Keys: b.Keys}, nil
			}),
		reading("/api/schedules", "schedules", "The schedules: what they insert, and when next.",
			[]apiParam{{name: "after", kind: "string", description: "The field next of the page before."}},
			func(s *server, r *http.Request) (out apiSchedules, err error) {
				_, p, err := s.schedules(r)
				if err != nil {
					return out, err
				}
				b, _ := p.Body.(*schedulesBody)
				return apiSchedules{SchedulePage: engine.SchedulePage{Schedules: b.Rows, Next: b.Next}}, nil
			}),
		reading("/api/workers", "workers", "The processes that work, and how much each executes.", nil,
			func(s *server, r *http.Request) (out apiWorkers, err error) {
				_, p, err := s.workerList(r)
				if err != nil {
					return out, err
				}
				b, _ := p.Body.(*workersBody)
				return apiWorkers{Workers: b.Rows, Hidden: b.Hidden}, nil
			}),
		reading("/api/machines", "machines", "The versions of all machines, and how many instances are in which status.", nil,
			func(s *server, r *http.Request) (out apiMachines, err error) {
				_, p, err := s.machines(r)
				if err != nil {
					return out, err
				}
				b, _ := p.Body.(*machinesBody)
				return apiMachines{At: b.At, Machines: apiVersionsOf(b.Rows)}, nil
			}),
		reading("/api/machine", "machine", "A machine: its steps and ways, who stands where, and what its history says.", []apiParam{
			{name: "name", kind: "string", description: "The machine's name."},
			{name: "version", kind: "integer", description: "Its version; the newest unless given."},
			{name: "place", kind: "integer", description: "Of a cluster, the place whose history to show; the first that answers unless given."},
		}, (*server).apiMachine),
		reading("/api/instances", "instances", "A page of the instances that a filter selects, newest first.", append([]apiParam{
			{name: "rows", kind: "integer", description: "How many at most."},
			{name: "after", kind: "string", description: "The field next of the page before."},
			{name: "order", kind: "string", description: "oldest: oldest first.", enum: []string{"oldest", "newest"}},
		}, apiFilter...), (*server).apiInstances),
		reading("/api/instances/{id}", "instance", "All of an instance: documents, why it does not run, its inbox, what happened to it.", nil,
			(*server).apiInstance),
		reading("/api/instances/{id}/graph", "graph", "The newest graph of nodes that an instance has made; empty if the access is bound and does not cover all of its nodes.", nil,
			func(s *server, r *http.Request) (out engine.GraphStatus, err error) {
				id, err := idOf(r)
				if err != nil {
					return out, err
				}
				b := &graphBody{ID: id}
				err = s.drawGraph(r.Context(), b)
				return b.Graph, err
			}),
		reading("/api/instances/{id}/{field}", "document", "A whole state or result.", nil, (*server).apiDocument),
		reading("/api/audit", "audit", "What verbs have changed, newest first.", []apiParam{
			{name: "verb", kind: "string", description: "Only this verb."},
			{name: "actor", kind: "string", description: "Only verbs of this actor."},
			{name: "subject", kind: "string", description: "Only verbs on this queue, gate or schedule, like \"queue mail\"."},
			{name: "instance", kind: "string", description: "Only verbs on this instance."},
			{name: "before", kind: "string", description: "The field next of the page before."},
		}, (*server).apiAudit),
		reading("/api/plans/{token}", "plan", "A plan, and what became of it.", nil, (*server).apiPlan),
	}
}

func (s *server) apiOverview(r *http.Request) (out apiOverview, err error) {
	_, p, err := s.overview(r)
	if err != nil {
		return out, err
	}
	o, _ := p.Body.(*overview)
	out = apiOverview{
		At: o.At, Complete: o.Complete, Counts: counted(o.All), Hour: apiHourOf(o.Pulse), Queues: apiQueuesOf(o.Queues), Others: o.Others,
		Workers: o.Workers, Lost: o.Lost, Slots: o.Slots,
		Held: o.Held, Failures: engine.Failures{Looked: o.Looked, More: o.More},
	}
	out.Failures.Since = o.Since
	for _, f := range o.Failures {
		out.Failures.Groups = append(out.Failures.Groups, f.FailureGroup)
	}
	for _, w := range o.Warnings {
		out.Warnings = append(out.Warnings, w.Text)
	}
	out.Places = apiPlacesOf(o.Places)
	return out, nil
}

func (s *server) apiMachine(r *http.Request) (out apiMachine, err error) {
	_, p, err := s.machine(r)
	if err != nil {
		return out, err
	}
	b, _ := p.Body.(*machineBody)
	from, err := s.historian(r.Context(), r.FormValue("place"))
	if err != nil {
		return out, err
	}
	taken, err := s.recorded(r.Context(), from, &machineBody{Drawing: b.Drawing}, b.Version) // it was read for the page
	if err != nil {
		return out, err
	}
	out = apiMachine{
		Drawing: b.Drawing, Versions: apiVersionsOf(b.Versions), Recorded: b.Recorded, Unknown: b.Unknown, Days: b.Days, Edges: apiEdgesOf(taken),
		Failures: b.Failures, Mermaid: b.Mermaid, DOT: b.DOT, Place: b.Place,
	}
	for _, step := range b.Steps {
		if step.Times != nil {
			out.Times = append(out.Times, *step.Times)
		}
	}
	return out, nil
}

func (s *server) apiInstances(r *http.Request) (out apiPage, err error) {
	form := r.URL.Query()
	f, err := s.filter(r.Context(), form, time.Now().Truncate(s.Refresh))
	if err != nil {
		return out, err
	}
	q := engine.Query{Filter: f, Limit: defaultRows, After: form.Get("after"), OldestFirst: form.Get("order") == "oldest"}
	if text := form.Get("rows"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxRows {
			return out, &fieldError{"rows", fmt.Errorf("%q, want 1 to %d", cut(text, 20), maxRows)}
		}
	}
	if order := form.Get("order"); order != "" && order != "oldest" && order != "newest" {
		return out, &fieldError{"order", fmt.Errorf("%q, want oldest or newest", cut(order, 20))}
	}
	page, err := s.instances(r.Context(), q)
	if err != nil {
		return out, err
	}
	out = apiPage{Instances: make([]apiInstance, len(page.Instances)), Next: page.Next, SearchedTo: page.SearchedTo}
	for n := range page.Instances {
		out.Instances[n] = apiInstanceOf(&page.Instances[n])
	}
	return out, nil
}

func (s *server) apiInstance(r *http.Request) (out apiDetail, err error) {
	id, err := idOf(r)
	if err != nil {
		return out, err
	}
	b, err := s.about(r.Context(), id)
	if err != nil {
		return out, err
	}
	out = apiDetail{State: apiDocumentOf(b.State), Result: apiDocumentOf(b.Result), Progress: apiDocumentOf(b.Progress), More: b.More, Cut: b.Cut}
	if b.Row != nil {
		out.Instance = new(apiRowOf(b.Row))
	}
	for _, c := range b.Causes {
		out.Causes = append(out.Causes, apiCause{c.Cause, c.Text})
	}
	for _, m := range b.Inbox {
		out.Inbox = append(out.Inbox, apiSignal{fsm.ID(m.ID), m.Name, m.InsertedAt, apiDocumentOf(m.Payload)})
	}
	for _, e := range b.Timeline {
		out.Timeline = append(out.Timeline, apiEvent{
			At: e.At, Visit: e.Visit, Kind: e.Kind, From: e.From, To: e.To, Attempt: e.Attempt, Waited: e.Waited, Took: e.Took, Worker: e.Worker,
			Failure: e.Failure, Error: e.Error, Actor: e.Actor, Reason: e.Reason, Diff: apiDocumentOf(e.Changed), Before: apiDocumentOf(e.Before),
			After: apiDocumentOf(e.After),
		})
	}
	for _, one := range b.Rounds {
		for _, c := range one.Counts {
			out.Children = append(out.Children, apiRound{one.Visit, c.Status, c.Count})
		}
	}
	out.Ancestors = b.Ancestors
	for _, v := range b.Verbs {
		out.Verbs = append(out.Verbs, string(v.Verb))
	}
	return out, nil
}

// apiDocument reads a document that is too large to be shown with its instance.
func (s *server) apiDocument(r *http.Request) (out apiDocument, err error) {
	id, err := idOf(r)
	if err != nil {
		return out, err
	}
	row, err := s.row(r.Context(), id)
	if err != nil {
		return out, err
	}
	field := r.PathValue("field")
	stored := row.State
	switch field {
	case "state":
	case "result":
		stored = row.Result
	default:
		return out, &misuse{http.StatusNotFound, "There is no such document.", "There are state and result."}
	}
	shown := s.visible(r.Context(), row.Machine, field, s.decoded(stored))
	return apiDocument{Value: shown, Hidden: len(stored) > 0 && len(shown) == 0}, nil
}

func (s *server) apiAudit(r *http.Request) (out apiAudit, err error) {
	_, p, err := s.audit(r)
	if err != nil {
		return out, err
	}
	b, _ := p.Body.(*auditBody)
	out.Hidden = b.Hidden
	for _, e := range b.Rows {
		e.AuditEntry.Before, e.AuditEntry.After = nil, nil // as they are stored
		out.Entries = append(out.Entries, apiEntry{e.AuditEntry, apiDocumentOf(e.Before), apiDocumentOf(e.After)})
	}
	if b.Older != "" && len(b.Rows) > 0 {
		out.Next = b.Rows[len(b.Rows)-1].At
	}
	return out, nil
}
