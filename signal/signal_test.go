package signal_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/signal"
)

var (
	seat = fsm.Declare[int, string]("seat")
	paid = fsm.DeclareSignal[string]("paid")
)

// traceKey is the key of a trace in a context.
type traceKey struct{}

// inject stores the trace that a test has put into the context.
func inject(ctx context.Context) map[string]string {
	if trace, ok := ctx.Value(traceKey{}).(string); ok {
		return map[string]string{"traceparent": trace}
	}
	return nil
}

// working starts an engine whose instances end with the payment that they await, and its trace.
func working(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{
		Pool: pool, Queues: map[string]engine.Queue{"default": {PollMin: 10 * time.Millisecond, PollMax: 10 * time.Millisecond}},
		Machines: []fsm.Definition{seat.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				return v.Await("paid", v.State, paid), nil
			}).To("paid"),
			fsm.Step("paid", func(ctx context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				by, _, err := paid.First(v)
				if err != nil {
					return nil, err
				}
				_, awaited := fsm.TracesFrom(ctx)
				return v.Done("paid by " + by + " in " + awaited[0]["traceparent"]), nil
			}).To(),
		)},
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func sender(t *testing.T, pool *pgxpool.Pool, change ...func(*signal.Config)) *signal.Sender {
	t.Helper()
	c := signal.Config{Pool: pool, Inject: inject}
	for _, f := range change {
		f(&c)
	}
	s, err := signal.New(c)
	require.NoError(t, err)
	return s
}

// A sender needs no engine beside it: a worker elsewhere runs the instance that it wakes.
func TestSenderWakesAnInstance(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, s := working(t, pool), sender(t, pool)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, by := range []string{"id", "key"} {
		id, err := e.Insert(ctx, seat.New(1).Key("A1"))
		require.NoError(t, err)
		var to fsm.Target = id
		if by == "key" {
			to = fsm.Key("A1")
		}
		sent, err := s.Send(context.WithValue(ctx, traceKey{}, trace), to, paid.With("acme").DedupKey("event-1"))
		require.NoError(t, err)
		require.Equal(t, signal.Delivery{To: id}, sent)
		got, err := seat.Wait(ctx, e, id)
		require.NoError(t, err)
		require.Equal(t, "paid by acme in "+trace, got)
		_, err = s.Send(ctx, to, paid.With("acme"))
		require.ErrorIs(t, err, signal.ErrNoTarget)
		require.ErrorIs(t, err, engine.ErrNoTarget, "the errors are those of package engine")
	}
}

// Dedup keys, kept messages and limits are as with engine.Engine.Signal, also beside its calls.
func TestSenderIsAsAClient(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	client, err := engine.New(engine.Config{Pool: pool, Machines: []fsm.Definition{seat.Define(
		fsm.Step("start", func(context.Context, *fsm.Visit[int, string]) (fsm.Outcome, error) { return nil, nil }).To(),
	)}})
	require.NoError(t, err)
	ctx := t.Context()
	s := sender(t, pool, func(c *signal.Config) { c.Limits = signal.Limits{PayloadBytes: 100, Inbox: 2} })

	kept, err := s.Send(ctx, fsm.Key("A2"), paid.With("early").DedupKey("e").KeepFor(time.Hour))
	require.NoError(t, err)
	require.Equal(t, signal.Delivery{Kept: true}, kept)
	kept, err = client.Signal(ctx, fsm.Key("A2"), paid.With("early").DedupKey("e").KeepFor(time.Hour))
	require.NoError(t, err)
	require.Equal(t, signal.Delivery{Kept: true, Duplicate: true}, kept)

	id, err := client.Insert(ctx, seat.New(1).Key("A1"))
	require.NoError(t, err)
	_, err = client.Signal(ctx, id, paid.With("first").DedupKey("1"))
	require.NoError(t, err)
	sent, err := s.Send(ctx, id, paid.With("first").DedupKey("1"))
	require.NoError(t, err)
	require.Equal(t, signal.Delivery{To: id, Duplicate: true}, sent)
	_, err = s.Send(ctx, id, paid.With(strings.Repeat("x", 100)))
	require.ErrorIs(t, err, signal.ErrTooLarge)
	_, err = s.Send(ctx, id, paid.With("second"))
	require.NoError(t, err)
	_, err = s.Send(ctx, id, paid.With("third"))
	require.ErrorIs(t, err, signal.ErrInboxFull)
	_, err = s.Send(ctx, fsm.Key(""), paid.With("third"))
	require.ErrorIs(t, err, signal.ErrNoTarget)
	_, err = s.Send(ctx, id, fsm.DeclareSignal[string]("").With("third"))
	require.ErrorContains(t, err, "name")
}

// A sender works in the schema of its Config, and in no other.
func TestSenderKnowsItsSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	_, err := sender(t, pool, func(c *signal.Config) { c.Schema = `no "such" schema` }).Send(t.Context(), fsm.ID(1), paid.With("acme"))
	require.ErrorContains(t, err, `no "such" schema`)
	_, err = sender(t, pool, func(c *signal.Config) { c.Schema = signal.DefaultSchema }).Send(t.Context(), fsm.ID(1), paid.With("acme"))
	require.ErrorIs(t, err, signal.ErrNoTarget)
}

func TestConfigOfASender(t *testing.T) {
	t.Parallel()
	_, err := signal.New(signal.Config{Schema: strings.Repeat("x", 64), Limits: signal.Limits{PayloadBytes: -1, Inbox: -2}})
	for _, fault := range []string{"Pool: nil", "Schema: ", "Limits.PayloadBytes: -1", "Limits.Inbox: -2"} {
		require.ErrorContains(t, err, fault)
	}
	pool := pgtest.Pool(t, pgtest.Database(t))
	_, err = signal.New(signal.Config{Pool: pool, Schema: "with\x00nul"})
	require.ErrorContains(t, err, "Schema")
	_, err = signal.New(signal.Config{Pool: pool})
	require.NoError(t, err)
}
