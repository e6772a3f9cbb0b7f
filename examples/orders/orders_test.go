package orders

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// TestMain lets this program be a worker process, as the demo is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == WorkerRole {
		os.Exit(WorkerMain())
	}
	pgtest.NoLeaks(m)
}

const (
	schema = "gendurable"
	shop   = "shop"
)

// small is a run of some seconds with enough in hand at any time for the faults to meet something.
func small(t *testing.T) Options {
	t.Helper()
	o := Options{
		URL: pgtest.Migrated(t), Schema: schema, Shop: shop, Orders: 250, Concurrency: 2, Latency: 50 * time.Millisecond,
		PayWithin: 6 * time.Second, Within: 2 * time.Minute, Progress: run.NewProgress(t.Output()),
	}
	_, err := connect(t, o.URL).Exec(t.Context(), `create schema `+shop)
	require.NoError(t, err)
	return o
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	db, err := run.Connect(t.Context(), url, t.Name(), shop+","+schema)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// tamperings each break what one of the checks states.
var tamperings = []struct{ check, sql string }{
	{"every order has one instance", `update gen_durable set correlation_key = 'other' where id = (select min(id) from gen_durable where fsm = 'checkout')`},
	{"every order met the fate", `update gen_durable set result = jsonb_set(result, '{fate}', '"expired"')
		where id = (select min(id) from gen_durable where result->>'fate' = 'shipped')`},
	{"every payment of the CSV file", `delete from received where event = (select min(event) from received)`},
	{"each effect happened once", `insert into effect (key, name, order_id, cents, token)
		select gen_random_uuid(), name, order_id, 0, token from effect where name = 'mail' limit 1`},
	{"each effect happened once", `delete from effect where key = (select key from effect where name = 'mail' limit 1)`},
	{"money in", `update effect set cents = cents - 1 where key = (select key from effect where name = 'shipment' limit 1)`},
	{"whoever got no answer", `update effect set calls = 1`},
	{"nothing is left", `insert into signals (target_id, name) select min(id), 'paid' from gen_durable where fsm = 'checkout'`},
	{"all that the killed worker", `update interrupted set retaken_at = null where kind = '` + killed + `'`},
	{"a worker was killed", `delete from interrupted where kind = '` + stalled + `'`},
}

func TestEveryOrderIsAccountedForThoughWorkersDieAndStall(t *testing.T) {
	t.Parallel()
	o := small(t)
	require.NoError(t, Run(t.Context(), o))

	db := connect(t, o.URL)
	for _, tampering := range tamperings {
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), tampering.sql)
		require.NoError(t, err, tampering.check)
		require.Positive(t, tag.RowsAffected(), tampering.check)
		_, err = verify(t.Context(), tx, false)
		require.NoError(t, tx.Rollback(t.Context()))
		var failed *FailedError
		require.ErrorAs(t, err, &failed, tampering.check)
		require.Contains(t, strings.Join(failed.Checks, "\n"), tampering.check)
	}
	_, err := verify(t.Context(), db, false)
	require.NoError(t, err)
}

func TestAnInterruptedRunResumes(t *testing.T) {
	t.Parallel()
	o := small(t)
	o.Orders = 120
	o.PayWithin = 20 * time.Second // orders that wait for a payment go on waiting between the two runs
	db := connect(t, o.URL)

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	require.Eventually(t, func() bool {
		var effects int
		err := db.QueryRow(t.Context(), `select count(*) from effect`).Scan(&effects)
		return err == nil && effects > 20
	}, time.Minute, 20*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled)

	var executing int
	require.NoError(t, db.QueryRow(t.Context(), `select count(*) from gen_durable where status = 'executing'`).Scan(&executing))
	require.Zero(t, executing, "an orderly stop gives everything back")
	require.Eventually(t, func() bool { // Postgres notices a moment later that a connection is closed
		var sessions int
		err := db.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = any($1)`, workers).Scan(&sessions)
		return err == nil && sessions == 0
	}, time.Minute, 20*time.Millisecond)

	require.NoError(t, Run(t.Context(), o))
	require.NoError(t, Run(t.Context(), o), "nothing is left to do")
}

func TestPaymentsAnswerWhatTheProviderShouldDoNext(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	admin := connect(t, url)
	_, err := admin.Exec(t.Context(), `create schema `+shop)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), tables)
	require.NoError(t, err)
	eng, err := engine.New(engine.Config{
		Pool: admin, Schema: schema, Queues: map[string]engine.Queue{"checkout": {PollMin: 10 * time.Millisecond, PollMax: 20 * time.Millisecond}},
		Machines: []fsm.Definition{checkout{outside: &outside{db: admin}, payWithin: 200 * time.Millisecond}.Definition()},
	})
	require.NoError(t, err)
	server := &payments{eng: eng, db: admin}
	post := func(body string) int {
		response := httptest.NewRecorder()
		server.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(body)))
		return response.Code
	}
	place := func(id int64) {
		_, err := eng.Insert(t.Context(), Checkout.New(Order{ID: id, Item: "teapot", Cents: 100}).Key(Key(id)).Scope(fsm.ScopeAll))
		require.NoError(t, err)
	}
	pay := func(id int64, event string) string {
		return fmt.Sprintf(`{"event":%q,"order":%d,"cents":100}`, event, id)
	}

	require.Equal(t, http.StatusBadRequest, post(`{`))
	require.Equal(t, http.StatusNotFound, post(pay(1, "a")), "no such order yet")
	place(1)
	require.Equal(t, http.StatusAccepted, post(pay(1, "a")), "before the order waits")
	require.Equal(t, http.StatusOK, post(pay(1, "a")), "twice")

	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.Background())) })
	receipt, err := Checkout.Wait(t.Context(), eng, Key(1))
	require.NoError(t, err)
	require.Equal(t, Receipt{Order: 1, Fate: Shipped, Cents: 100, Event: "a"}, receipt)
	require.Equal(t, http.StatusOK, post(pay(1, "a")), "once more, after the end")
	require.Equal(t, http.StatusGone, post(pay(1, "b")), "another payment of an order that has ended")

	place(2)
	receipt, err = Checkout.Wait(t.Context(), eng, Key(2))
	require.NoError(t, err)
	require.Equal(t, Expired, receipt.Fate)
	require.Equal(t, http.StatusGone, post(pay(2, "c")))
}

func TestTheOutsideRefusesAnOlderHolder(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.Migrated(t))
	_, err := db.Exec(t.Context(), `create schema `+shop)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), tables)
	require.NoError(t, err)
	o := &outside{db: db}
	const key = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	for _, c := range []struct {
		token int64
		calls int
		err   error
	}{{7, 1, nil}, {9, 2, nil}, {8, 0, errOutdated}, {9, 3, nil}} {
		calls, err := o.effect(t.Context(), "mail", 1, 0, key, c.token)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.calls, calls)
	}
}

func TestRunRefusesMoreOrdersThanThereAre(t *testing.T) {
	t.Parallel()
	for _, n := range []int{MinOrders - 1, MaxOrders + 1, -1} {
		require.ErrorContains(t, Run(t.Context(), Options{Orders: n}), "orders")
	}
}
