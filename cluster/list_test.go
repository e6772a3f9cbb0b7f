package cluster_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Each instance of before comes once, in the order of the insertions, although others are inserted
// meanwhile. The databases have one clock here.
func TestListsAreMergedInOrder(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 3).places)
	var inserted []fsm.ID
	for n := range 60 {
		// Most are at one place, so that its share of a page is not enough.
		place := 0
		if n%5 == 0 {
			place = 1 + n/5%2
		}
		id, err := c.Insert(t.Context(), ticket.New("").Key(keyOf(place, 3, n)).Label("of", fmt.Sprint(n%2)))
		require.NoError(t, err)
		inserted = append(inserted, id)
	}
	for _, oldest := range []bool{false, true} {
		for _, limit := range []int{1, 7, 45, 1000} {
			for _, labels := range []map[string]string{nil, {"of": "1"}} {
				listAll(t, c, engine.Query{Filter: engine.Filter{Labels: labels, KeyPrefix: "key-"}, OldestFirst: oldest, Limit: limit}, inserted)
			}
		}
	}
}

func listAll(t *testing.T, c *cluster.Cluster, q engine.Query, inserted []fsm.ID) {
	t.Helper()
	stop := make(chan struct{})
	var inserting sync.WaitGroup
	inserting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := c.Insert(t.Context(), ticket.New("").Label("of", "1")); err != nil {
					return
				}
			}
		}
	})
	var listed []fsm.ID
	pages := 0
	for query := q; ; pages++ {
		page, err := c.List(t.Context(), query)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Instances), q.Limit)
		for _, i := range page.Instances {
			listed = append(listed, i.ID)
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
		if pages == 2 { // the lists end
			close(stop)
			inserting.Wait()
		}
	}
	if pages < 3 {
		close(stop)
		inserting.Wait()
	}
	var want []fsm.ID
	for n, id := range inserted {
		if q.Labels == nil || n%2 == 1 {
			want = append(want, id)
		}
	}
	if !q.OldestFirst {
		for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
			want[i], want[j] = want[j], want[i]
		}
	}
	require.Equal(t, want, listed, "%+v", q)
}

func TestPagesOfAllPlaces(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 2).places)
	empty, err := c.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	require.NotNil(t, empty.Instances, "hosts serve it as JSON")
	require.Empty(t, empty.Next)
	for range 10 {
		_, err := c.Insert(t.Context(), ticket.New(""))
		require.NoError(t, err)
	}
	page, err := c.List(t.Context(), engine.Query{Limit: 3})
	require.NoError(t, err)
	require.Len(t, page.Instances, 3)
	_, err = ticket.List(t.Context(), c, fsm.Query{Limit: 3})
	require.NoError(t, err)
	for field, q := range map[string]engine.Query{
		"After":   {After: "no cursor"},
		"Limit":   {Limit: -1},
		"Version": {Filter: engine.Filter{Version: -1}},
	} {
		_, err := c.List(t.Context(), q)
		wrong, ok := errors.AsType[*engine.QueryError](err)
		require.True(t, ok, "%s: %v", field, err)
		require.Equal(t, field, wrong.Field)
	}
	_, err = c.List(t.Context(), engine.Query{After: page.Next, OldestFirst: true})
	require.ErrorContains(t, err, "it comes from a query with another Filter or order")
	_, err = c.List(t.Context(), engine.Query{Limit: fsm.MaxLimit + 1})
	require.ErrorContains(t, err, "Limit")
	_, err = open(t, initialised(t, 3).places).List(t.Context(), engine.Query{After: page.Next})
	require.ErrorContains(t, err, "it comes from a cluster of 2 places, and this one has 3")
	seen := map[fsm.ID]bool{}
	all := c.All(t.Context(), engine.Query{Limit: 3})
	for range 2 { // a sequence may be ranged over again
		for i, err := range all {
			require.NoError(t, err)
			seen[i.ID] = true
		}
	}
	require.Len(t, seen, 10)
	for range all {
		break
	}
	for _, err := range c.All(t.Context(), engine.Query{Limit: -1}) {
		require.ErrorContains(t, err, "Limit")
	}
}

// A list of some places resumes the others behind their last row.
func TestListAtSomePlaces(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := open(t, s.places, impatient)
	ids := map[int]fsm.ID{}
	for place := range 3 {
		id, err := c.Engine(place).Insert(t.Context(), ticket.New(""))
		require.NoError(t, err)
		ids[place] = id
		require.NoError(t, c.Reach(t.Context(), place))
	}
	s.cutOff(1)
	require.Equal(t, 1, placeError(t, c.Reach(t.Context(), 1)).Place)
	require.ErrorIs(t, c.Reach(t.Context(), 3), engine.ErrNotFound)
	page, err := c.ListAt(t.Context(), engine.Query{}, []int{0, 2})
	require.NoError(t, err, "nobody has asked the place that is down")
	require.Len(t, page.Instances, 2)
	require.Equal(t, ids[2], page.Instances[0].ID)
	page, err = c.ListAt(t.Context(), engine.Query{After: page.Next}, []int{0, 2})
	require.NoError(t, err)
	require.Empty(t, page.Instances)
	require.NotEmpty(t, page.Next)
	s.restore(1)
	page, err = c.List(t.Context(), engine.Query{After: page.Next})
	require.NoError(t, err)
	require.Len(t, page.Instances, 1)
	require.Equal(t, ids[1], page.Instances[0].ID)
	require.Empty(t, page.Next)
}
