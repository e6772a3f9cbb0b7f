package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// tally counts statements by their text.
type tally struct {
	mu   sync.Mutex
	sent map[string]int
}

// ofHost marks the statements that the host itself sends.
const ofHost = "/* the host's */"

func (c *tally) add(sql string) {
	if strings.HasPrefix(sql, ofHost) {
		return
	}
	// pgx writes its own BEGINs and ends in lower case.
	if word, _, _ := strings.Cut(strings.ToUpper(sql), " "); word == "BEGIN" || word == "COMMIT" || word == "ROLLBACK" {
		sql = word
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[sql]++
}

// messages is a tracer of pgx: what it counts went to the server.
type messages struct{ tally }

func (w *messages) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	w.add(data.SQL)
	return ctx
}

func (*messages) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (w *messages) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		w.add(q.SQL)
	}
	return ctx
}

func (*messages) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*messages) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A driver that a host has surrounded sees every statement that the server gets of a run, and no
// other: hot batches, the statements that heartbeats send on their own connection, the transactions
// of steps, of hosts and of the ent client.
func TestTheDriverSeesEveryStatement(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	server := &messages{tally{sent: map[string]int{}}}
	pool := pgtest.Pool(t, url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = server })
	driver, cut := &tally{sent: map[string]int{}}, &tally{sent: map[string]int{}}
	probed, beats := 0, 0
	around := func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
		for _, s := range stmts {
			driver.mu.Lock()
			if s.Name == "look for a proxy" { // as bare messages, which pgx does not trace
				probed++
			} else if s.Name == "present" {
				beats++
			}
			driver.mu.Unlock()
		}
		err := send(ctx)
		if err != nil && strings.Contains(err.Error(), "acquire a connection") {
			return err // the stop has ended the context before there was one
		}
		for _, s := range stmts {
			if s.Name == "look for a proxy" {
				continue
			}
			driver.add(s.SQL)
			if err != nil {
				cut.add(s.SQL) // the stop may have come between BEGIN, which goes ahead, and the rest
			}
		}
		return err
	}
	inTx := fsm.Declare[string, string]("transacted")
	transacted := inTx.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			_, err := tx.Exec(ctx, ofHost+`SELECT 1`)
			return v.Done("done"), err
		}), nil
	}))
	e := open(t, pool, rarely, func(c *engine.Config) {
		c.Pool, c.Driver = nil, entpgx.New(pool).Around(around)
		c.Machines = append(c.Machines, transacted)
		c.Heartbeat = 500 * time.Millisecond
		c.Schedules = []engine.Schedule{engine.Every("often", time.Hour, echoes.New("scheduled"))}
	})
	ctx := within(t)
	require.NoError(t, e.Start(ctx))
	_, err := e.Health(ctx)
	require.NoError(t, err)

	parked, err := e.Insert(ctx, ticket.New("a").Key("a").PartitionKey("p"))
	require.NoError(t, err)
	_, err = e.Insert(ctx, ticket.New("b").Key("a"))
	require.ErrorIs(t, err, engine.ErrDuplicate)
	_, err = e.Signal(ctx, parked, paid.With(1))
	require.NoError(t, err)
	_, err = ticket.Wait(ctx, e, parked)
	require.NoError(t, err)
	own, err := e.Insert(ctx, inTx.New("x"))
	require.NoError(t, err)
	_, err = inTx.Wait(ctx, e, own)
	require.NoError(t, err)

	host, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = e.WithPgx(host).Insert(ctx, ticket.New("c").Key("c"))
	require.NoError(t, err)
	require.NoError(t, host.Rollback(ctx))
	driver.add("BEGIN")
	driver.add("ROLLBACK")
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	standard, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = e.WithSQL(standard).Insert(ctx, ticket.New("d").Key("d"))
	require.NoError(t, err)
	require.NoError(t, standard.Rollback())
	driver.add("BEGIN")
	driver.add("ROLLBACK")

	_, err = e.Ent().Instance.Query().Where(instance.StatusEQ(fsm.StatusDone)).All(ctx)
	require.NoError(t, err)
	_, err = e.List(ctx, engine.Query{})
	require.NoError(t, err)
	_, err = e.Counts(ctx, engine.CountsOptions{})
	require.NoError(t, err)
	_, err = e.Admin().Why(ctx, parked)
	require.NoError(t, err)
	_, err = e.Admin().Workers(ctx)
	require.NoError(t, err)
	_, err = e.Admin().PauseQueue(ctx, "default")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		driver.mu.Lock()
		defer driver.mu.Unlock()
		return beats > 1
	}, 30*time.Second, 5*time.Millisecond, "the first one comes with the start")
	require.NoError(t, e.Stop(ctx))

	require.Positive(t, probed)
	for sql, n := range driver.sent {
		if missing := n - server.sent[sql]; missing > 0 && missing <= cut.sent[sql] {
			server.sent[sql] = n
		}
	}
	require.Equal(t, server.sent, driver.sent)
	require.Greater(t, len(driver.sent), 20)
}

func TestADriverOnAnotherPool(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	pool, other := pgtest.Pool(t, url), pgtest.Pool(t, url)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	for _, c := range []engine.Config{
		{Pool: pool, Driver: entpgx.New(other)},
		{Pool: pool, Driver: entpgx.Within(tx)},
		{Driver: entpgx.Within(tx)},
	} {
		_, err := engine.New(c)
		var wrong *engine.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, "Driver", wrong.Field)
	}
}
