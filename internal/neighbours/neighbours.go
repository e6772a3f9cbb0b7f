// Package neighbours is a database that two tenants share, for tests of bounds: to a caller who is
// bound to the instances of one tenant, the other instances do not exist. Only tests import it.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

const patience = time.Minute

// The hidden instances have ids, keys, labels, states, errors and payloads that occur nowhere else.
// They have another queue, another machine and another label than those that may be seen, so that
// each kind of bounds hides the same.
const firstHidden = 7_700_000_000_000_001

// Secrets are texts that occur in hidden rows only.
var Secrets = []string{
	"hidden-key", "hidden-label", "hidden-state", "hidden-error", "hidden-payload", "hidden-signal", "hidden-partition", "hidden-node",
	"hidden-gate", "hidden-schedule", "hidden-reason", "hidden-dedup",
}

// Neighbours is a database that two tenants share.
type Neighbours struct {
	URL          string
	Pool         *pgxpool.Pool
	Engine       *engine.Engine // runs no steps: what changes, the test has changed
	Ours, Theirs map[string]fsm.ID
	Machines     []fsm.Definition
}

// New makes the database. It lets the instances of both run until they are parked or have ended,
// and stops the worker.
func New(t *testing.T) *Neighbours {
	t.Helper()
	n := &Neighbours{URL: pgtest.Migrated(t), Ours: map[string]fsm.ID{}, Theirs: map[string]fsm.ID{}}
	n.Pool = pgtest.Pool(t, n.URL)
	ours, theirs := fsm.Declare[string, string]("our", fsm.Queue("ours")), fsm.Declare[string, string]("their", fsm.Queue("theirs"))
	our := func(state string) fsm.Spec { return ours.New(state).Label("tenant", "ours") }
	their := func(state string) fsm.Spec { return theirs.New(state).Label("tenant", "hidden-label") }
	for _, m := range []*fsm.Machine[string, string]{ours, theirs} {
		n.Machines = append(n.Machines, m.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				switch v.State {
				case "fails", "hidden-state fails":
					if strings.HasPrefix(v.State, "hidden") {
						return nil, fsm.Permanent(errors.New("hidden-error"))
					}
					return nil, fsm.Permanent(errors.New("plain-error"))
				case "graph": // of which all nodes are hidden
					return v.ScheduleGraph("end", v.State, fsm.Node("hidden-node", their("hidden-state")),
						fsm.Node("hidden-node-behind", their("hidden-state")).After("hidden-node")), nil
				case "own graph":
					return v.ScheduleGraph("end", v.State, fsm.Node("own-node", our("node"))), nil
				case "family": // the children that are hidden are not cancelled with it
					return v.ScheduleChildren("end", v.State, our("child"), their("hidden-state")), nil
				case "hidden-state family":
					return v.ScheduleChildren("end", v.State, our("child of theirs"), our("fails"), their("hidden-state")), nil
				case "hidden-state graph":
					return v.ScheduleGraph("end", v.State, fsm.Node("our-node", our("node of theirs")),
						fsm.Node("hidden-node", their("hidden-state")).After("our-node")), nil
				}
				return v.Await("end", v.State, fsm.DeclareSignal[string]("go")), nil
			}).To("end"),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State), nil
			})))
	}
	worker, err := engine.New(engine.Config{
		Pool: n.Pool, Machines: n.Machines,
		Queues: map[string]engine.Queue{"ours": {Concurrency: 4, PollMax: 100 * time.Millisecond}, "theirs": {Concurrency: 4, PollMax: 100 * time.Millisecond}},
		Schedules: []engine.Schedule{
			engine.Every("hidden-schedule", 24*time.Hour, their("hidden-state")), engine.Every("our-schedule", 24*time.Hour, our("scheduled")),
		},
	})
	require.NoError(t, err)
	require.NoError(t, worker.Start(t.Context()))
	n.Engine = worker
	// Ids begin where no other number does.
	_, err = n.Pool.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ALTER id RESTART WITH %d`, firstHidden))
	require.NoError(t, err)
	n.insert(t, n.Theirs, "parked", their("hidden-state").Key("hidden-key").PartitionKey("shared-partition"))
	n.insert(t, n.Theirs, "failed", their("hidden-state fails"))
	n.insert(t, n.Theirs, "family", their("hidden-state family"))
	n.insert(t, n.Theirs, "graph", their("hidden-state graph"))
	n.insert(t, n.Theirs, "runnable", their("hidden-state").After(time.Hour).PartitionKey("hidden-partition").Key("hidden-key-2"))
	n.insert(t, n.Ours, "key lost", our("fails").Key("shared-key"))
	n.insert(t, n.Theirs, "key taken", their("hidden-state").Key("shared-key"))
	n.insert(t, n.Ours, "graph", our("graph"))
	n.insert(t, n.Ours, "family", our("family"))
	line := their("hidden-state").PartitionKey("line")
	n.insert(t, n.Theirs, "first in line", line.After(time.Hour))
	_, err = n.Pool.Exec(t.Context(), `ALTER TABLE gendurable.gen_durable ALTER id RESTART WITH 1001`)
	require.NoError(t, err)
	n.insert(t, n.Ours, "parked", our("waits"))
	n.insert(t, n.Ours, "own graph", our("own graph"))
	n.insert(t, n.Ours, "failed", our("fails"))
	n.insert(t, n.Ours, "runnable", our("waits").After(time.Hour).PartitionKey("our-partition"))
	n.rest(t)
	ctx := t.Context()
	_, err = worker.Signal(ctx, n.Theirs["parked"], fsm.DeclareSignal[string]("hidden-signal").With("hidden-payload").DedupKey("hidden-dedup"))
	require.NoError(t, err)
	_, err = worker.Admin().SetGate(ctx, engine.Gate{Name: "hidden-gate", Queue: "theirs", Places: 3})
	require.NoError(t, err)
	_, err = worker.Admin().SetGate(ctx, engine.Gate{Name: "our-gate", Queue: "ours", Places: 3})
	require.NoError(t, err)
	_, err = worker.Admin().Pause(ctx, n.Theirs["runnable"], engine.Reason("hidden-reason"))
	require.NoError(t, err)
	require.NoError(t, worker.Stop(context.WithoutCancel(ctx)))
	n.Engine, err = engine.New(engine.Config{Pool: n.Pool})
	require.NoError(t, err)
	_, err = n.Engine.Admin().RunNow(ctx, n.Theirs["first in line"])
	require.NoError(t, err)
	_, err = n.Engine.Insert(ctx, our("waits").PartitionKey("line"))
	require.NoError(t, err)
	// Members of families that may be seen have ids that may be shown.
	rows, err := n.Pool.Query(ctx, `SELECT id, state #>> '{}', queue FROM gendurable.gen_durable WHERE parent_id IS NOT NULL OR partition_key = 'line'`)
	require.NoError(t, err)
	var id fsm.ID
	var state, queue string
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &queue}, func() error {
		into := n.Theirs
		if queue == "ours" {
			into = n.Ours
		}
		into[fmt.Sprint(state, " ", len(into))] = id
		return nil
	})
	require.NoError(t, err)
	return n
}

// insert inserts one instance, and waits until it stands.
func (n *Neighbours) insert(t *testing.T, into map[string]fsm.ID, name string, spec fsm.Spec) {
	t.Helper()
	id, err := n.Engine.Insert(t.Context(), spec)
	require.NoError(t, err)
	into[name] = id
	n.rest(t)
}

// rest waits until nothing is about to run.
func (n *Neighbours) rest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var busy int
		err := n.Pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status IN ('runnable', 'executing') AND eligible_at <= now()`).Scan(&busy)
		return err == nil && busy == 0
	}, patience, 10*time.Millisecond)
}

// Hidden has all rows that a bound caller must leave as they are, each as text.
func (n *Neighbours) Hidden(t *testing.T) []string {
	t.Helper()
	rows, err := n.Pool.Query(t.Context(), `SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id WHERE g.queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.schedules s
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.gates s
		UNION ALL SELECT h.instance || h.kind FROM gendurable.history h JOIN gendurable.gen_durable g ON g.id = h.instance WHERE g.queue = 'theirs'
		UNION ALL SELECT to_jsonb(s)::text FROM gendurable.paused_queues s WHERE s.queue <> 'ours' ORDER BY 1`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// Bounds cover the instances of the tenant that may be seen, each of another kind.
var Bounds = map[string]engine.Bounds{
	"queue": {Queues: []string{"ours"}}, "machine": {Machines: []string{"our"}}, "label": {Labels: map[string]string{"tenant": "ours"}},
	"all three": {Queues: []string{"ours", "others"}, Machines: []string{"our"}, Labels: map[string]string{"tenant": "ours"}},
}
