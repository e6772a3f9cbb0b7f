package telemetry

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// recorded is a tracer whose spans a test reads.
type recorded struct {
	*tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

func recorder() recorded {
	r := tracetest.NewSpanRecorder()
	return recorded{r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r))}
}

// named returns the ended spans of a name, once there are many of them.
func (r recorded) named(t *testing.T, name string, many int) (spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	require.Eventually(t, func() bool {
		spans = nil
		for _, s := range r.Ended() {
			if s.Name() == name {
				spans = append(spans, s)
			}
		}
		return len(spans) >= many
	}, time.Minute, time.Millisecond)
	require.Len(t, spans, many, name)
	return spans
}

func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.Emit()
	}
	return out
}

// links returns the spans that a span links to, by the kind of link.
func links(s sdktrace.ReadOnlySpan) map[string]trace.SpanID {
	out := map[string]trace.SpanID{}
	for _, l := range s.Links() {
		out[l.Attributes[0].Value.AsString()] = l.SpanContext.SpanID()
	}
	return out
}

func TestSpansFollowAnInstance(t *testing.T) {
	t.Parallel()
	r := recorder()
	eng, _ := shop(t, Config{TracerProvider: r.provider, MeterProvider: noop.NewMeterProvider(), Attributes: []attribute.KeyValue{attribute.String("shop", "a")}})
	ctx, request := r.provider.Tracer("test").Start(t.Context(), "request")
	id := buy(ctx, t, eng)
	request.End()

	insert, signal := r.named(t, "insert checkout", 1)[0], r.named(t, "signal paid", 1)[0]
	for _, s := range []sdktrace.ReadOnlySpan{insert, signal} {
		require.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID())
		require.Equal(t, trace.SpanKindProducer, s.SpanKind())
		require.Equal(t, number(id), attributes(s)["gendurable.instance.id"])
	}
	start, ship := r.named(t, "step checkout.start", 1)[0], r.named(t, "step checkout.ship", 1)[0]
	require.Equal(t, trace.SpanKindConsumer, start.SpanKind())
	require.False(t, start.Parent().IsValid(), "it has a trace of its own")
	require.Equal(t, map[string]trace.SpanID{"insert": insert.SpanContext().SpanID()}, links(start))
	require.Equal(t, map[string]string{
		"shop": "a", "gendurable.instance.id": number(id), "gendurable.machine": "checkout", "gendurable.version": "1", "gendurable.step": "start",
		"gendurable.queue": "default", "gendurable.visit": "0", "gendurable.attempt": "0", "gendurable.crashes": "0", "gendurable.outcome": "await",
	}, attributes(start))
	require.Equal(t, map[string]trace.SpanID{"insert": insert.SpanContext().SpanID(), "signal": signal.SpanContext().SpanID()}, links(ship))
	require.Equal(t, "children", attributes(ship)["gendurable.outcome"])

	// One parcel arrives, and two are tried twice each.
	by := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range r.named(t, "step parcel.start", 5) {
		require.Equal(t, map[string]trace.SpanID{"insert": ship.SpanContext().SpanID()}, links(s), "a child's insert is its parent's step")
		own := attributes(s)
		require.Equal(t, number(id), own["gendurable.parent.id"])
		by[own["gendurable.outcome"]+own["error.type"]] = s
	}
	require.ElementsMatch(t, []string{"done", "_OTHER", "panic"}, keys(by))
	require.Equal(t, codes.Unset, by["done"].Status().Code)
	require.Equal(t, codes.Error, by["panic"].Status().Code)
	require.Equal(t, codes.Error, by["_OTHER"].Status().Code)
	require.Contains(t, by["_OTHER"].Status().Description, errAddress.Error())
	require.Equal(t, "done", attributes(r.named(t, "step checkout.end", 1)[0])["gendurable.outcome"])
}

func number(id fsm.ID) string { return strconv.FormatInt(int64(id), 10) }

func keys[V any](m map[string]V) (out []string) {
	for k := range maps.Keys(m) {
		out = append(out, k)
	}
	return out
}

func TestChildSpans(t *testing.T) {
	t.Parallel()
	r := recorder()
	eng, _ := shop(t, Config{TracerProvider: r.provider, MeterProvider: noop.NewMeterProvider(), ChildSpans: true})
	buy(t.Context(), t, eng)
	insert, ship := r.named(t, "insert checkout", 1)[0], r.named(t, "step checkout.ship", 1)[0]
	require.Equal(t, insert.SpanContext().SpanID(), ship.Parent().SpanID())
	require.Equal(t, insert.SpanContext().TraceID(), ship.SpanContext().TraceID())
	require.Equal(t, []string{"signal"}, keys(links(ship)), "a parent needs no link")
	require.Equal(t, ship.SpanContext().SpanID(), r.named(t, "step parcel.start", 5)[0].Parent().SpanID())
}

// Instrument keeps what the host has set before. A call that fails is an error in its span.
func TestInstrumentKeepsWhatTheHostHas(t *testing.T) {
	t.Parallel()
	r := recorder()
	seen := make(chan any, 100)
	type requestKey struct{}
	eng, _ := shop(t, Config{TracerProvider: r.provider, MeterProvider: noop.NewMeterProvider()}, func(c *engine.Config) {
		c.Inject = func(context.Context) map[string]string { return map[string]string{"request": "r-1"} }
		c.Extract = func(ctx context.Context, stored map[string]string) context.Context {
			return context.WithValue(ctx, requestKey{}, stored["request"])
		}
		c.Middleware = []engine.Middleware{{Step: func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			seen <- ctx.Value(requestKey{})
			require.True(t, trace.SpanFromContext(ctx).IsRecording(), "it is inside of the span")
			return run(ctx)
		}}}
	})
	buy(t.Context(), t, eng)
	require.Equal(t, "r-1", <-seen)
	_, err := eng.Signal(t.Context(), fsm.Key("nobody"), paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)
	refused := r.named(t, "signal paid", 2)[1]
	require.Equal(t, codes.Error, refused.Status().Code)
	require.Equal(t, "no_target", attributes(refused)["error.type"])
	ids, err := eng.InsertMany(t.Context(), []fsm.Spec{parcel.New("good"), parcel.New("good")})
	require.NoError(t, err)
	require.Len(t, ids, 2)
	require.Contains(t, attributes(r.named(t, "insert_many parcel", 1)[0])["gendurable.instance.ids"], number(ids[1].ID))
}

// A step that the engine cancels has not failed. Configs made of a common one share its slices:
// entries that are added to one must not come to another.
func TestInstrumentLeavesSharedHooksAlone(t *testing.T) {
	t.Parallel()
	shared := make([]engine.Hooks, 1, 8)
	one, other := engine.Config{Hooks: shared}, engine.Config{Hooks: shared}
	for _, c := range []*engine.Config{&one, &other} {
		tel, err := New(Config{MeterProvider: noop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider()})
		require.NoError(t, err)
		tel.Instrument(c)
	}
	require.NotSame(t, &one.Hooks[1], &other.Hooks[1])
	require.Nil(t, shared[:2][1].Step)
}

func TestACancelledStepIsNoError(t *testing.T) {
	t.Parallel()
	r := recorder()
	begun := make(chan struct{})
	slow := fsm.Declare[int, int]("slow")
	eng, _ := shop(t, Config{TracerProvider: r.provider, MeterProvider: noop.NewMeterProvider()}, func(c *engine.Config) {
		c.Machines = []fsm.Definition{slow.Job(func(ctx context.Context, _ int) (int, error) {
			close(begun)
			<-ctx.Done()
			return 0, ctx.Err()
		})}
	})
	id, err := eng.Insert(t.Context(), slow.New(1))
	require.NoError(t, err)
	<-begun
	_, err = eng.Admin().Cancel(t.Context(), id)
	require.NoError(t, err)
	span := r.named(t, "step slow.start", 1)[0]
	require.Equal(t, codes.Unset, span.Status().Code)
	require.Equal(t, released, attributes(span)["gendurable.outcome"])
}
