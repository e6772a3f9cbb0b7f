// Command bakery takes orders for cakes over HTTP, waits for their payments, has them made and
// sends them: a whole host of gendurable, with its own tables, a gate, a graph, history, the
// dashboard and metrics. It uses the released modules as any other program does.
//
//	go mod tidy -e && go generate ./... && go mod tidy # once: the ent client is not committed
//	DATABASE_URL=… go run .
//	curl -d '{"customer":"ann","cake":"sacher","cents":4200}' localhost:8080/orders
//	curl -d '{"order":1,"cents":4200,"event":"evt-7"}' localhost:8080/payments
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/health"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/telemetry"

	"example.com/bakery/ent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("bakery", slog.Any("error", err))
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client := ent.NewClient(ent.Driver(entpgx.New(pool)))
	if _, err := (migrate.Migrator{Pool: pool}).Up(ctx); err != nil {
		return err
	}
	if err := client.Schema.Create(ctx); err != nil {
		return err
	}
	b := &bakery{world: printed{}, client: client}
	config := engine.Config{Pool: pool, Machines: b.machines(), Queues: map[string]engine.Queue{"default": {Concurrency: 20}}}
	metrics := prometheus.NewRegistry()
	tel, err := instrument(&config, metrics)
	if err != nil {
		return err
	}
	eng, err := engine.New(config)
	if err != nil {
		return err
	}
	forget, err := tel.Observe(eng)
	if err != nil {
		return err
	}
	if _, err := eng.Admin().SetGate(ctx, oven); err != nil {
		return err
	}
	pages, err := dashboard.New(eng, dashboard.Options{}) // for requests from this machine alone
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", pages))
	mux.Handle("/health/", http.StripPrefix("/health", health.Handler(eng)))
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	routes(mux, client, eng)
	server := &http.Server{Addr: "localhost:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serve", slog.Any("error", err))
		}
	}()
	return errors.Join(eng.Run(ctx), forget(), server.Close())
}

// instrument adds metrics and traces to an engine's configuration.
func instrument(config *engine.Config, into prometheus.Registerer) (*telemetry.Telemetry, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(into))
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(telemetry.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), LagEvery: 15 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	tel.Instrument(config)
	return tel, nil
}

// routes are the bakery's own: an order, and the payment provider's webhook.
func routes(mux *http.ServeMux, client *ent.Client, eng *engine.Engine) {
	mux.HandleFunc("POST /orders", answer(func(ctx context.Context, in struct {
		Customer, Cake string
		Cents          int64
	}) (any, error) {
		return place(ctx, client, eng, in.Customer, in.Cake, in.Cents)
	}))
	mux.HandleFunc("POST /payments", answer(func(ctx context.Context, in struct {
		Order int
		Cents int64
		Event string
	}) (any, error) {
		return eng.Signal(ctx, OrderKey(in.Order), Paid.With(in.Cents).DedupKey(in.Event))
	}))
}

func answer[T any](do func(context.Context, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := do(r.Context(), in)
		switch {
		case errors.Is(err, engine.ErrNoTarget):
			http.Error(w, "no such order, or it has ended", http.StatusNotFound)
		case ent.IsValidationError(err):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			slog.Error("request", slog.String("path", r.URL.Path), slog.Any("error", err))
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			_ = json.NewEncoder(w).Encode(out)
		}
	}
}

// printed is a World for trying the program out.
type printed struct{}

func (printed) Bake(_ context.Context, cake, key string) error { return say("bake", cake, key) }

func (printed) Write(_ context.Context, card, key string) error { return say("write", card, key) }

func (printed) Send(_ context.Context, customer, key string) (string, error) {
	return "parcel-" + key, say("send", customer, key)
}

func (printed) Refund(_ context.Context, customer string, cents int64, key string) error {
	slog.Info("refund", slog.String("to", customer), slog.Int64("cents", cents), slog.String("key", key))
	return nil
}

func say(what, of, key string) error {
	slog.Info(what, slog.String("of", of), slog.String("key", key))
	return nil
}
