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
	keyGate      = attribute.Key("gendurable.gate")
	keyPlace     = attribute.Key("gendurable.place") // of a cluster
	keyFailure   = attribute.Key("gendurable.failure")
	keyErrorType = attribute.Key("error.type")
)

// The buckets of durations, in seconds, and of batches. They are advice: a view of the provider
// replaces them.
var (
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	batches = []float64{1, 2, 5, 10, 25, 50, 100, 200, 500}
)

// metrics are the instruments that hooks and calls record to.
type metrics struct {
	pickDuration metric.Float64Histogram
	pickWanted   metric.Int64Counter
	pickClaimed  metric.Int64Counter
	contended    metric.Int64Counter

	stepDuration metric.Float64Histogram
	stepErrors   metric.Int64Counter
	stepCrashed  metric.Int64Counter
	stepCut      metric.Int64Counter

	batchSize metric.Int64Histogram
	batchWait metric.Float64Histogram

	commitDuration metric.Float64Histogram
	commitSize     metric.Int64Histogram
	commitStale    metric.Int64Counter

	failed  metric.Int64Counter
	zombies metric.Int64Counter
	reaped  metric.Int64Counter
	drained metric.Int64Counter
	deleted metric.Int64Counter
	unread  metric.Int64Counter

	occurrences metric.Int64Counter
	lateness    metric.Float64Histogram

	callDuration metric.Float64Histogram

	plain, byQueue, byStep, byOutcome, byCut, byError, byResult, byVerb, byFailedVerb, bySchedule, byOccurrence, byFailure *labels
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
	size := func(name, unit, description string) metric.Int64Histogram {
		i, err := m.Int64Histogram("gendurable."+name, metric.WithUnit(unit), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(batches...))
		faults = append(faults, err)
		return i
	}
	out := &metrics{
		pickDuration:   duration("pick.duration", "Claims, from the request to the answer, those that failed among them."),
		pickWanted:     counter("pick.wanted", "{claim}", "Rows that claims asked for."),
		pickClaimed:    counter("pick.claimed", "{claim}", "Rows that claims got."),
		contended:      counter("key.contended", "{claim}", "Tries for partition keys under which a step of another process may still run."),
		stepDuration:   duration("step.duration", "Steps that ran, without their commit."),
		stepErrors:     counter("step.errors", "{error}", "Steps that failed, so that their handler was called."),
		stepCrashed:    counter("step.crashed", "{execution}", "Executions of visits that had lost their process before."),
		stepCut:        counter("step.cut", "{execution}", "Executions that the engine cut off before they had an outcome: their visit begins again."),
		batchSize:      size("batch.size", "{instance}", "Instances of one call of a batch step."),
		batchWait:      duration("batch.wait", "From the claim of a batch's first instance until there was a slot for the call."),
		commitDuration: duration("commit.duration", "Commits of batches of outcomes."),
		commitSize:     size("commit.size", "{outcome}", "Outcomes of one commit."),
		commitStale:    counter("commit.stale", "{outcome}", "Outcomes that came too late and changed nothing."),
		failed:         counter("instance.failed", "{instance}", "Instances that failed, by what this process did: outcomes, sweeps, cancellations."),
		zombies:        counter("step.zombies", "{step}", "Steps that still ran 10 s after their context had ended."),
		reaped:         counter("reap.claims", "{claim}", "Claims whose lease had expired: released to run again, or failed."),
		drained:        counter("drain.claims", "{claim}", "Claims at the end of a stop: released unstarted, or abandoned while running."),
		deleted:        counter("gc.deleted", "{instance}", "Instances deleted past their retention."),
		unread:         counter("signal.unread", "{signal}", "Signals deleted that nobody had consumed: their instance is done, or was deleted; or they were kept and expired."),
		occurrences:    counter("schedule.occurrences", "{occurrence}", "Occurrences of schedules: inserted; missed or skipped by policy."),
		lateness:       duration("schedule.lateness", "From an occurrence's time to its insertion, of the newest of a firing."),
		callDuration:   duration("call.duration", "Calls that insert or signal."),
	}
	out.label(common)
	return out, errors.Join(faults...)
}

// label makes the sets of attributes.
func (m *metrics) label(common []attribute.KeyValue) {
	m.plain = newLabels(common)
	m.byQueue = newLabels(common, keyQueue)
	m.byStep = newLabels(common, keyMachine, keyStep)
	m.byOutcome = newLabels(common, keyMachine, keyStep, keyOutcome)
	m.byCut = newLabels(common, keyMachine, keyStep, keyResult)
	m.byError = newLabels(common, keyMachine, keyStep, keyErrorType)
	m.byResult = newLabels(common, keyResult)
	m.byVerb = newLabels(common, keyVerb)
	m.byFailedVerb = newLabels(common, keyVerb, keyErrorType)
	m.bySchedule = newLabels(common, keySchedule)
	m.byOccurrence = newLabels(common, keySchedule, keyResult)
	m.byFailure = newLabels(common, keyFailure)
}

// with returns the same instruments with other attributes common to all.
func (m *metrics) with(common []attribute.KeyValue) *metrics {
	own := *m
	own.label(common)
	return &own
}

func (m *metrics) hooks() engine.Hooks {
	return engine.Hooks{
		Step: m.ran,
		Pick: func(ctx context.Context, e engine.PickEvent) {
			by := m.byQueue.of(e.Queue)
			if !e.Inserted && !e.Signalled { // it is the time of an insert, or of a signal
				m.pickDuration.Record(ctx, e.Took.Seconds(), by)
			}
			m.pickWanted.Add(ctx, int64(e.Wanted), by)
			m.pickClaimed.Add(ctx, int64(e.Got), by)
		},
		Contended: func(ctx context.Context, e engine.ContendedEvent) {
			m.contended.Add(ctx, int64(e.Claims), m.plain.of())
		},
		Batch: func(ctx context.Context, e engine.BatchEvent) {
			m.batchSize.Record(ctx, int64(e.Size), m.byStep.of(e.Machine, e.Step))
			m.batchWait.Record(ctx, e.Waited.Seconds(), m.byStep.of(e.Machine, e.Step))
		},
		Commit: func(ctx context.Context, e engine.CommitEvent) {
			m.commitDuration.Record(ctx, e.Took.Seconds(), m.plain.of())
			m.commitSize.Record(ctx, int64(e.Outcomes), m.plain.of())
		},
		Reap: func(ctx context.Context, e engine.ReapEvent) {
			m.reaped.Add(ctx, int64(e.Released), m.byResult.of("released"))
			m.reaped.Add(ctx, int64(e.Failed), m.byResult.of("failed"))
			m.failed.Add(ctx, int64(e.Failed), m.byFailure.of(string(fsm.FailureCrashes)))
		},
		Expire: func(ctx context.Context, e engine.ExpireEvent) {
			m.failed.Add(ctx, int64(e.Failed), m.byFailure.of(string(fsm.FailureDeadline)))
		},
		Cancel: func(ctx context.Context, e engine.CancelEvent) {
			m.failed.Add(ctx, int64(e.Cancelled), m.byFailure.of(string(fsm.FailureCancelled)))
		},
		Zombie: func(ctx context.Context, e engine.ZombieEvent) {
			m.zombies.Add(ctx, 1, m.byStep.of(e.Instance.Machine, e.Instance.Step))
		},
		Stale: func(ctx context.Context, e engine.StaleEvent) {
			m.commitStale.Add(ctx, 1, m.byStep.of(e.Instance.Machine, e.Instance.Step))
		},
		Drain: func(ctx context.Context, e engine.DrainEvent) {
			m.drained.Add(ctx, int64(e.Released), m.byResult.of("released"))
			m.drained.Add(ctx, int64(e.Abandoned), m.byResult.of("abandoned"))
		},
		Prune: func(ctx context.Context, e engine.PruneEvent) {
			m.deleted.Add(ctx, int64(e.Deleted), m.plain.of())
			m.unread.Add(ctx, int64(e.Unread), m.byResult.of("deleted"))
			m.unread.Add(ctx, int64(e.Expired), m.byResult.of("expired"))
		},
		Unread: func(ctx context.Context, e engine.UnreadEvent) {
			for _, n := range e.Signals {
				m.unread.Add(ctx, int64(n), m.byResult.of("done"))
			}
		},
		Fire: func(ctx context.Context, e engine.FireEvent) {
			for result, n := range map[string]int{"inserted": e.Inserted, "missed": e.Missed, "skipped": e.Skipped} {
				m.occurrences.Add(ctx, int64(n), m.byOccurrence.of(e.Schedule, result))
			}
			if e.Inserted > 0 {
				m.lateness.Record(ctx, e.Late.Seconds(), m.bySchedule.of(e.Schedule))
			}
		},
	}
}

func (m *metrics) ran(ctx context.Context, e engine.StepEvent) {
	i, became := e.Instance, string(e.Outcome)
	if e.Outcome == fsm.OutcomeNone {
		became = released
	}
	m.stepDuration.Record(ctx, e.Took.Seconds(), m.byOutcome.of(i.Machine, i.Step, became))
	if e.Err != nil && e.Outcome != fsm.OutcomeNone {
		m.stepErrors.Add(ctx, 1, m.byError.of(i.Machine, i.Step, errorType(e.Err)))
	}
	if e.CutOff != nil {
		m.stepCut.Add(ctx, 1, m.byCut.of(i.Machine, i.Step, cutBy(e.CutOff)))
	}
	if i.Crashes > 0 {
		m.stepCrashed.Add(ctx, 1, m.byStep.of(i.Machine, i.Step))
	}
	if e.Failure != "" {
		m.failed.Add(ctx, 1, m.byFailure.of(string(e.Failure)))
	}
}

// begin adds 0 to every counter, for each set of attributes that is known beforehand. Prometheus
// does not count the increase from no value to the first one, so an alert on it would be lost.
func (m *metrics) begin(c *engine.Config) {
	ctx := context.Background()
	for _, plain := range []metric.Int64Counter{m.contended, m.deleted} {
		plain.Add(ctx, 0, m.plain.of())
	}
	for _, f := range []fsm.Failure{fsm.FailureDecided, fsm.FailureError, fsm.FailureExhausted, fsm.FailureCrashes,
		fsm.FailureCancelled, fsm.FailureDeadline, fsm.FailureSkipped} {
		m.failed.Add(ctx, 0, m.byFailure.of(string(f)))
	}
	m.unread.Add(ctx, 0, m.byResult.of("deleted"))
	m.unread.Add(ctx, 0, m.byResult.of("expired"))
	m.unread.Add(ctx, 0, m.byResult.of("done"))
	m.reaped.Add(ctx, 0, m.byResult.of("released"))
	m.reaped.Add(ctx, 0, m.byResult.of("failed"))
	m.drained.Add(ctx, 0, m.byResult.of("released"))
	m.drained.Add(ctx, 0, m.byResult.of("abandoned"))
	for queue := range c.Queues {
		m.pickWanted.Add(ctx, 0, m.byQueue.of(queue))
		m.pickClaimed.Add(ctx, 0, m.byQueue.of(queue))
	}
	for _, machine := range c.Machines {
		if machine == nil {
			continue // engine.New reports it
		}
		graph := fsm.DiagramOf(machine)
		for _, step := range graph.Steps {
			m.commitStale.Add(ctx, 0, m.byStep.of(graph.Machine, step.Name))
			m.stepCrashed.Add(ctx, 0, m.byStep.of(graph.Machine, step.Name))
			for _, by := range []string{cutByLease, cutByDrain, cutByCancel} {
				m.stepCut.Add(ctx, 0, m.byCut.of(graph.Machine, step.Name, by))
			}
			m.zombies.Add(ctx, 0, m.byStep.of(graph.Machine, step.Name))
			for _, kind := range []string{"panic", "timeout", otherError} {
				m.stepErrors.Add(ctx, 0, m.byError.of(graph.Machine, step.Name, kind))
			}
		}
	}
	for _, s := range c.Schedules {
		for _, result := range []string{"inserted", "missed", "skipped"} {
			m.occurrences.Add(ctx, 0, m.byOccurrence.of(s.Name(), result))
		}
	}
}

func (m *metrics) called(ctx context.Context, verb string, took time.Duration, err error) {
	by := m.byVerb.of(verb)
	if err != nil {
		by = m.byFailedVerb.of(verb, errorType(err))
	}
	m.callDuration.Record(ctx, took.Seconds(), by)
}

// released is the outcome of a step whose claim was given back.
const released = "released"

// These are the results of step.cut.
const (
	cutByLease  = "lease_lost"
	cutByDrain  = "drained"
	cutByCancel = "cancelled"
)

func cutBy(cause error) string {
	switch {
	case errors.Is(cause, fsm.ErrDraining):
		return cutByDrain
	case errors.Is(cause, fsm.ErrCancelled):
		return cutByCancel
	default:
		return cutByLease
	}
}

// otherError is the error.type of all errors without a name, as the semantic conventions demand.
const otherError = "_OTHER"

// errorType returns the kind of an error in few words: the attribute error.type.
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
	return otherError
}

// labels keeps sets of attributes, each made once. Their values are names that the program
// declares, so they are few.
type labels struct {
	keys   []attribute.Key
	common []attribute.KeyValue
	known  sync.Map // keys are [3]string
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
