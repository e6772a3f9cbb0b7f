package dashboard_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The hidden instances have ids, keys, labels, states, errors and payloads that occur nowhere else.
// They have another queue, another machine and another label than those that may be seen, so that
// each kind of bounds hides the same.
const firstHidden = 7_700_000_000_000_001

var secrets = []string{
	"hidden-key", "hidden-label", "hidden-state", "hidden-error", "hidden-payload", "hidden-signal", "hidden-partition", "hidden-node",
	"hidden-gate", "hidden-schedule", "hidden-reason", "hidden-dedup",
}

// neighbours is a database that two tenants share.
type neighbours struct {
	pool          *pgxpool.Pool
	eng           *engine.Engine // runs no steps: what changes, a request has changed
	ours, theirs  map[string]fsm.ID
	machines      []fsm.Definition
	waiting, over *fsm.Machine[string, string]
}

// newNeighbours lets the instances of both run until they are parked or have ended, and stops the
// worker.
func newNeighbours(t *testing.T) *neighbours {
	t.Helper()
	n := &neighbours{pool: pgtest.Pool(t, pgtest.Migrated(t)), ours: map[string]fsm.ID{}, theirs: map[string]fsm.ID{}}
	n.waiting, n.over = fsm.Declare[string, string]("our", fsm.Queue("ours")), fsm.Declare[string, string]("their", fsm.Queue("theirs"))
	our := func(state string) fsm.Spec { return n.waiting.New(state).Label("tenant", "ours") }
	their := func(state string) fsm.Spec { return n.over.New(state).Label("tenant", "hidden-label") }
	for _, m := range []*fsm.Machine[string, string]{n.waiting, n.over} {
		n.machines = append(n.machines, m.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				switch v.State {
				case "fails", "hidden-state fails":
					if strings.HasPrefix(v.State, "hidden") {
						return nil, fsm.Permanent(errors.New("hidden-error"))
					}
					return nil, fsm.Permanent(errors.New("plain-error"))
				case "graph": // of which all nodes are hidden
					return v.ScheduleGraph("end", v.State, fsm.Node("hidden-node", their("hidden-state")),
						fsm.Node("hidden-node-behind", their("hidden-state")).After("hidden-node")), nil
				case "own graph":
					return v.ScheduleGraph("end", v.State, fsm.Node("own-node", our("node"))), nil
				case "family": // the children that are hidden are not cancelled with it
					return v.ScheduleChildren("end", v.State, our("child"), their("hidden-state")), nil
				case "hidden-state family":
					return v.ScheduleChildren("end", v.State, our("child of theirs"), our("fails"), their("hidden-state")), nil
				case "hidden-state graph":
					return v.ScheduleGraph("end", v.State, fsm.Node("our-node", our("node of theirs")),
						fsm.Node("hidden-node", their("hidden-state")).After("our-node")), nil
				}
				return v.Await("end", v.State, fsm.DeclareSignal[string]("go")), nil
			}).To("end"),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State), nil
			})))
	}
	worker, err := engine.New(engine.Config{
		Pool: n.pool, Machines: n.machines,
		Queues: map[string]engine.Queue{"ours": {Concurrency: 4, PollMax: 100 * time.Millisecond}, "theirs": {Concurrency: 4, PollMax: 100 * time.Millisecond}},
		Schedules: []engine.Schedule{
			engine.Every("hidden-schedule", 24*time.Hour, their("hidden-state")), engine.Every("our-schedule", 24*time.Hour, our("scheduled")),
		},
	})
	require.NoError(t, err)
	require.NoError(t, worker.Start(t.Context()))
	n.eng = worker
	// Ids begin where no other number does.
	_, err = n.pool.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ALTER id RESTART WITH %d`, firstHidden))
	require.NoError(t, err)
	n.insert(t, n.theirs, "parked", their("hidden-state").Key("hidden-key").PartitionKey("shared-partition"))
	n.insert(t, n.theirs, "failed", their("hidden-state fails"))
	n.insert(t, n.theirs, "family", their("hidden-state family"))
	n.insert(t, n.theirs, "graph", their("hidden-state graph"))
	n.insert(t, n.theirs, "runnable", their("hidden-state").After(time.Hour).PartitionKey("hidden-partition").Key("hidden-key-2"))
	n.insert(t, n.ours, "key lost", our("fails").Key("shared-key"))
	n.insert(t, n.theirs, "key taken", their("hidden-state").Key("shared-key"))
	n.insert(t, n.ours, "graph", our("graph"))
	n.insert(t, n.ours, "family", our("family"))
	line := their("hidden-state").PartitionKey("line")
	n.insert(t, n.theirs, "first in line", line.After(time.Hour))
	_, err = n.pool.Exec(t.Context(), `ALTER TABLE gendurable.gen_durable ALTER id RESTART WITH 1001`)
	require.NoError(t, err)
	n.insert(t, n.ours, "parked", our("waits"))
	n.insert(t, n.ours, "own graph", our("own graph"))
	n.insert(t, n.ours, "failed", our("fails"))
	n.insert(t, n.ours, "runnable", our("waits").After(time.Hour).PartitionKey("our-partition"))
	n.rest(t)
	ctx := t.Context()
	_, err = worker.Signal(ctx, n.theirs["parked"], fsm.DeclareSignal[string]("hidden-signal").With("hidden-payload").DedupKey("hidden-dedup"))
	require.NoError(t, err)
	_, err = worker.Admin().SetGate(ctx, engine.Gate{Name: "hidden-gate", Queue: "theirs", Places: 3})
	require.NoError(t, err)
	_, err = worker.Admin().SetGate(ctx, engine.Gate{Name: "our-gate", Queue: "ours", Places: 3})
	require.NoError(t, err)
	_, err = worker.Admin().Pause(ctx, n.theirs["runnable"], engine.Reason("hidden-reason"))
	require.NoError(t, err)
	require.NoError(t, worker.Stop(context.WithoutCancel(ctx)))
	n.eng, err = engine.New(engine.Config{Pool: n.pool})
	require.NoError(t, err)
	_, err = n.eng.Admin().RunNow(ctx, n.theirs["first in line"])
	require.NoError(t, err)
	_, err = n.eng.Insert(ctx, our("waits").PartitionKey("line"))
	require.NoError(t, err)
	// Members of families that may be seen have ids that may be shown.
	rows, err := n.pool.Query(ctx, `SELECT id, state #>> '{}', queue FROM gendurable.gen_durable WHERE parent_id IS NOT NULL OR partition_key = 'line'`)
	require.NoError(t, err)
	var id fsm.ID
	var state, queue string
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &queue}, func() error {
		into := n.theirs
		if queue == "ours" {
			into = n.ours
		}
		into[fmt.Sprint(state, " ", len(into))] = id
		return nil
	})
	require.NoError(t, err)
	return n
}

// insert inserts one instance, and waits until it stands.
func (n *neighbours) insert(t *testing.T, into map[string]fsm.ID, name string, spec fsm.Spec) {
	t.Helper()
	id, err := n.eng.Insert(t.Context(), spec)
	require.NoError(t, err)
	into[name] = id
	n.rest(t)
}

// rest waits until nothing is about to run.
func (n *neighbours) rest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var busy int
		err := n.pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status IN ('runnable', 'executing') AND eligible_at <= now()`).Scan(&busy)
		return err == nil && busy == 0
	}, patience, 10*time.Millisecond)
}

// hidden has all rows that a bound request must leave as they are, each as text.
func (n *neighbours) hidden(t *testing.T) []string {
	t.Helper()
	rows, err := n.pool.Query(t.Context(), `SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id WHERE g.queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.schedules s
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.gates s
		UNION ALL SELECT h.instance || h.kind FROM gendurable.history h JOIN gendurable.gen_durable g ON g.id = h.instance WHERE g.queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.paused_queues s WHERE s.queue <> 'ours' ORDER BY 1`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// serveTo serves the dashboard to one access.
func (n *neighbours) serveTo(t *testing.T, access dashboard.Access) *world {
	t.Helper()
	h, err := dashboard.New(n.eng, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	require.NoError(t, err)
	w := &world{t, n.eng, httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

var bounded = map[string]engine.Bounds{
	"queue": {Queues: []string{"ours"}}, "machine": {Machines: []string{"our"}}, "label": {Labels: map[string]string{"tenant": "ours"}},
	"all three": {Queues: []string{"ours", "others"}, Machines: []string{"our"}, Labels: map[string]string{"tenant": "ours"}},
}

// askings are the requests for a route: every id in each path, and each query that could select
// hidden instances.
func (n *neighbours) askings(t *testing.T, pattern, plan string) (all []string) {
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
	for _, of := range []map[string]fsm.ID{n.ours, n.theirs} {
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
			"error=hidden-e", "partition=hidden-partition", "partition=shared-partition", fmt.Sprint("parent=", n.theirs["family"]), "rows=1", "order=oldest&rows=1",
			"format=csv", "format=json&status=awaiting_signal", "q=hidden-key", "q=shared-key", "q=theirs", "q=their", fmt.Sprint("q=", n.theirs["parked"]),
			"keys=hidden-gate", "keys=our-gate", "name=their", "name=our", fmt.Sprint("instance=", n.theirs["runnable"]), "verb=pause", "after=a", "since=1h", "actor=x",
		} {
			all = append(all, path+"?"+query)
		}
	}
	return all
}

// bodies are what a POST to a path may carry.
func (n *neighbours) bodies(path string) []string {
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
	for name, within := range bounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNeighbours(t)
			access := dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: within}
			w := n.serveTo(t, access)
			before := n.hidden(t)
			all := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve"})
			plan := strings.TrimPrefix(all.post("/plan", http.StatusSeeOther, "verb", "cancel", "all", "1"), "plans/")
			routes := dashboard.Routes()
			slices.SortStableFunc(routes, func(a, b string) int { return strings.Compare(a[:3], b[:3]) }) // GET before POST
			asked, told := 0, 0
			hides := slices.Clone(secrets)
			for _, id := range n.theirs {
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
			require.Equal(t, before, n.hidden(t), "nothing outside was changed")
			n.sweep(t)
			require.Equal(t, before, n.hidden(t), "nor by what follows")
		})
	}
}

// An instance outside is answered as one that does not exist: were the answers told apart, by their
// length or by whether there is a next page, an error text could be read out letter by letter.
func TestWhatLiesOutsideDoesNotExist(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for name, within := range bounded {
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
				"parent": {fmt.Sprint(n.theirs["family"]), "7700000000009999"},
			} {
				for _, more := range []string{"&rows=1", "&order=oldest&status=failed", "&rows=1&status=executing"} {
					is, want := url.Values{field: {words[0]}}.Encode(), url.Values{field: {words[1]}}.Encode()
					require.Equal(t, answer(http.MethodGet, root+"?"+want+more, "", words[1], want), answer(http.MethodGet, root+"?"+is+more, "", words[0], is), "%s: %s", name, root+is)
				}
			}
		}
		hidden, absent := fmt.Sprint(n.theirs["parked"]), "7700000000009999"
		for _, path := range []string{"/instances/%s", "/api/instances/%s", "/instances/%s/state", "/instances/%s/graph", "/api/instances/%s/graph", "/api/instances/%s/state"} {
			require.Equal(t, answer(http.MethodGet, fmt.Sprintf(path, absent), "", absent), answer(http.MethodGet, fmt.Sprintf(path, hidden), "", hidden), name)
		}
		for _, verb := range []string{"cancel", "retry", "restart", "pause", "run_now"} {
			path := "/api/instances/%s/" + verb
			require.Equal(t, answer(http.MethodPost, fmt.Sprintf(path, absent), "{}", absent), answer(http.MethodPost, fmt.Sprintf(path, hidden), "{}", hidden), name)
		}
		require.Contains(t, w.get(fmt.Sprintf("/instances/%d/graph", n.ours["own graph"]), http.StatusOK), "own-node", "all of it lies inside")
		text := w.get(fmt.Sprintf("/instances/%d/graph", n.ours["graph"]), http.StatusOK)
		require.Contains(t, text, "does not cover all nodes")
		status, text := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/cancel", n.ours["graph"]), "{}")
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
			require.NoError(t, json.Unmarshal([]byte(w.get(fmt.Sprintf("/api/instances/%d", n.ours[name]), http.StatusOK)), &detail))
			require.Equal(t, want, detail.Causes[0].Text)
			require.Zero(t, detail.Causes[0].Count, "%s: it would be of all", name)
			require.Nil(t, detail.Causes[0].Join)
		}
	}
	w := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: bounded["label"]})
	status, text := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/cancel", n.ours["own graph"]), "{}")
	require.Equal(t, http.StatusOK, status, text)
}

// Access within bounds that cover nothing shows nothing, and changes nothing.
func TestAccessToNoQueueIsToNothing(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for _, within := range []engine.Bounds{{Queues: []string{}}, {Machines: []string{}}} {
		w := n.serveTo(t, dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: within})
		for _, of := range []map[string]fsm.ID{n.ours, n.theirs} {
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
		"reader": {Level: dashboard.Read}, "all": {Level: dashboard.Operate}, "queue": {Level: dashboard.Operate, Within: bounded["queue"]},
		"machine": {Level: dashboard.Operate, Within: bounded["machine"]}, "label": {Level: dashboard.Operate, Within: bounded["label"]},
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
func (n *neighbours) sweep(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	third := fsm.Declare[string, string]("third", fsm.Queue("third"))
	define := third.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		if v.State == "node" {
			return v.Await("end", v.State, fsm.DeclareSignal[string]("go")), nil
		}
		return v.ScheduleGraph("end", v.State, fsm.Node("a", third.New("node"))), nil
	}).To("end"), fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil }))
	worker, err := engine.New(engine.Config{Pool: n.pool, Machines: append(n.machines, define), Queues: map[string]engine.Queue{"third": {PollMax: 100 * time.Millisecond}}})
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
