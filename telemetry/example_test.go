package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/health"
	"github.com/gendurable/gendurable/telemetry"
)

var greet = fsm.Declare[string, string]("greet")

// A worker has metrics for Prometheus, traces and probes. A program adds its own exporter of
// traces, by trace.WithBatcher.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("worker", slog.Any("error", err))
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()

	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	tel, err := telemetry.New(telemetry.Config{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(exporter)),
		TracerProvider: trace.NewTracerProvider(),
		Propagator:     propagation.TraceContext{},
		LagEvery:       15 * time.Second,
	})
	if err != nil {
		return err
	}
	config := engine.Config{
		Pool:     pool,
		Machines: []fsm.Definition{greet.Job(func(_ context.Context, name string) (string, error) { return "hello " + name, nil })},
		Queues:   map[string]engine.Queue{"default": {}},
	}
	tel.Instrument(&config)
	eng, err := engine.New(config)
	if err != nil {
		return err
	}
	unobserve, err := tel.Observe(eng)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.Handle("/health/", http.StripPrefix("/health", health.Handler(eng)))
	server := &http.Server{Addr: ":9464", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("metrics", slog.Any("error", err))
		}
	}()
	return errors.Join(eng.Run(ctx), unobserve(), server.Close())
}
