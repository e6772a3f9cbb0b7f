package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// attempts records, per instance, what the executions of a job saw.
type attempts struct {
	mu   sync.Mutex
	all  map[fsm.ID][]int
	keys map[fsm.ID]map[string]bool
	at   map[fsm.ID][]time.Time
}

func (a *attempts) note(ctx context.Context) int {
	i, _ := fsm.InfoFrom(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all, a.keys, a.at = map[fsm.ID][]int{}, map[fsm.ID]map[string]bool{}, map[fsm.ID][]time.Time{}
	}
	if a.keys[i.ID] == nil {
		a.keys[i.ID] = map[string]bool{}
	}
	a.all[i.ID] = append(a.all[i.ID], i.Attempt)
	a.keys[i.ID][i.IdempotencyKey()] = true
	a.at[i.ID] = append(a.at[i.ID], time.Now())
	return i.Attempt
}

// soon retries at once, so that tests need not wait.
func soon(most int) fsm.RetryPolicy {
	return fsm.RetryPolicy{MaxAttempts: most, Delay: func(int) time.Duration { return time.Millisecond }}
}

func TestAJobIsRetriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	var a attempts
	m := fsm.Declare[int, int]("flaky")
	eng := start(t, config(t, m.Job(func(ctx context.Context, failures int) (int, error) {
		if n := a.note(ctx); n < failures {
			return 0, errors.New("not yet")
		}
		return failures, nil
	}).Retry(soon(10))))
	id := insert(t, eng, m.New(4))
	i := ended(t, eng, id)
	require.Equal(t, fsm.StatusDone, i.Status)
	require.Equal(t, []int{0, 1, 2, 3, 4}, a.all[id])
	require.Len(t, a.keys[id], 1, "the idempotency key changed")
	require.Empty(t, i.LastError, "it succeeded in the end")
	require.Equal(t, 4, i.Attempt)
}

func TestAJobOutOfAttemptsIsExhausted(t *testing.T) {
	t.Parallel()
	var a attempts
	m := fsm.Declare[int, int]("hopeless")
	eng := start(t, config(t, m.Job(func(ctx context.Context, _ int) (int, error) {
		a.note(ctx)
		return 0, errors.New("never")
	}).Retry(soon(3))))
	id := insert(t, eng, m.New(0))
	_, err := m.Wait(t.Context(), eng, id)
	var failed *fsm.FailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, fsm.FailureExhausted, failed.Failure)
	require.Equal(t, "never", failed.Message)
	require.Equal(t, []int{0, 1, 2}, a.all[id])
}

func TestAPermanentErrorEndsAJobAtOnce(t *testing.T) {
	t.Parallel()
	var a attempts
	m := fsm.Declare[int, int]("refused")
	eng := start(t, config(t, m.Job(func(ctx context.Context, _ int) (int, error) {
		a.note(ctx)
		return 0, fsm.Permanent(errors.New("card stolen"))
	})))
	id := insert(t, eng, m.New(0))
	i := ended(t, eng, id)
	require.Equal(t, fsm.FailureError, i.Failure)
	require.Equal(t, "card stolen", i.LastError)
	require.Len(t, a.all[id], 1)
}

func TestRetryAfterDelaysByWhatTheErrorSays(t *testing.T) {
	t.Parallel()
	const wait = 300 * time.Millisecond
	var a attempts
	m := fsm.Declare[int, int]("throttled")
	eng := start(t, config(t, m.Job(func(ctx context.Context, _ int) (int, error) {
		if a.note(ctx) == 0 {
			return 0, fsm.RetryAfter(wait, errors.New("busy"))
		}
		return 1, nil
	}).Retry(fsm.RetryPolicy{Base: time.Hour, Max: time.Hour})))
	id := insert(t, eng, m.New(0))
	allDone(t, eng, id)
	require.GreaterOrEqual(t, a.at[id][1].Sub(a.at[id][0]), wait)
}

// A waiting retry shows its error, and does not hold a slot.
func TestARetryThatWaitsHoldsNoSlot(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[bool, int]("waiting")
	eng := start(t, narrow(config(t, m.Job(func(_ context.Context, fails bool) (int, error) {
		if fails {
			return 0, errors.New("later")
		}
		return 1, nil
	}).Retry(fsm.RetryPolicy{Base: time.Hour, Max: time.Hour}))))
	waits := insert(t, eng, m.New(true))
	eventually(t, func() bool { return get(t, eng, waits).Attempt == 1 })
	allDone(t, eng, insert(t, eng, m.New(false)))
	i := get(t, eng, waits)
	require.Equal(t, fsm.StatusRunnable, i.Status)
	require.Equal(t, "later", i.LastError)
	require.Greater(t, time.Until(i.EligibleAt), 30*time.Minute)
}

func TestAHandlerRetriesByPolicyAndKeepsTheState(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[counter, int]("handled")
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
		if v.State.N == 3 {
			return v.Done(v.State.N), nil
		}
		return nil, errors.New("count on")
	})).OnError(func(_ context.Context, v *fsm.Visit[counter, int], _ error) (fsm.Outcome, error) {
		return v.Retry(counter{v.State.N + 1}, 0), nil
	})
	eng := start(t, config(t, def))
	got := result(t, eng, m, insert(t, eng, m.New(counter{})))
	require.Equal(t, 3, got)
}

func TestAStepsTimeoutIsItsOwnError(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, string]("slow")
	def := m.Define(fsm.Step("start", func(ctx context.Context, _ *fsm.Visit[int, string]) (fsm.Outcome, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}).Timeout(20 * time.Millisecond)).OnError(func(_ context.Context, v *fsm.Visit[int, string], err error) (fsm.Outcome, error) {
		if errors.Is(err, fsm.ErrStepTimeout) {
			return v.Done("timed out"), nil
		}
		return nil, err
	})
	eng := start(t, config(t, def))
	got := result(t, eng, m, insert(t, eng, m.New(0)))
	require.Equal(t, "timed out", got)
}
