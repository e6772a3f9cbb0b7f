package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// town is a cluster whose places are databases that can be cut off, and a server of its dashboard.
type town struct {
	*world

	cluster *cluster.Cluster
	places  []cluster.Place

	mu    sync.Mutex
	cut   map[int]bool
	conns map[int][]net.Conn
	sent  map[int]int // statements that read, by place
}

func newTown(t *testing.T, places int, o dashboard.Options, change func(*cluster.Config)) *town {
	t.Helper()
	w := &town{world: &world{t: t}, cut: map[int]bool{}, conns: map[int][]net.Conn{}, sent: map[int]int{}}
	for i := range places {
		pool := pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) {
			dial := c.ConnConfig.DialFunc
			c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.cut[i] {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				conn, err := dial(ctx, network, address)
				w.conns[i] = append(w.conns[i], conn)
				return conn, err
			}
		})
		driver := entpgx.New(pool).Around(func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
			w.mu.Lock()
			for n := range stmts {
				if text := strings.ToUpper(strings.Join(strings.Fields(stmts[n].SQL), " ")); strings.HasPrefix(text, "SELECT") && strings.Contains(text, " FROM ") && !strings.Contains(text, "SET_CONFIG") || strings.HasPrefix(text, "WITH") {
					w.sent[i]++
				}
			}
			w.mu.Unlock()
			return send(ctx)
		})
		w.places = append(w.places, cluster.Place{Driver: driver})
	}
	require.NoError(t, cluster.Init(t.Context(), w.places))
	config := cluster.Config{Places: w.places, Patience: 5 * time.Second, Engine: engine.Config{Logger: slog.New(slog.DiscardHandler)}}
	if change != nil {
		change(&config)
	}
	c, err := cluster.New(config)
	require.NoError(t, err)
	w.cluster = c
	h, err := dashboard.NewCluster(c, o)
	require.NoError(t, err)
	w.Server = httptest.NewServer(h)
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

func (w *town) cutOff(place int) {
	w.mu.Lock()
	w.cut[place] = true
	for _, conn := range w.conns[place] {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.places[place].Driver.Pool().Reset()
}

func (w *town) restore(place int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[place] = false
}

// put inserts an order at a place.
func (w *town) put(place int, change func(fsm.Spec) fsm.Spec) fsm.ID {
	w.t.Helper()
	spec := shop.New(order{Card: fmt.Sprintf("card-%d", place)})
	if change != nil {
		spec = change(spec)
	}
	id, err := w.cluster.Engine(place).Insert(w.t.Context(), spec)
	require.NoError(w.t, err)
	require.Equal(w.t, place, cluster.PlaceOfID(id))
	return id
}

// keyAt returns a key of a place.
func (w *town) keyAt(place int, name string) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("%s-%d", name, n); w.cluster.PlaceOf(key) == place {
			return key
		}
	}
}

// api decodes what the API answers.
func (w *town) api(path string, into any) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal([]byte(w.get(path, http.StatusOK)), into), path)
}

type townOverview struct {
	Counts map[string]int64
	Places []struct {
		Place   int
		Down    string
		Counts  map[string]int64
		Due     int64
		Workers int
	}
	Lacks []struct{ Place int }
}

func TestPagesHaveAllPlaces(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2, dashboard.Options{Refresh: time.Second, Timeout: patience}, nil)
	ids := []fsm.ID{}
	for place := range 2 {
		for n := range 3 {
			ids = append(ids, w.put(place, func(s fsm.Spec) fsm.Spec { return s.Key(fsm.Key(w.keyAt(place, fmt.Sprintf("order-%d", n)))) }))
		}
		_, err := w.cluster.Engine(place).Admin().SetGate(t.Context(), engine.Gate{Name: "narrow", Queue: "orders", Places: 3 + place})
		require.NoError(t, err)
	}
	var o townOverview
	w.api("/api/overview", &o)
	require.Equal(t, int64(6), o.Counts["runnable"])
	require.Len(t, o.Places, 2)
	for place, row := range o.Places {
		require.Equal(t, place, row.Place)
		require.Equal(t, int64(3), row.Counts["runnable"])
		require.Equal(t, int64(3), row.Due)
		require.Empty(t, row.Down)
	}
	require.Empty(t, o.Lacks)
	require.Contains(t, w.get("/", http.StatusOK), "<h2>Places</h2>")
	for _, path := range allPages {
		require.NotContains(t, w.get(path, http.StatusOK), "without what is there", path)
	}

	seen := map[string]bool{}
	for path := "/api/instances?rows=2"; path != ""; {
		var page listing
		w.api(path, &page)
		for _, i := range page.Instances {
			require.False(t, seen[i.ID], "twice")
			seen[i.ID] = true
		}
		if path = ""; page.Next != "" {
			path = "/api/instances?rows=2&after=" + page.Next
		}
	}
	require.Len(t, seen, len(ids))

	// A request about one instance goes to its place.
	last := ids[len(ids)-1]
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d", last), http.StatusOK), "card-1")
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d/state", last), http.StatusOK), "card-1")
	w.get(fmt.Sprintf("/instances/%d/graph", last), http.StatusOK)
	w.get(fmt.Sprintf("/instances/%d", int64(7)<<44), http.StatusNotFound)
	w.post(fmt.Sprintf("/instances/%d/pause", last), http.StatusSeeOther)
	got, err := w.cluster.Get(t.Context(), last)
	require.NoError(t, err)
	require.True(t, got.Paused)
	require.Equal(t, http.StatusSeeOther, w.status("/find?q="+string(got.Key)))
	require.Contains(t, w.get("/audit", http.StatusOK), fmt.Sprint(last))

	// Limits are each place's own, queues are of all.
	require.Contains(t, w.get("/limits?keys=narrow&place=1", http.StatusOK), "at place 1")
	w.get("/limits?keys=narrow", http.StatusBadRequest)
	w.get("/limits?keys=narrow&place=2", http.StatusBadRequest)
	w.post("/verbs/close_gate", http.StatusBadRequest, "name", "narrow")
	w.post("/verbs/close_gate", http.StatusSeeOther, "name", "narrow", "place", "1")
	w.post("/verbs/pause_queue", http.StatusSeeOther, "name", "orders")
	for place := range 2 {
		gates, err := w.cluster.Engine(place).Admin().Gates(t.Context())
		require.NoError(t, err)
		require.Equal(t, place == 1, !gates[0].ClosedUntil.IsZero())
		load, err := w.cluster.Engine(place).Admin().Load(t.Context())
		require.NoError(t, err)
		require.False(t, load.Queues[0].PausedSince.IsZero())
	}
	w.post("/verbs/resume_queue", http.StatusSeeOther, "name", "orders")
	w.post("/verbs/run_schedule", http.StatusNotFound, "name", "nothing")

	// A plan is of all places.
	page := w.post("/plan", http.StatusSeeOther, "verb", "cancel", "queue", "orders")
	require.Contains(t, w.get(page, http.StatusOK), "<b>6 instances</b>")
	w.post(page+"/apply", http.StatusSeeOther, "reason", "all of them")
	require.Eventually(t, func() bool { return strings.Contains(w.get(page, http.StatusOK), "<b>6 changed</b>") }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		w.api("/api/overview", &o)
		return len(w.failures()) == 1 && o.Counts["failed"] == 6
	}, patience, 100*time.Millisecond)
}

// status is the status of an answer.
func (w *town) status(path string) int {
	answer, err := w.Client().Get(w.URL + path)
	require.NoError(w.t, err)
	require.NoError(w.t, answer.Body.Close())
	return answer.StatusCode
}

// failures are the groups of the overview.
func (w *town) failures() []struct{ Count int64 } {
	var o struct {
		Failures struct {
			Groups []struct{ Count int64 }
		}
	}
	w.api("/api/overview", &o)
	return o.Failures.Groups
}

func TestPagesOfWorkingPlaces(t *testing.T) {
	t.Parallel()
	definition := shop.Job(func(_ context.Context, o order) (string, error) { return o.Card, nil }).History(fsm.KeepTransitions)
	names := []string{}
	w := newTown(t, 2, dashboard.Options{Refresh: time.Second, Timeout: patience}, func(c *cluster.Config) {
		c.Engine.Machines = []fsm.Definition{definition}
		c.Engine.Queues = map[string]engine.Queue{"orders": {Concurrency: 4}}
		for place := range 2 {
			for n := 0; ; n++ {
				if name := fmt.Sprintf("nightly-%d", n); cluster.PlaceOf(name, 2) == place {
					names = append(names, name)
					c.Engine.Schedules = append(c.Engine.Schedules, engine.Every(name, 24*time.Hour, shop.New(order{})))
					break
				}
			}
		}
	})
	require.NoError(t, w.cluster.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, w.cluster.Stop(context.Background())) })
	for place := range 2 {
		_, err := w.cluster.Wait(t.Context(), w.put(place, nil))
		require.NoError(t, err)
	}
	var workers struct {
		Workers []struct {
			Place *int
			Slots int
		}
	}
	w.api("/api/workers", &workers)
	require.Len(t, workers.Workers, 2)
	require.Equal(t, 1, *workers.Workers[0].Place+*workers.Workers[1].Place)
	require.Contains(t, w.get("/workers", http.StatusOK), "place 1")
	schedules := w.get("/schedules", http.StatusOK)
	for _, name := range names {
		require.Contains(t, schedules, name)
		w.post("/verbs/pause_schedule", http.StatusSeeOther, "name", name)
	}
	for place, name := range names {
		stored, err := w.cluster.Engine(place).Admin().Schedules(t.Context(), engine.ScheduleQuery{})
		require.NoError(t, err)
		require.Equal(t, name, stored.Schedules[0].Name)
		require.False(t, stored.Schedules[0].Paused.IsZero())
	}
	machine := w.get("/machine?name=shop&place=1", http.StatusOK)
	require.Contains(t, machine, "are those of place 1; of others")

	answer, err := w.Client().Post(w.URL+"/api/instances", "application/json",
		strings.NewReader(fmt.Sprintf(`{"machine":"shop","queue":"orders","state":{"card":"5"},"key":%q}`, w.keyAt(1, "api"))))
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	var inserted struct {
		ID fsm.ID `json:"id,string"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&inserted))
	require.Equal(t, 1, cluster.PlaceOfID(inserted.ID))
}

// A place that does not answer is left out, which the pages say, and the others are there.
func TestPagesWithAPlaceDown(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, dashboard.Options{Refresh: time.Second, Timeout: patience, Logger: slog.New(slog.DiscardHandler)}, nil)
	ids := []fsm.ID{}
	for place := range 3 {
		ids = append(ids, w.put(place, nil))
	}
	w.get("/", http.StatusOK)
	w.cutOff(2)
	var o townOverview
	require.Eventually(t, func() bool {
		o = townOverview{}
		w.api("/api/overview", &o)
		return len(o.Lacks) == 1 && o.Places[2].Down == "Place 2 does not answer." // not only late, as a busy machine may be
	}, patience, 100*time.Millisecond)
	require.Equal(t, int64(2), o.Counts["runnable"])
	require.Equal(t, int64(1), o.Places[1].Counts["runnable"])
	for _, path := range append([]string{"/machine?name=shop", "/suggest", "/find?q=nothing"}, allPages...) {
		if path == "/suggest" || strings.HasPrefix(path, "/find") {
			require.Less(t, w.status(path), http.StatusBadRequest, path)
			continue
		}
		text := w.get(path, http.StatusOK)
		require.Contains(t, text, "Place 2 does not answer.", path)
		require.Contains(t, text, "without what is there", path)
	}
	list := w.get("/instances", http.StatusOK)
	for place, id := range ids {
		require.Equal(t, place < 2, strings.Contains(list, fmt.Sprintf("instances/%d", id)))
	}
	answer, err := w.Client().Get(w.URL + "/export?format=csv")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, answer.Header.Get("Content-Disposition"), `"instances-without-place-2.csv"`)
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d", ids[0]), http.StatusOK), "card-0")
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d", ids[2]), http.StatusServiceUnavailable), "Place 2 does not answer.")
	require.Contains(t, w.post(fmt.Sprintf("/instances/%d/pause", ids[2]), http.StatusServiceUnavailable), "Place 2 does not answer.")
	w.post(fmt.Sprintf("/instances/%d/pause", ids[1]), http.StatusSeeOther)
	require.Contains(t, w.post("/verbs/pause_queue", http.StatusServiceUnavailable, "name", "orders"), "It is done, but not at place 2")
	page := w.post("/plan", http.StatusSeeOther, "verb", "cancel", "queue", "orders")
	require.Contains(t, w.get(page, http.StatusOK), "It is not in this plan.")

	w.restore(2)
	require.Eventually(t, func() bool {
		o = townOverview{}
		w.api("/api/overview", &o)
		return len(o.Lacks) == 0 && o.Counts["runnable"] == 3
	}, patience, 100*time.Millisecond)
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d", ids[2]), http.StatusOK), "card-2")

	for place := range 3 {
		w.cutOff(place)
	}
	require.Eventually(t, func() bool { return w.status("/") == http.StatusServiceUnavailable }, patience, 100*time.Millisecond)
}

// Each place is sent the statements of one engine, and those who look again none.
func TestPagesOfPlacesSendFewStatements(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2, dashboard.Options{Refresh: time.Hour, Timeout: patience}, nil)
	id := w.put(1, nil)
	for place := range 2 {
		require.NoError(t, w.cluster.Reach(t.Context(), place), "its record is read once")
	}
	for path, most := range map[string][2]int{ // of the first place, and the second
		"/": {5, 5}, "/machines": {2, 2}, "/machine?name=shop": {5, 2}, "/instances": {3, 3}, "/queues": {3, 3}, "/limits": {1, 1}, "/schedules": {1, 1},
		"/workers": {1, 1}, "/audit": {1, 1}, fmt.Sprintf("/instances/%d", id): {0, 5}, "/suggest": {2, 2},
	} {
		h, err := dashboard.NewCluster(w.cluster, dashboard.Options{Refresh: time.Hour, Timeout: patience})
		require.NoError(t, err)
		for look := range 2 {
			w.mu.Lock()
			clear(w.sent)
			w.mu.Unlock()
			require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, path, nil).StatusCode, path)
			w.mu.Lock()
			for place, bound := range most {
				assert.LessOrEqual(t, w.sent[place], bound*(1-look), "%s, place %d, look %d", path, place, look+1)
			}
			w.mu.Unlock()
		}
	}
}
