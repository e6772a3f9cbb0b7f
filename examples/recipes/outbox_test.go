package recipes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

const orders = `CREATE TABLE orders (id bigint PRIMARY KEY, cents bigint NOT NULL CHECK (cents > 0))`

func TestWhatIsCommittedIsPublished(t *testing.T) {
	t.Parallel()
	var published []OrderPlaced
	kit := kitWith(t, orders, Publish.Job(func(_ context.Context, o OrderPlaced) (fsm.None, error) {
		published = append(published, o)
		return fsm.None{}, nil
	}))
	good := []OrderPlaced{{1, 100}, {2, 200}, {3, 300}}
	for _, o := range good {
		require.NoError(t, place(t.Context(), kit.Pool, kit.Engine, o))
	}
	require.Error(t, place(t.Context(), kit.Pool, kit.Engine, OrderPlaced{4, -1}))
	require.Error(t, place(t.Context(), kit.Pool, kit.Engine, OrderPlaced{1, 100}))
	durabletest.RequireDrain(t, kit)
	require.ElementsMatch(t, good, published)
	require.Equal(t, len(good), count(t, kit, `SELECT count(*) FROM orders`))
}

func TestAMessageIsHandledOnce(t *testing.T) {
	t.Parallel()
	handled := 0
	kit := kitWith(t, "", Handle.Job(func(context.Context, OrderPlaced) (fsm.None, error) {
		handled++
		return fsm.None{}, nil
	}))
	for range 3 {
		require.NoError(t, receive(t.Context(), kit.Engine, "m1", OrderPlaced{1, 100}))
		durabletest.RequireDrain(t, kit) // also once it has ended
	}
	require.NoError(t, receive(t.Context(), kit.Engine, "m2", OrderPlaced{2, 100}))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, 2, handled)
}
