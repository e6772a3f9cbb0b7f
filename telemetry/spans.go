package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Only spans carry these attributes.
const (
	keyInstance  = attribute.Key("gendurable.instance.id")
	keyInstances = attribute.Key("gendurable.instance.ids")
	keyVersion   = attribute.Key("gendurable.version")
	keyVisit     = attribute.Key("gendurable.visit")
	keyAttempt   = attribute.Key("gendurable.attempt")
	keyCrashes   = attribute.Key("gendurable.crashes")
	keyParent    = attribute.Key("gendurable.parent.id")
	keySignal    = attribute.Key("gendurable.signal")
	keySpecs     = attribute.Key("gendurable.specs")
	keyLink      = attribute.Key("gendurable.link") // of a link: "insert" or "signal"
)

// idsMost bounds how many ids a span carries.
const idsMost = 100

// spans makes the spans around steps and calls.
type spans struct {
	config Config
	tracer trace.Tracer
}

// step surrounds the execution of a step.
func (s *spans) step(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
	instance, awaited := fsm.TracesFrom(ctx)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(s.config.Attributes...), trace.WithAttributes(
		keyInstance.Int64(int64(i.ID)), keyMachine.String(i.Machine), keyVersion.Int(i.Version), keyStep.String(i.Step), keyQueue.String(i.Queue),
		keyVisit.Int64(i.Visit), keyAttempt.Int(i.Attempt), keyCrashes.Int(i.Crashes))}
	if i.Parent != 0 {
		options = append(options, trace.WithAttributes(keyParent.Int64(int64(i.Parent))))
	}
	around := trace.SpanContextFromContext(ctx)
	if origin := s.stored(instance); origin.IsValid() {
		isParent := around.Equal(origin) // true if Extract set it; false if a middleware around this one has a span
		if isParent && !s.config.ChildSpans {
			options = append(options, trace.WithNewRoot())
		}
		if !isParent || !s.config.ChildSpans {
			options = append(options, trace.WithLinks(link(origin, "insert")))
		}
	}
	for _, carrier := range awaited {
		if sender := s.stored(carrier); sender.IsValid() {
			options = append(options, trace.WithLinks(link(sender, "signal")))
		}
	}
	inner, span := s.tracer.Start(ctx, "step "+i.Machine+"."+i.Step, options...)
	defer span.End()
	returned := false
	defer func() { // a panic goes on to the engine, and so does runtime.Goexit
		if !returned {
			span.SetAttributes(keyErrorType.String("panic"))
			span.SetStatus(codes.Error, "the step panicked")
		}
	}()
	err := run(inner)
	returned = true
	switch outcome := fsm.OutcomeFrom(ctx); {
	case err == nil && outcome == fsm.OutcomeNone:
		span.SetAttributes(keyOutcome.String("in_tx")) // it is decided later
	case err == nil:
		span.SetAttributes(keyOutcome.String(string(outcome)))
	case cancelled(ctx):
		span.SetAttributes(keyOutcome.String(released)) // the engine cancelled the step: this is no error of the step
	default:
		failed(span, err)
	}
	return err
}

// cancelled reports whether the engine itself has ended a step's context.
func cancelled(ctx context.Context) bool {
	cause := context.Cause(ctx)
	for _, own := range []error{fsm.ErrDraining, fsm.ErrLeaseLost, fsm.ErrCancelled} {
		if errors.Is(cause, own) {
			return true
		}
	}
	return false
}

// call surrounds a call that inserts or signals: the instances and signals that it stores carry its
// trace.
func (s *spans) call(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error {
	name := c.Verb + " " + c.Machine
	attributes := append([]attribute.KeyValue{keyVerb.String(c.Verb)}, s.config.Attributes...)
	if c.Machine != "" {
		attributes = append(attributes, keyMachine.String(c.Machine), keySpecs.Int(c.Specs))
	}
	if c.Signal != "" {
		attributes = append(attributes, keySignal.String(c.Signal))
	}
	if c.Machine == "" {
		name = c.Verb + " " + c.Signal
	}
	ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	defer span.End()
	err := run(ctx)
	switch {
	case err != nil:
		failed(span, err)
	case len(c.IDs) == 1:
		span.SetAttributes(keyInstance.Int64(int64(c.IDs[0])))
	case len(c.IDs) > 1 && span.IsRecording():
		ids := make([]int64, min(len(c.IDs), idsMost))
		for i := range ids {
			ids[i] = int64(c.IDs[i])
		}
		span.SetAttributes(keyInstances.Int64Slice(ids))
	}
	return err
}

func failed(span trace.Span, err error) {
	span.SetAttributes(keyErrorType.String(errorType(err)))
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// stored returns the span in which an instance was inserted or a signal sent.
func (s *spans) stored(carrier map[string]string) trace.SpanContext {
	if len(carrier) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(s.config.Propagator.Extract(context.Background(), propagation.MapCarrier(carrier)))
}

func link(to trace.SpanContext, kind string) trace.Link {
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{keyLink.String(kind)}}
}
