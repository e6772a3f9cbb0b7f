package dag_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A graph that has failed goes on by a Restart only: a Retry of its root, of a node or of a piece
// would do nothing, and says so.
func TestRetryOfWhatOnlyARestartHelps(t *testing.T) {
	t.Parallel()
	bad := true
	sums := fsm.Declare[string, int]("sums")
	g := dag.New(sums)
	list := dag.Do(g, "list", dag.In(g), func(context.Context, string) ([]int, error) { return []int{1, 2, 3}, nil })
	load := dag.Each(g, "load", list, func(_ context.Context, n int) (int, error) {
		if bad && n == 2 {
			return 0, fsm.Permanent(errors.New("bad disk"))
		}
		return n * 100, nil
	})
	total := dag.Do(g, "total", load, func(_ context.Context, all []int) (sum int, err error) {
		for _, n := range all {
			sum += n
		}
		return sum, nil
	})
	kit := durabletest.New(t, durabletest.Config{Machines: g.Return(total)})
	id, err := kit.Engine.Insert(t.Context(), sums.New("x"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	bad = false
	failed := 0
	for i, err := range kit.Engine.All(t.Context(), engine.Query{Filter: engine.Filter{Failure: []fsm.Failure{fsm.FailureError, fsm.FailureDecided, fsm.FailureSkipped}}}) {
		require.NoError(t, err)
		_, err = kit.Engine.Admin().Retry(t.Context(), i.ID)
		require.ErrorIs(t, err, engine.ErrUseRestart, "%s, %s", i.Machine, i.Failure)
		require.ErrorIs(t, err, engine.ErrConflict)
		failed++
	}
	require.Equal(t, 4, failed, "the root, load, its piece, and total")
	require.Empty(t, durabletest.RequireDrain(t, kit).Ran)
	_, err = kit.Engine.Admin().Restart(t.Context(), id)
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	got, err := sums.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, 600, got.Result)
}
