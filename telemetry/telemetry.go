// Package telemetry reports to OpenTelemetry what an engine does: metrics by hooks, spans by
// middleware, and trace contexts that follow an instance from its insert through its steps, its
// signals and its children.
//
// It is a separate module, so that the engine needs nothing of OpenTelemetry:
//
//	tel, err := telemetry.New(telemetry.Config{})   // the global providers
//	tel.Instrument(&config)                         // before engine.New
//	eng, err := engine.New(config)
//	stop, err := tel.Observe(eng)                   // gauges of that engine
//
// docs/guide/observability.md lists all metrics, with their units and attributes, and the
// attributes of spans. These names are stable.
package telemetry

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gendurable/gendurable/engine"
)

// Scope is the instrumentation scope of all metrics and spans of this package.
const Scope = "github.com/gendurable/gendurable/telemetry"

// Config configures a [Telemetry]. With the zero value it uses the global providers, links spans,
// and never queries the database.
type Config struct {
	// MeterProvider, TracerProvider and Propagator default to the global ones of package otel, as they
	// are when New is called.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
	// Attributes are added to every metric and span, e.g. to tell several engines of a process apart.
	Attributes []attribute.KeyValue
	// ChildSpans makes the span of a step a child of the span in which its instance was inserted. By
	// default it begins a new trace that links to that span: an instance may live for weeks, and have
	// thousands of steps.
	ChildSpans bool
	// LagEvery is how old the metrics gendurable.queue.lag, and the gates' metrics, may be. If
	// metrics are collected and they are older, one statement reads the lag of the engine's queues,
	// and one what is in line at gates. With 0, the default, these metrics do not exist.
	LagEvery time.Duration
}

// Telemetry instruments one engine, or one cluster. It is safe for concurrent use once Instrument
// has returned.
type Telemetry struct {
	config  Config
	meter   metric.Meter
	metrics *metrics
	spans   *spans
	pool    *pgxpool.Pool // of the engine; nil before Instrument
	places  []*Telemetry  // of a cluster
}

// New makes the instruments. It returns the errors of the meter provider.
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

// Instrument adds to a Config: Hooks, Middleware as the outermost, Inject and Extract. It keeps
// what is set already: an Inject and Extract of the host's apply together with its own, within the
// bounds on what is stored.
func (t *Telemetry) Instrument(c *engine.Config) {
	t.pool = c.Pool
	c.Hooks = append(slices.Clip(c.Hooks), t.metrics.hooks()) // other Configs may share the array
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
func (t *Telemetry) call(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error {
	began := time.Now()
	err := t.spans.call(ctx, c, run)
	t.metrics.called(ctx, c.Verb, time.Since(began), err)
	return err
}
