package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Worker processes run these. A deed is a step that leaves a trace in a separate table.

type deed struct {
	Name string
	Gate string // the step does not end before this gate is open; "": at once
	Deaf bool   // it ignores its context
	Dies bool   // it kills its process
	Many int    // of a crowd: how many deeds
}

var (
	deedMachine   = fsm.Declare[deed, int]("deed")
	crowdMachine  = fsm.Declare[deed, int]("crowd")
	mortalMachine = fsm.Declare[deed, int]("mortal", fsm.Queue("mortal"))
)

// deeds are the machines, and the table that their steps write to.
type deeds struct{ pool *pgxpool.Pool }

// mortalLimit is the crash limit of the mortal.
const mortalLimit = 1

func (d deeds) definitions() []fsm.Definition {
	return []fsm.Definition{
		deedMachine.Define(fsm.Step("start", d.do)).OnError(d.handled),
		mortalMachine.Define(fsm.Step("start", d.do)).OnError(d.handled).CrashLimit(mortalLimit),
		d.bookings(),
		d.squad(),
		crowdMachine.Define(fsm.Step("start", d.gather), fsm.Step("join", d.join)).OnError(d.handled),
	}
}

func (d deeds) do(ctx context.Context, v *fsm.Visit[deed, int]) (fsm.Outcome, error) {
	if v.State.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	trace, err := d.begin(ctx, v.Info, v.State.Name)
	if err != nil {
		return nil, err
	}
	if v.State.Dies {
		os.Exit(7)
	}
	if err := d.pass(ctx, v.State.Gate); err != nil {
		return nil, err
	}
	if _, err := d.pool.Exec(ctx, `UPDATE deeds SET ended = clock_timestamp() WHERE id = $1`, trace); err != nil {
		return nil, err
	}
	return v.Done(os.Getpid()), nil
}

// begin writes the trace of an execution.
func (d deeds) begin(ctx context.Context, i fsm.Info, name string) (trace int64, err error) {
	err = d.pool.QueryRow(ctx, `INSERT INTO deeds (instance, name, key, visit, attempt, crashes, idempotency, token, process)
		VALUES ($1, $2, nullif($3, ''), $4, $5, $6, $7, $8, $9) RETURNING id`,
		i.ID, name, i.PartitionKey, i.Visit, i.Attempt, i.Crashes, i.IdempotencyKey("deed"), i.FencingToken, os.Getpid()).Scan(&trace)
	return trace, err
}

// pass waits until a gate is open.
func (d deeds) pass(ctx context.Context, gate string) error {
	if gate == "" {
		return nil
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var open bool
		if err := d.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gates WHERE name = $1)`, gate).Scan(&open); err != nil || open {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (d deeds) gather(_ context.Context, v *fsm.Visit[deed, int]) (fsm.Outcome, error) {
	children := make([]fsm.Spec, v.State.Many)
	for n := range children {
		child := deed{Name: fmt.Sprintf("%s/%d", v.State.Name, n), Gate: v.State.Gate, Dies: v.State.Dies}
		children[n] = deedMachine.New(child)
		if v.State.Dies {
			children[n] = mortalMachine.New(child)
		}
	}
	return v.ScheduleChildren("join", v.State, children...), nil
}

func (d deeds) join(ctx context.Context, v *fsm.Visit[deed, int]) (fsm.Outcome, error) {
	if _, err := d.begin(ctx, v.Info, v.State.Name); err != nil {
		return nil, err
	}
	return v.Done(len(v.Children())), nil
}

// handled leaves a trace of every call of a handler, and decides nothing.
func (d deeds) handled(ctx context.Context, v *fsm.Visit[deed, int], err error) (fsm.Outcome, error) {
	//gendurable:ignore effect each call leaves a trace of its own
	if _, traced := d.pool.Exec(context.WithoutCancel(ctx), `INSERT INTO handled VALUES ($1, $2)`, v.ID, err.Error()); traced != nil {
		return nil, errors.Join(err, traced)
	}
	return v.Fail(err), nil
}

// scene is a database with the tables of deeds, and a client of the engine on it.
type scene struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	eng  *engine.Engine
}

func newScene(t *testing.T, url string) *scene {
	t.Helper()
	pool := pgtest.Pool(t, url)
	for _, table := range []string{
		`deeds (id bigint GENERATED ALWAYS AS IDENTITY, instance bigint, name text, key text, visit bigint, attempt int, crashes int,
			idempotency text, token bigint, process int, began timestamptz DEFAULT clock_timestamp(), ended timestamptz)`,
		`gates (name text)`,
		`calls (process int, size int, attempt int)`,
		`bookings (instance bigint, what text, attempt int)`,
		`handled (instance bigint, error text)`,
	} {
		execute(t, pool, "CREATE TABLE "+table)
	}
	return &scene{t: t, url: url, pool: pool, eng: client(t, pool)}
}

// open opens a gate at which deeds wait.
func (s *scene) open(gate string) { execute(s.t, s.pool, `INSERT INTO gates VALUES ($1)`, gate) }

func (s *scene) count(where string) int {
	return query[int](s.t, s.pool, `SELECT count(*) FROM deeds WHERE `+where)
}

// until waits until there are so many traces.
func (s *scene) until(traces int) {
	s.t.Helper()
	eventually(s.t, func() bool { return s.count("true") >= traces }, "%d executions", traces)
}

// execution is one trace.
type execution struct {
	Instance         fsm.ID
	Attempt, Crashes int
	Idempotency      string
	Token            int64
	Process          int
}

// executions returns the executions of an instance, in the order in which they began.
func (s *scene) executions(of fsm.ID) []execution {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT instance, attempt, crashes, idempotency, token, process FROM deeds WHERE instance = $1 ORDER BY id`, of)
	require.NoError(s.t, err)
	defer rows.Close()
	var all []execution
	for rows.Next() {
		var e execution
		require.NoError(s.t, rows.Scan(&e.Instance, &e.Attempt, &e.Crashes, &e.Idempotency, &e.Token, &e.Process))
		all = append(all, e)
	}
	require.NoError(s.t, rows.Err())
	return all
}

// noneHandled requires that no handler was called.
func (s *scene) noneHandled() {
	s.t.Helper()
	require.Empty(s.t, query[string](s.t, s.pool, `SELECT coalesce(string_agg(error, '; '), '') FROM handled`))
}

// noOverlap requires that no two executions of a partition key ran side by side.
func (s *scene) noOverlap() {
	s.t.Helper()
	require.Zero(s.t, query[int](s.t, s.pool, `SELECT count(*) FROM deeds a JOIN deeds b USING (key)
		WHERE a.id < b.id AND b.began < coalesce(a.ended, 'infinity')`), "steps of one partition key overlapped")
}
