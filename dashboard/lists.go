package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

type queuesBody struct {
	Rows []*queueRow
	At   time.Time
}

func (s *server) queues(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	counts, err := s.counts(ctx)
	if err != nil {
		return "", nil, err
	}
	load, err := s.load(ctx)
	if err != nil {
		return "", nil, err
	}
	rates, err := s.rates(ctx)
	return "queues", &page{Title: "Queues", Section: "queues", Refresh: 1, Body: &queuesBody{queueRows(counts, load, rates), counts.At}}, err
}

type limitsBody struct {
	Gates []gateRow
	Open  *gateRow // the one whose keys are shown
	Keys  []engine.GateKey
}

func (s *server) limits(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	all, err := s.gates(ctx)
	if err != nil {
		return "", nil, err
	}
	b := &limitsBody{Gates: all}
	if name := r.FormValue("keys"); name != "" {
		at, err := s.placeOf(ctx, r.FormValue("place"))
		if err != nil {
			return "", nil, err
		}
		n := slices.IndexFunc(b.Gates, func(g gateRow) bool { return g.Name == name && (g.Place == nil || *g.Place == at.place) })
		if n < 0 {
			return "", nil, &misuse{http.StatusNotFound, fmt.Sprintf("There is no limit %q.", cut(name, 100)), "The list of limits shows what there is."}
		}
		b.Open = &b.Gates[n]
		b.Keys, err = light(ctx, s, at, "keys "+name, func(ctx context.Context) ([]engine.GateKey, error) { return at.engine.Admin().GateKeys(ctx, name) })
		if err != nil {
			return "", nil, err
		}
	}
	return "limits", &page{Title: "Limits", Section: "limits", Refresh: 1, Body: b}, nil
}

type schedulesBody struct {
	Rows []engine.StoredSchedule
	Next string
}

func (s *server) schedules(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	after, err := s.schedulesAfter(r.FormValue("after"))
	if err != nil {
		return "", nil, err
	}
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (engine.SchedulePage, error) {
		q := engine.ScheduleQuery{Limit: 100, After: after[at.place], Within: accessOf(ctx).Within}
		if q.After == schedulesEnded {
			return engine.SchedulePage{}, nil
		}
		return light(ctx, s, at, fmt.Sprintf("schedules %#v", q), func(ctx context.Context) (engine.SchedulePage, error) {
			return at.engine.Admin().Schedules(ctx, q)
		})
	})
	if err != nil {
		return "", nil, err
	}
	b := &schedulesBody{Next: s.schedulesNext(after, all)}
	for _, got := range all {
		b.Rows = append(b.Rows, got.value.Schedules...)
	}
	if len(all) > 1 {
		slices.SortStableFunc(b.Rows, func(a, b engine.StoredSchedule) int { return cmp.Compare(a.Name, b.Name) })
	}
	return "schedules", &page{Title: "Schedules", Section: "schedules", Refresh: 1, Body: b}, nil
}

type workersBody struct {
	Rows   []workerRow
	Hidden bool
}

// workerRow is a worker. A process that works on a cluster is one at each place.
type workerRow struct {
	engine.WorkerLoad

	Place *int `json:"place,omitempty"` // of a cluster
}

func (s *server) workerList(r *http.Request) (string, *page, error) {
	b := &workersBody{Hidden: !accessOf(r.Context()).everywhere()}
	all, err := s.loads(r.Context())
	for _, one := range all {
		for _, w := range one.value.Workers {
			b.Rows = append(b.Rows, workerRow{w, s.mark(one.site)})
		}
	}
	return "workers", &page{Title: "Workers", Section: "workers", Refresh: 1, Body: b}, err
}

type auditBody struct {
	Rows   []auditRow
	Older  string
	Query  engine.AuditQuery
	Form   map[string]string
	Hidden bool
}

type auditRow struct {
	engine.AuditEntry

	Before, After document
}

const auditRows = 60

func (s *server) audit(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	b := &auditBody{Hidden: !accessOf(ctx).everywhere(), Form: map[string]string{}}
	p := &page{Title: "Audit", Section: "audit", Refresh: 1, Body: b}
	if b.Hidden {
		return "audit", p, nil
	}
	form := r.URL.Query()
	q := engine.AuditQuery{Verb: engine.Verb(form.Get("verb")), Actor: form.Get("actor"), Subject: form.Get("subject"), Limit: auditRows}
	for _, field := range []string{"verb", "actor", "subject", "instance"} {
		b.Form[field] = form.Get(field)
	}
	if text := form.Get("instance"); text != "" {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "", nil, &misuse{http.StatusBadRequest, fmt.Sprintf("instance: %q is no id.", cut(text, 40)), "Correct this field."}
		}
		q.Instance = fsm.ID(id)
	}
	var err error
	if q.Before, err = timeOf(form.Get("before"), time.Now()); err != nil {
		return "", nil, &misuse{http.StatusBadRequest, fmt.Sprintf("before: %q is no time.", cut(form.Get("before"), 40)), "Correct this field."}
	}
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (engine.AuditPage, error) {
		return light(ctx, s, at, fmt.Sprintf("audit %#v", q), func(ctx context.Context) (engine.AuditPage, error) {
			return at.engine.Admin().Audit(ctx, q)
		})
	})
	if err != nil {
		return "", nil, err
	}
	got := mergeAudits(values(all))
	for _, e := range got.Entries {
		b.Rows = append(b.Rows, auditRow{e, s.facts(ctx, e.Machine, "before", e.Before), s.facts(ctx, e.Machine, "after", e.After)})
	}
	if !got.Next.IsZero() {
		form.Set("before", got.Next.UTC().Format(time.RFC3339Nano))
		b.Older = "audit?" + form.Encode()
	}
	return "audit", p, nil
}

// find goes to what a text of the search box names: an id, a label, a queue, a machine, or a key.
func (s *server) find(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	text := strings.TrimSpace(r.FormValue("q"))
	if text == "" {
		return "", nil, &elsewhere{"instances"}
	}
	if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
		return "", nil, &elsewhere{"instances/" + strconv.FormatInt(id, 10)}
	}
	if strings.Contains(text, "=") {
		return "", nil, &elsewhere{"instances?" + query("label", text)}
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) { // Postgres has no such text
		return "", nil, &misuse{http.StatusBadRequest, "This text cannot be searched for.", "It has bytes that are no characters."}
	}
	counts, err := s.counts(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, c := range counts.Counts {
		switch text {
		case c.Machine:
			return "", nil, &elsewhere{"machine?" + query("name", text)}
		case c.Queue:
			return "", nil, &elsewhere{"instances?" + query("queue", text)}
		}
	}
	which, err := within(ctx)
	if err != nil {
		return "", nil, err
	}
	which = append(which, instance.CorrelationGuard(text))
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (*ent.Instance, error) { // a child's key may be at any place
		row, err := turned(ctx, at.turns.light, at.engine.Ent().Instance.Query().Where(which...).Only)
		if ent.IsNotFound(err) {
			return nil, nil
		}
		return row, err
	})
	if err != nil {
		return "", nil, err
	}
	for _, one := range all {
		if row := one.value; row != nil {
			return "", nil, &elsewhere{"instances/" + strconv.FormatInt(int64(row.ID), 10)}
		}
	}
	return "", nil, &elsewhere{"instances?" + query("prefix", text)}
}
