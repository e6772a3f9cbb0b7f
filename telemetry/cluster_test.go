package telemetry

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// byPlace sums the points of a metric by their place; "" has the points without one.
func byPlace(t *testing.T, reader *sdkmetric.ManualReader, name string) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	_ = reader.Collect(t.Context(), &all) // a place that is down is an error, and the rest is there
	sums := map[string]int64{}
	add := func(set attribute.Set, n int64) {
		at, _ := set.Value(keyPlace)
		sums[at.Emit()] += n
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, int64(p.Count)) //nolint:gosec // few
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, 1)
				}
			}
		}
	}
	return sums
}

func TestMetricsAndSpansTellThePlace(t *testing.T) {
	t.Parallel()
	r, reader := recorder(), sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	tel, err := New(Config{MeterProvider: provider, TracerProvider: r.provider, LagEvery: time.Hour, Attributes: []attribute.KeyValue{attribute.String("shop", "a")}})
	require.NoError(t, err)
	url := pgtest.Migrated(t)
	shared, other := pgtest.Pool(t, url), pgtest.Pool(t, pgtest.Migrated(t))
	_, err = migrate.Migrator{Pool: shared, Schema: "second"}.Up(t.Context())
	require.NoError(t, err)
	places := []cluster.Place{{Pool: shared}, {Pool: shared, Schema: "second"}, {Pool: other}}
	require.NoError(t, cluster.Init(t.Context(), places))
	asked := []int{}
	config := cluster.Config{
		Places: places,
		Engine: engine.Config{Machines: machines(), Logger: slog.New(slog.DiscardHandler), Queues: map[string]engine.Queue{"default": {Concurrency: 4}, "parcels": {Concurrency: 4}}},
		Each:   func(place int, _ *engine.Config) { asked = append(asked, place) },
	}
	tel.InstrumentCluster(&config)
	c, err := cluster.New(config)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, asked, "what the host has set is called, too")
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	stop, err := tel.ObserveCluster(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })

	for place := range places {
		for n := 0; n <= place; n++ { // one more at each
			id, err := c.Engine(place).Insert(t.Context(), parcel.New("good"))
			require.NoError(t, err)
			_, err = parcel.Wait(t.Context(), c, id)
			require.NoError(t, err)
		}
	}
	require.Equal(t, map[string]int64{"0": 1, "1": 2, "2": 3}, byPlace(t, reader, "gendurable.call.duration"))
	require.Equal(t, map[string]int64{"0": 1, "1": 2, "2": 3}, byPlace(t, reader, "gendurable.step.duration"))
	require.Equal(t, map[string]int64{"0": 8, "1": 8, "2": 8}, byPlace(t, reader, "gendurable.queue.slots"))
	require.Equal(t, map[string]int64{"0": int64(shared.Config().MaxConns), "2": int64(other.Config().MaxConns)},
		byPlace(t, reader, "gendurable.pool.connection.max"), "a pool that places share counts once")
	require.Len(t, byPlace(t, reader, "gendurable.queue.lag"), len(places))

	for _, name := range []string{"insert parcel", "step parcel.start"} {
		at := map[string]int{}
		for _, s := range r.named(t, name, 6) {
			require.Equal(t, "a", attributes(s)["shop"])
			at[attributes(s)["gendurable.place"]]++
		}
		require.Equal(t, map[string]int{"0": 1, "1": 2, "2": 3}, at, name)
	}
}

// A place that does not answer takes nothing from what the others report.
func TestMetricsWithAPlaceDown(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	tel, err := New(Config{MeterProvider: provider, LagEvery: time.Hour})
	require.NoError(t, err)
	nowhere, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(nowhere.Close)
	config := cluster.Config{
		Places:   []cluster.Place{{Pool: nowhere}, {Pool: pgtest.Pool(t, pgtest.Migrated(t))}},
		Engine:   engine.Config{Machines: machines(), Logger: slog.New(slog.DiscardHandler), Queues: map[string]engine.Queue{"default": {Concurrency: 4}, "parcels": {Concurrency: 4}}},
		Patience: 100 * time.Millisecond,
	}
	tel.InstrumentCluster(&config)
	c, err := cluster.New(config)
	require.NoError(t, err)
	stop, err := tel.ObserveCluster(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	require.NoError(t, c.Engine(1).Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Engine(1).Stop(context.Background())) })
	require.Equal(t, map[string]int64{"1": 2}, byPlace(t, reader, "gendurable.queue.lag"))
}
