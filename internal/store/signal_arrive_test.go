package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// newcomer returns the spec of an instance that would take the key k.
func newcomer() *step.Spec {
	return &step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "q", State: []byte(`{}`), Key: "k"}
}

// arriving starts a DeliverOrInsert at the key k and returns a channel for its result.
func (b bench) arriving() <-chan delivered {
	done := make(chan delivered, 1)
	go func() {
		d, err := b.DeliverOrInsert(b.t.Context(), newcomer(), named("go"), cap10)
		done <- delivered{d, err}
	}()
	return done
}

func (b bench) instances() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM gendurable.gen_durable`)
}

func TestDeliverOrInsert(t *testing.T) {
	b := newBench(t)
	x := newcomer()
	d, err := b.DeliverOrInsert(t.Context(), x, deduped("go", "e"), cap10)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: d.Target, Queue: "q", Inserted: true}, d)
	require.Equal(t, "runnable", b.status(d.Target))
	require.Equal(t, 1, b.signals(d.Target), "it is born with its signal")
	require.Equal(t, uuid.UUID(x.UID).String(), b.text(`SELECT uid::text FROM gendurable.gen_durable WHERE id = $1`, d.Target))

	again, err := b.DeliverOrInsert(t.Context(), newcomer(), deduped("go", "e"), cap10)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: d.Target, Queue: "q", Runnable: true, Duplicate: true}, again)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{go}' WHERE id = $1`, d.Target)
	again, err = b.DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: d.Target, Queue: "q", Woken: true, Runnable: true}, again)
	require.Equal(t, 2, b.signals(d.Target))
	_, err = b.DeliverOrInsert(t.Context(), newcomer(), named("go"), 2)
	require.ErrorIs(t, err, store.ErrInboxFull)
	require.Equal(t, 1, b.instances())
}

func TestDeliverOrInsertAtAKeyThatOutlivesItsOccupant(t *testing.T) {
	b := newBench(t)
	id := b.row("status, finished_at, correlation_key, correlation_scope",
		"'done', now(), 'k', '{runnable,executing,awaiting_signal,awaiting_children,done}'")
	_, err := b.DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
	require.ErrorIs(t, err, store.ErrNoTarget)
	var ended *store.EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, id, ended.Occupant)
	require.Equal(t, 1, b.instances())
	require.Zero(t, b.signals(id))

	b.exec(`DELETE FROM gendurable.gen_durable`)
	d, err := b.DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
	require.NoError(t, err)
	require.True(t, d.Inserted)
}

func TestDeliverOrInsertIsOneRoundTrip(t *testing.T) {
	b := newBench(t)
	count := &interloper{}
	sender := b.beside(count.on, func(c *pgxpool.Config) { c.MaxConns = 1 })
	for i, fresh := range []bool{true, true, true, false} {
		if fresh {
			b.exec(`DELETE FROM gendurable.gen_durable`)
		}
		before := count.sent.Load()
		d, err := sender.DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
		require.NoError(t, err)
		require.Equal(t, fresh, d.Inserted)
		if i > 1 { // the first two uses prepare statements, also those that read gates, and settings go ahead
			require.EqualValues(t, 1, count.sent.Load()-before)
		}
	}
}

// Another transaction inserts at the key, or ends its occupant, in a transaction that is open when
// the signal arrives. For both ends of that transaction, and both orders of commit, the signal goes
// to the right instance, and the key has one occupant.
func TestDeliverOrInsertBehindAnotherTransaction(t *testing.T) {
	const (
		take = `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'k', ` + liveScope + `)`
		end  = `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE correlation_guard = 'k'`
	)
	for name, other := range map[string]struct {
		occupied         bool // the key is occupied before
		statements       []string
		onCommit, onUndo bool // the signal makes a new instance
	}{
		"insert":          {false, []string{take}, false, true},
		"end":             {true, []string{end}, true, false},
		"end, insert":     {true, []string{end, take}, false, false},
		"insert, end":     {false, []string{take, end}, true, true},
		"deliver, insert": {true, []string{`SELECT FROM gendurable.gen_durable WHERE correlation_guard = 'k' FOR NO KEY UPDATE`}, false, false},
	} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commit %v", name, commit), func(t *testing.T) {
				b := newBench(t)
				if other.occupied {
					b.keyed("k")
				}
				tx := b.begin()
				for _, sql := range other.statements {
					b.inTx(tx, sql)
				}
				came := b.arriving()
				var ended error
				want := other.onUndo
				if name == "insert, end" { // nothing delays the signal: the guard is free in either case
					ended, want = finish(t, tx, commit), other.onCommit
				} else {
					b.waiting(1)
					if ended = finish(t, tx, commit); commit {
						want = other.onCommit
					}
				}
				require.NoError(t, ended)
				d := <-came
				require.NoError(t, d.err)
				require.Equal(t, want, d.Inserted)
				require.Equal(t, 1, b.signals(d.Target))
				require.Equal(t, d.Target, int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = 'k'`)))
				require.NotEqual(t, "done", b.status(d.Target))
			})
		}
	}
}

func finish(t *testing.T, tx pgx.Tx, commit bool) error {
	t.Helper()
	if commit {
		return tx.Commit(t.Context())
	}
	return tx.Rollback(t.Context())
}

// In the other order, the signal's transaction is open when the other comes.
func TestDeliverOrInsertBeforeAnotherTransaction(t *testing.T) {
	for _, occupied := range []bool{true, false} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("occupied %v, commit %v", occupied, commit), func(t *testing.T) {
				b := newBench(t)
				if occupied {
					b.keyed("k")
				}
				tx := b.begin()
				first, err := b.Within(store.Pgx(tx)).DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
				require.NoError(t, err)
				require.Equal(t, !occupied, first.Inserted)
				came := b.arriving()
				b.waiting(1)
				require.NoError(t, finish(t, tx, commit))
				second := <-came
				require.NoError(t, second.err)
				require.Equal(t, !occupied && !commit, second.Inserted)
				want := 1
				if commit {
					require.Equal(t, first.Target, second.Target)
					want = 2
				}
				require.Equal(t, want, b.signals(second.Target))
				require.Equal(t, 1, b.instances())
			})
		}
	}
}

// Many signals that arrive at once make one instance, which has all of them. While it ends over and
// over, no signal goes to an ended one.
func TestDeliverOrInsertSideBySide(t *testing.T) {
	b := newBench(t)
	const senders, each = 8, 15
	b.exec(`CREATE TABLE public.ended (signals int)`)
	var group sync.WaitGroup
	for n := range senders {
		group.Go(func() {
			for i := range each {
				if _, err := b.DeliverOrInsert(t.Context(), newcomer(), named("go"), 1000); err != nil {
					t.Error(err)
				}
				if n == 0 && i%5 == 4 { // like Done: under the row's lock, and the inbox in a later statement
					tx := b.begin()
					var id int64
					if err := tx.QueryRow(t.Context(), byHand(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now()
						WHERE correlation_guard = 'k' RETURNING id`)).Scan(&id); err != nil {
						t.Error(err)
					}
					b.inTx(tx, `INSERT INTO public.ended SELECT count(*) FROM gendurable.signals WHERE target_id = $1`, id)
					b.inTx(tx, `DELETE FROM gendurable.signals WHERE target_id = $1`, id)
					if err := tx.Commit(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id WHERE g.status = 'done'`))
	require.Equal(t, senders*each, b.number(`SELECT (SELECT count(*) FROM gendurable.signals) + (SELECT sum(signals) FROM public.ended)`))
	require.LessOrEqual(t, b.instances(), 4)
}

// T27, T95: the COMMIT gets no answer.
func TestDeliverOrInsertWithoutAnswer(t *testing.T) {
	b := newBench(t)
	for _, m := range []*step.Signal{named("go"), deduped("go", "e")} {
		d, err := b.cutting().DeliverOrInsert(t.Context(), newcomer(), m, cap10)
		require.NoError(t, err, "its own uid tells that it is in")
		require.True(t, d.Inserted)
		require.Equal(t, 1, b.signals(d.Target))
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}

	id := b.keyed("k")
	_, err := b.cutting().DeliverOrInsert(t.Context(), newcomer(), named("go"), cap10)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, 1, b.signals(id), "it had been delivered")
	sender := b.cutting()
	_, err = sender.DeliverOrInsert(t.Context(), newcomer(), deduped("go", "e"), cap10)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, store.FaultTransient, store.Classify(err))
	d, err := sender.DeliverOrInsert(t.Context(), newcomer(), deduped("go", "e"), cap10)
	require.NoError(t, err)
	require.True(t, d.Duplicate)
	require.Equal(t, 2, b.signals(id))

	// The first attempt took effect without an answer, and its instance ended and left its scope
	// before the sender looked.
	for _, m := range []*step.Signal{named("go"), deduped("go", "e")} {
		b.exec(`DELETE FROM gendurable.gen_durable`)
		quick := &interloper{text: "g.uid = $2::text::uuid", act: func() {
			b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = clock_timestamp()`)
		}}
		beside := b.cutting(func(c *pgxpool.Config) { c.ConnConfig.Tracer = quick })
		d, err := beside.DeliverOrInsert(t.Context(), newcomer(), m, cap10)
		require.NoError(t, err)
		require.True(t, d.Inserted && quick.acted.Load())
		require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
	}

	// The first attempt took effect without an answer, and the second finds its instance.
	b.exec(`DELETE FROM gendurable.gen_durable`)
	x := newcomer()
	first, err := b.DeliverOrInsert(t.Context(), x, deduped("go", "e"), cap10)
	require.NoError(t, err)
	again, err := b.DeliverOrInsert(t.Context(), x, deduped("go", "e"), cap10)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: first.Target, Queue: "q", Inserted: true}, again)
}
