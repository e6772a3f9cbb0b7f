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
	// QueueActivity has this process' claims of one queue.
	QueueActivity = worker.QueueActivity
	// Failing is work with the database that has not succeeded since it failed.
	Failing = worker.Failing
	// Doing is work with the database without which a worker is of no use.
	Doing = worker.Doing
	// Obstacle says what keeps statements from taking effect.
	Obstacle = worker.Obstacle
)

// HealthTimeout bounds how long [Engine.Health] waits for the database.
const HealthTimeout = 2 * time.Second

// Health says whether an engine can do its work, and if not, why. Package health serves its JSON
// form.
type Health struct {
	// Ready reports whether there is no reason against it. A worker that is ready could claim, commit
	// and extend its leases within the last lease, as far as its own work has shown; a client is not
	// stopped, and finds a database with the right schema that takes writes.
	Ready   bool           `json:"ready"`
	Reasons []HealthReason `json:"reasons,omitempty"` // why it is not ready
	State   State          `json:"state"`
	// Database reports whether the database answered within [HealthTimeout].
	Database bool `json:"database"`
	// Schema compares the schema with the one that this program needs; "" if the database did not
	// answer.
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
// that is not healthy is no error: the only error is the cause of ctx's end, with the part that is
// known by then.
func (e *Engine) Health(ctx context.Context) (Health, error) {
	asked := time.Now()
	timed, cancel := context.WithTimeout(ctx, HealthTimeout)
	defer cancel()
	readOnly := false
	err := migrations.Check(timed, e.config.Driver, e.config.Schema)
	wrong, isSchema := errors.AsType[*migrations.SchemaError](err)
	if err == nil {
		readOnly, err = e.store.ReadOnly(timed)
	}
	x := examination{worker: e.worker != nil, lease: e.config.Lease, now: time.Now(), readOnly: readOnly}
	x.Health = Health{State: e.State(), Activity: e.Activity(), Err: err}
	switch {
	case err == nil:
		x.Database, x.Schema = true, migrations.StateCurrent
	case isSchema:
		x.Database, x.Schema = true, wrong.State
	case ctx.Err() != nil:
		x.conclude()
		return x.Health, context.Cause(ctx)
	default:
		// A pool whose connections are all in use for a while is slow, and no outage, as long as the
		// engine itself gets through.
		x.Database = x.LastPoll.After(asked)
		if pool := e.config.Pool; pool != nil && errors.Is(err, context.DeadlineExceeded) {
			stat := pool.Stat()
			x.exhausted = stat.AcquiredConns() >= stat.MaxConns()
		}
	}
	x.conclude()
	x.Ready = len(x.Reasons) == 0
	return x.Health, nil
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
