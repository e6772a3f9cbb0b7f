// Package languages tests the SQL functions by which programs in other languages insert instances
// and send signals.
package languages

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

type order struct{ Item string }

var (
	orders = fsm.Declare[order, string]("order")
	paid   = fsm.DeclareSignal[int]("paid")
)

// awaiting is a machine that ends with the sum that it is paid.
func awaiting() fsm.Definition {
	return orders.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			return v.Await("paid", v.State, paid), nil
		}),
		fsm.Step("paid", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			cents, _, err := paid.First(v)
			if err != nil {
				return nil, err
			}
			return v.Done(fmt.Sprintf("%s for %d", v.State.Item, cents)), nil
		}))
}

func open(t *testing.T, url string, machines ...fsm.Definition) (*engine.Engine, *pgxpool.Pool) {
	t.Helper()
	c := engine.Config{Pool: pgtest.Pool(t, url), Machines: machines, Logger: slog.New(slog.DiscardHandler)}
	if len(machines) > 0 {
		c.Queues = map[string]engine.Queue{"default": {PollMin: 20 * time.Millisecond, PollMax: 100 * time.Millisecond}}
	}
	e, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e, c.Pool
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := steady.Context(t)
	t.Cleanup(cancel)
	return ctx
}

func idOf(t *testing.T, text string) fsm.ID {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return fsm.ID(id)
}

// Each client inserts, signals by id and by key, and the machines in Go do the rest.
func TestClientsInsertAndSignal(t *testing.T) {
	t.Parallel()
	for name, start := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			does, url := start(t), pgtest.Migrated(t)
			e, _ := open(t, url, awaiting())
			state := json.RawMessage(`{"Item": "it's a book"}`)
			first := does(t, url, call{"gen_durable_insert", map[string]any{"machine": "order", "state": state, "correlation_key": "order:1"}}).one(t)
			require.Equal(t, "f", first[1])
			again := does(t, url, call{"gen_durable_insert", map[string]any{"machine": "order", "correlation_key": "order:1"}}).one(t)
			require.Equal(t, []string{first[0], "t"}, again)
			second := does(t, url, call{"gen_durable_insert", map[string]any{"machine": "order", "state": state}}).one(t)

			// It does not matter whether it has parked: the signal is not lost.
			got := does(t, url, call{"gen_durable_signal", map[string]any{
				"correlation_key": "order:1", "name": "paid", "payload": json.RawMessage("7"), "dedup_key": "event 1"}}).one(t)
			require.Equal(t, []string{first[0], "f"}, got)
			got = does(t, url, call{"gen_durable_signal", map[string]any{"target": second[0], "name": "paid", "payload": json.RawMessage("8")}}).one(t)
			require.Equal(t, []string{second[0], "f"}, got)
			for id, want := range map[string]string{first[0]: "it's a book for 7", second[0]: "it's a book for 8"} {
				result, err := orders.Wait(within(t), e, idOf(t, id))
				require.NoError(t, err)
				require.Equal(t, want, result)
			}

			// Its key is free again, and it accepts no more signals.
			a := does(t, url, call{"gen_durable_signal", map[string]any{"target": first[0], "name": "paid"}})
			require.Equal(t, "Y0001", a.Code, a.Message)
			a = does(t, url, call{"gen_durable_signal", map[string]any{"correlation_key": "order:1", "name": "paid"}})
			require.Equal(t, "Y0001", a.Code, a.Message)
			third := does(t, url, call{"gen_durable_insert", map[string]any{"machine": "order", "correlation_key": "order:1"}}).one(t)
			require.Equal(t, "f", third[1])
		})
	}
}

// Values that cannot be stored are refused, and the error names them.
func TestClientsAreTold(t *testing.T) {
	t.Parallel()
	for name, start := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			does, url := start(t), pgtest.Migrated(t)
			open(t, url)
			target := does(t, url, call{"gen_durable_insert", map[string]any{"machine": "order"}}).one(t)[0]
			signal := call{"gen_durable_signal", map[string]any{"target": target, "name": "paid", "dedup_key": "k", "inbox": 1}}
			require.Equal(t, []string{target, "f"}, does(t, url, signal).one(t))
			require.Equal(t, []string{target, "t"}, does(t, url, signal).one(t), "a duplicate, though the inbox is full")
			for field, c := range map[string]struct {
				call call
				code string
			}{
				"inbox full":    {call{"gen_durable_signal", map[string]any{"target": target, "name": "paid", "inbox": 1}}, "Y0002"},
				"nobody":        {call{"gen_durable_signal", map[string]any{"name": "paid"}}, "22023"},
				"two addresses": {call{"gen_durable_signal", map[string]any{"name": "paid", "target": target, "correlation_key": "k"}}, "22023"},
				"no such one":   {call{"gen_durable_signal", map[string]any{"name": "paid", "target": "999999"}}, "Y0001"},
				"empty name":    {call{"gen_durable_signal", map[string]any{"name": "", "target": target}}, "23514"},
				"scope":         {call{"gen_durable_insert", map[string]any{"machine": "order", "scope": "ever"}}, "22023"},
				"machine":       {call{"gen_durable_insert", map[string]any{"machine": ""}}, "23514"},
				"version":       {call{"gen_durable_insert", map[string]any{"machine": "order", "version": 0}}, "23514"},
				"priority":      {call{"gen_durable_insert", map[string]any{"machine": "order", "priority": 40000}}, "22003"},
				"infinite time": {call{"gen_durable_insert", map[string]any{"machine": "order", "eligible_at": "infinity"}}, "23514"},
				"label":         {call{"gen_durable_insert", map[string]any{"machine": "order", "labels": json.RawMessage(`{"a": "x", "n": 7}`)}}, "22023"},
				"null label":    {call{"gen_durable_insert", map[string]any{"machine": "order", "labels": json.RawMessage(`{"n": null}`)}}, "22023"},
				"list label":    {call{"gen_durable_insert", map[string]any{"machine": "order", "labels": json.RawMessage(`{"n": ["a"]}`)}}, "22023"},
				"labels":        {call{"gen_durable_insert", map[string]any{"machine": "order", "labels": json.RawMessage(`[1]`)}}, "23514"},
				"JSON":          {call{"gen_durable_insert", map[string]any{"machine": "order", "state": json.RawMessage(`{`)}}, "22P02"},
			} {
				a := does(t, url, c.call)
				require.Equal(t, c.code, a.Code, "%s: %s", field, a.Message)
			}
		})
	}
}

// TestInsertedRowsAreThoseOfTheEngine compares each column with a row that the engine itself has
// inserted.
func TestInsertedRowsAreThoseOfTheEngine(t *testing.T) {
	t.Parallel()
	e, pool := open(t, pgtest.Migrated(t))
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	scopes := map[string]fsm.Scope{"live": fsm.ScopeLive, "live_or_done": fsm.ScopeLiveOrDone, "live_or_failed": fsm.ScopeLiveOrFailed,
		"all": fsm.ScopeAll, "none": fsm.ScopeNone}
	row := func(id fsm.ID) map[string]any {
		rows, err := pool.Query(t.Context(), `SELECT to_jsonb(g) - '{id,uid,inserted_at,updated_at,deadline,eligible_at}'::text[] ||
			jsonb_build_object('eligible', greatest(g.eligible_at, $2), 'life', round(extract(epoch FROM g.deadline - g.inserted_at)))
			FROM gendurable.gen_durable g WHERE id = $1`, id, at)
		require.NoError(t, err)
		columns, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[map[string]any])
		require.NoError(t, err)
		return columns
	}
	for scope, want := range scopes {
		byEngine, err := e.Insert(t.Context(), orders.New(order{"x"}).Key(fsm.Key(scope)).Scope(want).PartitionKey("p").Queue("q").Priority(-3).
			At(at).Deadline(2*time.Hour).Label("a", "b"))
		require.NoError(t, err)
		expected := row(byEngine)
		_, err = pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE id = $1`, byEngine)
		require.NoError(t, err)
		var id fsm.ID
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_insert('order', '{"Item": "x"}', correlation_key => $1,
			scope => $1, partition_key => 'p', queue => 'q', priority => -3, eligible_at => $2, deadline => now() + interval '2 hours',
			labels => '{"a": "b"}')`, scope, at).Scan(&id))
		require.Equal(t, expected, row(id))
	}
	plain, err := e.Insert(t.Context(), orders.New(order{}))
	require.NoError(t, err)
	var id fsm.ID
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_insert('order', '{"Item": ""}')`).Scan(&id))
	require.Equal(t, row(plain), row(id))
}

// counter adds up the numbers of its signals, which may come one or many at a time, and parks
// again.
var counter = fsm.Declare[int, int]("counter")

func counting(want int) fsm.Definition {
	wait := func(v *fsm.Visit[int, int], n int) (fsm.Outcome, error) {
		if n == want {
			return v.Done(n), nil
		}
		return v.Await("count", n, paid), nil
	}
	return counter.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return wait(v, v.State) }),
		fsm.Step("count", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			all, err := paid.All(v)
			if err != nil {
				return nil, err
			}
			return v.Next("again", v.State+len(all)), nil
		}),
		fsm.Step("again", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return wait(v, v.State) }))
}

// Signals by the function meet their target at every point between running and parking: none is
// lost, and none counts twice.
func TestNoSignalIsLostBesideARunningTarget(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 100
	e, pool := open(t, pgtest.Migrated(t), counting(senders*each))
	id, err := e.Insert(t.Context(), counter.New(0).Key("c"))
	require.NoError(t, err)
	var sending sync.WaitGroup
	errs := make(chan error, senders*each)
	for s := range senders {
		sending.Go(func() {
			for n := range each {
				_, err := pool.Exec(t.Context(), `SELECT gendurable.gen_durable_signal('paid', '1', correlation_key => 'c', dedup_key => $1)`,
					fmt.Sprint(s, " ", n))
				errs <- err
			}
		})
	}
	sending.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	got, err := counter.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, senders*each, got)
}

// Of many who insert one key at once, one inserts it, and the others get the id of its instance.
func TestOneInsertPerKey(t *testing.T) {
	t.Parallel()
	_, pool := open(t, pgtest.Migrated(t))
	for round := range 20 {
		ids := make([]int64, 8)
		fresh := make([]bool, 8)
		errs := make([]error, 8)
		var inserting sync.WaitGroup
		for i := range ids {
			inserting.Go(func() {
				var duplicate bool
				errs[i] = pool.QueryRow(t.Context(), `SELECT * FROM gendurable.gen_durable_insert('order', correlation_key => $1)`,
					fmt.Sprint(round)).Scan(&ids[i], &duplicate)
				fresh[i] = !duplicate
			})
		}
		inserting.Wait()
		n := 0
		for i := range ids {
			require.NoError(t, errs[i])
			require.Equal(t, ids[0], ids[i])
			if fresh[i] {
				n++
			}
		}
		require.Equal(t, 1, n)
	}
}

// The functions are part of the caller's transaction, and find their tables whatever its
// search_path is.
func TestInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	_, pool := open(t, pgtest.Migrated(t))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SET LOCAL search_path = pg_temp`)
	require.NoError(t, err)
	var id fsm.ID
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_insert('order')`).Scan(&id))
	_, err = tx.Exec(t.Context(), `SELECT gendurable.gen_durable_signal('paid', target => $1)`, id)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable`).Scan(&left))
	require.Zero(t, left)
}

// The rights that the guide names suffice, and each is necessary.
func TestRightsOfACaller(t *testing.T) {
	t.Parallel()
	_, pool := open(t, pgtest.Migrated(t))
	role := "caller_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	_, err := pool.Exec(t.Context(), `CREATE ROLE `+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	does := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `SELECT gendurable.gen_durable_signal('paid', target => (gendurable.gen_durable_insert('order')).id)`)
			return err
		})
	}
	rights := []string{"USAGE ON SCHEMA gendurable", "SELECT ON gendurable.gen_durable", "INSERT ON gendurable.gen_durable",
		"UPDATE ON gendurable.gen_durable", "SELECT ON gendurable.signals", "INSERT ON gendurable.signals"}
	for _, right := range rights {
		require.ErrorContains(t, does(), "permission denied", "without %s", right)
		_, err := pool.Exec(t.Context(), `GRANT `+right+` TO `+role)
		require.NoError(t, err)
	}
	require.NoError(t, does())
}
