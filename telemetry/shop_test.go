package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var (
	checkout = fsm.Declare[string, string]("checkout")
	parcel   = fsm.Declare[string, string]("parcel", fsm.Queue("parcels"))
	paid     = fsm.DeclareSignal[int]("paid")
)

var errAddress = errors.New("no such address")

// machines are a checkout that awaits its payment and then sends parcels, some of which come back.
func machines() []fsm.Definition {
	return []fsm.Definition{
		checkout.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Await("ship", v.State, paid), nil
			}),
			fsm.Step("ship", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.ScheduleChildren("end", v.State, parcel.New("good").PartitionKey("p"), parcel.New("bad"), parcel.New("panic")), nil
			}),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State), nil
			})),
		parcel.Job(func(_ context.Context, what string) (string, error) {
			switch what {
			case "bad":
				return "", errAddress
			case "panic":
				panic("dropped it")
			}
			return what, nil
		}).Retry(fsm.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond}),
	}
}

// shop returns an engine with telemetry, observed until the test ends.
func shop(t *testing.T, c Config, change ...func(*engine.Config)) (*engine.Engine, *Telemetry) {
	t.Helper()
	c.Propagator = propagation.TraceContext{}
	tel, err := New(c)
	require.NoError(t, err)
	config := engine.Config{
		Pool: pgtest.Pool(t, pgtest.Migrated(t)), Machines: machines(), Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]engine.Queue{"default": {Concurrency: 4}, "parcels": {Concurrency: 4}},
	}
	for _, f := range change {
		f(&config)
	}
	tel.Instrument(&config)
	eng, err := engine.New(config)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.Background())) })
	return eng, tel
}

// buy runs one checkout to its end.
func buy(ctx context.Context, t *testing.T, eng *engine.Engine) fsm.ID {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	id, err := eng.Insert(ctx, checkout.New("books").Key("order:1"))
	require.NoError(t, err)
	_, err = eng.Signal(ctx, fsm.Key("order:1"), paid.With(7))
	require.NoError(t, err)
	_, err = checkout.Wait(ctx, eng, id)
	require.NoError(t, err)
	return id
}
