package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A cancel in a host's transaction takes effect with it. The Nudge after the commit ends the calls
// of Wait, and calls the hooks.
func TestTxCancels(t *testing.T) {
	var cancelled atomic.Int64 // on all hosts
	onEachHost(t, func(c *engine.Config) {
		c.Hooks = append(c.Hooks, engine.Hooks{Cancel: func(_ context.Context, e engine.CancelEvent) { cancelled.Add(int64(e.Cancelled)) }})
	}, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		ids, err := e.InsertMany(t.Context(), []fsm.Spec{
			ticket.New("first").PartitionKey("seat").After(time.Hour), echoes.New("second").PartitionKey("seat").After(2 * time.Hour),
			ticket.New("ended"),
		})
		require.NoError(t, err)
		_, err = e.Admin().Cancel(t.Context(), ids[2].ID)
		require.NoError(t, err)
		all := []fsm.ID{ids[2].ID, ids[0].ID, 1 << 40, ids[0].ID}

		tx := begin()
		got, err := tx.Cancel(t.Context(), all)
		require.NoError(t, err)
		require.Equal(t, []fsm.ID{ids[0].ID}, got)
		require.NoError(t, tx.rollback())
		i, err := e.Get(t.Context(), ids[0].ID)
		require.NoError(t, err)
		require.Equal(t, fsm.StatusRunnable, i.Status)

		waited := make(chan error, 1)
		go func() {
			_, err := ticket.Wait(t.Context(), e, ids[0].ID)
			waited <- err
		}()
		tx = begin()
		got, err = tx.Cancel(t.Context(), all, engine.Reason("sold out"), engine.Descendants())
		require.NoError(t, err)
		require.Equal(t, []fsm.ID{ids[0].ID}, got)
		require.NoError(t, tx.commit())
		before := cancelled.Load()
		tx.Nudge()
		require.Greater(t, cancelled.Load(), before)
		failed, ok := errors.AsType[*fsm.FailedError](<-waited)
		require.True(t, ok)
		require.Equal(t, fsm.FailureCancelled, failed.Failure)
		i, err = e.Get(t.Context(), ids[0].ID)
		require.NoError(t, err)
		require.Equal(t, "cancelled: sold out", i.LastError)
		_, err = tx.Cancel(t.Context(), all, engine.At(time.Now()))
		wrong, ok := errors.AsType[*engine.VerbError](err)
		require.True(t, ok)
		require.Equal(t, "At", wrong.Field)
		_, err = tx.Cancel(t.Context(), all, engine.IfUnchanged(i))
		require.ErrorContains(t, err, "IfUnchanged")
	})
}

func TestTxRequiresEnded(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		ids, err := e.InsertMany(t.Context(), []fsm.Spec{ticket.New("ended"), ticket.New("live").After(time.Hour), ticket.New("live, too").After(time.Hour)})
		require.NoError(t, err)
		_, err = e.Admin().Cancel(t.Context(), ids[0].ID)
		require.NoError(t, err)

		tx := begin()
		require.NoError(t, tx.RequireEnded(t.Context()))
		require.NoError(t, tx.RequireEnded(t.Context(), ids[0].ID, 1<<40))
		err = tx.RequireEnded(t.Context(), ids[2].ID, ids[0].ID, ids[1].ID)
		require.ErrorIs(t, err, engine.ErrLive)
		live, ok := errors.AsType[*engine.LiveError](err)
		require.True(t, ok)
		require.Equal(t, &engine.LiveError{ID: ids[1].ID, Status: fsm.StatusRunnable, Live: 2}, live)
		require.ErrorContains(t, err, "and 1 more of them are live")
		_, err = tx.Insert(t.Context(), ticket.New("the transaction is usable"))
		require.NoError(t, err)
		require.NoError(t, tx.commit())
	})
}
