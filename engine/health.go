package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrations"
	"github.com/gendurable/gendurable/worker"
)

type (
	// Activity is what an engine is doing, as far as it knows without asking the database.
	Activity = worker.Activity
	// QueueActivity is what this process has claimed of one queue.
	QueueActivity = worker.QueueActivity
)

const (
	// HealthTimeout bounds how long [Engine.Health] waits for the database.
	HealthTimeout = 2 * time.Second
	// pollStale is how old the last poll of a healthy worker may be: it polls every second, and at
	// most 5 s apart after errors.
	pollStale = 30 * time.Second
)

// Health says whether an engine can do its work, and if not, why. Its JSON form is the body of
// [HealthHandler].
type Health struct {
	// Ready reports whether the engine works, or is a client that is not stopped, the database
	// answers, and the schema is what this program needs.
	Ready bool `json:"ready"`
	// Reasons say why it is not ready, for people. They name no addresses and no accounts.
	Reasons []string `json:"reasons,omitempty"`
	State   State    `json:"state"`
	// Database reports whether the database answered within [HealthTimeout].
	Database bool `json:"database"`
	// Schema says how the schema compares with what this program needs; "" where the database did not
	// say.
	Schema migrations.State `json:"schema,omitempty"`
	Activity
	// Err is the error of the database; nil where Database and Schema are as they should be.
	Err error `json:"-"`
}

// Activity returns what the engine is doing in this process. It asks no database. A client has no
// queues, and nothing in flight.
func (e *Engine) Activity() Activity {
	if e.worker == nil {
		return Activity{}
	}
	return e.worker.Activity()
}

// Health asks the database, within [HealthTimeout], and looks at what the engine does. An engine
// that is not healthy is no error: the only error is the cause of ctx's end, with what is known by
// then.
func (e *Engine) Health(ctx context.Context) (Health, error) {
	h := Health{State: e.State()}
	asked := time.Now()
	timed, cancel := context.WithTimeout(ctx, HealthTimeout)
	defer cancel()
	err := migrations.Check(timed, e.config.Driver, e.config.Schema)
	h.Activity = e.Activity()
	wrong, isSchema := errors.AsType[*migrations.SchemaError](err)
	switch {
	case err == nil:
		h.Database, h.Schema = true, migrations.StateCurrent
	case isSchema:
		h.Database, h.Schema, h.Err = true, wrong.State, err
	case ctx.Err() != nil:
		h.Err = err
		h.Reasons = h.reasons(e.worker != nil, time.Now())
		return h, context.Cause(ctx)
	default:
		h.Err = err
		// A pool whose connections are all in use for a while is slow, and no outage, as long as the
		// engine itself gets through.
		h.Database = h.LastPoll.After(asked)
	}
	h.Reasons = h.reasons(e.worker != nil, time.Now())
	h.Ready = len(h.Reasons) == 0
	return h, nil
}

// reasons says why an engine is not ready.
func (h *Health) reasons(isWorker bool, now time.Time) (why []string) {
	switch {
	case h.State == StateCreated && isWorker:
		why = append(why, "not started")
	case h.State == StateDraining, h.State == StateStopped:
		why = append(why, string(h.State))
	}
	switch {
	case !h.Database:
		why = append(why, h.silence())
	case h.Schema != migrations.StateCurrent && h.Schema != "":
		why = append(why, "the schema is "+string(h.Schema))
	}
	if h.State != StateStarted || !isWorker {
		return why
	}
	if h.LastPoll.IsZero() {
		return append(why, "no poll has succeeded yet")
	}
	if age := now.Sub(h.LastPoll); age > pollStale {
		why = append(why, fmt.Sprintf("no poll has succeeded for %s", age.Round(time.Second)))
	}
	return why
}

// silence says why the database did not answer, without its words.
func (h *Health) silence() string {
	switch {
	case errors.Is(h.Err, context.DeadlineExceeded):
		return "the database does not answer in time"
	case store.Classify(h.Err) == store.FaultConfig:
		return "the database refuses to show its schema"
	default:
		return "the database is not reachable"
	}
}

// Lag returns, per queue, how long the oldest claimable instance has been due; 0 where none is due.
// It leaves out paused instances, those that wait behind their partition key, and those whose
// machine is not registered here. Without names it looks at the queues of this process. It is one
// statement that visits the priorities in use, whatever the backlog.
func (e *Engine) Lag(ctx context.Context, queues ...string) (lag map[string]time.Duration, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	for _, name := range queues {
		if err := checkName(name, fsm.MaxNameBytes); err != nil {
			return nil, badQuery("queues", "%w", err)
		}
	}
	if len(queues) == 0 {
		queues = slices.Collect(maps.Keys(e.config.Queues))
	}
	machines := make([]string, len(e.machines))
	for i, m := range e.machines {
		machines[i] = store.MachineID(m.Name, m.Version)
	}
	var found map[string]time.Duration
	err = e.patiently(ctx, task{doing: "measure the lag of queues"}, func() error {
		found, err = e.store.Due(ctx, queues, machines)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("measure the lag of queues: %w", err)
	}
	lag = make(map[string]time.Duration, len(queues))
	for _, name := range queues {
		due, ok := found[name]
		lag[name] = 0
		if ok && due < 0 {
			lag[name] = -due
		}
	}
	return lag, nil
}
