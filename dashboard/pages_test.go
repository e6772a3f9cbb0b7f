package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

const patience = time.Minute

// hostile is markup, a direction mark and a template, as a name, a label, an error and a state.
const hostile = `<script>alert(1)</script>"'{{.}}` + "\u202eevil"

type order struct {
	Card  string `json:"card"`
	Big   int64  `json:"big"`
	Fails bool   `json:"fails,omitempty"`
}

var (
	shop = fsm.Declare[order, string]("shop", fsm.Queue("orders"))
	paid = fsm.DeclareSignal[string]("paid")
)

// world is a database with a worker, and a server that serves its dashboard.
type world struct {
	t   *testing.T
	eng *engine.Engine
	*httptest.Server
}

// newWorld starts both. An order waits for a payment, or fails if its state says so.
func newWorld(t *testing.T, o dashboard.Options) *world {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	definition := shop.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			if v.State.Fails {
				return nil, fsm.Permanent(errors.New("declined: " + hostile))
			}
			return v.Await("ship", v.State, paid), nil
		}).To("ship"),
		fsm.Step("ship", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			return v.Done("shipped " + v.State.Card), nil
		}),
	).History(fsm.KeepStates)
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: []fsm.Definition{definition}, Queues: map[string]engine.Queue{"orders": {Concurrency: 4, PollMax: 300 * time.Millisecond}},
		Schedules: []engine.Schedule{engine.Every("nightly", 24*time.Hour, shop.New(order{Card: "scheduled"}))},
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })
	h, err := dashboard.New(eng, o)
	require.NoError(t, err)
	w := &world{t, eng, httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

// insert inserts an order and waits until it stands where its state lets it get to.
func (w *world) insert(state order, change func(fsm.Spec) fsm.Spec) fsm.ID {
	w.t.Helper()
	spec := shop.New(state)
	if change != nil {
		spec = change(spec)
	}
	id, err := w.eng.Insert(w.t.Context(), spec)
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	_, err = w.eng.WaitParked(ctx, id, -1)
	require.NoError(w.t, err)
	return id
}

// get reads a page, and fails where the answer is another.
func (w *world) get(path string, status int) string {
	w.t.Helper()
	answer, err := w.Client().Get(w.URL + path)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, answer.Body.Close()) }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, status, answer.StatusCode, "%s: %s", path, body)
	return string(body)
}

// post sends a form, and returns its target.
func (w *world) post(path string, status int, fields ...string) string {
	w.t.Helper()
	form := url.Values{}
	for n := 0; n < len(fields); n += 2 {
		form.Add(fields[n], fields[n+1])
	}
	answer, err := w.Client().PostForm(w.URL+path, form)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, answer.Body.Close()) }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, status, answer.StatusCode, "%s: %s", path, body)
	if to := answer.Header.Get("Location"); to != "" {
		at, err := answer.Request.URL.Parse(to)
		require.NoError(w.t, err)
		return at.RequestURI()
	}
	return string(body)
}

var allPages = []string{"/", "/machines", "/instances", "/queues", "/limits", "/schedules", "/workers", "/audit"}

func TestEveryPageIsThereWhenNothingIs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{})
	require.NoError(t, err)
	for _, path := range allPages {
		answer := ask(t, h, http.MethodGet, path, nil)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", path, body)
		require.Contains(t, string(body), `class="empty"`, path)
		require.NotContains(t, string(body), "ZgotmplZ", path)
	}
	require.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "/instances/7", nil).StatusCode)
	require.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "/instances/x", nil).StatusCode)
	require.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "/machine?name=x", nil).StatusCode)
	require.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "/nothing", nil).StatusCode)
	require.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "/plans/x", nil).StatusCode)
	require.Equal(t, http.StatusBadRequest, ask(t, h, http.MethodGet, "/instances?version=x", nil).StatusCode)
	require.Equal(t, http.StatusBadRequest, ask(t, h, http.MethodGet, "/instances?status=x", nil).StatusCode)
}

// The contents of instances are never more than text, on no page; numbers keep all their digits.
func TestPagesShowWhatIsThereAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{Card: hostile, Big: 9007199254740993}, func(s fsm.Spec) fsm.Spec {
		return s.Key(fsm.Key("key "+hostile)).Label("customer", hostile)
	})
	w.insert(order{Fails: true}, nil)
	_, err := w.eng.Admin().PauseQueue(t.Context(), "queue "+hostile, engine.Reason(hostile))
	require.NoError(t, err)
	_, err = w.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "<b>gate", Queue: "orders", Places: 3})
	require.NoError(t, err)
	_, err = w.eng.Signal(t.Context(), id, fsm.DeclareSignal[string]("<i>other").With(hostile))
	require.NoError(t, err)
	one := fmt.Sprintf("/instances/%d", id)
	var all string
	for _, path := range append([]string{one, "/machine?name=shop", "/limits?keys=" + url.QueryEscape("<b>gate"), "/instances?label=" + url.QueryEscape("customer="+hostile)}, allPages...) {
		body := w.get(path, http.StatusOK)
		require.NotContains(t, body, "<script>alert", path)
		require.NotContains(t, body, "<b>gate", path)
		require.NotContains(t, body, "<i>other", path)
		require.NotContains(t, body, "ZgotmplZ", path)
		require.NotContains(t, body, " style=", "%s: the policy forbids inline styles", path)
		require.Less(t, len(body), 100<<10, path)
		all += body
	}
	require.Contains(t, all, "&lt;script&gt;alert(1)&lt;/script&gt;")
	body := w.get(one, http.StatusOK)
	require.Contains(t, body, "9007199254740993")
	require.Contains(t, body, "it awaits a signal, paid")
	require.Contains(t, body, "&lt;i&gt;other")
	body = w.get("/machine?name=shop", http.StatusOK)
	require.Contains(t, body, `<svg class="figure`)
	require.Contains(t, body, `<title>step ship, 1 awaiting signal</title>`)
	require.Contains(t, body, "not taken")
	require.Contains(t, w.get("/", http.StatusOK), "declined: &lt;script")
	require.Contains(t, w.get("/audit", http.StatusOK), "pause queue")
	require.Contains(t, w.get("/schedules", http.StatusOK), "nightly")
	require.Contains(t, w.get("/workers", http.StatusOK), "shop/1")
	require.Contains(t, w.get(one+"/state", http.StatusOK), "9007199254740993")
}

func TestVerbsGoFromTheFormToTheRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{Authorize: dashboard.Loopback(dashboard.Access{Level: dashboard.Operate, Actor: "ada"})})
	id := w.insert(order{Card: "first"}, nil)
	one := fmt.Sprintf("/instances/%d", id)
	row := func() fsm.RawInstance {
		i, err := w.eng.Get(t.Context(), id)
		require.NoError(t, err)
		return i
	}
	to := w.post(one+"/pause", http.StatusSeeOther, "reason", "a test")
	require.Equal(t, one+"?did=pause", to)
	require.True(t, row().Paused)
	require.Contains(t, w.get(to, http.StatusOK), "Paused.")
	w.post(one+"/pause", http.StatusConflict)
	w.post(one+"/resume", http.StatusSeeOther)
	require.False(t, row().Paused)

	visit := fmt.Sprint(row().Visit)
	w.post(one+"/edit", http.StatusBadRequest, "visit", visit, "state", "{")
	w.post(one+"/edit", http.StatusConflict, "visit", "999", "state", "{}")
	w.post(one+"/edit", http.StatusSeeOther, "visit", visit, "state", `{"card":"second","big":9007199254740993}`, "reason", "wrong card")
	require.JSONEq(t, `{"card":"second","big":9007199254740993}`, string(row().State))

	w.post(one+"/signal", http.StatusBadRequest, "name", "paid", "payload", "{")
	w.post(one+"/signal", http.StatusBadRequest, "name", "", "payload", "1")
	w.post(one+"/signal", http.StatusSeeOther, "name", "paid", "payload", `"yes"`, "dedup", "once")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done, err := w.eng.Wait(ctx, id)
	require.NoError(t, err)
	require.JSONEq(t, `"shipped second"`, string(done.Result))
	w.post(one+"/cancel", http.StatusConflict, "reason", "late")
	w.post(one+"/explode", http.StatusNotFound)
	w.post("/instances/999999/cancel", http.StatusNotFound, "reason", "none")

	body := w.get("/audit", http.StatusOK)
	require.Contains(t, body, "<bdi>ada</bdi>")
	require.Contains(t, body, "wrong card")

	w.post("/verbs/pause_queue", http.StatusSeeOther, "name", "orders", "reason", "quiet")
	require.Contains(t, w.get("/queues", http.StatusOK), "paused")
	w.post("/verbs/resume_queue", http.StatusSeeOther, "name", "orders")
	require.NotContains(t, w.get("/queues", http.StatusOK), `class="tag amber"`)
	require.Equal(t, "/queues?did=none", w.post("/verbs/resume_queue", http.StatusSeeOther, "name", "orders"))
	for _, verb := range []string{"pause_schedule", "resume_schedule", "run_schedule", "delete_schedule"} {
		require.Equal(t, "/schedules?did="+verb, w.post("/verbs/"+verb, http.StatusSeeOther, "name", "nightly", "reason", "a test"))
	}
	w.post("/verbs/run_schedule", http.StatusNotFound, "name", "nightly")
	_, err = w.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "narrow", Queue: "orders", Places: 3, Rate: engine.Rate{N: 5, Per: time.Second}})
	require.NoError(t, err)
	w.post("/verbs/set_gate", http.StatusBadRequest, "name", "narrow", "places", "many")
	w.post("/verbs/set_gate", http.StatusSeeOther, "name", "narrow", "places", "7", "rate", "9")
	gates, err := w.eng.Admin().Gates(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, gates[0].Places)
	require.Equal(t, engine.Rate{N: 9, Per: time.Second, Burst: 1}, gates[0].Rate)
	for _, verb := range []string{"close_gate", "open_gate", "drop_gate"} {
		require.Equal(t, "/limits?did="+verb, w.post("/verbs/"+verb, http.StatusSeeOther, "name", "narrow", "reason", "a test"))
		closed := strings.Contains(w.get("/limits", http.StatusOK), `<span class="tag amber">closed</span>`)
		require.Equal(t, verb == "close_gate", closed, verb)
	}
	w.post("/verbs/set_gate", http.StatusNotFound, "name", "narrow", "places", "7")
}

// A plan shows how many, changes nothing, and is applied to what it found.
func TestBulkIsPlannedBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	var ids []fsm.ID
	for range 3 {
		ids = append(ids, w.insert(order{}, nil))
	}
	nothing := w.post("/plan", http.StatusSeeOther, "verb", "pause")
	require.Contains(t, w.get(nothing, http.StatusOK), "The verb applies to none of them.", "without a filter, and without all, nothing is selected")
	w.post("/plan", http.StatusBadRequest, "verb", "explode", "machine", "shop")
	plan := w.post("/plan", http.StatusSeeOther, "verb", "pause", "machine", "shop", "status", "awaiting_signal")
	body := w.get(plan, http.StatusOK)
	require.Contains(t, body, "Pause 3 instances")
	require.Contains(t, body, fmt.Sprint(ids[0]))
	i, err := w.eng.Get(t.Context(), ids[0])
	require.NoError(t, err)
	require.False(t, i.Paused, "a plan changes nothing")
	_, err = w.eng.Admin().Pause(t.Context(), ids[1]) // meanwhile
	require.NoError(t, err)
	late := w.insert(order{}, nil)
	require.Equal(t, plan, w.post(plan+"/apply", http.StatusSeeOther, "reason", "the bank is away"))
	require.Equal(t, plan, w.post(plan+"/apply", http.StatusSeeOther, "reason", "twice"))
	require.Eventually(t, func() bool { return strings.Contains(w.get(plan, http.StatusOK), "2 changed") }, patience, 20*time.Millisecond)
	require.Contains(t, w.get(plan, http.StatusOK), "1 skipped")
	require.Contains(t, w.get("/audit?verb=pause", http.StatusOK), "the bank is away")
	i, err = w.eng.Get(t.Context(), late)
	require.NoError(t, err)
	require.False(t, i.Paused, "it was not there when the plan was made")
}

func TestReadersSeeNoVerbsAndAreRefused(t *testing.T) {
	t.Parallel()
	access := dashboard.Access{Level: dashboard.Read}
	w := newWorld(t, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	id := w.insert(order{Card: "4111x1"}, nil)
	one := fmt.Sprintf("/instances/%d", id)
	for _, path := range append([]string{one}, allPages...) {
		require.NotContains(t, w.get(path, http.StatusOK), `method="post"`, path)
	}
	require.Contains(t, w.get(one, http.StatusOK), "4111x1")
	for _, path := range []string{one + "/cancel", "/plan", "/verbs/pause_queue"} {
		w.post(path, http.StatusForbidden)
	}
	access.Level = dashboard.Outline
	body := w.get(one, http.StatusOK)
	require.NotContains(t, body, "4111x1")
	require.Contains(t, body, "Hidden from you.")
	require.NotContains(t, w.get("/export?format=json", http.StatusOK), "4111x1")
	w.get(one+"/state", http.StatusNotFound)
}

// A user who may see one queue learns of no other, on no page, and changes nothing there.
func TestAccessCanBeOfSomeQueues(t *testing.T) {
	t.Parallel()
	access := dashboard.Access{Level: dashboard.Operate, Actor: "ada", Within: engine.Bounds{Queues: []string{"emails"}}}
	w := newWorld(t, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	foreign := w.insert(order{Card: "4111x1"}, func(s fsm.Spec) fsm.Spec { return s.Key("foreign") })
	own, err := w.eng.Insert(t.Context(), shop.New(order{Card: "mine"}).Queue("emails").Key("own"))
	require.NoError(t, err)
	for _, path := range append([]string{"/find?q=orders"}, allPages...) {
		status := http.StatusOK
		if strings.HasPrefix(path, "/find") {
			status = http.StatusSeeOther
		}
		require.NotContains(t, w.get(path, status), "foreign", path)
		require.NotContains(t, w.get(path, status), "queue=orders", path)
	}
	w.get(fmt.Sprintf("/instances/%d", foreign), http.StatusNotFound)
	w.get(fmt.Sprintf("/instances/%d/state", foreign), http.StatusNotFound)
	w.get(fmt.Sprintf("/instances/%d", own), http.StatusOK)
	w.post(fmt.Sprintf("/instances/%d/cancel", foreign), http.StatusNotFound, "reason", "none of mine")
	require.Contains(t, w.get(w.post("/plan", http.StatusSeeOther, "verb", "cancel", "machine", "shop"), http.StatusOK), "1 instance")
	w.post("/plan", http.StatusSeeOther, "verb", "cancel", "queue", "emails")
	plan := w.post("/plan", http.StatusSeeOther, "verb", "cancel", "queue", "emails")
	w.post("/verbs/pause_queue", http.StatusForbidden, "name", "orders")
	w.post("/verbs/pause_queue", http.StatusSeeOther, "name", "emails")
	w.post("/verbs/delete_schedule", http.StatusForbidden, "name", "nightly", "reason", "none of mine")
	require.NotContains(t, w.get("/export?format=csv", http.StatusOK), "foreign")
	var offered []struct{ Text string }
	require.NoError(t, json.Unmarshal([]byte(w.get("/suggest", http.StatusOK)), &offered))
	for _, one := range offered {
		require.NotEqual(t, "orders", one.Text, "a queue of others")
	}
	access.Actor = "eve"
	w.get(plan, http.StatusNotFound)
	access.Actor, access.Within.Queues = "ada", []string{"payments"}
	w.get(plan, http.StatusNotFound)
}

func TestShowRedactsEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{Show: func(_, field string, v json.RawMessage) json.RawMessage {
		if field == "state" || field == "diff" {
			return json.RawMessage(strings.ReplaceAll(string(v), "4111x1", "…"))
		}
		return v
	}})
	id := w.insert(order{Card: "4111x1"}, nil)
	one := fmt.Sprintf("/instances/%d", id)
	body := w.get(one, http.StatusOK)
	require.NotContains(t, body, "4111x1")
	require.NotContains(t, body, "Edit the state", "what is redacted must not be stored back")
	require.NotContains(t, w.get(one+"/state", http.StatusOK), "4111x1")
	require.NotContains(t, w.get("/export?format=json", http.StatusOK), "4111x1")
	w.post(one+"/edit", http.StatusForbidden, "visit", "1", "state", "{}")
	seen, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	_, err = w.eng.Admin().Edit(t.Context(), id, fsm.ChangeJSON(func(v json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"card":"4111x1","big":7}`), nil
	}), engine.AtVisit(seen.Visit))
	require.NoError(t, err)
	for _, path := range []string{one, "/audit"} { // the audit has states, too
		body := w.get(path, http.StatusOK)
		require.Contains(t, body, "edit", path)
		require.NotContains(t, body, "4111x1", path)
	}
}

func TestPagesOfTheListFollowOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	for range 5 {
		_, err := w.eng.Insert(t.Context(), shop.New(order{}).Queue("later").Label("n", "=x"))
		require.NoError(t, err)
	}
	ids := func(path string) (all []string) {
		text := w.get(strings.Replace(path, "instances?", "export?format=json&", 1), http.StatusOK)
		var rows []fsm.RawInstance
		require.NoError(t, json.Unmarshal([]byte(text), &rows))
		for n := range rows {
			all = append(all, fmt.Sprint(rows[n].ID))
		}
		return all
	}
	link := func(body, rel string) string {
		_, after, ok := strings.Cut(body, `rel="`+rel+`" href="./`)
		require.True(t, ok, body)
		to, _, _ := strings.Cut(after, `"`)
		return "/" + strings.ReplaceAll(to, "&amp;", "&")
	}
	first := "/instances?queue=later&rows=2&since=1h"
	second := link(w.get(first, http.StatusOK), "next")
	third := link(w.get(second, http.StatusOK), "next")
	require.Len(t, ids(first), 2)
	require.Len(t, ids(third), 1)
	require.NotEqual(t, ids(first), ids(second))
	require.Equal(t, ids(second), ids(link(w.get(third, http.StatusOK), "prev")))
	require.Equal(t, ids(first), ids(link(w.get(second, http.StatusOK), "prev")))
	w.get("/instances?after=x", http.StatusBadRequest)
	require.Equal(t, 6, strings.Count(w.get("/export?format=csv&queue=later", http.StatusOK), "\n"))
}

func TestSearchGoesToWhatIsMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, func(s fsm.Spec) fsm.Spec { return s.Key("order:42") })
	for text, want := range map[string]string{
		fmt.Sprint(id): fmt.Sprintf("instances/%d", id), "order:42": fmt.Sprintf("instances/%d", id),
		"customer=ada": "instances?label=customer%3Dada", "shop": "machine?name=shop", "orders": "instances?queue=orders",
		"order:": "instances?prefix=order%3A", "": "instances",
	} {
		answer, err := w.Client().Get(w.URL + "/find?q=" + url.QueryEscape(text))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.Header.Get("Location"), text)
	}
}

// Texts are sent compressed, and the first paint is small.
func TestPagesAreCompressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	for range 60 {
		_, err := w.eng.Insert(t.Context(), shop.New(order{}).Queue("later").Label("customer", "ada").After(time.Hour))
		require.NoError(t, err)
	}
	fetch := func(path string) (body []byte, h http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set("Accept-Encoding", "br, gzip")
		answer, err := w.Client().Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		body, err = io.ReadAll(answer.Body)
		require.NoError(t, err)
		return body, answer.Header
	}
	link := regexp.MustCompile(`(?:href|src)="\./(assets/[^"]+)"`)
	for _, path := range append([]string{"/machine?name=shop", "/api/overview"}, allPages...) {
		body, h := fetch(path)
		require.Equal(t, "gzip", h.Get("Content-Encoding"), path)
		require.Equal(t, "Accept-Encoding", h.Get("Vary"), path)
		plain, err := gzip.NewReader(bytes.NewReader(body))
		require.NoError(t, err)
		text, err := io.ReadAll(plain)
		require.NoError(t, err)
		size := len(body)
		for _, m := range link.FindAllSubmatch(text, -1) {
			asset, _ := fetch("/" + string(m[1]))
			size += len(asset)
		}
		require.Less(t, size, 100<<10, path)
	}
	require.Contains(t, w.get("/", http.StatusOK), "</html>")
}

// The palette offers what there is; a list shows the columns that are chosen, on each of its pages.
func TestNamesAreSuggestedAndColumnsChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	for range 3 {
		w.insert(order{}, func(s fsm.Spec) fsm.Spec { return s.Label("customer", "ada") })
	}
	offered := w.get("/suggest", http.StatusOK)
	for _, want := range []string{`"machine?name=shop"`, `"instances?queue=orders"`, `"instances?label=customer%3Dada"`, `"instances?step=ship"`} {
		require.Contains(t, offered, want)
	}
	body := w.get("/instances?col=queue&col=visit&rows=2", http.StatusOK)
	require.Contains(t, body, `<option value="customer=ada">`)
	require.Contains(t, body, `<tr><th>Id<th>Queue<th class="r">Visit</tr>`)
	require.Contains(t, body, "col=queue&amp;col=visit", "the links keep the columns")
	w.get("/find?q=%00", http.StatusBadRequest)
	w.get("/find?q=%ff", http.StatusBadRequest)
}

// What happened last is shown, however much happened before.
func TestTheTimelineShowsTheNewest(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	id, err := eng.Insert(t.Context(), shop.New(order{}))
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.history (at, instance, visit, kind, fsm, step)
		SELECT now() - (1000 - n) * interval '1 s', $1, n, 'next', 'shop', 's' FROM generate_series(1, 999) n`, int64(id))
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{})
	require.NoError(t, err)
	body, err := io.ReadAll(ask(t, h, http.MethodGet, fmt.Sprintf("/instances/%d", id), nil).Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "the newest 200 entries")
	require.Contains(t, string(body), "visit 999")
	require.NotContains(t, string(body), "visit 799<")
	require.Less(t, strings.Index(string(body), "visit 999"), strings.Index(string(body), "visit 998"))
}

func TestAssetsAreKeptForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	body := w.get("/", http.StatusOK)
	_, after, _ := strings.Cut(body, `rel="stylesheet" href="./`)
	path, _, _ := strings.Cut(after, `"`)
	answer, err := w.Client().Get(w.URL + "/" + path)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "text/css; charset=utf-8", answer.Header.Get("Content-Type"))
	require.Contains(t, answer.Header.Get("Cache-Control"), "immutable")
	w.get("/assets/old/style.css", http.StatusNotFound)
}

// An outage is said, with what to do, and is over when the database is back.
func TestAnOutageIsSaid(t *testing.T) {
	t.Parallel()
	h, err := dashboard.New(unasked(t), dashboard.Options{Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	answer := ask(t, h, http.MethodGet, "/queues", nil)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Contains(t, string(body), "data-refresh", "it mends itself")
	require.NotContains(t, string(body), "127.0.0.1", "what a reader sees names no addresses")
}

// A limit that is closed holds instances back, also before one waits for it, and nodes that were
// skipped can be asked for.
func TestClosedLimitsAndSkippedNodesAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	_, err := w.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "shut", Queue: "orders", Places: 3})
	require.NoError(t, err)
	require.NotContains(t, w.get("/", http.StatusOK), "Held back by limits")
	w.post("/verbs/close_gate", http.StatusSeeOther, "name", "shut")
	require.Regexp(t, `(?s)Held back by limits.*shut`, w.get("/", http.StatusOK))
	require.Contains(t, w.get("/instances", http.StatusOK), "<option>skipped</option>")
	w.get("/instances?failure=skipped", http.StatusOK)
}

// A verb that cannot be taken back is not one click: its form stands in a fold, and is refused
// without a reason, on the page and by the server. Programs that use the API may leave it out.
func TestFinalVerbsNeedAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, nil)
	_, err := w.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "narrow", Queue: "orders", Places: 3})
	require.NoError(t, err)
	one := fmt.Sprintf("/instances/%d", id)
	fold := regexp.MustCompile(`(?s)<details[^>]*>.*?</details>`)
	for path, page := range map[string]string{one + "/cancel": one, "/verbs/drop_gate": "/limits?keys=narrow", "/verbs/delete_schedule": "/schedules"} {
		form := path[1:] + `" class="row">`
		body := w.get(page, http.StatusOK)
		require.Equal(t, 1, strings.Count(body, form), page)
		require.NotContains(t, fold.ReplaceAllString(body, ""), form, "outside of a fold")
		_, after, _ := strings.Cut(body, form)
		after, _, _ = strings.Cut(after, "</form>")
		require.Contains(t, after, `name="reason" required`, page)
		name := map[string]string{"/verbs/drop_gate": "narrow", "/verbs/delete_schedule": "nightly"}[path]
		for _, reason := range []string{"", " \t"} {
			w.post(path, http.StatusBadRequest, "name", name, "reason", reason)
		}
	}
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.False(t, i.Status.Terminal())
	gates, err := w.eng.Admin().Gates(t.Context())
	require.NoError(t, err)
	require.Len(t, gates, 1)
	status, text := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/cancel", id), "{}")
	require.Equal(t, http.StatusOK, status, text)
}
