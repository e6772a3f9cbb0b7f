package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/gendurable/gendurable/engine"
)

// lagTimeout bounds each of the two statements that a collection of metrics may run.
const lagTimeout = 5 * time.Second

// gauges are the instruments that are read when metrics are collected.
type gauges struct {
	claims, running, buffered, waiting, collected, committing, held, slots metric.Int64ObservableUpDownCounter
	paused                                                                 metric.Int64ObservableGauge
	lag, pollAge, heartbeatAge, gateLag                                    metric.Float64ObservableGauge
	gateTaken, gateWaiting                                                 metric.Int64ObservableUpDownCounter

	connections, connectionsMax  metric.Int64ObservableUpDownCounter
	acquired, waited, unacquired metric.Int64ObservableCounter
	waitTime                     metric.Float64ObservableCounter

	of []*observed // one engine, or the places of a cluster
}

// observed is an engine of which the gauges tell.
type observed struct {
	t   *Telemetry
	eng *engine.Engine

	byState, byGate *labels
	late            kept[map[string]time.Duration]
	limits          kept[[]engine.GateStatus]
}

func (t *Telemetry) observed(eng *engine.Engine) *observed {
	return &observed{t: t, eng: eng, byState: newLabels(t.config.Attributes, keyPoolState), byGate: newLabels(t.config.Attributes, keyGate),
		late:   kept[map[string]time.Duration]{every: t.config.LagEvery, ask: func(ctx context.Context) (map[string]time.Duration, error) { return eng.Lag(ctx) }},
		limits: kept[[]engine.GateStatus]{every: t.config.LagEvery, ask: eng.Admin().Gates}}
}

// Observe adds the metrics that are read at each collection: the claims and queues of an engine,
// and its pool. stop removes them; call it after the engine's Stop. It returns the errors of the
// meter provider.
func (t *Telemetry) Observe(eng *engine.Engine) (stop func() error, err error) {
	return t.observe(&gauges{of: []*observed{t.observed(eng)}})
}

// observe makes the instruments.
func (t *Telemetry) observe(g *gauges) (stop func() error, err error) {
	var all []metric.Observable
	var faults []error
	add := func(o metric.Observable, err error) {
		all = append(all, o)
		faults = append(faults, err)
	}
	upDown := func(into *metric.Int64ObservableUpDownCounter, name, unit, description string) {
		i, err := t.meter.Int64ObservableUpDownCounter("gendurable."+name, metric.WithUnit(unit), metric.WithDescription(description))
		*into = i
		add(i, err)
	}
	counter := func(into *metric.Int64ObservableCounter, name, unit, description string) {
		i, err := t.meter.Int64ObservableCounter("gendurable."+name, metric.WithUnit(unit), metric.WithDescription(description))
		*into = i
		add(i, err)
	}
	age := func(into *metric.Float64ObservableGauge, name, description string) {
		i, err := t.meter.Float64ObservableGauge("gendurable."+name, metric.WithUnit("s"), metric.WithDescription(description))
		*into = i
		add(i, err)
	}
	upDown(&g.claims, "claims", "{claim}", "Claims of this process, from the pick to the durable outcome.")
	upDown(&g.running, "queue.running", "{claim}", "Claims in a slot.")
	upDown(&g.buffered, "queue.buffered", "{claim}", "Claims that wait for a slot.")
	upDown(&g.waiting, "queue.waiting", "{claim}", "Claims that wait for the lock of their partition key.")
	upDown(&g.collected, "queue.collected", "{claim}", "Claims that wait for others of their batch step, or for a slot with them.")
	upDown(&g.committing, "queue.committing", "{claim}", "Claims out of their slot, until their outcome is durable.")
	upDown(&g.held, "queue.held", "{claim}", "Claims out of their slot: somebody holds the row that their outcome is for.")
	upDown(&g.slots, "queue.slots", "{slot}", "Steps that may run at once.")
	age(&g.pollAge, "poll.age", "Since the last poll that succeeded.")
	age(&g.heartbeatAge, "heartbeat.age", "Since the last heartbeat that succeeded.")
	if t.config.LagEvery > 0 {
		age(&g.lag, "queue.lag", "For how long the oldest runnable instance has been due.")
		age(&g.gateLag, "gate.lag", "For how long the oldest instance that waits in line at the gate has been due.")
		upDown(&g.gateTaken, "gate.taken", "{place}", "Places of the gate that are taken, in all processes.")
		upDown(&g.gateWaiting, "gate.waiting", "{instance}", "Instances that are due and wait in line at the gate, in all processes.")
	}
	paused, err := t.meter.Int64ObservableGauge("gendurable.queue.paused", metric.WithDescription("1 where an operator has paused the queue."))
	g.paused = paused
	add(paused, err)
	upDown(&g.connections, "pool.connection.count", "{connection}", "Connections of the engine's pool.")
	upDown(&g.connectionsMax, "pool.connection.max", "{connection}", "How many there may be.")
	counter(&g.acquired, "pool.acquire.count", "{acquire}", "Connections acquired.")
	counter(&g.waited, "pool.acquire.waited", "{acquire}", "Of these, those that had to wait, since none was idle.")
	counter(&g.unacquired, "pool.acquire.cancelled", "{acquire}", "Tries given up, since their context ended.")
	waitTime, err := t.meter.Float64ObservableCounter("gendurable.pool.acquire.wait_time", metric.WithUnit("s"), metric.WithDescription("How long they waited."))
	g.waitTime = waitTime
	add(waitTime, err)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	registration, err := t.meter.RegisterCallback(g.observe, all...)
	if err != nil {
		return nil, err
	}
	return registration.Unregister, nil
}

func (g *gauges) observe(ctx context.Context, o metric.Observer) error {
	asked := make([]asked, len(g.of))
	var all sync.WaitGroup
	for n, e := range g.of { // side by side: a place that does not answer takes no time from the others
		if g.lag == nil || len(e.eng.Activity().Queues) == 0 {
			continue
		}
		all.Go(func() { asked[n].lag, asked[n].late = e.late.now(ctx) })
		all.Go(func() { asked[n].limits, asked[n].failed = e.limits.now(ctx) })
	}
	all.Wait()
	var faults []error
	for n, e := range g.of {
		g.tell(o, e, &asked[n])
		faults = append(faults, asked[n].late, asked[n].failed)
	}
	return errors.Join(faults...)
}

// asked is what the database of an engine has answered.
type asked struct {
	lag          map[string]time.Duration
	limits       []engine.GateStatus
	late, failed error // of these
}

func (g *gauges) tell(o metric.Observer, e *observed, answers *asked) {
	if e.t.pool != nil {
		g.observePool(o, e)
	}
	a, plain := e.eng.Activity(), e.t.metrics.plain.of()
	if len(a.Queues) == 0 {
		return // a client has no queues
	}
	o.ObserveInt64(g.claims, int64(a.InFlight), plain)
	for _, q := range a.Queues {
		by := e.t.metrics.byQueue.of(q.Name)
		o.ObserveInt64(g.running, int64(q.Running), by)
		o.ObserveInt64(g.buffered, int64(q.Buffered), by)
		o.ObserveInt64(g.waiting, int64(q.Waiting), by)
		o.ObserveInt64(g.collected, int64(q.Collected), by)
		o.ObserveInt64(g.committing, int64(q.Committing), by)
		o.ObserveInt64(g.held, int64(q.Held), by)
		o.ObserveInt64(g.slots, int64(q.Slots), by)
		paused := int64(0)
		if q.Paused {
			paused = 1
		}
		o.ObserveInt64(g.paused, paused, by)
	}
	if !a.LastPoll.IsZero() {
		o.ObserveFloat64(g.pollAge, time.Since(a.LastPoll).Seconds(), plain)
	}
	if !a.LastHeartbeat.IsZero() {
		o.ObserveFloat64(g.heartbeatAge, time.Since(a.LastHeartbeat).Seconds(), plain)
	}
	for queue, d := range answers.lag {
		o.ObserveFloat64(g.lag, d.Seconds(), e.t.metrics.byQueue.of(queue))
	}
	for _, limit := range answers.limits {
		by := e.byGate.of(limit.Name)
		o.ObserveFloat64(g.gateLag, limit.Lag.Seconds(), by)
		o.ObserveInt64(g.gateTaken, int64(limit.Taken), by)
		o.ObserveInt64(g.gateWaiting, int64(limit.Waiting), by)
	}
}

func (g *gauges) observePool(o metric.Observer, e *observed) {
	s, plain := e.t.pool.Stat(), e.t.metrics.plain.of()
	for state, n := range map[string]int32{"used": s.AcquiredConns(), "idle": s.IdleConns(), "constructing": s.ConstructingConns()} {
		o.ObserveInt64(g.connections, int64(n), e.byState.of(state))
	}
	o.ObserveInt64(g.connectionsMax, int64(s.MaxConns()), plain)
	o.ObserveInt64(g.acquired, s.AcquireCount(), plain)
	o.ObserveInt64(g.waited, s.EmptyAcquireCount(), plain)
	o.ObserveInt64(g.unacquired, s.CanceledAcquireCount(), plain)
	o.ObserveFloat64(g.waitTime, s.EmptyAcquireWaitTime().Seconds(), plain)
}

// kept is an answer of the database that is asked for at most once every so long, however many
// collectors ask.
type kept[T any] struct {
	every time.Duration
	ask   func(ctx context.Context) (T, error)

	mu     sync.Mutex
	newest T // the zero value: the last try failed
	at     time.Time
}

func (k *kept[T]) now(ctx context.Context) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.at.IsZero() && time.Since(k.at) < k.every {
		return k.newest, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	var err error
	k.newest, err = k.ask(ctx)
	k.at = time.Now()
	return k.newest, err
}
