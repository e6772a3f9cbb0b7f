package dashboard

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

const (
	planAge    = 30 * time.Minute // how long a plan waits to be applied, and its outcome to be read
	maxPlans   = 20
	maxPlanned = 3 * engine.MaxPlan // ids of all plans together, of 8 bytes each
	applyTime  = 30 * time.Minute
)

// bulkVerb is a verb that can be planned here.
type bulkVerb struct {
	Verb engine.Verb
	Name string
	Says string       // which instances it applies to
	Of   []fsm.Status // that they can have
}

var live = []fsm.Status{fsm.StatusRunnable, fsm.StatusExecuting, fsm.StatusAwaitingSignal, fsm.StatusAwaitingChildren}

var bulkVerbs = []bulkVerb{
	{engine.VerbRetry, "Retry", "failed ones, except parts of graphs that only Restart can run again", []fsm.Status{fsm.StatusFailed}},
	{engine.VerbRunNow, "Run now", "runnable ones that wait for a time", []fsm.Status{fsm.StatusRunnable}},
	{engine.VerbPause, "Pause", "live ones that are not paused", live},
	{engine.VerbResume, "Resume", "paused ones", live},
	{engine.VerbCancel, "Cancel", "live ones", live},
}

// leaves counts, by status, the instances that a filter selects and to which the verb cannot apply,
// as far as the last count of all instances tells them apart. known is false if the filter asks for
// more than that.
func (v *bulkVerb) leaves(f engine.Filter, all []engine.Count) (left []statusCount, known bool) {
	if !countable(f) {
		return nil, false
	}
	by := map[fsm.Status]int64{}
	for _, c := range all {
		if selected(f, c) && !slices.Contains(v.Of, c.Status) {
			by[c.Status] += c.Count
		}
	}
	for _, status := range statuses {
		if by[status] > 0 {
			left = append(left, statusCount{status, by[status]})
		}
	}
	return left, true
}

// plans are what operators have planned and not yet applied, in this process. A plan names the
// instances that it found, so that the verb applies to the instances that were shown.
type plans struct {
	mu  sync.Mutex
	all map[string]*planned
}

// planned is a plan and what became of it.
type planned struct {
	verb    bulkVerb
	form    string        // the filter
	filter  engine.Filter // the same
	actor   string        // whose it is: nobody else may apply it
	matched int64
	sample  []fsm.RawInstance // without documents
	lacks   []lack            // the places that are not in it
	left    []statusCount     // to which the verb cannot apply, by the last count
	at      time.Time

	mu      sync.Mutex
	plan    applies // nil once it is carried out: it holds the ids of all
	begun   time.Time
	ended   time.Time
	applied engine.Applied // so far
	fault   string
}

// applies is a plan of one engine, or of the places of a cluster.
type applies interface {
	Apply(ctx context.Context, options ...engine.VerbOption) (engine.Applied, error)
}

// planBody is a plan as the page shows it.
type planBody struct {
	Token   string
	Verb    bulkVerb
	Sample  []fsm.RawInstance
	Left    []statusCount // to which the verb cannot apply
	Matched int64
	Again   bool // it ended by a fault, and can go on
	At      time.Time
	Begun   time.Time
	Ended   time.Time
	Applied engine.Applied
	Fault   string
	Back    string
	Filter  []string
	Lacks   []lack // the places that are not in it
	Blind   bool   // how far it is cannot be told: several places carry it out
}

// Done is how many instances of a plan have been looked at.
func (b *planBody) Done() int64 { return b.Applied.Changed + b.Applied.Skipped + b.Applied.Failed }

// Percent is the part of them that is.
func (b *planBody) Percent() int { return fraction(int(b.Done()), int(b.Matched)) }

// keep stores a plan. If there are too many, or they hold too many ids, it forgets the oldest that
// is not being applied: a plan costs nothing to make anew.
func (p *plans) keep(one *planned) (token string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*planned{}
	}
	for {
		oldest, ids := p.oldest()
		if len(p.all) < maxPlans && ids+one.matched <= maxPlanned {
			break
		}
		if oldest == "" {
			return "", &misuse{http.StatusServiceUnavailable, "Too many plans are being applied.", "Wait until one of them has ended, and plan again."}
		}
		delete(p.all, oldest)
	}
	token = rand.Text()
	p.all[token] = one
	return token, nil
}

// oldest forgets what is too old, and returns the oldest plan that is not being applied, if there
// is one, and how many ids all plans hold.
func (p *plans) oldest() (oldest string, ids int64) {
	for token, one := range p.all {
		running, holds := one.holds()
		switch {
		case running:
		case time.Since(one.at) > planAge:
			delete(p.all, token)
			continue
		case oldest == "" || one.at.Before(p.all[oldest].at):
			oldest = token
		}
		ids += holds
	}
	return oldest, ids
}

// of returns a plan to whom it belongs, if their access still has the bounds that the plan has.
func (p *plans) of(ctx context.Context, token string) (*planned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[token]
	if access := accessOf(ctx); one == nil || one.actor != access.Actor || !access.Within.Equal(one.filter.Within) {
		return nil, &misuse{
			http.StatusNotFound, "There is no such plan, or no longer.",
			"A plan is kept for half an hour, by the process that made it. Plan again from the list of instances.",
		}
	}
	return one, nil
}

// holds reports whether a plan is being applied, and how many ids it keeps.
func (p *planned) holds() (running bool, ids int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan != nil {
		ids = p.matched
	}
	return !p.begun.IsZero() && p.ended.IsZero(), ids
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
	f, err := s.filter(ctx, form, time.Now())
	if err != nil {
		return "", nil, err
	}
	f.All = r.PostForm.Get("all") != ""
	one := &planned{form: form.Encode(), filter: f, actor: accessOf(ctx).Actor, at: time.Now()}
	for _, v := range bulkVerbs {
		if string(v.Verb) == r.PostForm.Get("verb") {
			one.verb = v
		}
	}
	if one.verb.Verb == "" {
		return "", nil, &misuse{http.StatusBadRequest, "Which verb?", "Choose one, and plan again."}
	}
	if err := s.match(ctx, one); err != nil {
		return "", nil, err
	}
	for n := range one.sample {
		one.sample[n].State, one.sample[n].Result, one.sample[n].Progress = nil, nil, nil
	}
	counts, err := s.counts(ctx)
	if err != nil {
		return "", nil, err
	}
	one.left, _ = one.verb.leaves(f, counts.Counts)
	token, err := s.plans.keep(one)
	if err != nil {
		return "", nil, err
	}
	return "", nil, &elsewhere{"plans/" + token}
}

// match finds the instances of a plan.
func (s *server) match(ctx context.Context, one *planned) error {
	if s.cluster == nil {
		plan, err := turned(ctx, s.turns.heavy, func(ctx context.Context) (*engine.Plan, error) {
			return s.sites[0].engine.Admin().Bulk(ctx, one.verb.Verb, one.filter)
		})
		if err != nil {
			return err
		}
		one.plan, one.matched, one.sample = plan, plan.Matched, plan.Sample
		return nil
	}
	plan, err := turned(ctx, s.turns.heavy, func(ctx context.Context) (*cluster.Plan, error) {
		return s.cluster.Admin().Bulk(ctx, one.verb.Verb, one.filter)
	})
	if err != nil {
		return err
	}
	one.plan, one.matched, one.sample = plan, plan.Matched, plan.Sample
	for _, e := range plan.Lacks {
		one.lacks = append(one.lacks, lackOf(e.Place, e.Err))
	}
	return nil
}

func (s *server) planPage(r *http.Request) (string, *page, error) {
	one, err := s.plans.of(r.Context(), r.PathValue("token"))
	if err != nil {
		return "", nil, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	b := &planBody{
		Token: r.PathValue("token"), Verb: one.verb, Sample: one.sample, Left: one.left, Matched: one.matched, At: one.at, Begun: one.begun, Ended: one.ended,
		Applied: one.applied, Fault: one.fault, Back: "instances?" + one.form,
		Again: !one.ended.IsZero() && one.plan != nil, Lacks: one.lacks, Blind: s.cluster != nil,
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
	descend := r.PostForm.Get("descendants") != "" && one.verb.Verb == engine.VerbCancel
	one.mu.Lock()
	defer one.mu.Unlock()
	here := &elsewhere{"../" + r.PathValue("token")}
	if one.plan == nil || !one.begun.IsZero() && one.ended.IsZero() {
		return "", nil, here // twice clicked
	}
	one.begun, one.ended, one.applied, one.fault = time.Now(), time.Time{}, engine.Applied{}, ""
	options := []engine.VerbOption{engine.Reason(r.PostForm.Get("reason"))}
	if s.cluster == nil {
		options = append(options, engine.Watching(one.goes))
	}
	if descend {
		options = append(options, engine.Descendants())
	}
	go s.carryOut(context.WithoutCancel(r.Context()), one, one.plan, options)
	return "", nil, here
}

// goes notes how far a plan is.
func (p *planned) goes(applied engine.Applied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = applied
}

// carryOut applies a plan. One that a fault has ended can be applied again, and then does the rest.
func (s *server) carryOut(ctx context.Context, one *planned, plan applies, options []engine.VerbOption) {
	limited, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	applied, err := turned(limited, s.turns.bulk, func(ctx context.Context) (engine.Applied, error) { return plan.Apply(ctx, options...) })
	s.shared.forget()
	one.mu.Lock()
	defer one.mu.Unlock()
	one.applied, one.ended = applied, time.Now()
	if err == nil || applied.Changed+applied.Skipped+applied.Failed >= one.matched {
		one.plan = nil
	}
	if err != nil {
		_, text, _ := explain(err)
		one.fault = fmt.Sprintf("%s %s", text, cut(err.Error(), 500))
		s.log.Warn("dashboard: apply a plan", slog.String("verb", string(one.verb.Verb)), slog.Any("error", err))
	}
}
