package integration

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A step that collects parks towards itself with what it has, and sleeps until another signal
// arrives: it runs at most once per signal.
func TestCollectingASetRunsOncePerSignal(t *testing.T) {
	t.Parallel()
	const most = 12
	vote := fsm.DeclareSignal[int]("vote")
	m := fsm.Declare[int, []int]("collecting")
	runs := make(chan int, 1000)
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, []int]) (fsm.Outcome, error) {
		votes, err := vote.All(v)
		if err != nil {
			return nil, err
		}
		runs <- len(votes)
		if len(votes) == most {
			return v.Done(votes), nil
		}
		return v.Await("start", v.State, vote), nil
	}))
	c, claims := picks(config(t, def))
	eng := start(t, c)
	id := insert(t, eng, m.New(0))
	want := []int{}
	for n := range most {
		eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
		eventually(t, func() bool { return len(runs) == n+1 })
		_, err := eng.Signal(t.Context(), id, vote.With(n))
		require.NoError(t, err)
		want = append(want, n)
	}
	require.Equal(t, want, result(t, eng, m, id))
	require.Len(t, runs, most+1)
	require.Less(t, claims.Load(), int64(20*(most+1)), "it looked for work over and over")
	require.Zero(t, query[int](t, c.Pool, `SELECT count(*) FROM gendurable.signals`), "an inbox outlived its instance")
}

// An inbox may hold more than Limits.Inbox, to which only senders are bound: it was lowered since.
// A step that parks towards itself gets all of it, and sleeps until another signal arrives.
func TestAnInboxOverALoweredLimitDoesNotSpin(t *testing.T) {
	t.Parallel()
	const before = 10
	vote := fsm.DeclareSignal[int]("vote")
	m := fsm.Declare[int, int]("collecting")
	runs := make(chan int, 10_000)
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		votes, err := vote.All(v)
		if err != nil {
			return nil, err
		}
		runs <- len(votes)
		if len(votes) > before {
			return v.Done(len(votes)), nil
		}
		return v.Await("start", v.State, vote), nil
	}))
	c := config(t, def)
	client := c
	client.Queues = nil
	sender := start(t, client)
	id := insert(t, sender, m.New(0))
	for n := range before {
		_, err := sender.Signal(t.Context(), id, vote.With(n))
		require.NoError(t, err)
	}
	c.Limits.Inbox = 3
	eng := start(t, c)
	// The first run awaits nothing yet, and finds all of them when it parks; the second sleeps.
	eventually(t, func() bool { return len(runs) >= 2 })
	eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
	_, err := eng.Signal(t.Context(), id, vote.With(before))
	require.ErrorIs(t, err, engine.ErrInboxFull)
	_, err = sender.Signal(t.Context(), id, vote.With(before))
	require.NoError(t, err)
	require.Equal(t, before+1, result(t, eng, m, id))
	require.Len(t, runs, 3)
}

func TestSignalsThatWereNotAwaitedWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	first, second := fsm.DeclareSignal[string]("first"), fsm.DeclareSignal[string]("second")
	m := fsm.Declare[string, string]("two")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Await("one", "", first), nil
		}),
		fsm.Step("one", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			s, _, err := first.First(v)
			return v.Next("between", s), err
		}),
		fsm.Step("between", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Await("two", v.State, first, second), nil
		}),
		fsm.Step("two", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			all := []string{v.State}
			for _, r := range v.Awaited() {
				s, err := fsm.DeclareSignal[string](r.Name).Decode(v, r)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return v.Done(strings.Join(all, " ")), nil
		}))
	eng := start(t, config(t, def))
	id := insert(t, eng, m.New(""))
	eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
	for _, message := range []fsm.Message{second.With("early"), first.With("go")} {
		_, err := eng.Signal(t.Context(), id, message)
		require.NoError(t, err)
	}
	require.Equal(t, "go early", result(t, eng, m, id))
}

func TestARedeliveredSignalIsADuplicateEvenAfterItWasConsumed(t *testing.T) {
	t.Parallel()
	paid := fsm.DeclareSignal[int]("paid")
	m := fsm.Declare[int, int]("paying")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			return v.Await("add", v.State, paid), nil
		}),
		fsm.Step("add", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			sum := v.State
			all, err := paid.All(v)
			for _, cents := range all {
				sum += cents
			}
			if sum >= 100 {
				return v.Done(sum), err
			}
			return v.Next("start", sum), err
		}))
	eng := start(t, config(t, def))
	id := insert(t, eng, m.New(0).Key("order"))
	for n, event := range []string{"a", "a", "b", "a", "b"} {
		d, err := eng.Signal(t.Context(), fsm.Key("order"), paid.With(40).DedupKey(event))
		require.NoError(t, err)
		require.Equal(t, engine.Delivery{To: id, Duplicate: slices.Contains([]int{1, 3, 4}, n)}, d)
		eventually(t, func() bool { // consumed
			i := get(t, eng, id)
			return i.Status == fsm.StatusAwaitingSignal && string(i.State) != "0"
		})
	}
	_, err := eng.Signal(t.Context(), fsm.Key("order"), paid.With(40).DedupKey("c"))
	require.NoError(t, err)
	require.Equal(t, 120, result(t, eng, m, id))
	_, err = eng.Signal(t.Context(), fsm.Key("order"), paid.With(40).DedupKey("c"))
	require.ErrorIs(t, err, engine.ErrNoTarget)
}

func TestAFullInboxRefuses(t *testing.T) {
	t.Parallel()
	ping := fsm.DeclareSignal[int]("ping")
	m := fsm.Declare[int, int]("flooded")
	c := config(t, m.Job(func(context.Context, int) (int, error) { return 0, nil }))
	c.Limits.Inbox = 3
	eng, err := engine.New(c)
	require.NoError(t, err)
	id := insert(t, eng, m.New(0))
	for n := range 3 {
		_, err := eng.Signal(t.Context(), id, ping.With(n).DedupKey(strconv.Itoa(n)))
		require.NoError(t, err)
	}
	_, err = eng.Signal(t.Context(), id, ping.With(3))
	require.ErrorIs(t, err, engine.ErrInboxFull)
	d, err := eng.Signal(t.Context(), id, ping.With(2).DedupKey("2"))
	require.NoError(t, err)
	require.True(t, d.Duplicate, "a duplicate outranks a full inbox")
}

func TestAPayloadThatDoesNotDecodeIsTheStepsError(t *testing.T) {
	t.Parallel()
	number, text := fsm.DeclareSignal[int]("it"), fsm.DeclareSignal[string]("it")
	m := fsm.Declare[int, string]("reading")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
			return v.Await("read", 0, number), nil
		}),
		fsm.Step("read", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
			_, ok, err := number.First(v)
			if ok {
				err = errors.Join(err, errors.New("and yet there is one"))
			}
			return nil, err
		})).OnError(func(_ context.Context, v *fsm.Visit[int, string], err error) (fsm.Outcome, error) {
		if _, wrong := errors.AsType[*fsm.DecodeError](err); wrong {
			return v.Done("refused"), nil
		}
		return nil, err
	})
	eng := start(t, config(t, def))
	id := insert(t, eng, m.New(0))
	_, err := eng.Signal(t.Context(), id, text.With("no number"))
	require.NoError(t, err)
	require.Equal(t, "refused", result(t, eng, m, id))
}
