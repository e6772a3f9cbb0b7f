package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// The attributes of metrics and spans.
const (
	keyQueue     = attribute.Key("gendurable.queue")
	keyMachine   = attribute.Key("gendurable.machine")
	keyStep      = attribute.Key("gendurable.step")
	keyOutcome   = attribute.Key("gendurable.outcome")
	keyVerb      = attribute.Key("gendurable.verb")
	keyResult    = attribute.Key("gendurable.result")
	keySchedule  = attribute.Key("gendurable.schedule")
	keyPoolState = attribute.Key("gendurable.pool.state")
	keyErrorType = attribute.Key("error.type")
)

// Buckets of durations, in seconds, and of batches. They are advice: a view of the provider's decides.
var (
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	batches = []float64{1, 2, 5, 10, 25, 50, 100, 200, 500}
)

// metrics are what hooks and calls count and measure.
type metrics struct {
	pickDuration metric.Float64Histogram
	pickWanted   metric.Int64Counter
	pickClaimed  metric.Int64Counter
	contended    metric.Int64Counter

	stepDuration metric.Float64Histogram
	stepErrors   metric.Int64Counter
	stepCrashed  metric.Int64Counter

	commitDuration metric.Float64Histogram
	commitSize     metric.Int64Histogram
	commitStale    metric.Int64Counter

	reaped  metric.Int64Counter
	drained metric.Int64Counter
	deleted metric.Int64Counter

	occurrences metric.Int64Counter
	lateness    metric.Float64Histogram

	callDuration metric.Float64Histogram

	plain, byQueue, byStep, byOutcome, byError, byResult, byVerb, byFailedVerb, bySchedule, byOccurrence *labels
}

func newMetrics(m metric.Meter, common []attribute.KeyValue) (*metrics, error) {
	var faults []error
	counter := func(name, unit, description string) metric.Int64Counter {
		i, err := m.Int64Counter("gendurable."+name, metric.WithUnit(unit), metric.WithDescription(description))
		faults = append(faults, err)
		return i
	}
	duration := func(name, description string) metric.Float64Histogram {
		i, err := m.Float64Histogram("gendurable."+name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(seconds...))
		faults = append(faults, err)
		return i
	}
	size, err := m.Int64Histogram("gendurable.commit.size", metric.WithUnit("{outcome}"), metric.WithDescription("Outcomes of one commit."),
		metric.WithExplicitBucketBoundaries(batches...))
	faults = append(faults, err)
	out := &metrics{
		pickDuration:   duration("pick.duration", "Claims, from the request to the answer, those that failed among them."),
		pickWanted:     counter("pick.wanted", "{claim}", "Rows that claims asked for."),
		pickClaimed:    counter("pick.claimed", "{claim}", "Rows that claims got."),
		contended:      counter("key.contended", "{claim}", "Tries for partition keys whose lock another process held."),
		stepDuration:   duration("step.duration", "Steps that ran, without their commit."),
		stepErrors:     counter("step.errors", "{error}", "Steps that failed, so that their handler was called."),
		stepCrashed:    counter("step.crashed", "{execution}", "Executions of visits that had lost their process before."),
		commitDuration: duration("commit.duration", "Commits of batches of outcomes."),
		commitSize:     size,
		commitStale:    counter("commit.stale", "{outcome}", "Outcomes that came too late and changed nothing."),
		reaped:         counter("reap.claims", "{claim}", "Claims whose lease had expired: released to run again, or failed."),
		drained:        counter("drain.claims", "{claim}", "Claims at the end of a stop: released unstarted, or abandoned while running."),
		deleted:        counter("gc.deleted", "{instance}", "Instances deleted past their retention."),
		occurrences:    counter("schedule.occurrences", "{occurrence}", "Occurrences of schedules: inserted; missed or skipped by policy."),
		lateness:       duration("schedule.lateness", "From an occurrence's time to its insertion, of the newest of a firing."),
		callDuration:   duration("call.duration", "Calls that insert or signal."),

		plain: newLabels(common), byQueue: newLabels(common, keyQueue), byStep: newLabels(common, keyMachine, keyStep),
		byOutcome: newLabels(common, keyMachine, keyStep, keyOutcome), byError: newLabels(common, keyMachine, keyStep, keyErrorType),
		byResult: newLabels(common, keyResult), byVerb: newLabels(common, keyVerb), byFailedVerb: newLabels(common, keyVerb, keyErrorType),
		bySchedule: newLabels(common, keySchedule), byOccurrence: newLabels(common, keySchedule, keyResult),
	}
	return out, errors.Join(faults...)
}

func (m *metrics) hooks() engine.Hooks {
	return engine.Hooks{
		Step: m.ran,
		Pick: func(ctx context.Context, queue string, wanted, got int, took time.Duration) {
			by := m.byQueue.of(queue)
			m.pickDuration.Record(ctx, took.Seconds(), by)
			m.pickWanted.Add(ctx, int64(wanted), by)
			m.pickClaimed.Add(ctx, int64(got), by)
		},
		Contended: func(ctx context.Context, claims int) { m.contended.Add(ctx, int64(claims), m.plain.of()) },
		Commit: func(ctx context.Context, outcomes int, took time.Duration) {
			m.commitDuration.Record(ctx, took.Seconds(), m.plain.of())
			m.commitSize.Record(ctx, int64(outcomes), m.plain.of())
		},
		Reap: func(ctx context.Context, released, failed int) {
			m.reaped.Add(ctx, int64(released), m.byResult.of("released"))
			m.reaped.Add(ctx, int64(failed), m.byResult.of("failed"))
		},
		Stale: func(ctx context.Context, i fsm.Info) { m.commitStale.Add(ctx, 1, m.byStep.of(i.Machine, i.Step)) },
		Drain: func(ctx context.Context, released, abandoned int) {
			m.drained.Add(ctx, int64(released), m.byResult.of("released"))
			m.drained.Add(ctx, int64(abandoned), m.byResult.of("abandoned"))
		},
		Prune: func(ctx context.Context, deleted int) { m.deleted.Add(ctx, int64(deleted), m.plain.of()) },
		Fire: func(ctx context.Context, schedule string, inserted, missed, skipped int, late time.Duration) {
			for result, n := range map[string]int{"inserted": inserted, "missed": missed, "skipped": skipped} {
				m.occurrences.Add(ctx, int64(n), m.byOccurrence.of(schedule, result))
			}
			if inserted > 0 {
				m.lateness.Record(ctx, late.Seconds(), m.bySchedule.of(schedule))
			}
		},
	}
}

func (m *metrics) ran(ctx context.Context, i fsm.Info, outcome fsm.OutcomeKind, took time.Duration, err error) {
	became := string(outcome)
	if outcome == fsm.OutcomeNone {
		became = released
	}
	m.stepDuration.Record(ctx, took.Seconds(), m.byOutcome.of(i.Machine, i.Step, became))
	if err != nil && outcome != fsm.OutcomeNone {
		m.stepErrors.Add(ctx, 1, m.byError.of(i.Machine, i.Step, errorType(err)))
	}
	if i.Crashes > 0 {
		m.stepCrashed.Add(ctx, 1, m.byStep.of(i.Machine, i.Step))
	}
}

func (m *metrics) called(ctx context.Context, verb string, took time.Duration, err error) {
	by := m.byVerb.of(verb)
	if err != nil {
		by = m.byFailedVerb.of(verb, errorType(err))
	}
	m.callDuration.Record(ctx, took.Seconds(), by)
}

// released is the outcome of a step whose claim went back as it was.
const released = "released"

// errorType is what kind of error it is, in few words: the attribute error.type.
func errorType(err error) string {
	if _, ok := errors.AsType[*fsm.PanicError](err); ok {
		return "panic"
	}
	for _, known := range []struct {
		err  error
		name string
	}{
		{fsm.ErrStepTimeout, "timeout"},
		{engine.ErrDuplicate, "duplicate"},
		{engine.ErrNoTarget, "no_target"},
		{engine.ErrInboxFull, "inbox_full"},
		{engine.ErrTooLarge, "too_large"},
		{engine.ErrUnknown, "unknown"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "cancelled"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return "_OTHER" // as the semantic conventions have it
}

// labels are sets of attributes, made once: their values are names that the program declares.
type labels struct {
	keys   []attribute.Key
	common []attribute.KeyValue
	known  sync.Map // of [3]string
}

func newLabels(common []attribute.KeyValue, keys ...attribute.Key) *labels {
	return &labels{keys: keys, common: common}
}

func (l *labels) of(values ...string) metric.MeasurementOption {
	var key [3]string
	copy(key[:], values)
	if known, ok := l.known.Load(key); ok {
		option, _ := known.(metric.MeasurementOption)
		return option
	}
	option := metric.WithAttributeSet(l.set(values...))
	l.known.Store(key, option)
	return option
}

func (l *labels) set(values ...string) attribute.Set {
	all := append([]attribute.KeyValue{}, l.common...)
	for i, k := range l.keys {
		all = append(all, k.String(values[i]))
	}
	return attribute.NewSet(all...)
}
