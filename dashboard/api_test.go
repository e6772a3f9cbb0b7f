package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var update = flag.Bool("update", false, "write docs/openapi.json instead of comparing with it")

const keptDocument = "../docs/openapi.json"

// document is the OpenAPI document as far as the tests read it.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		RequestBody struct {
			Content map[string]media `json:"content"`
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]media `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

type media struct {
	Schema json.RawMessage `json:"schema"`
}

// fits returns what checks values against a schema of the document.
func (d *document) fits(t *testing.T, schema json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	whole, err := json.Marshal(map[string]any{"allOf": []json.RawMessage{schema}, "$defs": d.Components.Schemas})
	require.NoError(t, err)
	var s jsonschema.Schema
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(whole, []byte("#/components/schemas/"), []byte("#/$defs/")), &s))
	resolved, err := s.Resolve(nil)
	require.NoError(t, err)
	return resolved
}

// caller calls the API, and holds each answer to the document.
type caller struct {
	*world

	document document
	called   map[string]bool
	change   func(*http.Request)
}

func newCaller(w *world) *caller {
	w.t.Helper()
	c := &caller{world: w, called: map[string]bool{}}
	status, text := c.send(http.MethodGet, "/api/openapi.json", nil)
	require.Equal(w.t, http.StatusOK, status, text)
	require.NoError(w.t, json.Unmarshal([]byte(text), &c.document))
	return c
}

func (c *caller) send(method, path string, body any) (status int, text string) {
	c.t.Helper()
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(c.t, err)
		sent = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, sent)
	require.NoError(c.t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.change != nil {
		c.change(r)
	}
	answer, err := c.Client().Do(r)
	require.NoError(c.t, err)
	defer answer.Body.Close() //nolint:errcheck // it was read
	all, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	require.True(c.t, strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json"), "%s %s: %s", method, path, all)
	return answer.StatusCode, string(all)
}

// call calls an operation, and holds the answer to its schema.
func (c *caller) call(operation, path string, body any) (status int, text string) {
	c.t.Helper()
	c.called[operation] = true
	for _, methods := range c.document.Paths {
		for method, described := range methods {
			if described.OperationID != operation {
				continue
			}
			if body != nil {
				var sent any
				raw, err := json.Marshal(body)
				require.NoError(c.t, err)
				require.NoError(c.t, json.Unmarshal(raw, &sent))
				if _, wrong := body.(map[string]any)["wrong"]; !wrong {
					require.NoError(c.t, c.document.fits(c.t, described.RequestBody.Content["application/json"].Schema).Validate(sent), "%s: %s", operation, raw)
				}
			}
			status, text = c.send(strings.ToUpper(method), path, body)
			kind := "200"
			if status != http.StatusOK {
				kind = "default"
			}
			var got any
			require.NoError(c.t, json.Unmarshal([]byte(text), &got))
			require.NoError(c.t, c.document.fits(c.t, described.Responses[kind].Content["application/json"].Schema).Validate(got), "%s: %s", operation, text)
			return status, text
		}
	}
	require.Fail(c.t, "no operation", operation)
	return 0, ""
}

// gets requires that an operation succeeds, and decodes its answer.
func gets[T any](c *caller, operation, path string, body any) (v T) {
	c.t.Helper()
	status, text := c.call(operation, path, body)
	require.Equal(c.t, http.StatusOK, status, "%s: %s", operation, text)
	require.NoError(c.t, json.Unmarshal([]byte(text), &v))
	return v
}

// refuses requires that an operation fails, and that its error names a field.
func (c *caller) refuses(operation, path string, body any, status int, kind, field string) {
	c.t.Helper()
	got, text := c.call(operation, path, body)
	require.Equal(c.t, status, got, "%s: %s", operation, text)
	var e struct{ Error, Kind, Field string }
	require.NoError(c.t, json.Unmarshal([]byte(text), &e))
	require.Equal(c.t, kind, e.Kind, text)
	require.Equal(c.t, field, e.Field, text)
	require.NotEmpty(c.t, e.Error)
}

type object = map[string]any

type listing struct {
	Instances []struct {
		ID, Status, Step string
		Paused           bool
	}
	Next string
}

func TestAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	waits := w.insert(order{Card: "4111x1", Big: 9007199254740993}, func(s fsm.Spec) fsm.Spec { return s.Key("order:1").Label("tenant", hostile) })
	failed := w.insert(order{Card: "4112", Fails: true}, nil)
	c := newCaller(w)
	at := func(id fsm.ID, more string) string { return fmt.Sprintf("/api/instances/%d%s", id, more) }

	// The document is the kept one, and names each operation once.
	_, text := c.send(http.MethodGet, "/api/openapi.json", nil)
	if *update {
		require.NoError(t, os.WriteFile(keptDocument, []byte(text), 0o644))
	}
	kept, err := os.ReadFile(keptDocument)
	require.NoError(t, err)
	require.Equal(t, string(kept), text, "go test ./dashboard -run TestAPI -update writes it anew")

	all := gets[listing](c, "instances", "/api/instances?order=oldest", nil)
	require.Len(t, all.Instances, 2)
	require.Equal(t, fmt.Sprint(waits), all.Instances[0].ID, "an id is a string")
	first := gets[listing](c, "instances", "/api/instances?order=oldest&rows=1", nil)
	require.Len(t, first.Instances, 1)
	second := gets[listing](c, "instances", "/api/instances?order=oldest&rows=1&after="+first.Next, nil)
	require.Equal(t, fmt.Sprint(failed), second.Instances[0].ID)
	require.Len(t, gets[listing](c, "instances", "/api/instances?error=DECLINED&status=failed&status=done", nil).Instances, 1)
	require.Len(t, gets[listing](c, "instances", "/api/instances?key=order:1", nil).Instances, 1)

	_, text = c.call("instance", at(waits, ""), nil)
	require.Contains(t, text, `"big":9007199254740993`, "documents keep their digits")
	require.Contains(t, text, `"kind":"signals"`)
	_, text = c.call("instance", at(failed, ""), nil)
	require.Contains(t, text, `\u003cscript\u003e`, "no markup, whoever takes it for a page")
	_, text = c.call("document", at(waits, "/state"), nil)
	require.Contains(t, text, "4111x1")
	c.refuses("document", at(waits, "/payload"), nil, http.StatusNotFound, "not_found", "")
	c.refuses("instance", "/api/instances/999999", nil, http.StatusNotFound, "not_found", "")
	c.refuses("instance", "/api/instances/x", nil, http.StatusNotFound, "not_found", "")
	c.refuses("instances", "/api/instances?rows=1000", nil, http.StatusBadRequest, "bad_input", "rows")
	c.refuses("instances", "/api/instances?status=running", nil, http.StatusBadRequest, "bad_input", "Status[0]")
	c.refuses("instances", "/api/instances?nonsense=1", nil, http.StatusBadRequest, "bad_input", "nonsense")
	c.refuses("instances", "/api/instances?after=x", nil, http.StatusBadRequest, "bad_input", "After")

	_, err = w.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "g", Queue: "other", Places: 2})
	require.NoError(t, err)
	for operation, path := range map[string]string{
		"overview": "/api/overview", "queues": "/api/queues", "gates": "/api/gates?keys=g", "schedules": "/api/schedules", "workers": "/api/workers",
		"machines": "/api/machines", "machine": "/api/machine?name=shop", "audit": "/api/audit?verb=set_gate",
	} {
		require.NotEmpty(t, gets[object](c, operation, path, nil), operation)
	}
	require.Contains(t, gets[object](c, "machine", "/api/machine?name=shop&version=1", nil)["mermaid"], "ship")
	c.refuses("machine", "/api/machine?name=none", nil, http.StatusNotFound, "not_found", "")

	// Every verb.
	done := object{"verb": "pause", "changed": true}
	require.Equal(t, done, gets[object](c, "pause", at(waits, "/pause"), object{"reason": "ticket 7"}))
	require.True(t, gets[listing](c, "instances", "/api/instances?key=order:1", nil).Instances[0].Paused, "what was read before is forgotten")
	c.refuses("pause", at(waits, "/pause"), object{}, http.StatusConflict, "conflict", "")
	gets[object](c, "resume", at(waits, "/resume"), object{})
	visit := gets[struct{ Instance struct{ Visit int64 } }](c, "instance", at(waits, ""), nil).Instance.Visit
	gets[object](c, "edit", at(waits, "/edit"), object{"visit": visit, "state": object{"card": "4113", "big": 1}})
	c.refuses("edit", at(waits, "/edit"), object{"visit": visit + 7, "state": object{}}, http.StatusConflict, "conflict", "")
	require.Equal(t, true, gets[object](c, "signal", at(waits, "/signal"), object{"name": "unasked", "payload": "x", "dedup": "1"})["changed"])
	require.Equal(t, false, gets[object](c, "signal", at(waits, "/signal"), object{"name": "unasked", "payload": "x", "dedup": "1"})["changed"])
	c.refuses("signal", at(waits, "/signal"), object{"name": ""}, http.StatusBadRequest, "bad_input", "")
	later, err := w.eng.Insert(t.Context(), shop.New(order{}).Queue("nobody"))
	require.NoError(t, err)
	gets[object](c, "reschedule", at(later, "/reschedule"), object{"at": time.Now().Add(time.Hour).UTC()})
	gets[object](c, "run_now", at(later, "/run_now"), object{})
	gets[object](c, "cancel", at(later, "/cancel"), object{"descendants": true, "reason": "no"})
	gets[object](c, "retry", at(later, "/retry"), object{})
	gets[object](c, "cancel", at(later, "/cancel"), object{})
	gets[object](c, "restart", at(later, "/restart"), object{"reason": "again"})
	visit = gets[struct{ Instance struct{ Visit int64 } }](c, "instance", at(later, ""), nil).Instance.Visit
	gets[object](c, "pause", at(later, "/pause"), object{})
	gets[object](c, "cancel", at(later, "/cancel"), object{})
	gets[object](c, "rewind", at(later, "/rewind"), object{"visit": visit, "step": "start"})
	for _, verb := range []string{"pause_queue", "resume_queue"} {
		require.Equal(t, true, gets[object](c, verb, "/api/verbs/"+verb, object{"name": "other"})["changed"], verb)
	}
	require.Equal(t, false, gets[object](c, "resume_queue", "/api/verbs/resume_queue", object{"name": "other"})["changed"])
	for _, verb := range []string{"pause_schedule", "resume_schedule", "run_schedule", "delete_schedule"} {
		gets[object](c, verb, "/api/verbs/"+verb, object{"name": "nightly"})
	}
	c.refuses("run_schedule", "/api/verbs/run_schedule", object{"name": "nightly"}, http.StatusNotFound, "not_found", "")
	gets[object](c, "set_gate", "/api/verbs/set_gate", object{"name": "g", "places": 3})
	for _, verb := range []string{"close_gate", "open_gate", "drop_gate"} {
		gets[object](c, verb, "/api/verbs/"+verb, object{"name": "g"})
	}
	c.refuses("pause_queue", "/api/verbs/pause_queue", object{"name": ""}, http.StatusBadRequest, "bad_input", "name")
	c.refuses("pause_queue", "/api/verbs/pause_queue", object{"name": "x", "wrong": 1}, http.StatusBadRequest, "bad_input", "body")
	c.refuses("pause_queue", "/api/verbs/pause_queue", object{"name": object{"wrong": 1}, "wrong": 1}, http.StatusBadRequest, "bad_input", "name")

	// A plan changes nothing until it is applied.
	born := gets[struct {
		ID      string
		Version int
		Step    string
	}](c, "insert", "/api/instances", object{
		"machine": "shop", "queue": "orders", "state": object{"card": "5500"}, "key": "by the API", "labels": object{"by": "api"}, "at": time.Now().Add(time.Hour),
	})
	require.Equal(t, "start", born.Step)
	require.Equal(t, 1, born.Version)
	got, err := w.eng.Get(t.Context(), fsm.Key("by the API"))
	require.NoError(t, err)
	require.Equal(t, born.ID, fmt.Sprint(got.ID))
	require.JSONEq(t, `{"card": "5500"}`, string(got.State))
	require.Equal(t, map[string]string{"by": "api"}, got.Labels)
	c.refuses("insert", "/api/instances", object{"machine": "shop", "queue": "orders", "key": "by the API"}, http.StatusConflict, "conflict", "")
	c.refuses("insert", "/api/instances", object{"machine": "none"}, http.StatusBadRequest, "bad_input", "machine")
	c.refuses("insert", "/api/instances", object{"machine": "shop", "version": 9}, http.StatusBadRequest, "bad_input", "version")
	c.refuses("insert", "/api/instances", object{"machine": "shop", "step": "nowhere"}, http.StatusBadRequest, "bad_input", "step")
	c.refuses("insert", "/api/instances", object{"machine": "shop", "key": strings.Repeat("k", 600)}, http.StatusBadRequest, "bad_input", "key")

	require.Empty(t, gets[struct{ Nodes []object }](c, "graph", "/api/instances/"+born.ID+"/graph", nil).Nodes)
	type planned struct {
		Token   string
		Matched int64
		Ended   time.Time
		Applied *engine.Applied
	}
	plan := gets[planned](c, "make_plan", "/api/plans", object{"verb": "retry", "filter": object{"machine": "shop", "status": []string{"failed"}, "error": "declined"}})
	require.EqualValues(t, 1, plan.Matched)
	require.Nil(t, gets[planned](c, "plan", "/api/plans/"+plan.Token, nil).Applied)
	gets[planned](c, "apply_plan", "/api/plans/"+plan.Token+"/apply", object{"reason": "again"})
	require.Eventually(t, func() bool {
		plan = gets[planned](c, "plan", "/api/plans/"+plan.Token, nil)
		return !plan.Ended.IsZero()
	}, patience, 10*time.Millisecond)
	require.EqualValues(t, 1, plan.Applied.Changed)
	c.refuses("plan", "/api/plans/none", nil, http.StatusNotFound, "not_found", "")
	c.refuses("make_plan", "/api/plans", object{"verb": "explode", "filter": object{}}, http.StatusBadRequest, "bad_input", "")

	c.refuses("make_plan", "/api/plans", object{"verb": "retry", "filter": object{"labels": object{"a=b": "c"}}}, http.StatusBadRequest, "bad_input", "filter.labels")

	var missing []string
	for _, methods := range c.document.Paths {
		for _, described := range methods {
			if !c.called[described.OperationID] {
				missing = append(missing, described.OperationID)
			}
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing, "operations that this test does not call")
}

// The API obeys the rules of the pages: access, redaction, and no verbs from other sites.
func TestAPIAccess(t *testing.T) {
	t.Parallel()
	access := dashboard.Access{Level: dashboard.Outline}
	w := newWorld(t, dashboard.Options{
		Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil },
		Show: func(_, field string, v json.RawMessage) json.RawMessage {
			if field == "state" {
				return json.RawMessage(`{"card":"…"}`)
			}
			return v
		},
	})
	id := w.insert(order{Card: "4111x1"}, nil)
	path := fmt.Sprintf("/api/instances/%d", id)
	c := newCaller(w)
	_, text := c.call("instance", path, nil)
	require.NotContains(t, text, "4111x1")
	require.Contains(t, text, `"hidden":true`)
	_, text = c.call("document", path+"/state", nil)
	require.NotContains(t, text, "4111x1")
	c.refuses("pause", path+"/pause", object{}, http.StatusForbidden, "forbidden", "")
	access.Level = dashboard.Read
	_, text = c.call("instance", path, nil)
	require.Contains(t, text, `"card":"…"`)
	require.NotContains(t, text, "4111x1")
	c.refuses("pause", path+"/pause", object{}, http.StatusForbidden, "forbidden", "")

	access = dashboard.Access{Level: dashboard.Operate, Within: engine.Bounds{Queues: []string{"other"}}, Actor: "ada"}
	c.refuses("instance", path, nil, http.StatusNotFound, "not_found", "")
	c.refuses("pause", path+"/pause", object{}, http.StatusNotFound, "not_found", "")
	require.Empty(t, gets[listing](c, "instances", "/api/instances", nil).Instances)
	c.refuses("run_schedule", "/api/verbs/run_schedule", object{"name": "nightly"}, http.StatusForbidden, "forbidden", "")
	planned := gets[object](c, "make_plan", "/api/plans", object{"verb": "pause", "filter": object{"machine": "shop"}})
	require.Zero(t, planned["matched"], "a plan stays within the access")
	access.Within.Queues = nil
	c.refuses("edit", path+"/edit", object{"visit": 1, "state": object{}}, http.StatusForbidden, "forbidden", "")
	gets[object](c, "pause", path+"/pause", object{"reason": "why"})
	page, err := w.eng.Admin().Audit(t.Context(), engine.AuditQuery{Instance: id})
	require.NoError(t, err)
	require.Equal(t, "ada", page.Entries[0].Actor)
	require.Equal(t, "why", page.Entries[0].Reason)

	c.change = func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	c.refuses("resume", path+"/resume", object{}, http.StatusForbidden, "forbidden", "")
	c.change = func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
	c.refuses("resume", path+"/resume", object{}, http.StatusUnsupportedMediaType, "media_type", "")
	c.change = nil
	status, _ := c.send(http.MethodGet, "/api/nothing", nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = c.send(http.MethodDelete, path, nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	access = dashboard.Access{}
	status, _ = c.send(http.MethodGet, "/api/overview", nil)
	require.Equal(t, http.StatusForbidden, status)
}

// A name of a field is taken as it is documented, also within a filter, and a limit that is unknown
// is no instance.
func TestAPITakesNamesByCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, nil)
	for _, c := range []struct{ path, body, field string }{
		{fmt.Sprintf("/api/instances/%d/pause", id), `{"Reason": "x"}`, "Reason"},
		{fmt.Sprintf("/api/instances/%d/cancel", id), `{"reason": "x", "DESCENDANTS": true}`, "DESCENDANTS"},
		{"/api/plans", `{"verb": "cancel", "filter": {"queue": "mails", "Queue": "orders"}}`, "filter.Queue"},
		{"/api/plans", `{"verb": "cancel", "All": true, "filter": {}}`, "All"},
	} {
		status, text := w.ask(http.MethodPost, c.path, c.body)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.Contains(t, text, `"field":"`+c.field+`"`)
	}
	status, text := w.ask(http.MethodPost, "/api/plans", `{"verb": "cancel", "filter": {"labels": {"Any": "x"}}}`)
	require.Equal(t, http.StatusOK, status, text)
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusAwaitingSignal, i.Status)
	for _, verb := range []string{"close_gate", "open_gate", "set_gate"} {
		status, text := w.ask(http.MethodPost, "/api/verbs/"+verb, `{"name": "unknown"}`)
		require.Equal(t, http.StatusNotFound, status, text)
		require.Contains(t, text, "no such limit", verb)
		require.NotContains(t, text, "instance")
	}
}

// The API knows no machine's functions, so it needs the key that a program declares.
func TestAPIInsertOfADeclaredKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	machine := fsm.Declare[int, int]("account", fsm.KeyBy(func(n int) fsm.Key { return fsm.Key(fmt.Sprint("account:", n)) }))
	program, err := engine.New(engine.Config{Pool: pool, Queues: map[string]engine.Queue{"elsewhere": {}},
		Machines: []fsm.Definition{machine.Job(func(_ context.Context, n int) (int, error) { return n, nil })}})
	require.NoError(t, err)
	require.NoError(t, program.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, program.Stop(context.WithoutCancel(t.Context()))) })
	eng, err := engine.New(engine.Config{Pool: pool}) // knows no machine
	require.NoError(t, err)
	served := func(access dashboard.Access) *caller {
		h, err := dashboard.New(eng, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
		require.NoError(t, err)
		w := &world{t, eng, httptest.NewServer(h)}
		t.Cleanup(w.Close)
		return newCaller(w)
	}
	c := served(dashboard.Access{Level: dashboard.Operate, Actor: "eve"})
	c.refuses("insert", "/api/instances", object{"machine": "account", "state": 7}, http.StatusBadRequest, "bad_input", "key")
	born := gets[struct{ ID string }](c, "insert", "/api/instances", object{"machine": "account", "state": 7, "key": "account:7"})
	got, err := program.GetOrInsert(t.Context(), machine.New(7))
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	require.Equal(t, born.ID, fmt.Sprint(got.ID))
	bound := served(dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: engine.Bounds{Machines: []string{"account"}}})
	bound.refuses("insert", "/api/instances", object{"machine": "account", "state": 8}, http.StatusForbidden, "forbidden", "")
}
