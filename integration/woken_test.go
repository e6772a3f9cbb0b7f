package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// tally is the state of the instances that wait for signals.
type tally struct{ Sum int }

var (
	plus = fsm.DeclareSignal[int]("plus")
	over = fsm.DeclareSignal[string]("over")
	note = fsm.DeclareSignal[string]("note")
)

// waits is a machine that adds up what it is sent, until it is over. The step that a signal
// wakes calls ran.
func waits(m *fsm.Machine[tally, int], ran func()) fsm.Definition {
	type visit = fsm.Visit[tally, int]
	return m.Define(
		fsm.Step("park", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Await("add", v.State, plus, over, note), nil
		}).To("add"),
		fsm.Step("add", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			more, err := plus.All(v)
			if err != nil {
				return nil, err
			}
			for _, n := range more {
				v.State.Sum += n
			}
			if last, err := over.All(v); err != nil || len(last) > 0 {
				return v.Done(v.State.Sum), err
			}
			return v.Next("park", v.State), nil
		}).To("park"))
}

// asleep inserts an instance and returns when it awaits signals.
func asleep(t *testing.T, eng *engine.Engine, spec fsm.Spec) fsm.ID {
	t.Helper()
	id := insert(t, eng, spec)
	eventually(t, func() bool { return get(t, eng, id).Status == fsm.StatusAwaitingSignal }, "it does not park")
	return id
}

// idle signals until a signal claims: the engine's first claims have found nothing more.
func idle(t *testing.T, eng *engine.Engine, atOnce *atomic.Int64, id fsm.ID) {
	t.Helper()
	before := atOnce.Load()
	eventually(t, func() bool {
		visit := get(t, eng, id).Visit
		_, err := eng.Signal(t.Context(), id, plus.With(0))
		require.NoError(t, err)
		eventually(t, func() bool {
			i := get(t, eng, id)
			return i.Status == fsm.StatusAwaitingSignal && i.Visit > visit
		}, "it does not park again")
		return atOnce.Load() > before
	}, "no signal claims")
}

// A working engine that is idle runs what its signals wake without a claim, with all that was sent
// before. Instances with a partition key, and those that a host's transaction signals, are claimed
// as ever.
func TestAnIdleEnginesSignalsClaim(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[tally, int]("m", fsm.Initial("park"))
	c := config(t, waits(m, func() {}))
	c.Queues["default"] = engine.Queue{PollMin: time.Hour, PollMax: time.Hour}
	atOnce, claimed := claimsOf(&c)
	eng := start(t, c)
	id := asleep(t, eng, m.New(tally{}).Key("k"))
	idle(t, eng, atOnce, id)
	since, visit := [2]int64{atOnce.Load(), claimed.Load()}, get(t, eng, id).Visit
	send := func(to fsm.Target, message fsm.Message) {
		t.Helper()
		_, err := eng.Signal(t.Context(), to, message)
		require.NoError(t, err)
	}
	for n := range 20 {
		if n%2 == 0 {
			send(id, plus.With(n))
		} else {
			send(fsm.Key("k"), plus.With(n).DedupKey(fmt.Sprint(n)))
		}
		eventually(t, func() bool {
			i := get(t, eng, id)
			return i.Status == fsm.StatusAwaitingSignal && i.Visit == visit+int64(2*n+2)
		}, "it did not run")
	}
	mostly(t, 20, atOnce, claimed, since)
	send(id, over.With(""))
	require.Equal(t, 190, result(t, eng, m, id))
	mostly(t, 21, atOnce, claimed, since)

	keyed := asleep(t, eng, m.New(tally{}).PartitionKey("p"))
	send(keyed, over.With(""))
	ended(t, eng, keyed)
	hosted := asleep(t, eng, m.New(tally{}))
	before := atOnce.Load()
	tx, err := c.Pool.Begin(t.Context())
	require.NoError(t, err)
	host := eng.WithPgx(tx)
	_, err = host.Signal(t.Context(), hosted, over.With(""))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	host.Nudge()
	ended(t, eng, hosted)
	require.Equal(t, before, atOnce.Load())
}

// The connection of a signal that claims breaks at its COMMIT. If Postgres had committed, what it
// woke runs at once, and counts no crash; with a dedup key the signal is delivered once in any
// case.
func TestASignalThatClaimsWhoseCommitIsCutOff(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[tally, int]("m", fsm.Initial("park"))
	for _, dedup := range []string{"", "d"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("dedup key %q, after %v", dedup, after), func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				p, url := newProxy(t, database)
				var runs atomic.Int64
				c := configOn(t, url, waits(m, func() { runs.Add(1) }))
				c.Lease = time.Hour
				atOnce, _ := claimsOf(&c)
				eng := start(t, c)
				id := asleep(t, eng, m.New(tally{}))
				idle(t, eng, atOnce, id)
				direct := client(t, pgtest.Pool(t, database))
				runs.Store(0)
				marker := marked("message")
				cutting := p.cut(marker, after)
				message := note.With(marker)
				if dedup != "" {
					message = message.DedupKey(dedup)
				}
				visit := get(t, direct, id).Visit
				_, err := eng.Signal(t.Context(), id, message)
				cutting.happened(t)
				if dedup != "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, engine.ErrUnknown)
					if !after {
						return
					}
				}
				eventually(t, func() bool {
					i := get(t, direct, id)
					return i.Status == fsm.StatusAwaitingSignal && i.Visit == visit+2
				}, "it did not run")
				require.Zero(t, get(t, direct, id).Crashes)
				require.EqualValues(t, 1, runs.Load())
				_, err = direct.Signal(t.Context(), id, over.With(""))
				require.NoError(t, err)
				require.Equal(t, fsm.StatusDone, ended(t, direct, id).Status)
			})
		}
	}
}
