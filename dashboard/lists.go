package dashboard

import (
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
	Gates []engine.GateStatus
	Open  *engine.GateStatus // the one whose keys are shown
	Keys  []engine.GateKey
}

func (s *server) limits(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	all, err := s.gates(ctx)
	if err != nil {
		return "", nil, err
	}
	b := &limitsBody{}
	for _, g := range all {
		if accessOf(ctx).sees(g.Queue, g.Machine) {
			b.Gates = append(b.Gates, g)
		}
	}
	if name := r.FormValue("keys"); name != "" {
		n := slices.IndexFunc(b.Gates, func(g engine.GateStatus) bool { return g.Name == name })
		if n < 0 {
			return "", nil, &misuse{http.StatusNotFound, fmt.Sprintf("There is no limit %q.", cut(name, 100)), "The list of limits shows what there is."}
		}
		b.Open = &b.Gates[n]
		b.Keys, err = light(ctx, s, "keys "+name, func(ctx context.Context) ([]engine.GateKey, error) { return s.engine.Admin().GateKeys(ctx, name) })
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
	q := engine.ScheduleQuery{Limit: 100, After: r.FormValue("after")}
	got, err := light(ctx, s, fmt.Sprintf("schedules %#v", q), func(ctx context.Context) (engine.SchedulePage, error) {
		return s.engine.Admin().Schedules(ctx, q)
	})
	b := &schedulesBody{Next: got.Next}
	for _, one := range got.Schedules {
		if accessOf(ctx).sees(one.Queue, one.Machine) {
			b.Rows = append(b.Rows, one)
		}
	}
	return "schedules", &page{Title: "Schedules", Section: "schedules", Refresh: 1, Body: b}, err
}

type workersBody struct {
	Rows   []engine.WorkerLoad
	Hidden bool
}

func (s *server) workerList(r *http.Request) (string, *page, error) {
	b := &workersBody{Hidden: !accessOf(r.Context()).everywhere()}
	load, err := s.load(r.Context())
	b.Rows = load.Workers
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
	got, err := light(ctx, s, fmt.Sprintf("audit %#v", q), func(ctx context.Context) (engine.AuditPage, error) {
		return s.engine.Admin().Audit(ctx, q)
	})
	for _, e := range got.Entries {
		b.Rows = append(b.Rows, auditRow{e, s.facts(ctx, e.Machine, "before", e.Before), s.facts(ctx, e.Machine, "after", e.After)})
	}
	if !got.Next.IsZero() {
		form.Set("before", got.Next.UTC().Format(time.RFC3339Nano))
		b.Older = "audit?" + form.Encode()
	}
	return "audit", p, err
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
	row, err := within(ctx, s.turns.light, s.engine.Ent().Instance.Query().Where(instance.CorrelationGuard(text)).Only)
	if err == nil && accessOf(ctx).sees(row.Queue, row.Machine) {
		return "", nil, &elsewhere{"instances/" + strconv.FormatInt(int64(row.ID), 10)}
	}
	if err != nil && !ent.IsNotFound(err) {
		return "", nil, err
	}
	return "", nil, &elsewhere{"instances?" + query("prefix", text)}
}
