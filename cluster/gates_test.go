package cluster_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestGatesAreSetEverywhere(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 2).places)
	admin := c.Admin()
	gate := engine.Gate{Name: "per-customer", Label: "customer", Places: 3}
	for _, want := range []bool{true, false} {
		changed, err := admin.SetGate(t.Context(), gate)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	changed, err := admin.CloseGate(t.Context(), "per-customer/acme", time.Time{})
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = admin.SetGateWeight(t.Context(), "per-customer/acme", 5)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = admin.SetGatePlaces(t.Context(), "per-customer/acme", 9)
	require.NoError(t, err)
	require.True(t, changed)
	gates, err := admin.Gates(t.Context())
	require.NoError(t, err)
	require.Len(t, gates, 2)
	for place := range 2 {
		require.Equal(t, place, gates[place].Place)
		require.Equal(t, gate, gates[place].Gate)
		keys, err := c.Engine(place).Admin().GateKeys(t.Context(), "per-customer")
		require.NoError(t, err)
		require.Len(t, keys, 1)
		require.Equal(t, engine.GateForGood, keys[0].ClosedUntil)
		require.Equal(t, 5, keys[0].Weight)
	}
	changed, err = admin.OpenGate(t.Context(), "per-customer/acme")
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = admin.DropGate(t.Context(), "per-customer")
	require.NoError(t, err)
	require.True(t, changed)
	gates, err = admin.Gates(t.Context())
	require.NoError(t, err)
	require.Empty(t, gates)

	_, err = admin.SetGate(t.Context(), engine.Gate{Name: "a/b", Places: 1})
	var bad *engine.VerbError
	require.ErrorAs(t, err, &bad)
	require.Empty(t, cluster.PlaceErrors(err), "it is wrong at each place")
}

// Instances whose keys have the customer as their tag are at one place, so that one place's gate
// bounds all of the customer's.
func TestAGateBoundsWhatHasOneTag(t *testing.T) {
	t.Parallel()
	const bound, each = 2, 6
	var now [2]atomic.Int64
	var over atomic.Bool
	end := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	visit := fsm.Declare[int, int]("visit")
	c := open(t, initialised(t, 2).places, works, func(config *cluster.Config) {
		config.Engine.Machines = []fsm.Definition{visit.Job(func(ctx context.Context, customer int) (int, error) {
			if now[customer].Add(1) > bound {
				over.Store(true)
			}
			defer now[customer].Add(-1)
			select {
			case <-end[customer]:
			case <-ctx.Done():
			}
			return customer, ctx.Err()
		})}
	})
	_, err := c.Admin().SetGate(t.Context(), engine.Gate{Name: "per-customer", Label: "customer", Places: bound})
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	var ids []fsm.ID
	for customer := range 2 {
		tag := keyOf(customer, 2, 0)
		for n := range each {
			key := fsm.Key(fmt.Sprintf("visit-%d{%s}", n, tag))
			id, err := c.Insert(t.Context(), visit.New(customer).Key(key).Label("customer", string(tag)))
			require.NoError(t, err)
			require.Equal(t, customer, cluster.PlaceOfID(id))
			ids = append(ids, id)
		}
	}
	for n := range each {
		for customer := range 2 {
			running := int64(min(bound, each-n))
			require.Eventually(t, func() bool { return now[customer].Load() == running }, time.Minute, time.Millisecond)
			end[customer] <- struct{}{}
		}
	}
	for _, id := range ids {
		_, err := visit.Wait(t.Context(), c, id)
		require.NoError(t, err)
	}
	require.False(t, over.Load())
}
