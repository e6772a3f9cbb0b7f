package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// ward is an engine with one slot per queue, whose jobs run until they are told to end, and a
// client beside it.
type ward struct {
	*testing.T
	e    *engine.Engine
	pool *pgxpool.Pool
	free chan struct{}
}

func newWard(t *testing.T) *ward {
	t.Helper()
	t.Parallel()
	w := &ward{T: t, pool: pgtest.Pool(t, pgtest.Migrated(t)), free: make(chan struct{})}
	w.e = working(t, w.pool, rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{tickets(), founding(), children.Job(func(ctx context.Context, s string) (string, error) {
			select {
			case <-w.free:
			case <-ctx.Done():
			}
			return s, nil
		})}
		c.Queues = map[string]engine.Queue{"default": {Concurrency: 1, Buffer: 1}, "other": {Concurrency: 1, Buffer: 1}}
		c.DrainTimeout = time.Millisecond
	})
	require.Eventually(t, func() bool {
		all, err := w.e.Admin().Workers(t.Context())
		return err == nil && len(all) == 1
	}, testPatience, testGlance)
	return w
}

func (w *ward) insert(spec fsm.Spec) fsm.ID {
	w.Helper()
	id, err := w.e.Insert(w.Context(), spec)
	require.NoError(w, err)
	return id
}

// becomes waits until the causes are of these kinds, and returns them.
func (w *ward) becomes(of fsm.Target, kinds ...engine.CauseKind) (causes []engine.Cause) {
	w.Helper()
	var got []engine.CauseKind
	require.Eventually(w, func() bool {
		var err error
		causes, err = w.e.Admin().Why(w.Context(), of)
		require.NoError(w, err)
		got = nil
		for _, c := range causes {
			got = append(got, c.Kind)
			require.NotEqual(w, string(c.Kind), c.String(), "it is a sentence")
		}
		return len(got) == len(kinds) && func() bool {
			for i := range got {
				if got[i] != kinds[i] {
					return false
				}
			}
			return true
		}()
	}, testPatience, testGlance, "%v, not %v", &got, kinds)
	return causes
}

func TestWhyItIsParked(t *testing.T) {
	w := newWard(t)
	id := w.insert(ticket.New("A1").Key("seat"))
	c := w.becomes(fsm.Key("seat"), engine.CauseSignals)[0]
	require.Equal(t, []string{"paid"}, c.Names)
	require.WithinDuration(t, time.Now(), c.Since, time.Minute)
	require.Contains(t, c.String(), "awaits a signal, paid, since ")
	_, err := w.e.Admin().Pause(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, c.Since, w.becomes(id, engine.CauseSignals, engine.CausePaused)[0].Since)
	_, err = w.e.Admin().Resume(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, c.Since, w.becomes(id, engine.CauseSignals)[0].Since, "it is parked since then, whatever operators did")

	parent := w.insert(parents.New("x").Queue("other"))
	c = w.becomes(parent, engine.CauseChildren)[0]
	require.Equal(t, 1, c.Count)
	require.Len(t, c.IDs, 1)
	w.free <- struct{}{}
	require.NotZero(t, w.becomes(parent, engine.CauseEnded)[0].Since)

	_, err = w.e.Admin().Why(t.Context(), fsm.Key("nobody"))
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = w.e.Admin().Why(t.Context(), fsm.ID(0))
	require.ErrorIs(t, err, engine.ErrNotFound)
}

func TestWhyItRunsOrWaitsForASlot(t *testing.T) {
	w := newWard(t)
	first := w.insert(children.New("1").PartitionKey("p"))
	c := w.becomes(first, engine.CauseRunning)[0]
	require.NotNil(t, c.Worker)
	require.True(t, c.Worker.Live)
	require.False(t, c.Since.IsZero())
	require.Contains(t, c.String(), ", by worker "+c.WorkerID)
	require.Contains(t, c.String(), "it is running since "+c.Since.UTC().Format("2006-01-02 15:04:05"))
	same := w.insert(children.New("2").PartitionKey("p").Queue("other"))
	require.Equal(t, []fsm.ID{first}, w.becomes(same, engine.CauseKeyBusy)[0].IDs)

	w.insert(children.New("buffered"))
	waits := w.insert(children.New("3"))
	last := w.insert(children.New("4"))
	require.Eventually(t, func() bool { // one more than the slots may be claimed already
		causes, err := w.e.Admin().Why(t.Context(), last)
		require.NoError(t, err)
		return causes[0].Kind == engine.CauseSlots && causes[0].Count == 1 && causes[1].Kind == engine.CauseBehind
	}, testPatience, testGlance)
	require.NotZero(t, waits)

	// Its worker is dead, for all that anyone knows.
	_, err := w.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 minute' WHERE id = $1`, first)
	require.NoError(t, err)
	require.Contains(t, w.becomes(first, engine.CauseLost)[0].String(), "the next reaper")
	_, err = w.pool.Exec(t.Context(), `DELETE FROM gendurable.workers`)
	require.NoError(t, err)
	require.Contains(t, w.becomes(first, engine.CauseLost)[0].String(), "not registered any more")
}

func TestWhyItIsNotClaimed(t *testing.T) {
	w := newWard(t)
	w.becomes(w.insert(children.New("x").After(time.Hour)), engine.CauseDelayed)
	w.becomes(w.insert(children.New("x").Queue("nobody's")), engine.CauseNoWorker)
	w.becomes(w.insert(echoes.New("x")), engine.CauseNoMachine)
	stray := w.insert(children.New("x").Queue("nobody's"))
	_, err := w.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET step = 'gone', aside_step = 'gone', pick_lane = 4 WHERE id = $1`, stray)
	require.NoError(t, err)
	require.Contains(t, w.becomes(stray, engine.CauseNoWorker, engine.CauseNoStep)[1].String(), `has no step "gone" in this version of its machine`)
	_, err = w.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET paused = true, pick_lane = 0, last_error = 'cannot become version 2 of machine child' WHERE id = $1`,
		stray)
	require.NoError(t, err)
	lost := w.insert(children.New("x").Queue("nobody's"))
	_, err = w.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET paused = true, pick_lane = 5, eligible_at = now() + interval '1 h' WHERE id = $1`, lost)
	require.NoError(t, err)
	require.Contains(t, w.becomes(lost, engine.CausePaused, engine.CauseSkip)[1].String(), "an edge of it is not met")
	require.Equal(t, "it cannot become version 2 of machine child", w.becomes(stray, engine.CauseUnconverted, engine.CauseNoWorker)[0].String())
	_, err = w.e.Admin().PauseQueue(t.Context(), "other")
	require.NoError(t, err)
	later := w.insert(children.New("x").Queue("other").After(time.Hour))
	w.becomes(later, engine.CauseQueuePaused, engine.CauseDelayed)
	_, err = w.e.Admin().Pause(t.Context(), later)
	require.NoError(t, err)
	w.becomes(later, engine.CausePaused, engine.CauseQueuePaused, engine.CauseDelayed)
	head := w.insert(children.New("x").PartitionKey("q").Queue("nobody's"))
	behind := w.insert(children.New("x").PartitionKey("q").Queue("nobody's"))
	w.becomes(head, engine.CauseNoWorker)
	require.Equal(t, []fsm.ID{head}, w.becomes(behind, engine.CauseNoWorker, engine.CauseKeyBehind)[1].IDs)

	// A worker that is gone serves no instance.
	_, err = w.pool.Exec(t.Context(), `UPDATE gendurable.workers SET expires_at = now()`)
	require.NoError(t, err)
	w.becomes(w.insert(echoes.New("x")), engine.CauseNoWorker)
}

// Where nothing holds it back, it is a matter of the next look.
func TestWhyNotYet(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'h', 1, '', '{"default": 10}', '{echo/1}', now() + interval '1 hour')`)
	require.NoError(t, err)
	first, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	urgent, err := e.Insert(t.Context(), echoes.New("x").Priority(-1))
	require.NoError(t, err)
	causes, err := e.Admin().Why(t.Context(), urgent)
	require.NoError(t, err)
	require.Equal(t, []engine.Cause{{Kind: engine.CauseSoon}}, causes)
	causes, err = e.Admin().Why(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, []engine.Cause{{Kind: engine.CauseBehind, Count: 1}}, causes)
}
