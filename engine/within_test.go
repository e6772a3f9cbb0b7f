package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Bounds are a predicate of each read and a condition of each verb. A verb that would change others
// outside is refused whole, and says why; one whose family lies inside is carried out.
func TestVerbsAndReadsStayWithinBounds(t *testing.T) {
	t.Parallel()
	work := fsm.Declare[string, string]("bounded")
	tenant := func(state, name string) fsm.Spec { return work.New(state).Label("tenant", name) }
	definition := work.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			switch v.State {
			case "mixed":
				return v.ScheduleGraph("join", v.State, fsm.Node("a", tenant("", "ada")), fsm.Node("b", tenant("", "bob")).After("a")), nil
			case "own":
				return v.ScheduleGraph("join", v.State, fsm.Node("a", tenant("", "ada")), fsm.Node("b", tenant("", "ada")).After("a")), nil
			case "parent":
				return v.ScheduleChildren("join", v.State, tenant("", "ada"), tenant("fails", "ada"), tenant("", "bob")), nil
			case "fails":
				return nil, fsm.Permanent(errors.New("no"))
			}
			return v.Await("join", v.State, paid), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil }))
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{definition}
		c.Schedules = []engine.Schedule{
			engine.Every("a of ada", time.Hour*24, tenant("", "ada")), engine.Every("b of bob", time.Hour*24, tenant("", "bob")),
			engine.Every("c of nobody", time.Hour*24, work.New("")),
		}
	})
	ctx := t.Context()
	insert := func(spec fsm.Spec) fsm.ID {
		id, err := e.Insert(ctx, spec)
		require.NoError(t, err)
		return id
	}
	ids := map[string]fsm.ID{
		"ada": insert(tenant("", "ada")), "bob": insert(tenant("", "bob")), "mixed": insert(tenant("mixed", "ada")), "own": insert(tenant("own", "ada")),
		"parent": insert(tenant("parent", "bob")), "failed": insert(tenant("fails", "bob")),
	}
	lost := insert(tenant("fails", "ada").Key("k"))
	require.Eventually(t, func() bool {
		i, err := e.Get(ctx, lost)
		return err == nil && i.Status == fsm.StatusFailed
	}, time.Minute, time.Millisecond)
	insert(tenant("", "bob").Key("k"))
	ada := engine.Bounds{Labels: map[string]string{"tenant": "ada"}}
	children := func(of string, status fsm.Status) (out []fsm.ID) {
		for i, err := range e.All(ctx, engine.Query{Filter: engine.Filter{Parent: ids[of], Status: []fsm.Status{status}, Within: ada}}) {
			require.NoError(t, err)
			out = append(out, i.ID)
		}
		return out
	}
	require.Eventually(t, func() bool {
		return len(children("mixed", fsm.StatusAwaitingSignal)) == 1 && len(children("own", fsm.StatusAwaitingSignal)) == 1 &&
			len(children("parent", fsm.StatusAwaitingSignal)) == 1 && len(children("parent", fsm.StatusFailed)) == 1
	}, time.Minute, time.Millisecond)
	admin, within := e.Admin(), engine.Within(ada)

	for name, verb := range map[string]func(fsm.ID) (engine.Changed, error){
		"cancel": func(id fsm.ID) (engine.Changed, error) { return admin.Cancel(ctx, id, within) },
		"family": func(id fsm.ID) (engine.Changed, error) {
			return admin.Cancel(ctx, id, within, engine.Descendants())
		},
		"retry":   func(id fsm.ID) (engine.Changed, error) { return admin.Retry(ctx, id, within) },
		"restart": func(id fsm.ID) (engine.Changed, error) { return admin.Restart(ctx, id, within) },
		"pause":   func(id fsm.ID) (engine.Changed, error) { return admin.Pause(ctx, id, within) },
		"rewind": func(id fsm.ID) (engine.Changed, error) {
			return admin.Rewind(ctx, id, "no step", fsm.ChangeJSON(nil), within)
		},
	} {
		for _, hidden := range []string{"bob", "parent", "failed"} {
			_, err := verb(ids[hidden])
			require.ErrorIs(t, err, engine.ErrNotFound, "%s of %s", name, hidden)
		}
	}
	outside := func(_ engine.Changed, err error) {
		t.Helper()
		require.ErrorIs(t, err, engine.ErrOutside)
		conflict, ok := errors.AsType[*engine.ConflictError](err)
		require.True(t, ok)
		require.ErrorContains(t, conflict, "outside of the bounds")
	}
	outside(admin.Cancel(ctx, ids["mixed"], within))
	outside(admin.Cancel(ctx, ids["mixed"], within, engine.Descendants()))
	outside(admin.Cancel(ctx, children("mixed", fsm.StatusAwaitingSignal)[0], within)) // what is behind it would be skipped
	outside(admin.Cancel(ctx, children("parent", fsm.StatusAwaitingSignal)[0], within))
	outside(admin.Restart(ctx, children("parent", fsm.StatusFailed)[0], within)) // its parent would wait for one more
	_, err := admin.Retry(ctx, lost, within)
	taken, ok := errors.AsType[*engine.DuplicateError](err)
	require.True(t, ok, err)
	require.Zero(t, taken.Occupant)
	require.ErrorContains(t, taken, "another instance holds")

	// What a plan's filter selects lies inside. It reports what it must not touch as failed.
	plan, err := admin.Bulk(ctx, engine.VerbCancel, engine.Filter{All: true, Within: ada})
	require.NoError(t, err)
	require.EqualValues(t, 7, plan.Matched, "an instance, two roots, three nodes of these, and a child")
	plan, err = admin.Bulk(ctx, engine.VerbCancel, engine.Filter{Within: ada})
	require.NoError(t, err)
	require.Zero(t, plan.Matched, "bounds are no criterion")
	plan, err = admin.Bulk(ctx, engine.VerbCancel, engine.Filter{Step: "join", Within: ada})
	require.NoError(t, err)
	_, err = plan.Apply(ctx, within)
	require.ErrorContains(t, err, "Within")
	applied, err := plan.Apply(ctx)
	require.ErrorIs(t, err, engine.ErrOutside)
	require.Positive(t, applied.Failed)
	for name, want := range map[string]fsm.Status{
		"ada": fsm.StatusFailed, "own": fsm.StatusFailed, "mixed": fsm.StatusAwaitingChildren, "parent": fsm.StatusAwaitingChildren, "bob": fsm.StatusAwaitingSignal,
	} {
		i, err := e.Get(ctx, ids[name])
		require.NoError(t, err)
		require.Equal(t, want, i.Status, name)
	}

	failures, err := e.Failures(ctx, engine.FailuresOptions{Within: engine.Bounds{Labels: map[string]string{"tenant": "bob"}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, failures.Looked)
	require.Equal(t, ids["failed"], failures.Groups[0].Newest)
	page, err := admin.Schedules(ctx, engine.ScheduleQuery{Limit: 1, Within: ada})
	require.NoError(t, err)
	require.Equal(t, "a of ada", page.Schedules[0].Name)
	require.Empty(t, page.Next, "which would be the name of another's")
	for _, b := range []engine.Bounds{{Queues: []string{"default"}}, {Machines: []string{"bounded"}}} {
		page, err = admin.Schedules(ctx, engine.ScheduleQuery{Within: b})
		require.NoError(t, err)
		require.Len(t, page.Schedules, 3)
	}
	_, err = admin.PauseQueue(ctx, "default", within)
	require.Error(t, err, "a queue is of all")
	for _, b := range []engine.Bounds{{Queues: []string{}}, {Machines: []string{}}} { // which cover nothing
		page, err := e.List(ctx, engine.Query{Filter: engine.Filter{Within: b}})
		require.NoError(t, err)
		require.Empty(t, page.Instances)
		plan, err := admin.Bulk(ctx, engine.VerbCancel, engine.Filter{All: true, Within: b})
		require.NoError(t, err)
		require.Zero(t, plan.Matched)
		_, err = admin.Pause(ctx, ids["bob"], engine.Within(b))
		require.ErrorIs(t, err, engine.ErrNotFound)
		schedules, err := admin.Schedules(ctx, engine.ScheduleQuery{Within: b})
		require.NoError(t, err)
		require.Empty(t, schedules.Schedules)
		failures, err := e.Failures(ctx, engine.FailuresOptions{Within: b})
		require.NoError(t, err)
		require.Zero(t, failures.Looked)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := e.WithPgx(tx).Cancel(ctx, []fsm.ID{ids["parent"]}, within)
		return err
	})
	wrong, ok := errors.AsType[*engine.VerbError](err)
	require.True(t, ok, err)
	require.Equal(t, "Within", wrong.Field)
	for _, b := range []engine.Bounds{{Queues: []string{"a", ""}}, {Machines: []string{"\x00"}}, {Labels: map[string]string{"": "x"}}, {Queues: make([]string, engine.MaxBounds+1)}} {
		_, err = e.List(ctx, engine.Query{Filter: engine.Filter{Within: b}})
		bad, ok := errors.AsType[*engine.QueryError](err)
		require.True(t, ok)
		require.Contains(t, bad.Field, "Within.")
		_, err = admin.Pause(ctx, ids["ada"], engine.Within(b))
		require.ErrorContains(t, err, "Within.")
	}
}
