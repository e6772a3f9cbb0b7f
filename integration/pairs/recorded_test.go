package pairs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Beside more blocked keys than one claim visits, a Take that finds nothing goes around all lines
// once. It sent a thousand claims before, and a case tens of thousands.
func TestAHandGoesAroundBlockedKeysOnce(t *testing.T) {
	t.Parallel()
	var claims atomic.Int64
	b := newBase(t, func(queries []*pgx.QueuedQuery) {
		for _, q := range queries {
			if strings.Contains(q.SQL, "set_config('gendurable.lined', coalesce(") {
				claims.Add(1)
			}
		}
	})
	c := Case{Life: []string{"blocked", "join"}, Verb: "none", Fault: "none", Seed: 2}
	violations, story, err := play(t, b, c)
	require.NoError(t, err, story)
	require.Empty(t, violations, story)
	require.Positive(t, claims.Load())
	require.Less(t, claims.Load(), int64(1000))
	t.Logf("%d claims", claims.Load())
}

// A decision that runs again commits, though a node that it has made wait for another one has begun
// by now.
func TestADecisionRunsAgain(t *testing.T) {
	t.Parallel()
	require.Empty(t, decideAgain(t))
}

// What a faulty converter has paused goes on once Apply has converted it.
func TestApplyEndsThePauseOfAFaultyConverter(t *testing.T) {
	t.Parallel()
	require.Empty(t, pausedByConverter(t))
}

// A loser that an operator has retried goes on, though a sibling is locked and its round stays due.
func TestARetriedLoserGoesOn(t *testing.T) {
	t.Parallel()
	require.Empty(t, retriedLoser(t))
}

// A portion of a stream that is above the limit is shown in parts, each end once.
func TestALargePortionIsShownInParts(t *testing.T) {
	t.Parallel()
	var shown []int
	k := kit(t, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		return v.ScheduleChildren("end", "", plainLeaf.New("one"), plainLeaf.New("two"), plainLeaf.New("three")).Stream(3), nil
	}, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		shown = append(shown, len(v.Children()))
		if v.Round().Left > 0 {
			return v.Rejoin("end", v.State).Stream(3), nil
		}
		return v.Done(v.State), nil
	}, done, func(c *engine.Config) { c.Limits.ChildrenBytes = 500 }) // of two children
	id, err := k.Engine.Insert(t.Context(), plainRoot.New("").Priority(1)) // so that all pieces have ended when it goes on
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	i, err := k.Engine.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
	require.Equal(t, []int{2, 1}, shown)
}

type plainVisit = fsm.Visit[string, string]

var (
	plainRoot = fsm.Declare[string, string]("plain.root")
	plainLeaf = fsm.Declare[string, string]("plain.leaf")
	errBad    = errors.New("bad")
)

// kit is a kit on a root and a leaf.
func kit(t *testing.T, rootStep, end, leaf func(ctx context.Context, v *plainVisit) (fsm.Outcome, error), options func(*engine.Config)) *durabletest.Kit {
	return durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Options: options, Machines: []fsm.Definition{
		plainRoot.Define(fsm.Step("start", rootStep), fsm.Step("end", end)),
		plainLeaf.Define(fsm.Step("start", leaf), fsm.Step("more", func(_ context.Context, v *plainVisit) (fsm.Outcome, error) { return v.Done(v.State), nil })),
	}})
}

func done(_ context.Context, v *plainVisit) (fsm.Outcome, error) { return v.Done(v.State), nil }

// childOf returns the child of an instance with a state.
func childOf(t *testing.T, k *durabletest.Kit, of fsm.ID, state string) fsm.RawInstance {
	for i, err := range k.Engine.All(t.Context(), engine.Query{Filter: engine.Filter{Parent: of}}) {
		require.NoError(t, err)
		if string(i.State) == fmt.Sprintf("%q", state) {
			return i
		}
	}
	require.Failf(t, "no such child", "%q", state)
	return fsm.RawInstance{}
}

func decideAgain(t *testing.T) string {
	bad := true
	k := kit(t, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		return v.ScheduleGraph("end", v.State, fsm.Node("check", plainLeaf.New("check")), fsm.Node("report", plainLeaf.New("report")).AfterEnd("check")), nil
	}, done, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		alert := fsm.Node("alert", plainLeaf.New("alert")).BeforeEnd("report")
		switch {
		case v.State == "check" && bad:
			return v.Fail(errBad).Add(alert), nil
		case v.State == "check":
			return v.Done("good").Add(alert), nil
		case v.State == "report":
			return v.Await("more", v.State, word), nil
		}
		return v.Done(v.State), nil
	}, nil)
	id, err := k.Engine.Insert(t.Context(), plainRoot.New(""))
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	bad = false
	check := childOf(t, k, id, "check")
	_, err = k.Engine.Admin().Restart(t.Context(), check.ID)
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	if check = childOf(t, k, id, "check"); check.Status != fsm.StatusDone {
		return check.LastError
	}
	return ""
}

func retriedLoser(t *testing.T) string {
	k := kit(t, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		return v.ScheduleChildren("end", "", plainLeaf.New("winner"), plainLeaf.New("loser"), plainLeaf.New("locked")).Race().CancelRest(), nil
	}, func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
		return v.Await("end", v.State, letter), nil
	},
		func(_ context.Context, v *plainVisit) (fsm.Outcome, error) {
			if v.State == "winner" {
				return v.Done(""), nil
			}
			return v.Await("more", v.State, word), nil
		}, nil)
	id, err := k.Engine.Insert(t.Context(), plainRoot.New(""))
	require.NoError(t, err)
	_, _, err = k.DrainOne(t.Context())
	require.NoError(t, err)
	for _, state := range []string{"loser", "locked"} {
		_, err = k.Step(t.Context(), childOf(t, k, id, state).ID)
		require.NoError(t, err)
	}
	tx, err := k.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it only locks
	_, err = tx.Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, int64(childOf(t, k, id, "locked").ID))
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	loser := childOf(t, k, id, "loser")
	require.Equal(t, fsm.FailureCancelled, loser.Failure)
	_, err = k.Engine.Admin().Retry(t.Context(), loser.ID)
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	if loser = childOf(t, k, id, "loser"); loser.Failure == fsm.FailureCancelled {
		return "it is " + loser.LastError + " again"
	}
	return ""
}

func pausedByConverter(t *testing.T) string {
	older, newer := fsm.Declare[string, string]("plain.versions"), fsm.Declare[string, string]("plain.versions", fsm.Version(2))
	faulty := true
	k := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{newer.Define(fsm.Step("start", done)).
		From(fsm.Migrate(older, newer, func(s string) (string, error) {
			if faulty {
				return "", errBad
			}
			return s, nil
		}, fsm.StepNames{"start": "start"}))}})
	id, err := k.Engine.Insert(t.Context(), older.New(""))
	require.NoError(t, err)
	durabletest.RequireDrain(t, k)
	faulty = false
	plan, err := k.Engine.Admin().Migrate(t.Context(), newer.Name(), 1, 2)
	require.NoError(t, err)
	_, err = plan.Apply(t.Context())
	require.NoError(t, err)
	i, err := k.Engine.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 2, i.Version)
	if i.Paused {
		return "it is paused: " + i.LastError
	}
	return ""
}
