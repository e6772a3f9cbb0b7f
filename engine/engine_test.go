package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

func echo(_ context.Context, text string) (string, error) { return text, nil }

var (
	echoes = fsm.Declare[string, string]("echo")
	ticket = fsm.Declare[string, string]("ticket")
	paid   = fsm.DeclareSignal[int]("paid")
)

// tickets park until they are paid.
func tickets() fsm.Definition {
	return ticket.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Await("issue", v.State, paid), nil
		}),
		fsm.Step("issue", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Done(v.State + " paid"), nil
		}))
}

// client is an engine without queues on a separate database.
func client(t *testing.T, change ...func(*engine.Config)) (*engine.Engine, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	return open(t, pool, change...), pool
}

func open(t *testing.T, pool *pgxpool.Pool, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	c := engine.Config{Pool: pool, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	e, err := engine.New(c)
	require.NoError(t, err)
	return e
}

// within bounds a test that would otherwise wait for ever.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := steady.Context(t)
	t.Cleanup(cancel)
	return ctx
}

// rarely is the Config of a worker that finds nothing by polling: running instances were nudged.
func rarely(c *engine.Config) {
	c.Machines = []fsm.Definition{echoes.Job(echo), tickets()}
	c.Queues = map[string]engine.Queue{"default": {PollMin: time.Hour}}
}

// working starts an engine, which stops with the test.
func working(t *testing.T, pool *pgxpool.Pool, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	e := open(t, pool, change...)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func TestRunUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := open(t, pool, rarely)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()

	id, err := e.Insert(t.Context(), echoes.New("hello"))
	require.NoError(t, err)
	got, err := echoes.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "hello", got)
	cancel()
	require.NoError(t, <-ran)

	require.ErrorIs(t, e.Start(t.Context()), engine.ErrStopped)
	require.NoError(t, e.Stop(t.Context()), "again")
	other, err := e.Insert(t.Context(), echoes.New("for another process"))
	require.NoError(t, err)
	_, err = e.Wait(t.Context(), other)
	require.ErrorIs(t, err, engine.ErrStopped)
	_, err = e.Wait(t.Context(), id)
	require.NoError(t, err, "it has ended")
}

func TestRunEndedBeforeItBegan(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, e.Run(ctx))
	require.ErrorIs(t, e.Start(t.Context()), engine.ErrStopped)
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	require.NoError(t, e.Start(t.Context()))
	require.ErrorIs(t, e.Start(t.Context()), engine.ErrStarted)
	require.NoError(t, e.Stop(t.Context()))
}

func TestStartOnASchemaThatIsNotCurrent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Database(t))
	e := open(t, pool, rarely, func(c *engine.Config) { c.Schema = "mine" })
	err := e.Start(t.Context())
	require.ErrorIs(t, err, engine.ErrSchema)
	require.ErrorContains(t, err, `schema "mine" is missing`)
	require.ErrorContains(t, err, "atlas migrate apply")
	require.ErrorIs(t, e.Run(t.Context()), engine.ErrSchema)

	m := migrate.Migrator{Pool: pool, Schema: "mine"}
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `UPDATE mine.atlas_schema_revisions SET applied = 0`)
	require.NoError(t, err)
	require.ErrorIs(t, e.Start(t.Context()), engine.ErrSchema)
	require.ErrorContains(t, e.Start(t.Context()), "is older")
	_, err = pool.Exec(t.Context(), `UPDATE mine.atlas_schema_revisions SET applied = total, version = '20261123050800'`)
	require.NoError(t, err)
	err = e.Start(t.Context())
	require.ErrorIs(t, err, engine.ErrSchema)
	require.ErrorContains(t, err, "from before the first release")
	wrong, ok := errors.AsType[*migrations.SchemaError](err)
	require.True(t, ok)
	require.Equal(t, migrations.StateUnreleased, wrong.State)
	_, err = pool.Exec(t.Context(), `UPDATE mine.atlas_schema_revisions SET version = $1`, migrations.Latest())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `UPDATE mine.atlas_schema_revisions SET version = '99999999999999' WHERE version = $1`, migrations.Latest())
	require.NoError(t, err)
	require.ErrorContains(t, e.Start(t.Context()), "is newer")
	_, err = pool.Exec(t.Context(), `UPDATE mine.atlas_schema_revisions SET version = $1 WHERE version = '99999999999999'`, migrations.Latest())
	require.NoError(t, err)

	require.NoError(t, e.Start(t.Context()), "once it is")
	require.NoError(t, e.Stop(t.Context()))
}

func TestStartWithoutADatabase(t *testing.T) {
	t.Parallel()
	err := open(t, nowhere(t, 2)).Start(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrSchema)
}

// The server has ended the session that the pool gives out, as it does with one that was idle.
func TestStartOnASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // as right after its use
	})
	e := open(t, pool, rarely)
	killer := pgtest.Pool(t, url)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	_, err = killer.Exec(t.Context(), `SELECT pg_terminate_backend($1, 60000)`, pid)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	require.NoError(t, e.Stop(context.Background()))
}

// journal is a log that a test reads.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func TestStartWarnsOfSurprises(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" })
	var log journal
	logged := func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
	elsewhere := fsm.Declare[string, string]("elsewhere", fsm.Queue("slow")).Job(echo)

	e := open(t, pool, logged, rarely, func(c *engine.Config) { c.Machines = append(c.Machines, elsewhere) })
	require.NoError(t, e.Start(t.Context()))
	require.NoError(t, e.Stop(t.Context()))
	require.Contains(t, log.String(), "synchronous_commit")
	require.Contains(t, log.String(), "machine=elsewhere version=1 queue=slow")
	require.NotContains(t, log.String(), "machine=echo")

	e = open(t, pool, logged, func(c *engine.Config) { c.Machines = []fsm.Definition{elsewhere} })
	require.NoError(t, e.Start(t.Context()))
	require.Contains(t, log.String(), "this engine is a client")
	require.NoError(t, e.Stop(t.Context()))
}

func TestFromContext(t *testing.T) {
	t.Parallel()
	require.Nil(t, engine.FromContext(t.Context()))
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	found := make(chan *engine.Engine, 1)
	ask := fsm.Declare[fsm.None, fsm.None]("ask").Job(func(ctx context.Context, _ fsm.None) (fsm.None, error) {
		found <- engine.FromContext(ctx)
		return fsm.None{}, nil
	})
	e := working(t, pool, rarely, func(c *engine.Config) { c.Machines = append(c.Machines, ask) })
	_, err := e.Insert(t.Context(), fsm.Declare[fsm.None, fsm.None]("ask").New(fsm.None{}))
	require.NoError(t, err)
	select {
	case got := <-found:
		require.Same(t, e, got)
	case <-within(t).Done():
		require.Fail(t, "the job did not run")
	}
}

func TestEnginesInOneProcessShareNothing(t *testing.T) {
	t.Parallel()
	one := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely)
	two := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely)
	a, err := one.Insert(t.Context(), ticket.New("one").Key("k"))
	require.NoError(t, err)
	b, err := two.Insert(t.Context(), ticket.New("two").Key("k"))
	require.NoError(t, err)
	require.Equal(t, a, b, "the ids are alike")
	_, err = one.Signal(t.Context(), fsm.Key("k"), paid.With(1))
	require.NoError(t, err)
	result, err := ticket.Wait(within(t), one, a)
	require.NoError(t, err)
	require.Equal(t, "one paid", result)
	i, err := two.Get(t.Context(), b)
	require.NoError(t, err)
	require.False(t, i.Status.Terminal())
}
