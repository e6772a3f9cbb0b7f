package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// until calls again until it holds.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	ctx := within(t)
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for !holds() {
		select {
		case <-every.C:
		case <-ctx.Done():
			t.Fatal("it never holds")
		}
	}
}

// Two of four places are down at Start: the others work, and these follow, one by one.
func TestPlacesThatAreDownAtStart(t *testing.T) {
	t.Parallel()
	s := initialised(t, 4)
	s.cutOff(1, 3)
	c := working(t, s.places, impatient)
	pending := c.Pending()
	require.Len(t, pending, 2)
	require.Equal(t, []int{1, 3}, []int{pending[0].Place, pending[1].Place})
	require.ErrorContains(t, pending[0], `place 1 (schema "gendurable")`)
	for _, place := range []int{0, 2} {
		id, err := c.Insert(t.Context(), echoes.New("works").Key(keyOf(place, 4, 0)))
		require.NoError(t, err)
		_, err = echoes.Wait(within(t), c, id)
		require.NoError(t, err)
	}
	s.restore(3)
	until(t, func() bool { return len(c.Pending()) == 1 })
	require.Equal(t, 1, c.Pending()[0].Place)
	id, err := c.Insert(within(t), echoes.New("late").Key(keyOf(3, 4, 0)))
	require.NoError(t, err)
	_, err = echoes.Wait(within(t), c, id)
	require.NoError(t, err)
	s.restore(1)
	until(t, func() bool { return len(c.Pending()) == 0 })
}

func TestNoPlaceIsThere(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	s.cutOff(0, 1)
	c := open(t, s.places, works, impatient)
	err := c.Start(t.Context())
	require.Len(t, cluster.PlaceErrors(err), 2)
	require.Equal(t, engine.StateCreated, c.State())
	s.restore(0, 1)
	require.NoError(t, c.Start(t.Context()), "it may be called again")
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, c.Stop(t.Context()), "again")
	require.ErrorIs(t, c.Start(t.Context()), engine.ErrStopped)
}

// A record that is wrong behind an outage starts nothing once it can be read.
func TestAPlaceThatComesBackWrong(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	s.cutOff(1)
	s.exec(t, 1, `COMMENT ON SEQUENCE gendurable.gen_durable_id_seq IS NULL`)
	c := working(t, s.places, impatient)
	require.NotErrorIs(t, c.Pending()[0], cluster.ErrUninitialised, "nobody knows yet")
	s.restore(1)
	until(t, func() bool { return errors.Is(c.Pending()[0], cluster.ErrUninitialised) })
	require.Equal(t, engine.StateCreated, c.Engine(1).State())
	require.NoError(t, cluster.Init(t.Context(), s.places))
	until(t, func() bool { return len(c.Pending()) == 0 })
}

// Two places are cut off while they work. Other work goes on, and afterwards so do they.
func TestPlacesThatGoDownLater(t *testing.T) {
	t.Parallel()
	s := initialised(t, 4)
	c := working(t, s.places, impatient)
	var parked [4]fsm.ID
	for place := range parked {
		id, err := c.Insert(t.Context(), ticket.New("A").Key(keyOf(place, 4, 0)))
		require.NoError(t, err)
		_, err = ticket.WaitParked(within(t), c, id, -1)
		require.NoError(t, err)
		parked[place] = id
	}
	s.cutOff(0, 2)

	for _, place := range []int{1, 3} {
		_, err := c.Signal(t.Context(), keyOf(place, 4, 0), paid.With(1))
		require.NoError(t, err)
		_, err = ticket.Wait(within(t), c, parked[place])
		require.NoError(t, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Signal(short, keyOf(2, 4, 0), paid.With(1).DedupKey("d"))
	require.Equal(t, 2, placeError(t, err).Place)
	short, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.Get(short, parked[0])
	require.Equal(t, 0, placeError(t, err).Place)

	// Without a key, another place takes it.
	for range 8 {
		id, err := c.Insert(within(t), echoes.New("anywhere"))
		require.NoError(t, err)
		require.Contains(t, []int{1, 3}, cluster.PlaceOfID(id))
	}

	// A call to all places names the places that it lacks.
	page, err := c.List(t.Context(), engine.Query{})
	lacking := cluster.PlaceErrors(err)
	require.Len(t, lacking, 2)
	require.Equal(t, []int{0, 2}, []int{lacking[0].Place, lacking[1].Place})
	require.Len(t, page.Instances, 10)
	require.NotEmpty(t, page.Next)
	counts, err := c.Counts(t.Context(), engine.CountsOptions{})
	require.NoError(t, err)
	require.False(t, counts.Complete)
	require.Len(t, counts.Lacks, 2)
	text, err := json.Marshal(counts)
	require.NoError(t, err)
	require.Contains(t, string(text), `"lacks":[{"error":`)
	_, err = c.Admin().PauseQueue(t.Context(), "another")
	require.Len(t, cluster.PlaceErrors(err), 2)
	plan, err := c.Admin().Bulk(t.Context(), engine.VerbCancel, engine.Filter{Machine: "ticket", Status: []fsm.Status{fsm.StatusDone}})
	require.NoError(t, err)
	require.Len(t, plan.Lacks, 2)
	count := 0
	var last error
	for _, err := range c.All(t.Context(), engine.Query{Limit: 3}) {
		if last = err; err == nil {
			count++
		}
	}
	require.Equal(t, 10, count)
	require.Len(t, cluster.PlaceErrors(last), 2)

	s.restore(0, 2)
	following, err := c.List(within(t), engine.Query{After: page.Next})
	require.NoError(t, err)
	require.Len(t, following.Instances, 2, "what was left out")
	for _, place := range []int{0, 2} {
		_, err := c.Signal(within(t), parked[place], paid.With(1).DedupKey("d"))
		require.NoError(t, err)
		_, err = ticket.Wait(within(t), c, parked[place])
		require.NoError(t, err)
	}
}

func TestAllPlacesAreDown(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	c := open(t, s.places, impatient)
	s.cutOff(0, 1)
	_, err := c.Counts(t.Context(), engine.CountsOptions{})
	require.Len(t, cluster.PlaceErrors(err), 2)
	_, err = c.Admin().Bulk(t.Context(), engine.VerbCancel, engine.Filter{All: true})
	require.Len(t, cluster.PlaceErrors(err), 2)
	page, err := c.List(t.Context(), engine.Query{})
	require.Len(t, cluster.PlaceErrors(err), 2)
	require.Empty(t, page.Instances)
	for _, err := range c.Admin().AllSchedules(t.Context()) {
		require.Error(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.Insert(ctx, echoes.New(""))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Where the answer of a place was lost, an insert without a key goes to no other: it may be there
// already.
func TestAnInsertWithoutAnAnswerIsNotMadeElsewhere(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	c := open(t, s.places)
	for range 4 { // so that one request has the whole transaction
		_, err := c.Insert(t.Context(), ticket.New(""))
		require.NoError(t, err)
	}
	s.unpinged.Store(true)
	s.mu.Lock()
	s.deaf[0], s.deaf[1] = true, true
	s.mu.Unlock()
	_, err := c.Insert(within(t), ticket.New("once").Label("of", "it"))
	require.ErrorIs(t, err, engine.ErrUnknown)
	place := placeError(t, err).Place
	s.mu.Lock()
	clear(s.deaf)
	s.mu.Unlock()
	until(t, func() bool {
		page, err := c.List(t.Context(), engine.Query{Filter: engine.Filter{Labels: map[string]string{"of": "it"}}})
		require.NoError(t, err)
		return len(page.Instances) == 1 && cluster.PlaceOfID(page.Instances[0].ID) == place
	})
}

// Of an InsertMany each place takes its part, or not.
func TestInsertManySaysWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := open(t, s.places)
	specs := make([]fsm.Spec, 9)
	for i := range specs {
		specs[i] = ticket.New("").Key(keyOf(i%3, 3, i))
	}
	_, err := c.Insert(t.Context(), specs[3])
	require.NoError(t, err)
	s.cutOff(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done, err := c.InsertMany(ctx, specs)
	require.Equal(t, 1, placeError(t, err).Place)
	require.Len(t, cluster.PlaceErrors(err), 1)
	for i, one := range done {
		require.Equal(t, i%3, one.Place)
		require.Equal(t, i == 3, one.Duplicate)
		if one.Place == 1 {
			require.Equal(t, 1, placeError(t, one.Err).Place)
			require.Zero(t, one.ID)
			continue
		}
		require.NoError(t, one.Err)
		got, err := c.Get(t.Context(), one.ID)
		require.NoError(t, err)
		require.Equal(t, specs[i].Options().Key, got.Key)
	}
	s.restore(1)
	done, err = c.InsertMany(within(t), specs)
	require.NoError(t, err)
	for i, one := range done {
		require.Equal(t, i%3 != 1, one.Duplicate)
	}

	// A fault of a spec refuses its part, by its index in the whole.
	more := []fsm.Spec{ticket.New("").Key(keyOf(0, 3, 100)), ticket.New("").Key(keyOf(1, 3, 100)), ticket.New("").Key(keyOf(1, 3, 101)).Priority(1 << 20)}
	done, err = c.InsertMany(t.Context(), more)
	require.ErrorContains(t, err, "spec 2: priority")
	require.NoError(t, done[0].Err)
	require.Error(t, done[1].Err)
	none, err := c.InsertMany(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// Of a SignalMany each place delivers its letters, or not.
func TestSignalManySaysWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := open(t, s.places)
	var letters []engine.Letter
	for i := range 6 {
		key := keyOf(i%3, 3, i)
		id, err := c.Insert(t.Context(), ticket.New("").Key(key))
		require.NoError(t, err)
		to := fsm.Target(key)
		if i < 3 {
			to = id
		}
		letters = append(letters, engine.Letter{To: to, Message: paid.With(i).DedupKey("once")})
	}
	letters = append(letters, engine.Letter{To: fsm.ID(7 << 44), Message: paid.With(0)}, engine.Letter{To: keyOf(0, 3, 77), Message: paid.With(0)})
	s.cutOff(1)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done, err := c.SignalMany(short, letters)
	require.Equal(t, 1, placeError(t, err).Place)
	require.Len(t, cluster.PlaceErrors(err), 1)
	require.Len(t, done, len(letters))
	for i, one := range done {
		switch {
		case i >= 6:
			require.ErrorIs(t, one.Err, engine.ErrNoTarget)
		case i%3 == 1:
			require.Equal(t, 1, placeError(t, one.Err).Place)
		default:
			require.NoError(t, one.Err)
			require.Equal(t, i%3, cluster.PlaceOfID(one.To))
			require.False(t, one.Duplicate)
		}
	}
	s.restore(1)
	done, err = c.SignalMany(within(t), letters[:6])
	require.NoError(t, err)
	for i, one := range done {
		require.NoError(t, one.Err)
		require.Equal(t, i%3 != 1, one.Duplicate)
	}

	// A fault of a letter refuses all letters of its place, by its index in the whole.
	wrong := fsm.DeclareSignal[int](strings.Repeat("x", 600)).With(1)
	done, err = c.SignalMany(t.Context(), []engine.Letter{
		{To: keyOf(0, 3, 0), Message: paid.With(8)}, {To: keyOf(1, 3, 1), Message: paid.With(8)}, {To: keyOf(1, 3, 4), Message: wrong},
	})
	at, ok := errors.AsType[*engine.SignalError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 2, at.Index)
	require.NoError(t, done[0].Err)
	require.Error(t, done[1].Err)
	none, err := c.SignalMany(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
