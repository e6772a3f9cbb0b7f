package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/tier"
)

var pinged = fsm.DeclareSignal[int]("pinged")

// A host's open transaction has signalled keyed instances, so that it holds their rows. The
// instances behind them wait. Those that need nothing of these rows run, however many of them are
// ahead in the queue's order. When the transaction is over, all of them run, each key in its order.
func TestWhatAHostsTransactionHoldsStopsNobodyElse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		concurrency int
		keys        int
		priority    int // of the held instances
	}{
		{"one of one slot", 1, 1, 0},
		{"as many as slots", 20, 20, 0},
		{"many more than slots", 20, tier.Pick(300, 1000), 0},
		{"more urgent ones, thrice as many", 20, tier.Pick(900, 3000), -5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := fsm.Declare[int, int]("held")
			var done atomic.Int64
			c := config(t, m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
				if v.PartitionKey == "" {
					done.Add(1)
				}
				return v.Done(v.State), nil
			})))
			c.Queues["default"] = quick(tt.concurrency)
			c, claims := picks(c)
			sender := client(t, c.Pool)
			var specs []fsm.Spec
			for turn := range 2 {
				for k := range tt.keys {
					specs = append(specs, m.New(turn).PartitionKey(fmt.Sprint("key ", k)).Priority(tt.priority))
				}
			}
			held := insertAll(t, sender, specs)
			execute(t, c.Pool, `UPDATE gendurable.gen_durable SET pick_lane = 0`) // as if inserted one by one
			var free []fsm.Spec
			for n := range 50 {
				free = append(free, m.New(n))
			}
			others := insertAll(t, sender, free)

			host, err := c.Pool.Begin(t.Context())
			require.NoError(t, err)
			for _, id := range held[:tt.keys] {
				_, err := sender.WithPgx(host).Signal(t.Context(), id, pinged.With(1))
				require.NoError(t, err)
			}
			eng := start(t, c)
			t.Cleanup(func() { _ = host.Rollback(context.Background()) })
			allDone(t, eng, others...)
			before := claims.Load()
			last := insert(t, eng, m.New(0))
			allDone(t, eng, last)
			for _, id := range held[tt.keys:] {
				require.Equal(t, fsm.StatusRunnable, get(t, eng, id).Status)
			}
			t.Logf("%d claims before, %d for one more", before, claims.Load()-before)

			require.NoError(t, host.Commit(t.Context()))
			allDone(t, eng, held...)
		})
	}
}

// Here a step's own transaction signals instances with partition keys, and goes on for long.
// Another queue, whose first rows have these keys, goes on.
func TestWhatAStepsTransactionHoldsStopsNoOtherQueue(t *testing.T) {
	t.Parallel()
	keyed := fsm.Declare[int, int]("keyed", fsm.Queue("keyed"))
	long := fsm.Declare[[]fsm.ID, int]("long")
	gate, signalled := make(chan struct{}), make(chan struct{})
	c := config(t,
		keyed.Job(func(_ context.Context, n int) (int, error) { return n, nil }),
		long.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[[]fsm.ID, int]) (fsm.Outcome, error) {
			return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
				for _, id := range v.State {
					if _, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, id, pinged.With(1)); err != nil {
						return nil, err
					}
				}
				close(signalled)
				<-gate
				return v.Done(0), nil
			}), nil
		})))
	c.Queues["keyed"] = quick(2)
	sender := client(t, c.Pool)
	_, err := sender.Admin().PauseQueue(t.Context(), "keyed") // before a worker is there that could claim until it knows
	require.NoError(t, err)
	eng := start(t, c)
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	var specs []fsm.Spec
	for n := range 10 {
		specs = append(specs, keyed.New(n).PartitionKey(fmt.Sprint("key ", n%5)))
	}
	held := insertAll(t, sender, specs)
	execute(t, c.Pool, `UPDATE gendurable.gen_durable SET pick_lane = 0`)
	holder := insert(t, eng, long.New(held[:5]))
	<-signalled
	_, err = sender.Admin().ResumeQueue(t.Context(), "keyed")
	require.NoError(t, err)
	for n := range 20 {
		allDone(t, eng, insert(t, eng, keyed.New(n)))
	}
	open()
	allDone(t, eng, append(held, holder)...)
}
