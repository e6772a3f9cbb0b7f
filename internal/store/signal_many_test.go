package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func letter(a store.Address, m *step.Signal) store.Letter { return store.Letter{To: a, Signal: m} }

// deliverMany delivers with room for ten in each inbox.
func (b bench) deliverMany(list ...store.Letter) []store.Answer {
	b.t.Helper()
	got, err := b.DeliverMany(b.t.Context(), list, cap10)
	require.NoError(b.t, err)
	require.Len(b.t, got, len(list))
	return got
}

// settled returns an instance with its inbox, after deliveries.
func (b bench) settled(id int64) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(' ', status, pick_lane, await_deadline IS NULL, eligible_at > now() - interval '1 minute',
		(SELECT string_agg(concat_ws('/', name, payload, dedup_key, trace, consumed_at IS NULL), ',' ORDER BY id) FROM gendurable.signals WHERE target_id = g.id))
		FROM gendurable.gen_durable g WHERE id = $1`, id)
}

// Many letters do what so many deliveries do, one after the other, and have the same answers.
func TestDeliverManyIsDeliverInTurn(t *testing.T) {
	b := newBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		// Two of everything: one world for each way.
		var worlds [2][]int64
		for w := range worlds {
			at := func(name string) string { return fmt.Sprint(name, round, w) }
			worlds[w] = []int64{
				b.parked("go"), b.parked("stop", "go"), b.row("", ""), b.keyed(at("k")), b.keyed(at("l")),
				b.row("status, finished_at", "'done', now()"),
				b.row("status, awaits, join_round, join_size, wake_done, join_done, join_failed", "'awaiting_children', '{go}', 0, 2, 2, 0, 0"),
				b.row("status, locked_by, lease_expires_at", "'executing', 'w', now() + interval '1 h'"),
			}
			b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() - interval '1 day' WHERE id = ANY($1)`, worlds[w])
			b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at) VALUES ($1, 'go', 'a', now()), ($1, 'go', 'b', NULL)`, worlds[w][1])
			b.exec(`INSERT INTO gendurable.signals (target_id, name) SELECT $1, 'go' FROM generate_series(1, 9)`, worlds[w][3])
		}
		var letters [2][]store.Letter
		for range 1 + random.IntN(40) {
			which, by := random.IntN(10), random.IntN(2)
			m := &step.Signal{
				Name: []string{"go", "stop", "other"}[random.IntN(3)], DedupKey: []string{"", "", "a", "b", "c"}[random.IntN(5)],
				Payload: []byte(fmt.Sprint(random.IntN(100))),
			}
			if random.IntN(3) == 0 {
				m.Trace = []byte(`{"x": "y"}`)
			}
			for w := range worlds {
				at := byKey(fmt.Sprint("nobody", round, w))
				switch {
				case which < len(worlds[w]) && by == 1 && (which == 3 || which == 4):
					at = byKey(fmt.Sprint([]string{"k", "l"}[which-3], round, w))
				case which < len(worlds[w]):
					at = byID(worlds[w][which])
				}
				letters[w] = append(letters[w], letter(at, m))
			}
		}
		var want []store.Answer
		for _, l := range letters[0] {
			d, err := b.Deliver(t.Context(), l.To, l.Signal, cap10)
			want = append(want, store.Answer{Delivery: d, Err: err})
		}
		got := b.deliverMany(letters[1]...)
		woken := map[int64]bool{} // one of several letters wakes, and the answers say so of each that was sent
		for i := range want {
			if want[i].Woken {
				woken[want[i].Target] = true
			}
		}
		for i, g := range got {
			w := want[i]
			for _, is := range []error{store.ErrNoTarget, store.ErrInboxFull} {
				require.Equal(t, errors.Is(w.Err, is), errors.Is(g.Err, is), "round %d, letter %d: %v, %v", round, i, w.Err, g.Err)
			}
			require.Equal(t, w.Err == nil, g.Err == nil)
			require.Equal(t, w.Duplicate, g.Duplicate, "round %d, letter %d", round, i)
			if w.Err == nil {
				require.Equal(t, slices.Index(worlds[0], w.Target), slices.Index(worlds[1], g.Target))
				require.Equal(t, w.Queue, g.Queue)
				require.Equal(t, w.Runnable || woken[w.Target], g.Runnable, "round %d, letter %d", round, i)
			}
		}
		for i := range worlds[0] {
			require.Equal(t, b.settled(worlds[0][i]), b.settled(worlds[1][i]), "round %d, instance %d", round, i)
		}
	}
}

// A host's transaction keeps no setting of a delivery, and decides about all of it.
func TestDeliverManyInAHostsTransaction(t *testing.T) {
	b := newBench(t)
	ids := []int64{b.parked("go"), b.parked("go"), b.parked("other")}
	for _, commits := range []bool{false, true} {
		tx := b.begin()
		on := b.Within(store.Pgx(tx))
		got, err := on.DeliverMany(t.Context(), []store.Letter{letter(byID(ids[1]), named("go")), letter(byKey("nobody"), named("go")), letter(byID(ids[0]), named("go")), letter(byID(ids[2]), named("go"))}, cap10)
		require.NoError(t, err)
		require.True(t, got[0].Woken && got[2].Woken && !got[3].Woken)
		require.ErrorIs(t, got[1].Err, store.ErrNoTarget)
		var left string
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT concat(current_setting('gendurable.targets', true), current_setting('gendurable.target', true))`).Scan(&left))
		require.Empty(t, left)
		require.Equal(t, 0, b.signals(ids[0]))
		if !commits {
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, "awaiting_signal", b.status(ids[0]))
			continue
		}
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, []string{"runnable", "runnable", "awaiting_signal"}, []string{b.status(ids[0]), b.status(ids[1]), b.status(ids[2])})
	}
}

// T4: while the lock waits, the key moves to another instance. All begins anew, and each letter is
// delivered once.
func TestDeliverManyFollowsAKey(t *testing.T) {
	b := newBench(t)
	first, beside := b.keyed("k"), b.parked("go")
	tx := b.begin()
	b.inTx(tx, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), awaits = NULL WHERE id = $1`, first)
	var second int64
	require.NoError(t, tx.QueryRow(t.Context(), byHand(`INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope, status, awaits)
		VALUES ('m', 's', 'k', `+liveScope+`, 'awaiting_signal', '{go}') RETURNING id`)).Scan(&second))
	done := make(chan []store.Answer, 1)
	go func() {
		got, err := b.DeliverMany(b.t.Context(), []store.Letter{letter(byID(beside), named("go")), letter(byKey("k"), named("go")), letter(byID(first), named("go"))}, cap10)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	b.waiting(1)
	require.NoError(t, tx.Commit(t.Context()))
	got := <-done
	require.Equal(t, []int64{beside, second}, []int64{got[0].Target, got[1].Target})
	require.ErrorIs(t, got[2].Err, store.ErrNoTarget)
	require.Equal(t, []int{1, 1, 0}, []int{b.signals(beside), b.signals(second), b.signals(first)})
}

// Two calls that name the same instances the other way round, by ids and keys, follow each other.
func TestDeliverManyLocksInOrder(t *testing.T) {
	b := newBench(t)
	var forth, back []store.Letter
	for i := range 20 {
		at := byKey(fmt.Sprint("k", i))
		id := b.keyed(at.Key)
		if i%2 == 0 {
			at = byID(id)
		}
		forth, back = append(forth, letter(at, named("go"))), append([]store.Letter{letter(byID(id), named("go"))}, back...)
	}
	for range 20 {
		tx := b.begin()
		on := b.Within(store.Pgx(tx))
		_, err := on.DeliverMany(t.Context(), forth, 1000)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { _, err := b.DeliverMany(t.Context(), back, 1000); done <- err }()
		b.waiting(1)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-done)
	}
	require.Equal(t, 20*20*2, b.number(`SELECT count(*) FROM gendurable.signals`))
}

// SignalMany waits for a lock for half a second, since it keeps all other targets locked meanwhile.
// A delivery of one message waits longer.
func TestDeliverManyWaitsForLocksBriefly(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE waits (name text, long text)`)
	b.exec(`CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO waits VALUES (NEW.name, current_setting('lock_timeout')); RETURN NEW; END $$`)
	b.exec(`CREATE TRIGGER noted BEFORE INSERT ON gendurable.signals FOR EACH ROW EXECUTE FUNCTION noted()`)
	to := byID(b.parked("go"))
	_, err := b.DeliverMany(t.Context(), []store.Letter{letter(to, named("one")), letter(to, named("two"))}, cap10)
	require.NoError(t, err)
	_, err = b.Deliver(t.Context(), to, named("alone"), cap10)
	require.NoError(t, err)
	require.Equal(t, "alone 2s, one 500ms, two 500ms", b.text(`SELECT string_agg(name || ' ' || long, ', ' ORDER BY name) FROM waits`))
}
