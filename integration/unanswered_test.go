package integration

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/steady"
)

// The answer of a claim is lost behind its commit, and another session locks one of its rows. The
// others are given back and run at once, and that one when it is free: none waits for its lease,
// which lasts an hour, and none counts a crash.
func TestAStrangerHoldsARowOfAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	c := config(t, plainJob())
	ids := insertAll(t, client(t, c.Pool), []fsm.Spec{plainMachine.New(plain{}), plainMachine.New(plain{}), plainMachine.New(plain{})})
	stranger, err := c.Pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = stranger.Rollback(context.Background()) })

	var once sync.Once
	lost := make(chan error, 1)
	pool := c.Pool
	c.Pool, c.Lease = nil, time.Hour
	c.Driver = entpgx.New(pool).Around(func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
		err := send(ctx)
		if err != nil || !slices.ContainsFunc(stmts, func(s entpgx.Stmt) bool { return s.Name == "claim plain" }) {
			return err
		}
		once.Do(func() {
			var status string
			lost <- stranger.QueryRow(ctx, `SELECT status FROM gendurable.gen_durable WHERE id = $1 AND status = 'executing' FOR NO KEY UPDATE`, ids[0]).Scan(&status)
			err = &entpgx.StmtError{Name: "claim plain", Sent: true, Err: io.ErrUnexpectedEOF} // as of a connection that was cut
		})
		return err
	})
	eng := start(t, c)
	steady.Eventually(t, func() bool { return len(lost) > 0 }, "no claim has been sent")
	require.NoError(t, <-lost, "the claim has taken it")
	allDone(t, eng, ids[1:]...)
	require.Equal(t, fsm.StatusExecuting, get(t, eng, ids[0]).Status)
	require.NoError(t, stranger.Rollback(t.Context()))
	allDone(t, eng, ids...)
	for _, id := range ids {
		require.Zero(t, get(t, eng, id).Crashes)
	}
}
