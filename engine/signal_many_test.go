package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The call wakes each target, and says of each letter what became of it.
func TestSignalManyToWhoWaits(t *testing.T) {
	t.Parallel()
	var calls []engine.VerbCall
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Middleware = []engine.Middleware{{Call: func(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error {
			err := run(ctx)
			calls = append(calls, *c)
			return err
		}}}
	})
	var ids []fsm.ID
	var letters []engine.Letter
	for _, seat := range []string{"A1", "A2", "A3"} {
		id, err := e.Insert(t.Context(), ticket.New(seat).Key(fsm.Key(seat)))
		require.NoError(t, err)
		parked(t, e, id)
		ids, letters = append(ids, id), append(letters, engine.Letter{To: fsm.Key(seat), Message: paid.With(4200).DedupKey("event")})
	}
	letters[1].To = ids[1]
	letters = append(letters, letters[0], engine.Letter{To: fsm.Key("nobody"), Message: paid.With(1)}, engine.Letter{To: fsm.ID(-1), Message: paid.With(1)})
	calls = nil
	done, err := e.SignalMany(t.Context(), letters)
	require.NoError(t, err)
	for i, id := range ids {
		require.Equal(t, engine.Signalled{Delivery: engine.Delivery{To: id}}, done[i])
		got, err := ticket.Wait(within(t), e, id)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(got, " paid"))
	}
	require.Equal(t, engine.Signalled{Delivery: engine.Delivery{To: ids[0], Duplicate: true}}, done[3])
	require.ErrorIs(t, done[4].Err, engine.ErrNoTarget)
	require.ErrorIs(t, done[5].Err, engine.ErrNoTarget)
	require.Equal(t, []engine.VerbCall{{Verb: "signal_many", Signal: "paid", Signals: 6, IDs: append(slices.Clone(ids), ids[0])}}, calls)
}

// A letter that is wrong refuses the call, which then sends nothing.
func TestSignalManyRefuses(t *testing.T) {
	t.Parallel()
	errNo := errors.New("not this one")
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := open(t, pool, func(c *engine.Config) {
		c.Limits = engine.Limits{PayloadBytes: 100, OutcomeBytes: 150, Inbox: 2}
		c.Middleware = []engine.Middleware{{Signal: func(_ context.Context, _ fsm.Target, m fsm.Message) (fsm.Message, error) {
			if m.Name() == "denied" {
				return m, errNo
			}
			return m, nil
		}}}
	})
	id, err := e.Insert(t.Context(), ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	text := fsm.DeclareSignal[string]("note")
	good := engine.Letter{To: id, Message: paid.With(1)}
	for want, letters := range map[string][]engine.Letter{
		"letter 1: name: ":                           {good, {To: id, Message: fsm.DeclareSignal[int]("").With(1)}},
		"letter 1: middleware: ":                     {good, {To: id, Message: fsm.DeclareSignal[int]("denied").With(1)}},
		"letter 1: payload: ":                        {good, {To: id, Message: text.With(strings.Repeat("x", 100))}},
		"letter 2: payload: over 150 bytes together": {good, {To: id, Message: text.With(strings.Repeat("x", 80))}, {To: id, Message: text.With(strings.Repeat("x", 80))}},
		"letter 1: keep_for: only Signal keeps":      {good, {To: fsm.Key("seat"), Message: paid.With(1).KeepFor(time.Hour)}},
		"letter 1000: letters: 1001, at most 1000":   slices.Repeat([]engine.Letter{good}, 1001),
	} {
		_, err := e.SignalMany(t.Context(), letters)
		wrong, ok := errors.AsType[*engine.SignalError](err)
		require.True(t, ok, "%s: %v", want, err)
		require.ErrorContains(t, wrong, want)
		require.Equal(t, wrong.Field == "payload", errors.Is(err, engine.ErrTooLarge))
		require.Equal(t, wrong.Field == "middleware", errors.Is(err, errNo))
	}
	none, err := e.SignalMany(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Zero(t, number(t, pool, countSignals))

	// KeepFor of a message to an id has no effect, as with Signal. A full inbox refuses its letters
	// alone.
	done, err := e.SignalMany(t.Context(), []engine.Letter{{To: id, Message: paid.With(1).KeepFor(time.Hour)}, good, good})
	require.NoError(t, err)
	require.NoError(t, errors.Join(done[0].Err, done[1].Err))
	require.ErrorIs(t, done[2].Err, engine.ErrInboxFull)
	require.Equal(t, 2, number(t, pool, countSignals))
}

// T10: two transactions of hosts that signal the same targets in opposite orders by one call each
// follow each other. A rollback delivers nothing.
func TestTxsThatSignalManyInOppositeOrders(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		var letters []engine.Letter
		for range 10 {
			id, err := e.Insert(t.Context(), ticket.New("x"))
			require.NoError(t, err)
			letters = append(letters, engine.Letter{To: id, Message: paid.With(1)})
		}
		back := slices.Clone(letters)
		slices.Reverse(back)
		undone := begin()
		_, err := undone.SignalMany(t.Context(), letters)
		require.NoError(t, err)
		require.NoError(t, undone.rollback())
		require.Zero(t, number(t, pool, countSignals))

		ends := make(chan error)
		for _, list := range [][]engine.Letter{letters, back} {
			tx := begin()
			require.NoError(t, tx.exec(`SET LOCAL deadlock_timeout = '10ms'`))
			go func() {
				done, err := tx.SignalMany(context.Background(), list)
				for i := range done {
					err = errors.Join(err, done[i].Err)
				}
				ends <- errors.Join(err, tx.commit())
			}()
		}
		require.NoError(t, errors.Join(<-ends, <-ends))
		require.Equal(t, 20, number(t, pool, countSignals))
	})
}
