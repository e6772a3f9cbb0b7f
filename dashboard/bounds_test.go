package dashboard_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/neighbours"
)

// tenants is a database that two tenants share.
type tenants struct{ *neighbours.Neighbours }

func newNeighbours(t *testing.T) tenants {
	t.Helper()
	return tenants{neighbours.New(t)}
}

// serveTo serves the dashboard to one access.
func (n tenants) serveTo(t *testing.T, access dashboard.Access) *world {
	t.Helper()
	h, err := dashboard.New(n.Engine, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	require.NoError(t, err)
	w := &world{t, n.Engine, httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

// askings are the requests for a route: every id in each path, and each query that could select
// hidden instances.
func (n tenants) askings(t *testing.T, pattern, plan string) (all []string) {
	t.Helper()
	_, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimSuffix(path, "{$}")
	fill := map[string][]string{
		"{token}": {plan}, "{sum}": {"0"}, "{name}": {"style.css"}, "{field}": {"state", "result", "progress", "payload"},
		"{verb}": {
			"pause_queue", "resume_queue", "pause_schedule", "resume_schedule", "run_schedule", "delete_schedule", "close_gate", "open_gate", "drop_gate", "set_gate",
		},
	}
	if strings.Contains(path, "{id}") {
		fill["{verb}"] = []string{"cancel", "retry", "restart", "run_now", "reschedule", "pause", "resume", "edit", "rewind", "signal"}
	}
	for _, of := range []map[string]fsm.ID{n.Ours, n.Theirs} {
		for _, id := range of {
			fill["{id}"] = append(fill["{id}"], fmt.Sprint(id))
		}
	}
	paths := []string{path}
	for name, values := range fill {
		var filled []string
		for _, path := range paths {
			if !strings.Contains(path, name) {
				filled = append(filled, path)
				continue
			}
			for _, value := range values {
				filled = append(filled, strings.ReplaceAll(path, name, value))
			}
		}
		paths = filled
	}
	for _, path := range paths {
		require.NotContains(t, path, "{", "%s: say in this test what its parameters can be", pattern)
		all = append(all, path)
		if !strings.HasPrefix(pattern, "GET ") || strings.Contains(pattern, "{id}") {
			continue
		}
		for _, query := range []string{
			"queue=theirs", "machine=their", "key=hidden-key", "key=shared-key", "prefix=hid", "label=tenant=hidden-label", "status=failed", "status=failed&rows=1",
			"error=hidden-e", "partition=hidden-partition", "partition=shared-partition", fmt.Sprint("parent=", n.Theirs["family"]), "rows=1", "order=oldest&rows=1",
			"format=csv", "format=json&status=awaiting_signal", "q=hidden-key", "q=shared-key", "q=theirs", "q=their", fmt.Sprint("q=", n.Theirs["parked"]),
			"keys=hidden-gate", "keys=our-gate", "name=their", "name=our", fmt.Sprint("instance=", n.Theirs["runnable"]), "verb=pause", "after=a", "since=1h", "actor=x",
		} {
			all = append(all, path+"?"+query)
		}
	}
	return all
}

// bodies are what a POST to a path may carry.
func (n tenants) bodies(path string) []string {
	form := func(fields ...string) string {
		all := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			all.Set(fields[i], fields[i+1])
		}
		return all.Encode()
	}
	_, verb, _ := strings.Cut(path[1:], "/")
	verb = verb[strings.LastIndex(verb, "/")+1:]
	if !strings.HasPrefix(path, "/api/") {
		usual := []string{"reason", "r", "visit", "1", "state", `"x"`, "step", "start", "at", "2h", "places", "1", "payload", `"x"`, "verb", "cancel"}
		if strings.HasPrefix(path, "/plan") {
			return []string{form(append(usual, "all", "1")...), form(append(usual, "queue", "theirs")...), form(append(usual, "error", "hidden")...)}
		}
		if strings.HasPrefix(path, "/instances/") {
			return []string{form(append(usual, "name", "go")...), form(append(usual, "name", "go", "descendants", "1")...)}
		}
		return []string{
			form(append(usual, "name", "theirs")...), form(append(usual, "name", "hidden-gate")...), form(append(usual, "name", "hidden-schedule")...),
		}
	}
	switch {
	case path == "/api/instances":
		return []string{
			`{"machine": "their", "queue": "theirs"}`, `{"machine": "their", "queue": "ours", "labels": {"tenant": "nobody"}}`,
			`{"machine": "our", "queue": "ours", "key": "hidden-key", "labels": {"tenant": "ours"}}`,
			`{"machine": "their", "queue": "theirs", "labels": {"tenant": "hidden-label"}}`,
		}
	case path == "/api/plans":
		return []string{`{"verb": "cancel", "all": true, "filter": {}}`, `{"verb": "pause", "filter": {"queue": "theirs"}}`, `{"verb": "pause", "filter": {"error": "hidden"}}`}
	case strings.HasSuffix(path, "/apply"):
		return []string{`{"reason": "r"}`, `{"reason": "r", "descendants": true}`}
	case strings.HasPrefix(path, "/api/verbs/"):
		return []string{`{"name": "theirs"}`, `{"name": "hidden-gate"}`, `{"name": "hidden-schedule"}`}
	}
	switch verb {
	case "cancel":
		return []string{`{"reason": "r"}`, `{"reason": "r", "descendants": true}`}
	case "reschedule":
		return []string{`{"at": "2040-01-01T00:00:00Z"}`}
	case "edit":
		return []string{`{"visit": 1, "state": "x"}`}
	case "rewind":
		return []string{`{"visit": 1, "step": "start"}`}
	case "signal":
		return []string{`{"name": "go", "payload": "x"}`}
	}
	return []string{`{"reason": "r"}`}
}

// Access that is bound to a queue, a machine or a label is told nothing of other instances, and
// changes none of them, by any route: the table of routes is the list, so a new one is in it.
func TestNoRouteLeadsOutOfBounds(t *testing.T) {
	t.Parallel()
	for name, within := range neighbours.Bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNeighbours(t)
			access := dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: within}
			w := n.serveTo(t, access)
			before := n.Hidden(t)
			all := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve"})
			plan := strings.TrimPrefix(all.post("/plan", http.StatusSeeOther, "verb", "cancel", "all", "1"), "plans/")
			routes := dashboard.Routes()
			slices.SortStableFunc(routes, func(a, b string) int { return strings.Compare(a[:3], b[:3]) }) // GET before POST
			asked, told := 0, 0
			hides := slices.Clone(neighbours.Secrets)
			for _, id := range n.Theirs {
				hides = append(hides, fmt.Sprint(id))
			}
			for _, pattern := range routes {
				method, _, _ := strings.Cut(pattern, " ")
				for _, path := range n.askings(t, pattern, plan) {
					bodies := []string{""}
					if method == http.MethodPost {
						bodies = n.bodies(path)
					}
					for _, body := range bodies {
						status, header, text := w.whole(method, path, body)
						asked++
						require.Less(t, status, 500, "%s %s %s: %s", method, path, body, text)
						if status < 300 {
							told++
						}
						for _, secret := range hides {
							if strings.Contains(path+body, secret) {
								continue // its own words are repeated
							}
							assert.NotContains(t, text+header, secret, "%s %s %s", method, path, body)
						}
					}
				}
			}
			require.Greater(t, asked, 1000)
			require.Greater(t, told, 200, "the requests are understood")
			require.Equal(t, before, n.Hidden(t), "nothing outside was changed")
			n.sweep(t)
			require.Equal(t, before, n.Hidden(t), "nor by what follows")
		})
	}
}

// An instance outside is answered as one that does not exist: were the answers told apart, by their
// length or by whether there is a next page, an error text could be read out letter by letter.
func TestWhatLiesOutsideDoesNotExist(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for name, within := range neighbours.Bounds {
		w := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: within})
		answer := func(method, path, body string, own ...string) string {
			status, text := w.ask(method, path, body)
			for _, word := range own {
				text = strings.ReplaceAll(text, word, "…")
			}
			return fmt.Sprint(status, measured.ReplaceAllString(text, ""))
		}
		for _, root := range []string{"/api/instances", "/instances", "/export"} {
			for field, words := range map[string][2]string{
				"error": {"hidden-err", "nonsense-x"}, "key": {"hidden-key", "absent-key"}, "prefix": {"hidden-", "absent-"}, "queue": {"theirs", "absent"},
				"label": {"tenant=hidden-label", "tenant=absent-label"}, "partition": {"hidden-partition", "absent-partition"},
				"parent": {fmt.Sprint(n.Theirs["family"]), "7700000000009999"},
			} {
				for _, more := range []string{"&rows=1", "&order=oldest&status=failed", "&rows=1&status=executing"} {
					is, want := url.Values{field: {words[0]}}.Encode(), url.Values{field: {words[1]}}.Encode()
					require.Equal(t, answer(http.MethodGet, root+"?"+want+more, "", words[1], want), answer(http.MethodGet, root+"?"+is+more, "", words[0], is), "%s: %s", name, root+is)
				}
			}
		}
		hidden, absent := fmt.Sprint(n.Theirs["parked"]), "7700000000009999"
		for _, path := range []string{"/instances/%s", "/api/instances/%s", "/instances/%s/state", "/instances/%s/graph", "/api/instances/%s/graph", "/api/instances/%s/state"} {
			require.Equal(t, answer(http.MethodGet, fmt.Sprintf(path, absent), "", absent), answer(http.MethodGet, fmt.Sprintf(path, hidden), "", hidden), name)
		}
		for _, verb := range []string{"cancel", "retry", "restart", "pause", "run_now"} {
			path := "/api/instances/%s/" + verb
			require.Equal(t, answer(http.MethodPost, fmt.Sprintf(path, absent), "{}", absent), answer(http.MethodPost, fmt.Sprintf(path, hidden), "{}", hidden), name)
		}
		require.Contains(t, w.get(fmt.Sprintf("/instances/%d/graph", n.Ours["own graph"]), http.StatusOK), "own-node", "all of it lies inside")
		text := w.get(fmt.Sprintf("/instances/%d/graph", n.Ours["graph"]), http.StatusOK)
		require.Contains(t, text, "does not cover all nodes")
		status, text := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/cancel", n.Ours["graph"]), "{}")
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, text, "nodes of its graph")
		var detail struct {
			Causes []struct {
				Kind, Text string
				Count      int
				Join       any
			}
		}
		for name, want := range map[string]string{"graph": "it awaits children", "family": "it awaits children", "own graph": "it awaits children"} {
			require.NoError(t, json.Unmarshal([]byte(w.get(fmt.Sprintf("/api/instances/%d", n.Ours[name]), http.StatusOK)), &detail))
			require.Equal(t, want, detail.Causes[0].Text)
			require.Zero(t, detail.Causes[0].Count, "%s: it would be of all", name)
			require.Nil(t, detail.Causes[0].Join)
		}
	}
	w := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: neighbours.Bounds["label"]})
	status, text := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/cancel", n.Ours["own graph"]), "{}")
	require.Equal(t, http.StatusOK, status, text)
}

// Access within bounds that cover nothing shows nothing, and changes nothing.
func TestAccessToNoQueueIsToNothing(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for _, within := range []engine.Bounds{{Queues: []string{}}, {Machines: []string{}}} {
		w := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: within})
		for _, of := range []map[string]fsm.ID{n.Ours, n.Theirs} {
			for _, id := range of {
				w.get(fmt.Sprintf("/api/instances/%d", id), http.StatusNotFound)
				status, _ := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/pause", id), "{}")
				require.Equal(t, http.StatusNotFound, status)
			}
		}
		require.Contains(t, w.get("/api/instances", http.StatusOK), `"instances":[]`)
		text := w.get("/api/queues", http.StatusOK) + w.get("/api/machines", http.StatusOK) + w.get("/api/schedules", http.StatusOK) + w.get("/api/gates", http.StatusOK)
		for _, name := range []string{`"ours"`, `"theirs"`, `"our"`, `"their"`, "our-schedule", "our-gate"} {
			require.NotContains(t, text, name)
		}
	}
}

// A page offers no form that is refused whatever one sends.
func TestPagesOfferWhatTheAccessMay(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for name, access := range map[string]dashboard.Access{
		"reader": {Level: dashboard.Read}, "all": {Level: dashboard.Operate}, "queue": {Level: dashboard.Operate, Within: neighbours.Bounds["queue"]},
		"machine": {Level: dashboard.Operate, Within: neighbours.Bounds["machine"]}, "label": {Level: dashboard.Operate, Within: neighbours.Bounds["label"]},
	} {
		w := n.serveTo(t, access)
		for path, offers := range map[string]bool{"/limits?keys=our-gate": name == "all", "/schedules": name == "all", "/queues": name == "all" || name == "queue"} {
			if strings.HasPrefix(path, "/limits") && name != "all" && name != "reader" && name != "queue" {
				continue // it may not see the limit
			}
			require.Equal(t, offers, strings.Contains(w.get(path, http.StatusOK), `method="post"`), "%s %s", name, path)
		}
		require.Equal(t, name != "reader", strings.Contains(w.get("/instances", http.StatusOK), `action="./plan"`), name)
	}
}

// measured are times, which no two answers share.
var measured = regexp.MustCompile(`[0-9.]+ (ms|µs|s)\b|\d{4}-\d\d-\d\d[T ][0-9:.]+( UTC|Z)?`)

// sweep lets a worker that serves neither queue do what verbs leave to it, until it has cancelled
// the nodes of a graph whose root is cancelled with all rights.
func (n tenants) sweep(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	third := fsm.Declare[string, string]("third", fsm.Queue("third"))
	define := third.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		if v.State == "node" {
			return v.Await("end", v.State, fsm.DeclareSignal[string]("go")), nil
		}
		return v.ScheduleGraph("end", v.State, fsm.Node("a", third.New("node"))), nil
	}).To("end"), fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil }))
	worker, err := engine.New(engine.Config{Pool: n.Pool, Machines: append(n.Machines, define), Queues: map[string]engine.Queue{"third": {PollMax: 100 * time.Millisecond}}})
	require.NoError(t, err)
	require.NoError(t, worker.Start(ctx))
	defer func() { require.NoError(t, worker.Stop(context.WithoutCancel(ctx))) }()
	root, err := worker.Insert(ctx, third.New("root"))
	require.NoError(t, err)
	counted := func(status fsm.Status) func() bool {
		return func() bool {
			page, err := worker.List(ctx, engine.Query{Filter: engine.Filter{Parent: root, Status: []fsm.Status{status}}})
			return err == nil && len(page.Instances) == 1
		}
	}
	require.Eventually(t, counted(fsm.StatusAwaitingSignal), patience, 10*time.Millisecond)
	_, err = worker.Admin().Cancel(ctx, root)
	require.NoError(t, err)
	require.Eventually(t, counted(fsm.StatusFailed), patience, 10*time.Millisecond)
}

// whole is ask with the header, in which base64 is decoded: cursors are of that.
func (w *world) whole(method, path, body string) (status int, header, text string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	kind := "application/x-www-form-urlencoded"
	if strings.HasPrefix(path, "/api/") {
		kind = "application/json"
	}
	r.Header.Set("Content-Type", kind)
	answer, err := w.Client().Do(r)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, answer.Body.Close()) }()
	got, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	status, header, text = answer.StatusCode, fmt.Sprint(answer.Header), string(got)
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \"'&=?<>\n", c) }) {
		if raw, err := base64.RawURLEncoding.DecodeString(word); err == nil && len(raw) > 8 {
			text += string(raw)
		}
	}
	return status, header, text
}
