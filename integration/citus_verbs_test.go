package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// elsewhere returns the URL of a worker that does not own the schema.
func (d distributed) elsewhere() string { return d.Nodes[3-d.Owner] }

// TestAClientOnCitusThatWasNotStarted uses engines that were not started. At the owner each verb
// finds the shards and works. On another node it says so, and does nothing.
func TestAClientOnCitusThatWasNotStarted(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	m, paid := fsm.Declare[counter, int]("waits"), fsm.DeclareSignal[int]("paid")
	id := insert(t, client(t, d.follow(t)), m.New(counter{}).Key("k"))
	require.EqualValues(t, 1, int64(id)>>34, "drawn behind the epoch")
	narrow := pgtest.Pool(t, d.Nodes[d.Owner], func(c *pgxpool.Config) { c.MaxConns = 1 })
	insert(t, client(t, narrow), m.New(counter{}).Key("needs no other connection"))
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	rows := func() int {
		return query[int](t, d.meta, `SELECT (SELECT count(*) FROM gendurable.gen_durable) + (SELECT count(*) FROM gendurable.signals)`)
	}

	for name, verb := range map[string]func(context.Context, *engine.Engine) error{
		"insert": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Insert(ctx, m.New(counter{}))
			return err
		},
		"signal": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Signal(ctx, fsm.Key("k"), paid.With(1))
			return err
		},
		"pause": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Admin().PauseQueue(ctx, "q")
			return err
		},
	} {
		require.NoError(t, verb(t.Context(), client(t, d.follow(t))), name)
		before := rows()
		require.ErrorIs(t, verb(short(), client(t, pgtest.Pool(t, d.elsewhere()))), engine.ErrElsewhere, name)
		require.Equal(t, before, rows(), name)
	}

	// Reads that were not located go through Citus, which answers on any node.
	for _, eng := range []*engine.Engine{client(t, d.follow(t)), client(t, pgtest.Pool(t, d.elsewhere()))} {
		require.Equal(t, fsm.StatusRunnable, get(t, eng, id).Status)
		list, err := eng.Ent().Instance.Query().All(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, list)
		causes, err := eng.Admin().Why(t.Context(), id)
		require.NoError(t, err)
		require.NotEmpty(t, causes)
	}
}

// TestAHostsTransactionOnCitus enters at the owner. On another node it names the owner, and nothing
// is drawn there.
func TestAHostsTransactionOnCitus(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	m, paid := fsm.Declare[counter, int]("waits"), fsm.DeclareSignal[int]("paid")
	verbs := func(eng *engine.Engine, url string) error {
		pool := pgtest.Pool(t, url)
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			hosted := eng.WithPgx(tx)
			id, err := hosted.Insert(t.Context(), m.New(counter{}).Key("of a host"))
			if err != nil {
				return err
			}
			if _, err := hosted.Signal(t.Context(), fsm.Key("of a host"), paid.With(1)); err != nil {
				return err
			}
			require.EqualValues(t, 1, int64(id)>>34)
			return nil
		})
	}
	started := client(t, d.follow(t))
	require.NoError(t, started.Start(t.Context()))
	require.ErrorIs(t, verbs(started, d.elsewhere()), engine.ErrElsewhere)

	// An engine that was not started finds the shards by an error, which ends the transaction.
	unstarted := client(t, d.follow(t))
	var found *engine.DistributedError
	require.ErrorAs(t, verbs(unstarted, d.elsewhere()), &found)
	require.Equal(t, "gendurable", found.Schema)
	require.Zero(t, query[int](t, d.meta, `SELECT count(*) FROM gendurable.gen_durable`))
	require.NoError(t, verbs(unstarted, d.Nodes[d.Owner]))
	require.Equal(t, 1, query[int](t, d.meta, `SELECT count(*) FROM gendurable.signals`))
}

// TestSQLFunctionsOnCitus calls what other languages call: it works at the owner, also after a
// move.
func TestSQLFunctionsOnCitus(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	calls := func(url, key string) (inserted, signalled int64, err error) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		err = conn.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_insert('m', correlation_key => $1)`, key).Scan(&inserted)
		if err == nil {
			err = conn.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_signal('paid', correlation_key => $1)`, key).Scan(&signalled)
		}
		return inserted, signalled, err
	}
	for epoch, at := range []int{d.Owner, 3 - d.Owner} {
		key := []string{"before", "after"}[epoch]
		inserted, signalled, err := calls(d.Nodes[at], key)
		require.NoError(t, err)
		require.EqualValues(t, epoch+1, inserted>>34, "drawn behind the epoch")
		require.Equal(t, inserted, signalled)
		for _, other := range []int{0, 3 - at} {
			_, _, err = calls(d.Nodes[other], "nowhere")
			require.ErrorContains(t, err, "another node has this schema")
		}
		if epoch == 0 {
			d.move(t, citus.MoveOptions{BlockWrites: true})
		}
	}
	require.Equal(t, 2, query[int](t, d.meta, `SELECT count(*) FROM gendurable.signals`))
}

// TestAnEngineOnCitusDoesWhatElseThereIs uses gates, kept signals, schedules, children, steps with
// their own transactions, and the history, whose days the coordinator makes.
func TestAnEngineOnCitusDoesWhatElseThereIs(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	paid := fsm.DeclareSignal[int]("paid")
	m := fsm.Declare[counter, int]("all of it")
	l := &leg{runs: map[fsm.ID]map[int64]int{}}
	c := configOn(t, d.Nodes[d.Owner], m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			return v.Await("end", v.State, paid), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
				var n int
				err := tx.QueryRow(ctx, `SELECT 40 + 2`).Scan(&n)
				return v.Done(n), err
			}), nil
		})),
		broodDefinition(), l.definition())
	c.Pool, c.History = d.follow(t), fsm.KeepTransitions
	c.Schedules = []engine.Schedule{engine.Cron("at times", "0 0 1 1 *", m.New(counter{}))}
	eng := start(t, c)
	_, err := eng.Admin().SetGate(t.Context(), engine.Gate{Name: "one", Machine: "leg", Places: 1})
	require.NoError(t, err)
	require.Equal(t, 4, result(t, eng, broodMachine, insert(t, eng, broodMachine.New(4))), "one child after the other")

	_, err = eng.Signal(t.Context(), fsm.Key("later"), paid.With(1).KeepFor(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 42, result(t, eng, m, insert(t, eng, m.New(counter{}).Key("later"))), "its signal was kept for it")
	id, err := eng.Admin().RunSchedule(t.Context(), "at times")
	require.NoError(t, err)
	_, err = eng.Signal(t.Context(), id, paid.With(1))
	require.NoError(t, err)
	require.Equal(t, 42, result(t, eng, m, id))

	require.Positive(t, query[int](t, d.meta, `SELECT count(*) FROM gendurable.history`))
	require.Zero(t, query[int](t, d.meta, `SELECT count(*) FROM gendurable.history_rest`), "each day has a table")
	d.move(t, citus.MoveOptions{BlockWrites: true})
	require.Equal(t, 4, result(t, eng, broodMachine, insert(t, eng, broodMachine.New(4))), "the days go with the schema")
	require.Zero(t, query[int](t, d.meta, `SELECT count(*) FROM gendurable.history_rest`))
}
