// Package telemetry tells OpenTelemetry what an engine does: metrics by hooks, spans by middleware, and trace contexts that follow an
// instance from its insert through its steps, its signals and its children.
//
// It is a module of its own, so that the engine needs nothing of OpenTelemetry:
//
//	tel, err := telemetry.New(telemetry.Config{})   // the global providers
//	tel.Instrument(&config)                         // before engine.New
//	eng, err := engine.New(config)
//	stop, err := tel.Observe(eng)                   // gauges of that engine
//
// The names of all metrics, with their units and attributes, and of what spans carry, are in docs/guide/observability.md; they are stable.
package telemetry

import (
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gendurable/gendurable/engine"
)

// Scope is the instrumentation scope of all that this package makes.
const Scope = "github.com/gendurable/gendurable/telemetry"

// Config of a [Telemetry]. The zero value uses the global providers, links spans, and never asks the database.
type Config struct {
	// MeterProvider, TracerProvider and Propagator: the global ones of package otel, as they are at New.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
	// Attributes of every metric and span, e.g. which of several engines of a process it is.
	Attributes []attribute.KeyValue
	// ChildSpans makes the span of a step a child of that of its instance's insert. By default it begins a trace of its own that links to
	// it: an instance may live for weeks, and have thousands of steps.
	ChildSpans bool
	// LagEvery is how old the metric gendurable.queue.lag may be: each time that metrics are collected and it is older, one statement asks
	// for the lag of the engine's queues. 0: there is no such metric.
	LagEvery time.Duration
}

// Telemetry is for one engine. Safe for concurrent use, once Instrument has returned.
type Telemetry struct {
	config  Config
	meter   metric.Meter
	metrics *metrics
	spans   *spans
	pool    *pgxpool.Pool // of the engine; nil before Instrument
}

// New makes the instruments. Its errors are those of the meter provider.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.Propagator == nil {
		c.Propagator = otel.GetTextMapPropagator()
	}
	t := &Telemetry{config: c, meter: c.MeterProvider.Meter(Scope)}
	var err error
	if t.metrics, err = newMetrics(t.meter, c.Attributes); err != nil {
		return nil, err
	}
	t.spans = &spans{config: c, tracer: c.TracerProvider.Tracer(Scope)}
	return t, nil
}

// Instrument adds to a Config: Hooks, Middleware as the outermost, Inject and Extract. What is there stays; of an Inject and Extract of the host's
// both apply, together within the bounds of what is stored.
func (t *Telemetry) Instrument(c *engine.Config) {
	t.pool = c.Pool
	c.Hooks = append(c.Hooks, t.metrics.hooks())
	t.metrics.begin(c)
	around := engine.Middleware{Step: t.spans.step, Call: t.call}
	c.Middleware = append([]engine.Middleware{around}, c.Middleware...)
	inject, extract := c.Inject, c.Extract
	c.Inject = func(ctx context.Context) map[string]string {
		carrier := propagation.MapCarrier{}
		if inject != nil {
			maps.Copy(carrier, inject(ctx))
		}
		t.config.Propagator.Inject(ctx, carrier)
		return carrier
	}
	c.Extract = func(ctx context.Context, stored map[string]string) context.Context {
		if extract != nil {
			ctx = extract(ctx, stored)
		}
		return t.config.Propagator.Extract(ctx, propagation.MapCarrier(stored))
	}
}

// call surrounds a call of the engine with a span, and measures it.
func (t *Telemetry) call(ctx context.Context, c *engine.Call, run func(context.Context) error) error {
	began := time.Now()
	err := t.spans.call(ctx, c, run)
	t.metrics.called(ctx, c.Verb, time.Since(began), err)
	return err
}
