package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Why says of an instance that has failed what Retry would say, and names the one whose Restart
// runs it again, if there is one.
func TestWhySaysWhatARestartIsFor(t *testing.T) {
	t.Parallel()
	night, part := fsm.Declare[string, string]("night"), fsm.Declare[string, string]("brood")
	fails := errors.New("no")
	whole := night.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.ScheduleGraph("join", v.State, fsm.Node("bad", part.New("brood")), fsm.Node("late", part.New("")).After("bad"),
				fsm.Node("other", part.New(map[bool]string{true: "wait"}[v.State == "waits"]))), nil
		}),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			if v.State == "fails" {
				return v.Fail(fails), nil
			}
			return v.Done(""), nil
		}))
	pieces := part.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			switch v.State {
			case "brood":
				return v.ScheduleChildren("join", v.State, part.New("leaf")), nil
			case "leaf":
				return v.Fail(fails), nil
			case "wait":
				return v.Await("join", v.State, paid), nil
			}
			return v.Done(""), nil
		}),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Fail(fails), nil }))
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, rarely, func(c *engine.Config) { c.Machines = []fsm.Definition{whole, pieces} })

	const root, none = "root", ""
	for name, want := range map[string]map[string]string{ // by the state of the root, what is restarted for whom
		"fails": {root: root, "bad": root, "late": root, "leaf": root},
		"waits": {"bad": "bad", "late": root, "leaf": "bad"},
		"goes":  {"bad": none, "late": none, "leaf": none},
	} {
		for which, instead := range want {
			id, err := e.Insert(t.Context(), night.New(name))
			require.NoError(t, err)
			ids := map[string]fsm.ID{root: id}
			ended := func() bool {
				for node, sql := range map[string]string{
					"bad":  `SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node = 'bad' AND status = 'failed'`,
					"late": `SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node = 'late' AND status = 'failed'`,
					"leaf": `SELECT k.id FROM gendurable.gen_durable k JOIN gendurable.gen_durable n ON n.id = k.parent_id WHERE n.parent_id = $1 AND n.node = 'bad'`,
					"root": `SELECT id FROM gendurable.gen_durable WHERE id = $1 AND (status IN ('done', 'failed') OR status = 'awaiting_children' AND children_pending = 1)`,
				} {
					one := ids[node]
					if pool.QueryRow(t.Context(), sql, id).Scan(&one) != nil {
						return false
					}
					ids[node] = one
				}
				return true
			}
			require.Eventually(t, ended, testPatience, testGlance)

			var causes []engine.Cause
			require.Eventually(t, func() bool { // the root may still be about to end
				causes, err = e.Admin().Why(t.Context(), ids[which])
				return err == nil && len(causes) == 1 && (len(causes[0].IDs) == 0) == (instead == none)
			}, testPatience, testGlance)
			require.Len(t, causes, 1)
			require.True(t, causes[0].UseRestart, "%s of a root that %s", which, name)
			_, err = e.Admin().Retry(t.Context(), ids[which])
			require.ErrorIs(t, err, engine.ErrUseRestart, "%s of a root that %s", which, name)
			if instead == none {
				require.Empty(t, causes[0].IDs, "%s of a root that %s", which, name)
				require.Contains(t, causes[0].String(), "nobody waits for it any more")
				if which != "leaf" {
					_, err = e.Admin().Restart(t.Context(), ids[which])
					require.ErrorIs(t, err, engine.ErrConflict)
				}
				continue
			}
			require.Equal(t, []fsm.ID{ids[instead]}, causes[0].IDs, "%s of a root that %s", which, name)
			require.Contains(t, causes[0].String(), "; a Restart of instance ")
			done, err := e.Admin().Restart(t.Context(), causes[0].IDs[0])
			require.NoError(t, err)
			require.True(t, done.ID == ids[which] || slices.Contains(done.Descendants, ids[which]), "%s of a root that %s", which, name)
		}
	}

	alone, err := e.Insert(t.Context(), part.New("leaf"))
	require.NoError(t, err)
	_, err = part.Wait(within(t), e, alone)
	require.Error(t, err)
	causes, err := e.Admin().Why(t.Context(), alone)
	require.NoError(t, err)
	require.False(t, causes[0].UseRestart)
	require.NotContains(t, causes[0].String(), "Restart")
	_, err = e.Admin().Retry(t.Context(), alone)
	require.NoError(t, err)
}
