package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func waker() *store.Waker {
	return &store.Waker{Worker: me, Lease: lease, Queues: []string{"other", "default"}, Machines: []string{"x/1", "m/1"}}
}

// deliverClaiming delivers a signal, and claims what it wakes.
func (b bench) deliverClaiming(to store.Address, m *step.Signal) (store.Delivery, []*step.Claim) {
	b.t.Helper()
	d, woken, err := b.DeliverClaiming(b.t.Context(), to, m, cap10, waker())
	require.NoError(b.t, err)
	require.NoError(b.t, woken.Err)
	return d, woken.Claims
}

// What a signal claims is, in every column, what a signal and a claim after it leave, and its claim
// is what that claim brings, with the whole inbox.
func TestASignalThatClaimsIsASignalAndAClaim(t *testing.T) {
	b := newBench(t)
	for name, park := range map[string]func() int64{
		"plain":  func() int64 { return b.parked("go") },
		"keyed":  func() int64 { return b.keyed("k") },
		"others": func() int64 { return b.parked("stop", "go") },
		"with everything": func() int64 {
			return b.row(`status, awaits, state, labels, trace, deadline, priority, attempt, crashes, visit, last_error, timed_out`,
				`'awaiting_signal', '{go}', '{"a": 1.50}', '{"t": "x"}', '{"p": "0"}', now() + interval '1 h', -3, 0, 0, 7, 'once', false`)
		},
		"that awaits children, too": func() int64 {
			return b.row(`status, awaits, await_deadline, visit, round, join_round, children_pending`,
				`'awaiting_children', '{go}', now() + interval '1 h', 4, 4, 4, 2`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			usual := park()
			b.deliver(usual, named("early"))
			d := b.deliver(usual, named("go"))
			want := b.claimOne()
			row := b.whole(usual)
			b.exec(`UPDATE gendurable.gen_durable SET correlation_key = NULL WHERE id = $1`, usual)

			other := park()
			b.deliver(other, named("early"))
			got, claims := b.deliverClaiming(byID(other), named("go"))
			require.Equal(t, store.Delivery{Target: other, Queue: d.Queue, Woken: true, Claimed: true}, got)
			require.Len(t, claims, 1)
			require.Equal(t, row, b.whole(other))
			require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND claim_token = $2 AND updated_at = eligible_at
				AND lease_expires_at - eligible_at BETWEEN $3 AND $3 + interval '1 minute' AND await_deadline IS NULL`, other, claims[0].Token, lease))
			require.Len(t, claims[0].Awaited, 1)
			require.Equal(t, want.Awaited[0].Name, claims[0].Awaited[0].Name)
			require.Greater(t, claims[0].Token, want.Token)
			require.Equal(t, claims[0].Token, claims[0].FencingToken)
			for _, c := range []*step.Claim{want, claims[0]} {
				c.ID, c.UID, c.Token, c.FencingToken, c.InsertedAt, c.Deadline, c.Life, c.Awaited = 0, [16]byte{}, 0, 0, time.Time{}, time.Time{}, 0, nil
			}
			require.Equal(t, want, claims[0])
			b.exec(`DELETE FROM gendurable.signals`)
			b.exec(`DELETE FROM gendurable.gen_durable`)
		})
	}
}

// What the worker may not run, and what the signal does not wake, is delivered to as usual, and
// brings no claim, whatever the connection has claimed before.
func TestWhatASignalDoesNotClaim(t *testing.T) {
	b := newBench(t)
	earlier := b.parked("go")
	for name, row := range map[string]struct {
		columns, values string
		want            store.Delivery
		status          string
	}{
		"another queue":   {"queue, status, awaits", "'elsewhere', 'awaiting_signal', '{go}'", store.Delivery{Queue: "elsewhere", Woken: true, Runnable: true}, "runnable"},
		"another machine": {"fsm_version, status, awaits", "2, 'awaiting_signal', '{go}'", store.Delivery{Woken: true, Runnable: true}, "runnable"},
		"a partition key": {"partition_key, status, awaits", "'p', 'awaiting_signal', '{go}'", store.Delivery{Woken: true, Runnable: true}, "runnable"},
		"paused":          {"paused, status, awaits", "true, 'awaiting_signal', '{go}'", store.Delivery{Woken: true, Runnable: true}, "runnable"},
		"another name":    {"status, awaits", "'awaiting_signal', '{stop}'", store.Delivery{}, "awaiting_signal"},
		"children":        {"status, children_pending", "'awaiting_children', 1", store.Delivery{}, "awaiting_children"},
		"runnable":        {"status", "'runnable'", store.Delivery{Runnable: true}, "runnable"},
		"executing, ours": {"status, awaits, locked_by, lease_expires_at, claim_token", "'executing', '{go}', '" + me + "', now() + interval '1 h', 3", store.Delivery{}, "executing"},
	} {
		_, claims := b.deliverClaiming(byID(earlier), named("go"))
		require.Len(t, claims, 1)
		id := b.row(row.columns, row.values)
		if row.want.Queue == "" {
			row.want.Queue = "default"
		}
		row.want.Target = id
		token := b.number(`SELECT coalesce(claim_token, 0) FROM gendurable.gen_durable WHERE id = $1`, id)
		got, claims := b.deliverClaiming(byID(id), named("go"))
		require.Equal(t, row.want, got, name)
		require.Empty(t, claims, name)
		require.Equal(t, row.status, b.status(id), name)
		require.Equal(t, 1, b.signals(id), name)
		require.Equal(t, token, b.number(`SELECT coalesce(claim_token, 0) FROM gendurable.gen_durable WHERE id = $1`, id), name)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal', locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, earlier)
		b.exec(`DELETE FROM gendurable.signals`)
	}

	id := b.parked("go")
	_, woken, err := b.DeliverClaiming(t.Context(), byID(id), named("go"), 0, waker())
	require.ErrorIs(t, err, store.ErrInboxFull)
	require.Empty(t, woken.Claims)
	require.Equal(t, "awaiting_signal", b.status(id))
	_, woken, err = b.DeliverClaiming(t.Context(), byKey("nobody"), named("go"), cap10, waker())
	require.ErrorIs(t, err, store.ErrNoTarget)
	require.Empty(t, woken.Claims)
	b.deliver(id, &step.Signal{Name: "other", DedupKey: "d"})
	got, claims := b.deliverClaiming(byID(id), &step.Signal{Name: "go", DedupKey: "d"})
	require.True(t, got.Duplicate)
	require.Empty(t, claims)
	require.Equal(t, "awaiting_signal", b.status(id))
}

// A delivery that claims waits briefly for its target, since slots wait with it, and delivers
// nothing then.
func TestASignalThatClaimsWaitsBriefly(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	tx := b.begin()
	b.inTx(tx, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
	_, woken, err := b.DeliverClaiming(t.Context(), byID(id), named("go"), cap10, waker())
	require.True(t, store.IsLockTimeout(err), "%v", err)
	require.False(t, store.Unknown(woken.Err))
	require.Zero(t, b.signals(id))
	require.NoError(t, tx.Rollback(t.Context()))
	_, claims := b.beside(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }).
		deliverClaiming(byID(id), named("go"))
	require.Len(t, claims, 1)
	require.Len(t, claims[0].Awaited, 1)
	b.outcome(claims[0], *ending(step.Done))
	require.Equal(t, "done", b.status(id))
}

// A claim that cannot be read is in doubt, and its signal is delivered all the same.
func TestASignalWhoseClaimCannotBeRead(t *testing.T) {
	b := newBench(t)
	id := b.row("status, awaits, state", "'awaiting_signal', '{go}', $1::jsonb", document(3_000, true))
	b.loseState(id)
	d, woken, err := b.DeliverClaiming(t.Context(), byID(id), named("go"), cap10, waker())
	require.NoError(t, err)
	require.True(t, d.Claimed)
	require.True(t, store.Unknown(woken.Err))
	require.Empty(t, woken.Claims)
	require.Equal(t, 1, b.signals(id))
	require.Equal(t, "executing", b.status(id))
	held, err := b.Held(t.Context(), me, "default")
	require.NoError(t, err)
	require.Len(t, held, 1)
}
