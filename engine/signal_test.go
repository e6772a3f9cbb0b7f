package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestSignalToWhoWaits(t *testing.T) {
	t.Parallel()
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely)
	for _, early := range []bool{true, false} {
		id, err := e.Insert(t.Context(), ticket.New("A1").Key("seat").Scope(fsm.ScopeLive))
		require.NoError(t, err)
		if !early {
			parked(t, e, id)
		}
		d, err := e.Signal(t.Context(), fsm.Key("seat"), paid.With(4200))
		require.NoError(t, err)
		require.Equal(t, engine.Delivery{To: id}, d)
		got, err := ticket.Wait(within(t), e, id)
		require.NoError(t, err)
		require.Equal(t, "A1 paid", got)
		_, err = e.Signal(t.Context(), fsm.Key("seat"), paid.With(4200))
		require.ErrorIs(t, err, engine.ErrNoTarget)
	}
}

// A payment that comes while the last step runs is seen: the instance ends only if none waits. What
// Done deletes is told to a hook.
func TestDoneUnlessASignalWaits(t *testing.T) {
	t.Parallel()
	other := fsm.DeclareSignal[int]("other")
	var mu sync.Mutex
	var kinds []fsm.OutcomeKind
	unread := map[string]int{}
	m := fsm.Declare[int, string]("till")
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{m.Define(
			fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				for _, s := range []fsm.Message{paid.With(4200), other.With(1)} {
					if _, err := engine.FromContext(ctx).Signal(ctx, v.ID, s); err != nil {
						return nil, err
					}
				}
				return v.Done("not paid").Unless("late", paid).With(7), nil
			}).To("late"),
			fsm.Step("late", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				cents, ok, err := paid.First(v)
				if err != nil || !ok {
					return nil, errors.Join(err, errors.New("woken for nothing"))
				}
				return v.Done(fmt.Sprint("paid ", cents, " in state ", v.State)).Unless("late", paid), nil
			}).To("late"),
		)}
		c.Hooks = append(c.Hooks, engine.Hooks{
			Step: func(_ context.Context, s engine.StepEvent) {
				mu.Lock()
				defer mu.Unlock()
				kinds = append(kinds, s.Outcome)
			},
			Unread: func(_ context.Context, u engine.UnreadEvent) {
				mu.Lock()
				defer mu.Unlock()
				for name, n := range u.Signals {
					unread[u.Instance.Machine+" "+name] += n
				}
			},
		})
	})
	id, err := e.Insert(t.Context(), m.New(1))
	require.NoError(t, err)
	got, err := m.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "paid 4200 in state 7", got)
	require.NoError(t, e.Stop(within(t)))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []fsm.OutcomeKind{fsm.OutcomeNext, fsm.OutcomeDone}, kinds)
	require.Equal(t, map[string]int{"till other": 1}, unread)
}

// So it is with each Done of a machine that declares the signal, where no step thinks of it.
func TestDoneYieldsToADeclaredSignal(t *testing.T) {
	t.Parallel()
	type visit = fsm.Visit[bool, string]
	m := fsm.Declare[bool, string]("desk")
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{m.Define(
			fsm.Step("start", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
				if _, err := engine.FromContext(ctx).Signal(ctx, v.ID, paid.With(4200)); err != nil {
					return nil, err
				}
				if v.State {
					return v.Done("discarded").Discard(), nil
				}
				return v.Done("dropped"), nil
			}).To(),
			fsm.Step("refund", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				cents, _, err := paid.First(v)
				return v.Done(fmt.Sprint("refunded ", cents)), err
			}).To(),
		).Unless("refund", paid)}
	})
	for discards, want := range map[bool]string{false: "refunded 4200", true: "discarded"} {
		id, err := e.Insert(t.Context(), m.New(discards))
		require.NoError(t, err)
		got, err := m.Wait(within(t), e, id)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A caller follows an instance from park to park: it never gets one twice that it has acted on, and
// gets the end. Another process notices by looking.
func TestWaitParked(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	m := fsm.Declare[int, string]("form")
	e := working(t, pool, rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
			answers, err := paid.All(v)
			if err != nil {
				return nil, err
			}
			if v.State += len(answers); v.State == 3 {
				return v.Done("filled in"), nil
			}
			if len(answers) > 0 {
				return v.Next("start", v.State), nil
			}
			return v.Await("start", v.State, paid), nil
		}))}
	})
	elsewhere := open(t, pool)
	for _, from := range []*engine.Engine{e, elsewhere} {
		id, err := e.Insert(t.Context(), m.New(0))
		require.NoError(t, err)
		past := int64(-1)
		for page := range 3 {
			i, err := m.WaitParked(within(t), from, id, past)
			require.NoError(t, err)
			require.Equal(t, fsm.StatusAwaitingSignal, i.Status)
			require.Equal(t, page, i.State)
			require.Greater(t, i.Visit, past)
			past = i.Visit
			_, err = e.Signal(t.Context(), id, paid.With(page))
			require.NoError(t, err)
		}
		i, err := m.WaitParked(within(t), from, id, past)
		require.NoError(t, err)
		require.Equal(t, "filled in", i.Result)
	}
	id, err := e.Insert(t.Context(), m.New(0))
	require.NoError(t, err)
	i, err := e.WaitParked(within(t), id, -1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err = e.WaitParked(ctx, id, i.Visit)
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.WaitParked(t.Context(), fsm.ID(1<<40), -1)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.NoError(t, elsewhere.Stop(within(t)))
	_, err = elsewhere.WaitParked(within(t), id, i.Visit)
	require.ErrorIs(t, err, engine.ErrStopped)
}

// parked blocks until an instance awaits a signal.
func parked(t *testing.T, e *engine.Engine, id fsm.ID) {
	t.Helper()
	ctx := within(t)
	require.Eventually(t, func() bool {
		i, err := e.Get(ctx, id)
		return err == nil && i.Status == fsm.StatusAwaitingSignal
	}, testPatience, testGlance)
}

func TestSignalErrors(t *testing.T) {
	t.Parallel()
	refusal := errors.New("no")
	e, pool := client(t, func(c *engine.Config) {
		c.Limits = engine.Limits{Inbox: 1, PayloadBytes: 100}
		c.Middleware = []engine.Middleware{{Signal: func(_ context.Context, to fsm.Target, m fsm.Message) (fsm.Message, error) {
			switch to {
			case fsm.Key("refused"):
				return m, refusal
			case fsm.Key("diverted"):
				return fsm.DeclareSignal[string]("").With(""), nil
			}
			return m, nil
		}}}
	})
	id, err := e.Insert(t.Context(), ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	note := fsm.DeclareSignal[string]("note")

	_, err = e.Signal(t.Context(), id, note.With(strings.Repeat("x", 99)))
	require.ErrorIs(t, err, engine.ErrTooLarge)
	wrong, ok := errors.AsType[*fsm.MessageError](err)
	require.True(t, ok)
	require.Equal(t, "payload", wrong.Field)
	_, err = e.Signal(t.Context(), fsm.Key("refused"), note.With(""))
	require.ErrorIs(t, err, refusal)
	require.ErrorContains(t, err, `"note"`)
	_, err = e.Signal(t.Context(), fsm.Key("diverted"), note.With(""))
	wrong, ok = errors.AsType[*fsm.MessageError](err)
	require.True(t, ok)
	require.Equal(t, "name", wrong.Field)
	_, err = e.Signal(t.Context(), id, note.With("").DedupKey(""))
	wrong, ok = errors.AsType[*fsm.MessageError](err)
	require.True(t, ok)
	require.Equal(t, "dedup_key", wrong.Field)
	for _, nobody := range []fsm.Target{nil, fsm.ID(0), fsm.ID(1 << 40), fsm.Key(""), fsm.Key("nobody's"), fsm.Key("\x00")} {
		_, err := e.Signal(t.Context(), nobody, note.With(""))
		require.ErrorIs(t, err, engine.ErrNoTarget, "%v", nobody)
	}
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.signals`).Scan(&rows))
	require.Zero(t, rows)

	d, err := e.Signal(t.Context(), id, note.With("").DedupKey("evt"))
	require.NoError(t, err)
	require.Equal(t, engine.Delivery{To: id}, d)
	_, err = e.Signal(t.Context(), id, note.With(""))
	require.ErrorIs(t, err, engine.ErrInboxFull)
	d, err = e.Signal(t.Context(), fsm.Key("seat"), note.With("").DedupKey("evt"))
	require.NoError(t, err)
	require.Equal(t, engine.Delivery{To: id, Duplicate: true}, d)
}
