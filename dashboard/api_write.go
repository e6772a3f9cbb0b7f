package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// apiReason is the body of a verb that needs nothing but a reason.
type apiReason struct {
	Reason string `json:"reason,omitempty"` // for the audit
}

type apiCancel struct {
	Reason      string `json:"reason,omitempty"`
	Descendants bool   `json:"descendants,omitempty"` // also all live descendants
}

type apiReschedule struct {
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

type apiEdit struct {
	Reason string          `json:"reason,omitempty"`
	Visit  int64           `json:"visit"` // that the state is of which this one is made
	State  json.RawMessage `json:"state"`
}

type apiRewind struct {
	Reason string `json:"reason,omitempty"`
	Visit  int64  `json:"visit"`
	Step   string `json:"step"`
}

type apiSend struct {
	Reason  string          `json:"reason,omitempty"`
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Dedup   string          `json:"dedup,omitempty"` // deliver it once, however often it is sent with this key
}

// apiDone says what a verb did.
type apiDone struct {
	Verb    string `json:"verb"`
	Changed bool   `json:"changed"` // false: there was nothing to be changed, or the signal was delivered before
}

// apiSubject is the body of a verb on a queue, a schedule or a gate.
type apiSubject struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
	Place  *int   `json:"place,omitempty"` // of a gate of a cluster: each place has its own
}

// apiSetGate changes numbers of a gate, and leaves the rest of it as it is.
type apiSetGate struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
	Place  *int   `json:"place,omitempty"` // of a cluster: each place has its own
	Places int    `json:"places,omitempty"`
	Total  int    `json:"total,omitempty"`
	Rate   int    `json:"rate,omitempty"` // the number of its rate; the period stays
}

// apiPlanOf says what to plan.
type apiPlanOf struct {
	Verb   engine.Verb `json:"verb"`
	All    bool        `json:"all,omitempty"` // with an empty filter: of all instances
	Filter apiSelect   `json:"filter"`
}

// apiSelect is a filter, as the query of instances has it.
type apiSelect struct {
	Machine   string            `json:"machine,omitempty"`
	Version   int               `json:"version,omitempty"`
	Step      string            `json:"step,omitempty"`
	Queue     string            `json:"queue,omitempty"`
	Status    []string          `json:"status,omitempty"`
	Failure   []string          `json:"failure,omitempty"`
	Key       string            `json:"key,omitempty"`
	Prefix    string            `json:"prefix,omitempty"`
	Partition string            `json:"partition,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Parent    string            `json:"parent,omitempty"`
	Since     time.Time         `json:"since,omitzero"`
	Before    time.Time         `json:"before,omitzero"`
	Error     string            `json:"error,omitempty"`
}

func (f *apiSelect) form() url.Values {
	form := url.Values{"status": f.Status, "failure": f.Failure}
	for name, text := range map[string]string{
		"machine": f.Machine, "step": f.Step, "queue": f.Queue, "key": f.Key, "prefix": f.Prefix, "partition": f.Partition, "parent": f.Parent,
		"error": f.Error, "since": stamp(f.Since), "before": stamp(f.Before),
	} {
		form.Set(name, text)
	}
	if f.Version != 0 {
		form.Set("version", strconv.Itoa(f.Version))
	}
	for name, value := range f.Labels {
		form.Add("label", name+"="+value)
	}
	return form
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// apiPlanned is a plan, and what became of it.
type apiPlanned struct {
	Token   string          `json:"token"`
	Verb    engine.Verb     `json:"verb"`
	Matched int64           `json:"matched"`
	Sample  []apiInstance   `json:"sample"`
	At      time.Time       `json:"at"`
	Begun   time.Time       `json:"begun,omitzero"` // left out: it was not applied
	Ended   time.Time       `json:"ended,omitzero"` // left out: it is not over
	Applied *engine.Applied `json:"applied"`        // so far; null: it was not applied
	Fault   string          `json:"fault,omitempty"`
	Lacks   []lack          `json:"lacks,omitempty"` // the places of a cluster that are not in it
}

// apiApply is how to apply a plan.
type apiApply struct {
	Reason      string `json:"reason,omitempty"`
	Descendants bool   `json:"descendants,omitempty"` // of a cancel
}

func apiChanges() []apiRoute {
	return []apiRoute{
		changing("/api/instances", "insert", "Insert an instance of a machine of which a program has stored the definition.", (*server).apiInsertOne),
		onInstance("cancel", "End an instance as failed.", func(in *apiCancel, form url.Values) {
			form.Set("reason", in.Reason)
			if in.Descendants {
				form.Set("descendants", "1")
			}
		}),
		onInstance("retry", "Run a failed instance again at the step in which it failed.", reasonOnly),
		onInstance("restart", "Run again what has failed beneath an instance, and what was skipped for it.", reasonOnly),
		onInstance("run_now", "Make an instance eligible now.", reasonOnly),
		onInstance("pause", "Keep an instance from being claimed.", reasonOnly),
		onInstance("resume", "End a pause.", reasonOnly),
		onInstance("reschedule", "Make a runnable instance eligible at a time.", func(in *apiReschedule, form url.Values) {
			form.Set("reason", in.Reason)
			form.Set("at", stamp(in.At))
		}),
		onInstance("edit", "Change the state of an instance that neither executes nor is done.", func(in *apiEdit, form url.Values) {
			form.Set("reason", in.Reason)
			form.Set("visit", strconv.FormatInt(in.Visit, 10))
			form.Set("state", string(in.State))
		}),
		onInstance("rewind", "Make such an instance go on at another step.", func(in *apiRewind, form url.Values) {
			form.Set("reason", in.Reason)
			form.Set("visit", strconv.FormatInt(in.Visit, 10))
			form.Set("step", in.Step)
		}),
		onInstance("signal", "Send a signal to an instance.", func(in *apiSend, form url.Values) {
			form.Set("reason", in.Reason)
			form.Set("name", in.Name)
			form.Set("payload", string(in.Payload))
			form.Set("dedup", in.Dedup)
		}),
		onSubject("pause_queue", "Pause a queue: nobody claims from it."), onSubject("resume_queue", "End a queue's pause."),
		onSubject("pause_schedule", "Pause a schedule."), onSubject("resume_schedule", "End a schedule's pause."),
		onSubject("run_schedule", "Insert an instance of a schedule now."), onSubject("delete_schedule", "Remove a schedule."),
		onSubject("close_gate", "Let none begin behind a gate, or one key of it."), onSubject("open_gate", "End that."),
		onSubject("drop_gate", "Remove a gate."),
		changing("/api/verbs/set_gate", "set_gate", "Change the numbers of a gate.", func(s *server, r *http.Request, in *apiSetGate) (apiDone, error) {
			form := url.Values{"name": {in.Name}, "reason": {in.Reason}, "place": {placeText(in.Place)}}
			for field, n := range map[string]int{"places": in.Places, "total": in.Total, "rate": in.Rate} {
				if n != 0 {
					form.Set(field, strconv.Itoa(n))
				}
			}
			return s.apiOperate(r, "set_gate", form)
		}),
		changing("/api/plans", "make_plan", "Find out which instances a verb would change; nothing is changed.", (*server).apiMakePlan),
		changing("/api/plans/{token}/apply", "apply_plan", "Carry out a plan.", (*server).apiApplyPlan),
	}
}

func reasonOnly(in *apiReason, form url.Values) { form.Set("reason", in.Reason) }

// onInstance makes the route of a verb on an instance. fill makes the page's form of the body.
func onInstance[I any](verb, summary string, fill func(*I, url.Values)) apiRoute {
	return changing("/api/instances/{id}/"+verb, verb, summary, func(s *server, r *http.Request, in *I) (apiDone, error) {
		form := url.Values{}
		fill(in, form)
		r.SetPathValue("verb", verb)
		_, _, err := s.act(asForm(r, form))
		done, err := did(err)
		return apiDone{verb, done != "duplicate" && done != "none"}, err
	})
}

// onSubject makes the route of a verb on a queue, a schedule or a gate.
func onSubject(verb, summary string) apiRoute {
	return changing("/api/verbs/"+verb, verb, summary, func(s *server, r *http.Request, in *apiSubject) (apiDone, error) {
		return s.apiOperate(r, verb, url.Values{"name": {in.Name}, "reason": {in.Reason}, "place": {placeText(in.Place)}})
	})
}

func placeText(place *int) string {
	if place == nil {
		return ""
	}
	return strconv.Itoa(*place)
}

func (s *server) apiOperate(r *http.Request, verb string, form url.Values) (apiDone, error) {
	if form.Get("name") == "" {
		return apiDone{}, &fieldError{"name", errors.New("empty: name the queue, the schedule or the gate")}
	}
	r.SetPathValue("verb", verb)
	_, _, err := s.operate(asForm(r, form))
	done, err := did(err)
	return apiDone{verb, done != "none"}, err
}

func (s *server) apiMakePlan(r *http.Request, in *apiPlanOf) (out apiPlanned, err error) {
	for name := range in.Filter.Labels {
		if strings.Contains(name, "=") { // the form has one text for both, and would divide it elsewhere
			return out, &fieldError{"filter.labels", fmt.Errorf("the name %q has an equals sign, which a filter here cannot express", cut(name, 80))}
		}
	}
	form := in.Filter.form()
	form.Set("verb", string(in.Verb))
	if in.All {
		form.Set("all", "1")
	}
	_, _, err = s.plan(asForm(r, form))
	to, ok := errors.AsType[*elsewhere](err)
	if !ok {
		return out, err
	}
	r.SetPathValue("token", path.Base(to.path))
	return s.apiPlan(r)
}

func (s *server) apiPlan(r *http.Request) (out apiPlanned, err error) {
	token := r.PathValue("token")
	one, err := s.plans.of(r.Context(), token)
	if err != nil {
		return out, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	out = apiPlanned{
		Token: token, Verb: one.verb.Verb, Matched: one.matched, At: one.at, Begun: one.begun, Ended: one.ended, Fault: one.fault, Lacks: one.lacks,
	}
	for n := range one.sample {
		out.Sample = append(out.Sample, apiInstanceOf(&one.sample[n]))
	}
	if !one.begun.IsZero() {
		out.Applied = new(one.applied) // a copy: it may go on
	}
	return out, nil
}

// apiApplyPlan begins to carry out a plan. GET of the plan says how it goes.
func (s *server) apiApplyPlan(r *http.Request, in *apiApply) (out apiPlanned, err error) {
	form := url.Values{"reason": {in.Reason}}
	if in.Descendants {
		form.Set("descendants", "1")
	}
	_, _, err = s.apply(asForm(r, form))
	if _, ok := errors.AsType[*elsewhere](err); !ok {
		return out, fmt.Errorf("apply a plan: %w", err)
	}
	return s.apiPlan(r)
}
