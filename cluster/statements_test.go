package cluster_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
)

// A call by a key or an id sends what the engine of its place sends. The record is read before the
// first one.
func TestACallSendsWhatItsEngineSends(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	var sent atomic.Int64
	places := make([]cluster.Place, len(s.pools))
	for i, pool := range s.pools {
		places[i] = cluster.Place{Driver: entpgx.New(pool).Around(func(ctx context.Context, _ []entpgx.Stmt, send func(context.Context) error) error {
			sent.Add(1)
			return send(ctx)
		})}
	}
	trips := func(call func()) int64 {
		before := sent.Load()
		call()
		return sent.Load() - before
	}
	c := open(t, places)
	e := c.Engine(0)
	verb := func(on interface {
		Insert(ctx context.Context, spec fsm.Spec) (fsm.ID, error)
		Signal(ctx context.Context, to fsm.Target, m fsm.Message) (engine.Delivery, error)
		Get(ctx context.Context, of fsm.Target) (fsm.RawInstance, error)
	}, n int,
	) func() {
		return func() {
			key := keyOf(0, 2, n)
			id, err := on.Insert(t.Context(), ticket.New("").Key(key))
			require.NoError(t, err)
			_, err = on.Signal(t.Context(), key, paid.With(1))
			require.NoError(t, err)
			_, err = on.Get(t.Context(), id)
			require.NoError(t, err)
		}
	}
	verb(e, 0)() // what an engine learns with its first insert
	want := trips(verb(e, 1))
	require.Equal(t, want+1, trips(verb(c, 2)), "the record")
	require.Equal(t, want, trips(verb(c, 3)))
}
