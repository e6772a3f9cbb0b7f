package environments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// For each job that the guide has a role for, an engine of that role does everything that belongs
// to the job.

// task is one act of a role: its own engine acts on instances that the superuser has inserted.
type task struct {
	name string
	do   func(ctx context.Context, eng *engine.Engine, given given) error
}

// given are instances that the superuser has inserted for one task.
type given struct {
	live, delayed, failed, running fsm.ID
	node                           fsm.ID        // of a graph; it waits for another
	failedNode                     fsm.ID        // of a graph whose root waits
	pool                           *pgxpool.Pool // of the role
}

const (
	scheduled = "every day"
	paused    = "paused"
)

func clientTasks() []task {
	return []task{
		{"start", func(ctx context.Context, eng *engine.Engine, _ given) error { return eng.Start(ctx) }},
		{"insert", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Insert(ctx, double.New(order{}))
			return err
		}},
		{"insert with a key", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.GetOrInsert(ctx, double.New(order{}).Key("k"))
			return err
		}},
		{"insert by a policy", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Insert(ctx, double.New(order{}).Key("running").OnConflict(fsm.ConflictNewest))
			return err
		}},
		{"insert in a window", func(ctx context.Context, eng *engine.Engine, _ given) error {
			once := double.New(order{}).Throttle("t", time.Hour)
			_, err := eng.InsertMany(ctx, []fsm.Spec{once.Key("running"), once, once})
			return err
		}},
		{"signal", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Signal(ctx, g.live, paid.With(order{}).DedupKey("d"))
			return err
		}},
		{"signal or insert", func(ctx context.Context, eng *engine.Engine, _ given) error {
			for range 2 {
				if _, err := eng.SignalOrInsert(ctx, patient.New(order{}).Key("s"), paid.With(order{})); err != nil {
					return err
				}
			}
			return nil
		}},
		{"wait", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Wait(ctx, g.failed)
			return err
		}},
		{"errors", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Errors(ctx, g.failed)
			return err
		}},
		{"SQL functions", func(ctx context.Context, _ *engine.Engine, g given) error {
			_, err := g.pool.Exec(ctx, `SELECT gendurable.gen_durable_signal('paid', target => (gendurable.gen_durable_insert('order')).id)`)
			return err
		}},
	}
}

func observerTasks() []task {
	return []task{
		{"start", func(ctx context.Context, eng *engine.Engine, _ given) error { return eng.Start(ctx) }},
		{"list", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.List(ctx, engine.Query{})
			return err
		}},
		{"counts", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Counts(ctx, engine.CountsOptions{})
			return err
		}},
		{"errors", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Errors(ctx, g.failed)
			return err
		}},
		{"failures", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Failures(ctx, engine.FailuresOptions{})
			return err
		}},
		{"children", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.ChildCounts(ctx, g.live)
			return err
		}},
		{"load", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().Load(ctx)
			return err
		}},
		{"lag", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Lag(ctx, "default")
			return err
		}},
		{"why", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Admin().Why(ctx, g.live)
			return err
		}},
		{"why a node waits", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Admin().Why(ctx, g.node)
			return err
		}},
		{"workers", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().Workers(ctx)
			return err
		}},
		{"audit", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().Audit(ctx, engine.AuditQuery{})
			return err
		}},
		{"definitions", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Definitions(ctx)
			return err
		}},
		{"paused queues", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().PausedQueues(ctx)
			return err
		}},
		{"gates", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().Gates(ctx)
			return err
		}},
		{"keys of a gate", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().GateKeys(ctx, "g")
			return err
		}},
		{"schedules", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().Schedules(ctx, engine.ScheduleQuery{})
			return err
		}},
		{"history", func(ctx context.Context, eng *engine.Engine, g given) error {
			for _, err := range eng.History(ctx, g.live) {
				return err
			}
			_, err := eng.StepTimes(ctx, "patient", engine.HistoryOptions{})
			return err
		}},
		{"signals", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Ent().Signal.Query().All(ctx)
			_, more := eng.Ent().Window.Query().All(ctx)
			if more == nil {
				_, more = eng.Ent().KeptSignal.Query().All(ctx)
			}
			return errors.Join(err, more)
		}},
	}
}

func keeperTasks() []task {
	return []task{
		{"keep a signal", func(ctx context.Context, eng *engine.Engine, _ given) error {
			if _, err := eng.Signal(ctx, fsm.Key("nobody"), paid.With(order{}).KeepFor(time.Hour)); err != nil {
				return err
			}
			_, err := eng.Insert(ctx, patient.New(order{}).Key("nobody"))
			return err
		}},
	}
}

func operatorTasks() []task {
	on := func(which func(given) fsm.ID, verb func(a *engine.Admin, ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error)) func(context.Context, *engine.Engine, given) error {
		return func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := verb(eng.Admin(), ctx, which(g))
			return err
		}
	}
	live, delayed, failed := func(g given) fsm.ID { return g.live }, func(g given) fsm.ID { return g.delayed }, func(g given) fsm.ID { return g.failed }
	return append(observerTasks(), []task{
		{"cancel", on(live, (*engine.Admin).Cancel)},
		{"cancel a node", on(func(g given) fsm.ID { return g.node }, (*engine.Admin).Cancel)},
		{"cancel what runs under a partition key", on(func(g given) fsm.ID { return g.running }, (*engine.Admin).Cancel)},
		{"pause", on(live, (*engine.Admin).Pause)},
		{"resume", func(ctx context.Context, eng *engine.Engine, g given) error {
			if _, err := eng.Admin().Pause(ctx, g.live); err != nil {
				return err
			}
			_, err := eng.Admin().Resume(ctx, g.live)
			return err
		}},
		{"retry", on(failed, (*engine.Admin).Retry)},
		{"restart", on(failed, (*engine.Admin).Restart)},
		{"restart a node", on(func(g given) fsm.ID { return g.failedNode }, (*engine.Admin).Restart)},
		{"run now", on(delayed, (*engine.Admin).RunNow)},
		{"reschedule", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Admin().Reschedule(ctx, g.delayed, time.Now().Add(time.Hour))
			return err
		}},
		{"edit", func(ctx context.Context, eng *engine.Engine, g given) error {
			_, err := eng.Admin().Edit(ctx, g.delayed, fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }))
			return err
		}},
		{"rewind", func(ctx context.Context, eng *engine.Engine, g given) error {
			i, err := eng.Get(ctx, g.delayed)
			if err == nil {
				_, err = eng.Admin().Rewind(ctx, g.delayed, i.Step, fsm.Change{})
			}
			return err
		}},
		{"in bulk", func(ctx context.Context, eng *engine.Engine, _ given) error {
			plan, err := eng.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "patient"})
			if err != nil {
				return err
			}
			_, err = plan.Apply(ctx, engine.Descendants())
			return err
		}},
		{"pause a queue", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().PauseQueue(ctx, "default")
			return err
		}},
		{"resume a queue", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().ResumeQueue(ctx, paused)
			return err
		}},
		{"set a gate", func(ctx context.Context, eng *engine.Engine, _ given) error {
			for places := range 2 {
				if _, err := eng.Admin().SetGate(ctx, engine.Gate{Name: "g", Queue: "nobody's", Places: 1 + places}); err != nil {
					return err
				}
			}
			return nil
		}},
		{"close a key of a gate", func(ctx context.Context, eng *engine.Engine, _ given) error {
			if _, err := eng.Admin().SetGate(ctx, engine.Gate{Name: "g", Label: "nobody's", Places: 1}); err != nil {
				return err
			}
			for _, change := range []func() (bool, error){
				func() (bool, error) { return eng.Admin().CloseGate(ctx, "g/x", time.Time{}) },
				func() (bool, error) { return eng.Admin().OpenGate(ctx, "g/x") },
				func() (bool, error) { return eng.Admin().SetGateWeight(ctx, "g/x", 2) },
				func() (bool, error) { return eng.Admin().SetGatePlaces(ctx, "g/x", 2) },
			} {
				if _, err := change(); err != nil {
					return err
				}
			}
			return nil
		}},
		{"drop a gate", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().DropGate(ctx, "g")
			return err
		}},
		{"pause a schedule", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().PauseSchedule(ctx, scheduled)
			return err
		}},
		{"run a schedule", func(ctx context.Context, eng *engine.Engine, _ given) error {
			_, err := eng.Admin().RunSchedule(ctx, scheduled)
			return err
		}},
		{"delete a schedule", func(ctx context.Context, eng *engine.Engine, _ given) error {
			return eng.Admin().DeleteSchedule(ctx, scheduled)
		}},
	}...)
}

// quiet discards the logs of engines.
var quiet = slog.New(slog.DiscardHandler)

// desk is a role with its job, and a superuser who prepares it.
type desk struct {
	t     *testing.T
	name  string
	pool  *pgxpool.Pool // of the role
	admin *pgxpool.Pool
}

func newDesk(t *testing.T, job string) *desk {
	t.Helper()
	e, name := roleOf(t, job)
	return &desk{t: t, name: name, pool: pgtest.Pool(t, e.url), admin: pgtest.Pool(t, e.direct)}
}

// does makes the role do a task, on fresh instances.
func (d *desk) does(one task) error {
	d.t.Helper()
	execute(d.t, d.admin, `TRUNCATE gendurable.gen_durable, gendurable.signals, gendurable.schedules, gendurable.paused_queues, gendurable.windows, gendurable.kept_signals`)
	execute(d.t, d.admin, `INSERT INTO gendurable.definitions (definition, machine, version, graph)
		VALUES ('double/1', 'double', 1, '{"steps": [{"name": "start"}]}') ON CONFLICT DO NOTHING`)
	boss, err := engine.New(engine.Config{Pool: d.admin, Logger: quiet, Schedules: []engine.Schedule{engine.Every(scheduled, 24*time.Hour, double.New(order{}))}})
	require.NoError(d.t, err)
	require.NoError(d.t, boss.Start(d.t.Context()), "which stores the schedule")
	insert := func(spec fsm.Spec) fsm.ID {
		id, err := boss.Insert(d.t.Context(), spec)
		require.NoError(d.t, err)
		return id
	}
	g := given{live: insert(patient.New(order{})), delayed: insert(double.New(order{}).After(time.Hour)), failed: insert(double.New(order{})),
		running: insert(double.New(order{}).PartitionKey("k").Key("running")), pool: d.pool}
	execute(d.t, d.admin, fmt.Sprintf(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'gone', lease_expires_at = now() + interval '1 h'
		WHERE id = %d`, g.running))
	require.NoError(d.t, d.admin.QueryRow(d.t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, parent_id, parent_round, depth, node, children_pending)
		SELECT fsm, step, 'awaiting_children', id, 1, 1, 'a', 1 FROM gendurable.gen_durable WHERE id = $1 RETURNING id`, g.delayed).Scan(&g.node))
	require.NoError(d.t, d.admin.QueryRow(d.t.Context(), `WITH r AS (INSERT INTO gendurable.gen_durable (fsm, step, status, visit, round, children_pending)
		VALUES ('double', 'start', 'awaiting_children', 1, 1, 1) RETURNING id)
		INSERT INTO gendurable.gen_durable (fsm, step, status, failure, finished_at, parent_id, parent_round, depth, node, joined)
		SELECT 'double', 'start', 'failed', 'error', now(), id, 1, 1, 'a', gen_random_uuid() FROM r RETURNING id`).Scan(&g.failedNode))
	_, err = boss.Admin().Cancel(d.t.Context(), g.failed)
	require.NoError(d.t, err)
	_, err = boss.Admin().PauseQueue(d.t.Context(), paused)
	require.NoError(d.t, err)
	require.NoError(d.t, boss.Stop(d.t.Context()))

	eng, err := engine.New(engine.Config{Pool: d.pool, Logger: quiet})
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, eng.Stop(d.t.Context())) }()
	return one.do(d.t.Context(), eng, g)
}

// revokes returns statements that revoke the rights of the role, one by one.
func (d *desk) revokes(job string) (revokes []string) {
	d.t.Helper()
	for _, statement := range rights(d.t, job) {
		parts := regexp.MustCompile(`(?s)^GRANT (.*?) ON (SCHEMA |SEQUENCE |FUNCTION )?(.*) TO \w+$`).FindStringSubmatch(statement)
		require.NotNil(d.t, parts, statement)
		for privilege := range strings.SplitSeq(parts[1], ", ") {
			for object := range strings.SplitSeq(parts[3], ",") {
				revokes = append(revokes, "REVOKE "+privilege+" ON "+parts[2]+strings.TrimSpace(object)+" FROM "+d.name)
			}
		}
	}
	return revokes
}

// Each job can be done with its rights. Without any one of them something is refused, and the error
// names the grant that repairs it. In make test, some of the rights are taken, another choice each
// time, until a task is refused.
func TestEachJobCanDoAllOfItAndNeedsAllItsRights(t *testing.T) {
	t.Parallel()
	for job, tasks := range map[string][]task{"client": clientTasks(), "keeper": keeperTasks(), "operator": operatorTasks(), "observer": observerTasks()} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, job)
			for _, one := range tasks {
				require.NoError(t, d.does(one), one.name)
			}
			revokes := d.revokes(job)
			if !tier.Long() {
				rand.Shuffle(len(revokes), func(i, k int) { revokes[i], revokes[k] = revokes[k], revokes[i] })
				revokes = revokes[:min(3, len(revokes))]
			}
			for _, revoke := range revokes {
				t.Log(revoke)
				execute(t, d.admin, revoke)
				refused := 0
				for _, one := range tasks {
					err := d.does(one)
					if err == nil {
						continue
					}
					if refused++; refused > 1 && !tier.Long() {
						break
					}
					if one.name == "SQL functions" || one.name == "signals" { // no verbs: Postgres' own words
						require.ErrorContains(t, err, "42501", "%s after %s", one.name, revoke)
						continue
					}
					var lacking *engine.RightsError
					require.ErrorAs(t, err, &lacking, "%s after %s", one.name, revoke)
					require.Equal(t, d.name, lacking.Role)
					require.Len(t, lacking.Grants, 1, "%s after %s", one.name, revoke)
					execute(t, d.admin, lacking.Grants[0])
					require.NoError(t, d.does(one), "%s after %s", one.name, lacking.Grants[0])
					execute(t, d.admin, revoke)
				}
				require.NotZero(t, refused, "nothing needs what this takes: %s", revoke)
				grant := strings.Replace(strings.Replace(revoke, "REVOKE", "GRANT", 1), " FROM ", " TO ", 1)
				execute(t, d.admin, grant)
			}
		})
	}
}

// A role cannot do the tasks of other jobs.
func TestNoJobCanDoAnothers(t *testing.T) {
	t.Parallel()
	named := func(tasks []task, names ...string) (some []task) {
		for _, one := range tasks {
			for _, name := range names {
				if one.name == name {
					some = append(some, one)
				}
			}
		}
		require.Len(t, some, len(names))
		return some
	}
	queuesAndSchedules := named(operatorTasks(), "pause a queue", "resume a queue", "delete a schedule")
	refused := map[string][]task{
		"worker":   queuesAndSchedules,
		"client":   append(named(operatorTasks(), "workers", "paused queues", "schedules", "pause a schedule", "run a schedule"), queuesAndSchedules...),
		"operator": named(clientTasks(), "signal", "signal or insert", "SQL functions"),
		"observer": append(append(named(clientTasks(), "insert", "insert with a key", "insert by a policy", "insert in a window", "signal",
			"signal or insert", "SQL functions"),
			named(operatorTasks(), "cancel", "pause", "retry", "run now", "reschedule", "in bulk", "pause a schedule", "run a schedule")...), queuesAndSchedules...),
	}
	for job, tasks := range refused {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, job)
			for _, one := range tasks {
				err := d.does(one)
				if one.name == "SQL functions" {
					require.ErrorContains(t, err, "42501", one.name)
					continue
				}
				require.ErrorIs(t, err, engine.ErrRights, one.name)
			}
			if job != "worker" {
				eng, err := engine.New(engine.Config{Pool: d.pool, Logger: quiet, Machines: (&scene{}).definitions(), Queues: map[string]engine.Queue{"default": {}}})
				require.NoError(t, err)
				require.ErrorIs(t, eng.Start(t.Context()), engine.ErrRights)
				_, err = d.pool.Exec(t.Context(), "DELETE FROM gendurable.gen_durable")
				require.ErrorContains(t, err, "42501")
			}
			for _, statement := range []string{
				"TRUNCATE gendurable.signals", "DROP TABLE gendurable.signals", "ALTER TABLE gendurable.signals ADD evil int",
				"CREATE TABLE gendurable.mine (n int)", "UPDATE gendurable.atlas_schema_revisions SET version = ''",
				"SELECT setval('gendurable.gen_durable_id_seq', 1)",
				// A transition stays as it was written.
				"UPDATE gendurable.history SET actor = 'somebody'", "DELETE FROM gendurable.history", "TRUNCATE gendurable.history",
				"DELETE FROM gendurable.history_rest", "INSERT INTO gendurable.history_rest (kind) VALUES ('admin.cancel')",
				"UPDATE gendurable.history SET error = NULL WHERE false", "SELECT FROM gendurable.history FOR UPDATE", "DROP TABLE gendurable.history",
			} {
				_, err := d.pool.Exec(t.Context(), statement)
				require.ErrorContains(t, err, "42501", statement)
			}
			if job == "observer" {
				for _, table := range []string{"gen_durable", "signals", "paused_queues", "workers", "schedules", "gates", "windows", "kept_signals"} {
					_, err := d.pool.Exec(t.Context(), "DELETE FROM gendurable."+table)
					require.ErrorContains(t, err, "42501", table)
				}
			}
		})
	}
}

// The scenario tests the rest: claims, outcomes, sweeps, collecting.
func TestAWorkerCanDoAllOfIt(t *testing.T) {
	t.Parallel()
	e := app(t)
	scenario(t, e)

	admin := pgtest.Pool(t, e.direct)
	eng, err := engine.New(engine.Config{
		Pool: pgtest.Pool(t, e.url), Logger: quiet, Machines: (&scene{t: t, admin: admin, schema: engine.DefaultSchema}).definitions(),
		Queues:    map[string]engine.Queue{"default": {}},
		Schedules: []engine.Schedule{engine.Every("each second", time.Second, double.New(order{N: 4}))},
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	holds := func(sql string) func() bool {
		return func() bool {
			var yes bool
			return admin.QueryRow(t.Context(), sql).Scan(&yes) == nil && yes
		}
	}
	steady.Eventually(t, holds(`SELECT count(*) = 1 FROM gendurable.workers`))
	steady.Eventually(t, holds(`SELECT count(*) > 0 FROM gendurable.gen_durable WHERE fsm = 'double' AND status = 'done'`))
	require.NoError(t, eng.Stop(context.Background()))
	require.True(t, holds(`SELECT count(*) = 0 FROM gendurable.workers`)(), "a worker that stops takes its row along")
}

// A worker that lacks one right does not start, and says which.
func TestAWorkerStartsWithAllItsRightsOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "worker")
	start := func() error {
		eng, err := engine.New(engine.Config{Pool: d.pool, Logger: quiet, Machines: (&scene{}).definitions(), Queues: map[string]engine.Queue{"default": {}}})
		require.NoError(t, err)
		defer func() { require.NoError(t, eng.Stop(context.Background())) }()
		return eng.Start(t.Context())
	}
	require.NoError(t, start())
	for _, revoke := range d.revokes("worker") {
		execute(t, d.admin, revoke)
		var lacking *engine.RightsError
		require.ErrorAs(t, start(), &lacking, revoke)
		require.Len(t, lacking.Grants, 1, revoke)
		execute(t, d.admin, lacking.Grants[0])
		require.NoError(t, start(), "%s repaired by %s", revoke, lacking.Grants[0])
	}
}

// The migrator owns a schema and nothing else: it does not even have the right to make one.
func TestAMigratorNeedsItsSchemaOnly(t *testing.T) {
	t.Parallel()
	name, as := role(t)
	direct := pgtest.Database(t)
	for _, statement := range rights(t, "migrator") {
		execute(t, pgtest.Pool(t, direct), strings.TrimSuffix(statement, "migrator")+name)
	}
	m := migrate.Migrator{Pool: pgtest.Pool(t, as(direct))}
	_, err := m.Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, migrations.Check(t.Context(), pgtest.Pool(t, direct), engine.DefaultSchema))
	_, err = m.To(t.Context(), migrations.Empty)
	require.NoError(t, err)
}
