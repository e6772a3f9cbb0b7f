package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
)

func waits(d time.Duration) func(*store.ClaimParams) {
	return func(p *store.ClaimParams) { p.Patience = d }
}

// takeTurn makes a transaction have the turn of a queue, as a claim has it until its COMMIT.
func (b bench) takeTurn(tx pgx.Tx, queue string) {
	b.t.Helper()
	b.inTx(tx, `SELECT pg_advisory_xact_lock(`+store.TurnKey("$1::text", "$2::text")+`)`, schema, queue)
}

// lockedSince counts the rows that a transaction has locked since they were last changed.
func (b bench) lockedSince(ids []int64) int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = ANY($1) AND xmax <> 0`, ids)
}

// T217: a claim whose snapshot is older than the COMMIT of another one locks the rows of the other,
// until it ends. Their outcomes meet its locks. A claim that waits for its turn takes its snapshot
// behind that COMMIT.
func TestClaimsTakeTurns(t *testing.T) {
	t.Run("with turns", func(t *testing.T) {
		b := newBench(t)
		ids := []int64{b.row("", ""), b.row("", ""), b.row("", "")}
		first := b.begin()
		b.takeTurn(first, "default")
		b.inTx(first, `UPDATE gendurable.gen_durable SET status = 'executing', pick_lane = 0, locked_by = $2, claim_token = 1,
			lease_expires_at = now() + interval '1 hour' WHERE id = ANY($1)`, ids[:2], other)
		second := make(chan []int64, 1)
		go func() { second <- claimedBy(b.claim(waits(time.Hour))) }()
		b.sleeps()
		require.NoError(t, first.Commit(t.Context()))
		require.Equal(t, ids[2:], <-second)
		require.Zero(t, b.lockedSince(ids[:2]))
	})
	t.Run("without turns", func(t *testing.T) {
		b := newBench(t)
		late := b.behindClock(`CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN
			WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.002); END LOOP;
			RETURN pg_catalog.clock_timestamp(); END $$`)
		require.Empty(t, late.claim().Claims, "planned before the gate closes: the planner asks the clock, too")
		ids := []int64{b.row("", ""), b.row("", ""), b.row("", "")}
		gate := b.begin()
		b.inTx(gate, `SELECT pg_advisory_xact_lock(1)`)
		second := make(chan []int64, 1)
		go func() { second <- claimedBy(late.claim()) }()
		b.sleeps()
		require.Len(t, b.claim(most(2)).Claims, 2)
		require.NoError(t, gate.Rollback(t.Context()))
		require.Equal(t, ids[2:], <-second)
		require.Equal(t, 2, b.lockedSince(ids[:2]), "it is why claims take turns")
	})
}

func claimedBy(got store.Claimed) []int64 { return ids(got.Claims) }

// sleeps waits until a statement sleeps.
func (b bench) sleeps() {
	b.t.Helper()
	steady.Eventually(b.t, func() bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) == 1
	})
}

// A claim that is stuck delays other claims of its queue by their patience, and no other queue.
func TestAStuckClaimDelaysOthersByTheirPatience(t *testing.T) {
	b := newBench(t)
	stuck := b.begin()
	b.takeTurn(stuck, "default")
	id, elsewhere := b.row("", ""), b.row("queue", "'other'")
	require.Equal(t, []int64{elsewhere}, ids(b.claim(queue("other"), waits(time.Hour)).Claims))
	require.Equal(t, []int64{id}, ids(b.claim(waits(20*time.Millisecond)).Claims))
	id = b.row("", "")
	require.Equal(t, []int64{id}, ids(b.claim().Claims), "nor one that takes no turn")
}
