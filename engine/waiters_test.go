package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// table is the table at which waiters look.
type table struct {
	mu    sync.Mutex
	ended []int64
	looks [][]int64
	err   error
}

func (t *table) look(_ context.Context, ids []int64) (ended []int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(ids)
	t.looks = append(t.looks, ids)
	for _, id := range ids {
		if slices.Contains(t.ended, id) {
			ended = append(ended, id)
		}
	}
	return ended, t.err
}

func (t *table) end(ids ...int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, ids...)
}

func (t *table) seen() [][]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.looks)
}

func (t *table) number() int { return len(t.seen()) }

// waiting starts a wait and returns where its result will come.
func waiting(ctx context.Context, w *waiters[int64], id int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.wait(ctx, id) }()
	synctest.Wait()
	return done
}

// pass lets a time of the bubble go by, which takes none.
func pass(d time.Duration) { <-time.After(d) }

func idle(t *testing.T, w *waiters[int64]) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.waiting)
	require.Zero(t, w.number.Load())
	require.Nil(t, w.cancel, "nobody looks where nobody waits")
}

func TestWaitersAreToldAtOnceOfWhatEndsHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		w := newWaiters(rows.look, slog.Default())
		one, same, other := waiting(t.Context(), w, 1), waiting(t.Context(), w, 1), waiting(t.Context(), w, 2)
		w.ended([]int64{3, 1})
		require.NoError(t, <-one)
		require.NoError(t, <-same)
		require.Zero(t, rows.number(), "without a look")
		w.ended([]int64{2})
		require.NoError(t, <-other)
		idle(t, w)
	})
}

func TestWaitersLookTogetherAndEverMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		w := newWaiters(rows.look, slog.Default())
		var all []<-chan error
		var ids []int64
		for id := range int64(500) {
			ids = append(ids, id)
			all = append(all, waiting(t.Context(), w, id))
		}
		pass(firstLook + time.Millisecond)
		synctest.Wait()
		require.Equal(t, [][]int64{ids}, rows.seen(), "one statement for all")

		pass(10 * time.Second)
		synctest.Wait()
		before := rows.number()
		require.Less(t, before, 20)
		pass(10 * lastLook)
		synctest.Wait()
		require.Equal(t, 10, rows.number()-before)

		rows.end(ids...)
		pass(lastLook)
		for _, done := range all {
			require.NoError(t, <-done)
		}
		idle(t, w)
	})
}

// A new waiter is looked after soon, however long the others have been waiting; however many come,
// the statements stay few.
func TestWaitersThatComeOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		w := newWaiters(rows.look, slog.Default())
		old := waiting(t.Context(), w, 1)
		pass(time.Minute)
		rows.end(2)
		start := time.Now()
		require.NoError(t, <-waiting(t.Context(), w, 2))
		require.LessOrEqual(t, time.Since(start), 2*firstLook)

		before := rows.number()
		ctx, cancel := context.WithCancel(t.Context())
		var crowd []<-chan error
		for id := range int64(1000) {
			crowd = append(crowd, waiting(ctx, w, 100+id))
			pass(time.Millisecond)
		}
		require.LessOrEqual(t, rows.number()-before, int(time.Second/firstLook)+1)
		cancel()
		for _, done := range crowd {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		w.ended([]int64{1})
		require.NoError(t, <-old)
		idle(t, w)
	})
}

func TestWaitersOutliveALostDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{err: errors.New("connection refused")}
		var log strings.Builder
		w := newWaiters(rows.look, slog.New(slog.NewTextHandler(&log, nil)))
		done := waiting(t.Context(), w, 1)
		pass(time.Minute)
		rows.mu.Lock()
		rows.err = nil
		rows.mu.Unlock()
		rows.end(1)
		require.NoError(t, <-done)
		idle(t, w)
		require.Equal(t, 1, strings.Count(log.String(), "connection refused"))
	})
}

func TestWaitersEndWithTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters((&table{}).look, slog.Default())
		done := waiting(t.Context(), w, 1)
		w.stop()
		w.stop()
		require.ErrorIs(t, <-done, ErrStopped)
		require.ErrorIs(t, w.wait(t.Context(), 2), ErrStopped)
		idle(t, w)
	})
}

func TestWaitersReturnTheCauseOfTheirContextsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters((&table{}).look, slog.Default())
		cause := errors.New("the client hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := waiting(ctx, w, 1)
		cancel(cause)
		require.ErrorIs(t, <-done, cause)
		idle(t, w)
	})
}
