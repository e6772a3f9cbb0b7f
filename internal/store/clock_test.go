package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// behindClock returns a bench with one connection, on which a function of the test replaces one of
// the server's clocks. That works since the statements name the clocks without a schema.
func (b bench) behindClock(function string) bench {
	b.t.Helper()
	b.exec(`CREATE SCHEMA clock`)
	b.exec(function)
	return b.beside(func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["search_path"] = "clock, pg_catalog"
	})
}

// T18: a lease counts from when it is given, not from the begin of a transaction that may have
// waited. Here the transaction began an hour before.
func TestALeaseCountsFromWhenItIsGiven(t *testing.T) {
	b := newBench(t)
	late := b.behindClock(`CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		RETURN pg_catalog.clock_timestamp() + interval '1 hour'`)
	whole := func() bool {
		return b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE lease_expires_at > now() + interval '1 hour'`) == 1
	}
	b.row("", "")
	c := late.claimOne()
	require.True(t, whole(), "of a claim")

	b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now()`)
	line := late.Line()
	t.Cleanup(func() { require.NoError(t, line.Close(context.Background())) })
	_, err := line.Beat(t.Context(), me, claimsOf([]store.Entry{{Claim: c}}), lease)
	require.NoError(t, err)
	require.True(t, whole(), "of a heartbeat")
}

// T7: between the snapshot of a claim and its lock the row parks, receives the signal that it
// awaits, and is runnable again. Whichever claim takes the row gets that signal with it: a later
// statement reads the inbox, and a claim leaves a row that has changed since it looked to the next
// one. (It also leaves a row that became due since; here the claim's clock has the time of the
// wake, or a later one.)
func TestNoClaimHasTheInboxOfBefore(t *testing.T) {
	b := newBench(t)
	gated := b.behindClock(`CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN
		WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.002); END LOOP;
		RETURN pg_catalog.clock_timestamp(); END $$`)
	require.Empty(t, gated.claim().Claims, "planned before the gate closes: the planner asks the clock, too")
	id := b.row("", "")

	gate := b.begin()
	b.inTx(gate, `SELECT pg_advisory_xact_lock(1)`)
	claimed, failed := make(chan store.Claimed, 1), make(chan error, 1)
	go func() {
		got, err := gated.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: other, Machines: []string{"m/1"}, Limit: 10, Window: 10,
			Lease: lease})
		claimed <- got
		failed <- err
	}()
	steady.Eventually(t, func() bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) == 1
	})
	b.outcome(b.claimOne(), step.Commit{Kind: step.Await, Step: "two", Names: []string{"go"}})
	b.deliver(id, named("go"))
	require.NoError(t, gate.Rollback(t.Context()))

	got := <-claimed
	require.NoError(t, <-failed)
	if len(got.Claims) == 0 { // the claim has passed the row over
		got = b.claim()
	}
	require.Len(t, got.Claims, 1)
	require.Equal(t, []string{"go"}, namesOf(got.Claims[0].Awaited))
}
