package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
)

// notices say what a verb has done, by what the link of the page after it says.
var notices = map[string]string{
	"cancel": "Cancelled.", "retry": "It runs again, at the step in which it failed.", "restart": "What had failed runs again.", "run_now": "It is due now.",
	"reschedule": "It has a new time.", "pause": "Paused.", "resume": "Resumed.", "edit": "The state is changed.",
	"rewind": "It goes on at that step.", "signal": "The signal is in the inbox.", "duplicate": "That signal was delivered before: nothing was changed.",
	"pause_queue": "The queue is paused: nobody claims from it.", "resume_queue": "The queue is resumed.",
	"pause_schedule": "The schedule is paused.", "resume_schedule": "The schedule is resumed.", "run_schedule": "An instance of the schedule is inserted.",
	"delete_schedule": "The schedule is deleted.", "close_gate": "The limit is closed: none begins.", "open_gate": "The limit is open.",
	"set_gate": "The limit is changed.", "drop_gate": "The limit is deleted.", "none": "Nothing had to be changed.",
}

// oneVerb is a verb that applies to an instance as it is.
type oneVerb struct {
	Verb  engine.Verb
	Name  string
	Says  string // what it does
	Field string // what it needs beside a reason: "descendants", "at", "state" or "step"
	Harsh bool
}

// verbsFor lists the verbs that apply to an instance. causes say why it does not run.
func verbsFor(row *ent.Instance, causes []engine.Cause) (all []oneVerb) {
	add := func(applies bool, v oneVerb) {
		if applies {
			all = append(all, v)
		}
	}
	retries, restarts := row.Status == fsm.StatusFailed, restarts(row)
	for _, c := range causes {
		if c.UseRestart {
			retries, restarts = false, slices.Contains(c.IDs, row.ID)
		}
	}
	live, runnable := !row.Status.Terminal(), row.Status == fsm.StatusRunnable
	add(retries, oneVerb{Verb: engine.VerbRetry, Name: "Retry", Says: "Run it again at the step in which it failed, with attempts from 0."})
	add(restarts, oneVerb{
		Verb: engine.VerbRestart, Name: "Restart", Says: "Run again what has failed in it or beneath it, and what was skipped for that."})
	add(runnable && row.EligibleAt.After(time.Now()), oneVerb{Verb: engine.VerbRunNow, Name: "Run now", Says: "Make it eligible now instead of at its time."})
	add(runnable, oneVerb{Verb: engine.VerbReschedule, Name: "Reschedule", Says: "Make it eligible at another time.", Field: "at"})
	add(live && !row.Paused, oneVerb{Verb: engine.VerbPause, Name: "Pause", Says: "Keep it from being claimed until somebody resumes it."})
	add(live && row.Paused, oneVerb{Verb: engine.VerbResume, Name: "Resume", Says: "Let it be claimed again."})
	add(live, oneVerb{Verb: engine.VerbCancel, Name: "Cancel", Says: "End it as failed, whatever it is doing.", Field: "descendants", Harsh: true})
	return all
}

// restarts reports whether an instance may have something beneath it, or be a node, that a Restart
// runs again.
func restarts(row *ent.Instance) bool {
	return row.Status == fsm.StatusFailed && (row.Node != nil || row.Round > 0) || row.Status == fsm.StatusAwaitingChildren && row.Round > 0
}

// final are the verbs that cannot be taken back. Plans ask for a reason, whatever their verb.
var final = []string{string(engine.VerbCancel), string(engine.VerbDropGate), string(engine.VerbDeleteSchedule)}

// because refuses a form of a final verb without a reason. So none is one click: the form has to be
// opened, and filled in. Requests of the API are written by programs, and may leave it out.
func because(answer func(*http.Request) (string, *page, error)) func(*http.Request) (string, *page, error) {
	return func(r *http.Request) (string, *page, error) {
		if err := r.ParseForm(); err != nil {
			return "", nil, formFault(err)
		}
		if slices.Contains(final, r.PathValue("verb")) && strings.TrimSpace(r.PostForm.Get("reason")) == "" {
			return "", nil, &misuse{http.StatusBadRequest, "This cannot be taken back, so it needs a reason.", "Nothing was changed. Go back and say why."}
		}
		return answer(r)
	}
}

// act carries out a verb on an instance that the access may see.
func (s *server) act(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	id, err := idOf(r)
	if err != nil {
		return "", nil, err
	}
	if err := r.ParseForm(); err != nil {
		return "", nil, formFault(err)
	}
	if _, err := s.row(ctx, id); err != nil {
		return "", nil, err
	}
	verb := r.PathValue("verb")
	at, err := s.home(ctx, id)
	if err != nil {
		return "", nil, err
	}
	did, err := turned(ctx, at.turns.verbs, func(ctx context.Context) (string, error) { return s.one(ctx, at, id, verb, r.PostForm) })
	s.shared.forget()
	if err != nil {
		return "", nil, err
	}
	return "", nil, &elsewhere{"../" + strconv.FormatInt(int64(id), 10) + "?did=" + url.QueryEscape(did)}
}

func formFault(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if late := bodyFault(err); late != nil {
		return late
	}
	return &misuse{http.StatusBadRequest, "The form could not be read.", "Go back and send it again."}
}

// bodyFault returns the error of a body that did not arrive in time, else nil.
func bodyFault(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return &misuse{http.StatusRequestTimeout, "Your request did not arrive in time.", "Nothing was changed. Send it again."}
}

// one carries out a verb, and returns which notice says so.
func (s *server) one(ctx context.Context, at *site, id fsm.ID, verb string, form url.Values) (did string, err error) {
	admin := at.engine.Admin()
	ctx = engine.WithReason(ctx, form.Get("reason"))
	bound := engine.Within(accessOf(ctx).Within)
	switch verb {
	case "cancel":
		options := []engine.VerbOption{bound}
		if form.Get("descendants") != "" {
			options = append(options, engine.Descendants())
		}
		_, err = admin.Cancel(ctx, id, options...)
	case "retry":
		_, err = admin.Retry(ctx, id, bound)
	case "restart":
		_, err = admin.Restart(ctx, id, bound)
	case "run_now":
		_, err = admin.RunNow(ctx, id, bound)
	case "pause":
		_, err = admin.Pause(ctx, id, bound)
	case "resume":
		_, err = admin.Resume(ctx, id, bound)
	case "reschedule":
		when, wrong := futureOf(form.Get("at"), time.Now())
		if wrong != nil {
			return "", &misuse{http.StatusBadRequest, fmt.Sprintf("at: %q is no time.", cut(form.Get("at"), 60)), "Give a time like 2026-11-22 18:00 in UTC, or how long from now, like 90m or 2d."}
		}
		_, err = admin.Reschedule(ctx, id, when, bound)
	case "edit", "rewind":
		err = s.change(ctx, at, id, verb, form)
	case "signal":
		return send(ctx, at, id, form)
	default:
		return "", errNoSuchPage
	}
	return verb, err
}

// change edits or rewinds at the visit that the reader has seen.
func (s *server) change(ctx context.Context, at *site, id fsm.ID, verb string, form url.Values) error {
	visit, err := strconv.ParseInt(form.Get("visit"), 10, 64)
	if err != nil {
		return &misuse{http.StatusBadRequest, "The form does not say at which visit.", "Open the instance's page, and change its state there."}
	}
	state := json.RawMessage(form.Get("state"))
	var change fsm.Change
	if verb == "edit" {
		if s.Show != nil { // what is shown may not be what is stored
			row, err := s.row(ctx, id)
			if err != nil {
				return err
			}
			if !s.shownWhole(ctx, row) {
				return &misuse{http.StatusForbidden, "This state is shown in part only, so it cannot be changed here.", "Nothing was changed."}
			}
		}
		if !json.Valid(state) {
			return &misuse{http.StatusBadRequest, "The state is not JSON.", "Nothing was changed. Go back and correct it."}
		}
		change = fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return state, nil })
	}
	if verb == "rewind" {
		_, err = at.engine.Admin().Rewind(ctx, id, form.Get("step"), change, engine.AtVisit(visit), engine.Within(accessOf(ctx).Within))
		return err
	}
	_, err = at.engine.Admin().Edit(ctx, id, change, engine.AtVisit(visit), engine.Within(accessOf(ctx).Within))
	return err
}

func send(ctx context.Context, at *site, id fsm.ID, form url.Values) (did string, err error) {
	payload := json.RawMessage(form.Get("payload"))
	if len(payload) == 0 {
		payload = json.RawMessage("null")
	}
	if !json.Valid(payload) {
		return "", &misuse{http.StatusBadRequest, "The payload is not JSON.", "Nothing was sent. Go back and correct it."}
	}
	m := fsm.DeclareSignal[json.RawMessage](form.Get("name")).With(payload)
	if key := form.Get("dedup"); key != "" {
		m = m.DedupKey(key)
	}
	d, err := at.engine.Signal(ctx, id, m)
	if wrong, ok := errors.AsType[*fsm.MessageError](err); ok {
		return "", &misuse{http.StatusBadRequest, wrong.Error(), "Nothing was sent."}
	}
	if d.Duplicate {
		return "duplicate", err
	}
	return "signal", err
}

// futureOf reads a time, or how long from now it is.
func futureOf(text string, now time.Time) (time.Time, error) {
	at, err := timeOf(text, now)
	if err != nil || text == "" {
		return at, fmt.Errorf("%q is no time", text)
	}
	if _, absolute := time.ParseDuration(text); absolute == nil || text[len(text)-1] == 'd' {
		return now.Add(now.Sub(at)), nil // timeOf counts back
	}
	return at, nil
}

// operate carries out the verbs on queues, schedules and limits, and goes back to their page.
func (s *server) operate(r *http.Request) (string, *page, error) {
	if err := r.ParseForm(); err != nil {
		return "", nil, formFault(err)
	}
	ctx := engine.WithReason(r.Context(), r.PostForm.Get("reason"))
	name, verb := r.PostForm.Get("name"), r.PathValue("verb")
	if err := s.mayOperate(ctx, verb, name); err != nil {
		return "", nil, err
	}
	at, err := s.subject(ctx, verb, name, r.PostForm.Get("place"))
	if err != nil {
		return "", nil, err
	}
	admin := at.engine.Admin()
	done, err := at.turns.verbs.take(ctx)
	if err != nil {
		return "", nil, err
	}
	defer done()
	back, changed := "queues", true
	switch verb {
	case "pause_queue":
		changed, err = s.queueVerbs().PauseQueue(ctx, name)
		err = s.halfDone(err)
	case "resume_queue":
		changed, err = s.queueVerbs().ResumeQueue(ctx, name)
		err = s.halfDone(err)
	case "pause_schedule":
		back = "schedules"
		changed, err = admin.PauseSchedule(ctx, name)
	case "resume_schedule":
		back = "schedules"
		changed, err = admin.ResumeSchedule(ctx, name)
	case "run_schedule":
		back = "schedules"
		_, err = admin.RunSchedule(ctx, name)
	case "delete_schedule":
		back = "schedules"
		err = admin.DeleteSchedule(ctx, name)
	case "close_gate":
		back = "limits"
		changed, err = admin.CloseGate(ctx, name, time.Time{})
	case "open_gate":
		back = "limits"
		changed, err = admin.OpenGate(ctx, name)
	case "drop_gate":
		back = "limits"
		changed, err = admin.DropGate(ctx, name)
	case "set_gate":
		back = "limits"
		changed, err = setGate(ctx, at, name, r.PostForm)
	default:
		return "", nil, errNoSuchPage
	}
	s.shared.forget()
	if strings.HasSuffix(verb, "_gate") && errors.Is(err, engine.ErrNotFound) {
		err = errNoGate
	}
	if err != nil {
		return "", nil, err
	}
	if !changed {
		verb = "none"
	}
	return "", nil, &elsewhere{"../" + back + "?did=" + verb}
}

// subject returns the engine that has what a verb is about: a schedule is at the place of its name,
// a gate at that which the form names. Queues are at all.
func (s *server) subject(ctx context.Context, verb, name, place string) (*site, error) {
	switch {
	case s.cluster == nil || strings.HasSuffix(verb, "_queue"):
		return s.sites[0], nil
	case strings.HasSuffix(verb, "_schedule"):
		return s.at(ctx, s.cluster.PlaceOf(name), engine.ErrNoSchedule)
	}
	return s.placeOf(ctx, place)
}

// queueVerbs has the verbs of the only engine, or of all places.
type queueVerbs interface {
	PauseQueue(ctx context.Context, queue string, options ...engine.VerbOption) (bool, error)
	ResumeQueue(ctx context.Context, queue string, options ...engine.VerbOption) (bool, error)
}

func (s *server) queueVerbs() queueVerbs {
	if s.cluster != nil {
		return s.cluster.Admin()
	}
	return s.sites[0].engine.Admin()
}

// halfDone says at which places a verb was not carried out.
func (s *server) halfDone(err error) error {
	lacks := cluster.PlaceErrors(err)
	if len(lacks) == 0 || len(lacks) == len(s.sites) {
		return err
	}
	at := make([]string, len(lacks))
	for n, e := range lacks {
		at[n] = strconv.Itoa(e.Place)
	}
	return &misuse{http.StatusServiceUnavailable, "It is done, but not at place " + strings.Join(at, ", ") + ", which did not answer.", "Do it again once all places answer."}
}

// mayOperate looks whether the access covers what a verb is about. A user who may not see it does
// not learn that it exists.
func (s *server) mayOperate(ctx context.Context, verb, name string) error {
	access := accessOf(ctx)
	if access.everywhere() || strings.HasSuffix(verb, "_queue") && access.byQueue() && access.sees(name, "") {
		return nil
	}
	return &misuse{http.StatusForbidden, "Your access does not cover this.", "Nothing was changed."}
}

// setGate changes the numbers of a limit, and leaves the rest of it as it is.
func setGate(ctx context.Context, at *site, name string, form url.Values) (changed bool, err error) {
	all, err := at.engine.Admin().Gates(ctx)
	if err != nil {
		return false, err
	}
	for _, g := range all {
		if g.Name != name {
			continue
		}
		for field, into := range map[string]*int{"places": &g.Places, "total": &g.Total, "rate": &g.Rate.N} {
			text := form.Get(field)
			if text == "" {
				continue
			}
			if *into, err = strconv.Atoi(text); err != nil {
				return false, &misuse{http.StatusBadRequest, fmt.Sprintf("%s: %q is no number.", field, cut(text, 20)), "Nothing was changed."}
			}
		}
		return at.engine.Admin().SetGate(ctx, g.Gate)
	}
	return false, errNoGate
}

var errNoGate = &misuse{http.StatusNotFound, "There is no such limit, or no longer.", "The list of limits shows what there is."}
