package dashboard

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gendurable/gendurable/engine"
)

const (
	planAge   = 30 * time.Minute // how long a plan waits to be applied, and its outcome to be read
	maxPlans  = 20
	applyTime = 30 * time.Minute
)

// bulkVerb is a verb that can be planned here.
type bulkVerb struct {
	Verb engine.Verb
	Name string
	Says string // which instances it applies to
}

var bulkVerbs = []bulkVerb{
	{engine.VerbRetry, "Retry", "failed ones"},
	{engine.VerbRunNow, "Run now", "runnable ones that wait for a time"},
	{engine.VerbPause, "Pause", "live ones that are not paused"},
	{engine.VerbResume, "Resume", "paused ones"},
	{engine.VerbCancel, "Cancel", "live ones"},
}

// plans are what operators have planned and not yet applied, in this process. A plan names the
// instances that it found, so that what is applied is what was looked at.
type plans struct {
	mu  sync.Mutex
	all map[string]*planned
}

// planned is a plan and what became of it.
type planned struct {
	plan   *engine.Plan
	verb   bulkVerb
	form   string // the filter
	access Access // whose it is: nobody else may apply it
	at     time.Time

	mu      sync.Mutex
	begun   time.Time
	ended   time.Time
	applied engine.Applied
	fault   string
}

// planBody is a plan as the page shows it.
type planBody struct {
	Token   string
	Verb    bulkVerb
	Plan    *engine.Plan
	Matched int64
	At      time.Time
	Begun   time.Time
	Ended   time.Time
	Applied engine.Applied
	Fault   string
	Back    string
	Filter  []string
}

func (p *plans) keep(one *planned) (token string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*planned{}
	}
	for token, old := range p.all {
		if time.Since(old.at) > planAge && !old.running() {
			delete(p.all, token)
		}
	}
	if len(p.all) >= maxPlans {
		return "", &misuse{http.StatusServiceUnavailable, "Too many plans wait to be applied.", "Apply or leave some of them: a plan is forgotten after half an hour."}
	}
	token = rand.Text()
	p.all[token] = one
	return token, nil
}

// of returns a plan to whom it belongs.
func (p *plans) of(ctx context.Context, token string) (*planned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[token]
	if one == nil || one.access.Actor != accessOf(ctx).Actor {
		return nil, &misuse{
			http.StatusNotFound, "There is no such plan, or no longer.",
			"A plan is kept for half an hour, by the process that made it. Plan again from the list of instances.",
		}
	}
	return one, nil
}

func (p *planned) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.begun.IsZero() && p.ended.IsZero()
}

// plan makes a plan of a filter and a verb. It changes nothing.
func (s *server) plan(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	if err := r.ParseForm(); err != nil {
		return "", nil, formFault(err)
	}
	form := url.Values{}
	for _, field := range filterFields {
		for _, value := range r.PostForm[field] {
			if value != "" {
				form.Add(field, value)
			}
		}
	}
	f, err := filterOf(form, time.Now())
	if err != nil {
		return "", nil, err
	}
	f.All = r.PostForm.Get("all") != ""
	if !accessOf(ctx).holds(f) {
		return "", nil, &misuse{
			http.StatusForbidden, "This filter selects more than your access covers.", "Select one of your queues, and one of your machines where these are named.",
		}
	}
	one := &planned{form: form.Encode(), access: accessOf(ctx), at: time.Now()}
	for _, v := range bulkVerbs {
		if string(v.Verb) == r.PostForm.Get("verb") {
			one.verb = v
		}
	}
	if one.verb.Verb == "" {
		return "", nil, &misuse{http.StatusBadRequest, "Which verb?", "Choose one, and plan again."}
	}
	done, err := s.weigh(ctx)
	if err != nil {
		return "", nil, err
	}
	one.plan, err = s.engine.Admin().Bulk(ctx, one.verb.Verb, f)
	done()
	if err != nil {
		return "", nil, err
	}
	token, err := s.plans.keep(one)
	if err != nil {
		return "", nil, err
	}
	return "", nil, &elsewhere{"plans/" + token}
}

func (s *server) planPage(r *http.Request) (string, *page, error) {
	one, err := s.plans.of(r.Context(), r.PathValue("token"))
	if err != nil {
		return "", nil, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	b := &planBody{
		Token: r.PathValue("token"), Verb: one.verb, Plan: one.plan, Matched: one.plan.Matched, At: one.at, Begun: one.begun, Ended: one.ended,
		Applied: one.applied, Fault: one.fault, Back: "instances?" + one.form,
	}
	form, _ := url.ParseQuery(one.form) // as it was encoded
	for _, field := range filterFields {
		for _, value := range form[field] {
			b.Filter = append(b.Filter, field+" "+value)
		}
	}
	p := &page{Title: one.verb.Name + " in bulk", Section: "instances", Body: b}
	if !one.begun.IsZero() && one.ended.IsZero() {
		p.Refresh = 1
	}
	return "plan", p, nil
}

// apply begins to carry a plan out. That outlasts the request: the plan's page shows how it goes.
func (s *server) apply(r *http.Request) (string, *page, error) {
	one, err := s.plans.of(r.Context(), r.PathValue("token"))
	if err != nil {
		return "", nil, err
	}
	if err := r.ParseForm(); err != nil {
		return "", nil, formFault(err)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	here := &elsewhere{"../" + r.PathValue("token")}
	if !one.begun.IsZero() {
		return "", nil, here // twice clicked
	}
	one.begun = time.Now()
	options := []engine.VerbOption{engine.Reason(r.PostForm.Get("reason"))}
	if r.PostForm.Get("descendants") != "" && one.verb.Verb == engine.VerbCancel {
		options = append(options, engine.Descendants())
	}
	ctx := context.WithoutCancel(r.Context())
	go func() {
		limited, cancel := context.WithTimeout(ctx, applyTime)
		defer cancel()
		applied, err := one.plan.Apply(limited, options...)
		s.shared.forget()
		one.mu.Lock()
		defer one.mu.Unlock()
		one.applied, one.ended = applied, time.Now()
		if err != nil {
			_, text, _ := explain(err)
			one.fault = fmt.Sprintf("%s %s", text, cut(err.Error(), 500))
			s.log.Warn("dashboard: apply a plan", slog.String("verb", string(one.verb.Verb)), slog.Any("error", err))
		}
	}()
	return "", nil, here
}
