package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Each page sends a bounded number of statements, and a second look within the interval, or at the
// same time, sends none of the shared ones. Settings and the bounds of transactions, which read
// nothing, do not count.
func TestPagesSendFewStatements(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	count := func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
		mu.Lock()
		for n := range stmts {
			if text := strings.ToUpper(strings.Join(strings.Fields(stmts[n].SQL), " ")); strings.HasPrefix(text, "SELECT") && strings.Contains(text, " FROM ") && !strings.Contains(text, "SET_CONFIG") || strings.HasPrefix(text, "WITH") {
				sent = append(sent, stmts[n].SQL)
			}
		}
		mu.Unlock()
		return send(ctx)
	}
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Driver: entpgx.New(pool).Around(count)})
	require.NoError(t, err)
	id, err := eng.Insert(t.Context(), shop.New(order{Card: "4111x1"}).Label("tenant", "acme").PartitionKey("one"))
	require.NoError(t, err)
	free, err := eng.Insert(t.Context(), shop.New(order{}).Queue("plain"))
	require.NoError(t, err)
	for _, g := range []engine.Gate{ // an instance goes through both
		{Name: "narrow", Queue: "orders", Places: 3}, {Name: "each", Machine: "shop", Label: "tenant", Places: 2, Total: 3, Rate: engine.Rate{N: 1, Per: time.Hour}},
	} {
		_, err = eng.Admin().SetGate(t.Context(), g)
		require.NoError(t, err)
	}
	for path, most := range map[string][2]int{ // at first, and again
		"/": {5, 0}, "/machines": {2, 0}, "/machine?name=shop": {5, 0}, "/instances": {3, 0}, "/queues": {3, 0}, "/limits": {1, 0},
		"/schedules": {1, 0}, "/workers": {1, 0}, "/audit": {1, 0}, fmt.Sprintf("/instances/%d", id): {5, 0},
		fmt.Sprintf("/instances/%d", free): {5, 0}, "/suggest": {2, 0},
	} {
		h, err := dashboard.New(eng, dashboard.Options{Refresh: time.Hour})
		require.NoError(t, err)
		for n, bound := range most {
			mu.Lock()
			sent = nil
			mu.Unlock()
			require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, path, nil).StatusCode, path)
			mu.Lock()
			assert.LessOrEqual(t, len(sent), bound, "%s, look %d", path, n+1)
			mu.Unlock()
		}
	}
}

// plan is what auto_explain says of a statement.
type plan struct {
	Query string `json:"Query Text"`
	Plan  node   `json:"Plan"`
}

type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Hit      int    `json:"Shared Hit Blocks"`
	Read     int    `json:"Shared Read Blocks"`
	Plans    []node `json:"Plans"`
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for k := range n.Plans {
		n.Plans[k].walk(visit)
	}
}

// meter sums up the buffers that the statements of pages touch. The count of all instances reads
// the whole table by design, once for all who look, and is left out.
type meter struct {
	mu      sync.Mutex
	buffers int
	scans   []string // statements that read a large table from end to end
}

func (m *meter) configure(c *pgxpool.Config) {
	c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		_, text, ok := strings.Cut(n.Message, "plan:\n")
		var p plan
		if !ok || json.Unmarshal([]byte(text), &p) != nil || strings.Contains(p.Query, "GROUP BY g.fsm, g.fsm_version, g.step, g.queue, g.status") {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.buffers += p.Plan.Hit + p.Plan.Read
		p.Plan.walk(func(n *node) {
			if n.Type == "Seq Scan" && (n.Relation == "gen_durable" || n.Relation == "signals") {
				m.scans = append(m.scans, p.Query)
			}
		})
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = notice;
			SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off; SET auto_explain.log_format = json`)
		return err
	}
}

// However many instances there are, a page touches a bounded number of buffers, and reads no large
// table from end to end. PLAN_ROWS is the number of instances; a million keeps the same bounds.
func TestPagesTouchFewBuffers(t *testing.T) {
	t.Parallel()
	rows := 40_000
	if text := os.Getenv("PLAN_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(t, err, "PLAN_ROWS")
	}
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url)
	for _, text := range []string{
		`INSERT INTO gendurable.gen_durable (fsm, step, queue, eligible_at, labels)
			SELECT 'shop', 'start', 'q' || n % 8, now() + (n % 3 - 1) * interval '1 h', jsonb_build_object('tenant', (n % 500)::text) FROM generate_series(1, $1::int / 2) n`,
		`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, errors, inserted_at, finished_at)
			SELECT 'shop', 'start', 'q' || n % 8, (CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'done' END)::gendurable.durable_status,
				CASE WHEN n % 20 = 0 THEN 'error' END, CASE WHEN n % 20 = 0 THEN jsonb_build_array(jsonb_build_object('error',
					CASE WHEN n % 400 = 0 THEN 'kind ' || translate((n / 400 % 700)::text, '0123456789', 'ghijklmnop') ELSE 'no order ' || n END)) END, now() - n * interval '100 ms', now() - n * interval '50 ms'
			FROM generate_series(1, $1::int / 2) n`,
		`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round, depth) SELECT 'shop', 'start', 1, 1, 1 FROM generate_series(1, $1::int / 20) n`,
		`INSERT INTO gendurable.history (at, instance, visit, kind, fsm, step) SELECT now() - n * interval '1 s', 1 + n % 200, n, 'next', 'other', 's'
			FROM generate_series(1, least($1::int, 20000)) n`,
	} {
		_, err := pool.Exec(t.Context(), text, rows)
		require.NoError(t, err)
	}
	// VACUUM takes a row for visible to all only once the log of its insertion is written out.
	_, err := pool.Exec(t.Context(), `CHECKPOINT`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `VACUUM (ANALYZE) gendurable.gen_durable`)
	require.NoError(t, err)
	m := &meter{}
	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(t, url, m.configure)})
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{Refresh: time.Hour, Timeout: 5 * time.Minute})
	require.NoError(t, err)
	found, err := eng.Failures(t.Context(), engine.FailuresOptions{Limit: fsm.MaxLimit})
	require.NoError(t, err)
	t.Logf("%-28s %6d buffers, %d groups, %d counted", "Failures", m.buffers, len(found.Groups), found.Looked)
	require.NotEmpty(t, found.Groups)
	assert.LessOrEqual(t, m.buffers, failuresBuffers)
	for _, c := range []struct {
		path string
		most int
	}{
		{"/instances?fingerprint=" + found.Groups[0].Fingerprint, failuresBuffers}, {"/", overviewBuffers}, {"/queues", 0}, {"/machines", 100}, {"/machine?name=shop", 2000}, {"/instances", 2000}, {"/instances?status=failed", 3000},
		{"/instances?label=tenant%3D7", 3000}, {"/instances/1", 3000}, {"/limits", 100}, {"/schedules", 100}, {"/workers", 0}, {"/audit", 1000},
	} {
		m.mu.Lock()
		m.buffers, m.scans = 0, nil
		m.mu.Unlock()
		require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, c.path, nil).StatusCode, c.path)
		m.mu.Lock()
		t.Logf("%-28s %6d buffers", c.path, m.buffers)
		assert.LessOrEqual(t, m.buffers, c.most, c.path)
		assert.Empty(t, m.scans, c.path)
		m.mu.Unlock()
	}
}

// failuresBuffers is for the groups of failures, of which there may be hundreds.
const failuresBuffers = 5000

// overviewBuffers is for 8 queues of 10,000 waiting instances each, the newest 10,000 and 20,000
// ended ones, and the newest 20,000 that were inserted.
const overviewBuffers = 150_000
