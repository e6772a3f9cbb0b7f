package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// lost returns the notes of lost claims.
func (b bench) lost() []string {
	b.t.Helper()
	return b.column(`SELECT partition_key || ' ' || worker || ' ' || claim_token FROM gendurable.lost_claims ORDER BY partition_key, claim_token`)
}

// lose notes a lost claim.
func (b bench) lose(key, worker string, token int64, ago string) {
	b.t.Helper()
	b.exec(`INSERT INTO gendurable.lost_claims (partition_key, worker, claim_token, lost_at) VALUES ($1, $2, $3, now() - $4::interval)`, key, worker, token, ago)
}

// living makes a worker hold its liveness lock until die is called.
func (b bench) living(worker string) (die func()) {
	b.t.Helper()
	line := b.LineOf(worker)
	require.NoError(b.t, line.Check(b.t.Context()))
	require.True(b.t, line.Connected())
	b.t.Cleanup(func() { _ = line.Close(context.Background()) })
	return func() {
		before := b.advisoryLocks()
		require.NoError(b.t, line.Close(context.Background()))
		steady.Eventually(b.t, func() bool { return b.advisoryLocks() < before })
	}
}

// advisoryLocks counts the advisory locks in this database.
func (b bench) advisoryLocks() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

func (b bench) lingering(keys ...string) []string {
	b.t.Helper()
	got, err := b.Lingering(b.t.Context(), me, keys)
	require.NoError(b.t, err)
	return got
}

// Statements that take a claim with a partition key away from its worker note it. Claims that their
// worker ends itself, and claims without a key, are not noted.
func TestTakenClaimsAreNoted(t *testing.T) {
	b := newBench(t)
	executing := func(key string, token int64, more columns) int64 {
		return b.executing(columns{"partition_key": key, "claim_token": number(token), "locked_by": quote(other)}.with(more)).ID
	}
	expired := columns{"lease_expires_at": `now() - interval '1 s'`}
	executing(`'reaped'`, 1, expired)
	executing(`'failed by the reaper'`, 2, expired.with(columns{"crashes": `5`}))
	executing(`NULL`, 3, expired)
	held := executing(`'held'`, 4, nil)
	_, err := b.Reap(t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{5}}, 100)
	require.NoError(t, err)
	require.Equal(t, []string{"failed by the reaper " + other + " 2", "reaped " + other + " 1"}, b.lost())
	require.Empty(t, b.claim(queue("none")).Claims)

	b.exec(`DELETE FROM gendurable.lost_claims`)
	waits := b.ofKey("waits", 1, nil)
	keyless := executing(`NULL`, 5, nil)
	b.operate(store.Order{Verb: store.Cancel}, held, waits, keyless)
	require.Equal(t, []string{"held " + other + " 4"}, b.lost())

	b.exec(`DELETE FROM gendurable.lost_claims`)
	b.exec(`DELETE FROM gendurable.gen_durable`)
	for _, kind := range []step.Kind{step.Done, step.Fail} {
		b.ofKey("ends", 1, nil)
		b.outcome(b.claimOne(), *ending(kind))
	}
	b.ofKey("goes back", 1, nil)
	c := b.claimOne()
	b.operate(store.Order{Verb: store.Pause}, c.ID)
	_, err = b.Release(t.Context(), me, []*step.Claim{c})
	require.NoError(t, err)
	b.operate(store.Order{Verb: store.Cancel}, c.ID)
	require.Empty(t, b.lost())
}

// Cancelling a family notes the claims of its executing members.
func TestACancelledFamilyNotesItsClaims(t *testing.T) {
	b := newBench(t)
	parent := b.joiner(2)
	for _, token := range []int64{1, 2} {
		b.executing(columns{"partition_key": quote("k" + number(token)), "claim_token": number(token), "locked_by": quote(other), "parent_id": number(parent),
			"parent_round": `1`, "depth": `1`})
	}
	b.operate(store.Order{Verb: store.Cancel, Descendants: true, Most: 10}, parent)
	require.Equal(t, []string{"k1 " + other + " 1", "k2 " + other + " 2"}, b.lost())
}

// A claim reports whether another worker's claim of its key is lost. A process knows its own lost
// claims by itself.
func TestAClaimSaysWhoLingers(t *testing.T) {
	b := newBench(t)
	b.ofKey("theirs", 9, nil)
	b.ofKey("ours", 8, nil)
	b.ofKey("nobody's", 7, nil)
	b.insert(columns{"fsm": `'m'`, "step": `'s'`})
	elsewhere := b.ofKey("elsewhere", 5, columns{"queue": `'elsewhere'`})
	b.lose("theirs", other, 1, "0")
	b.lose("theirs", me, 2, "0")
	b.lose("ours", me, 3, "0")
	b.lose("elsewhere", other, 4, "0")
	lingers := map[string]bool{}
	for _, c := range b.claim().Claims {
		lingers[c.PartitionKey] = c.Lingers
	}
	require.Equal(t, map[string]bool{"theirs": true, "ours": false, "nobody's": false, "": false}, lingers)
	c := b.claim(queue("elsewhere")).Claims[0]
	require.Equal(t, elsewhere, c.ID)
	require.True(t, c.Lingers)
}

// A claim is held up on its way to the index of executing keys. Meanwhile another claim of the key
// comes and is taken away. The first one began before all that, and still reports it.
func TestAClaimThatWasHeldUpIsToldWhoLingers(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$`)
	b.exec(`CREATE TRIGGER gate BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW
		WHEN (OLD.status = 'runnable' AND NEW.status = 'executing' AND NEW.locked_by = 'gated') EXECUTE FUNCTION gate()`)
	slow := b.ofKey("k", 9, nil)
	gate := b.begin()
	b.inTx(gate, `SELECT pg_advisory_xact_lock(1)`)
	claimed, failed := make(chan store.Claimed, 1), make(chan error, 1)
	go func() {
		got, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: "gated", Machines: []string{"m/1"}, Limit: 1, Window: 1, Lease: lease})
		claimed <- got
		failed <- err
	}()
	b.waiting(1)
	b.ofKey("k", 5, columns{"queue": `'fast'`})
	between := b.claim(queue("fast")).Claims
	require.Len(t, between, 1)
	require.False(t, between[0].Lingers)
	b.operate(store.Order{Verb: store.Cancel}, between[0].ID)
	require.NoError(t, gate.Rollback(t.Context()))
	late := (<-claimed).Claims
	require.NoError(t, <-failed)
	require.Equal(t, []int64{slow}, ids(late))
	require.True(t, late[0].Lingers)
}

// Others wait for a key while a worker lives that has lost a claim of it. A worker that asks
// deletes the notes of workers that are gone. A process whose connection broke may have its lock on
// another one before the server has given up the old.
func TestLingering(t *testing.T) {
	b := newBench(t)
	die, again := b.living(other), b.living(other)
	b.lose("a", other, 1, "0")
	b.lose("a", "gone", 2, "0")
	b.lose("b", "gone", 3, "0")
	b.lose("c", me, 4, "0")
	require.Equal(t, []string{"a"}, b.lingering("a", "b", "c", "d"))
	require.Equal(t, []string{"a " + other + " 1", "c " + me + " 4"}, b.lost())
	die()
	require.Equal(t, []string{"a"}, b.lingering("a"))
	again()
	require.Empty(t, b.lingering("a"))
	require.Equal(t, []string{"c " + me + " 4"}, b.lost())

	// In another schema the same UUID would be another worker.
	elsewhere := store.New(b.Driver(), "elsewhere").LineOf("gone")
	require.NoError(t, elsewhere.Check(t.Context()))
	defer elsewhere.Close(context.Background())
	b.lose("a", "gone", 5, "0")
	require.Empty(t, b.lingering("a"))
}

// Lingering waits for no lock: neither for another Lingering nor for a statement that deletes.
func TestLingeringBesideOthers(t *testing.T) {
	b := newBench(t)
	b.lose("a", "gone", 1, "0")
	b.lose("b", "gone", 2, "0")
	deleting := b.begin()
	b.inTx(deleting, `DELETE FROM gendurable.lost_claims WHERE partition_key = 'a'`)
	require.Empty(t, b.lingering("a"))
	require.NoError(t, deleting.Rollback(t.Context()))
	require.Equal(t, []string{"a gone 1", "b gone 2"}, b.lost())

	asking := b.begin()
	b.inTx(asking, `SELECT pg_advisory_xact_lock(hashtextextended('gendurable gendurable gone', 0))`)
	require.Equal(t, []string{"a"}, b.lingering("a"), "another asks at the moment: again")
	require.NoError(t, asking.Rollback(t.Context()))
	require.Empty(t, b.lingering("a", "b"))
}

// Landed reports the end of a lost step by its claim's token.
func TestLanded(t *testing.T) {
	b := newBench(t)
	b.lose("a", me, 1, "0")
	b.lose("a", me, 2, "0")
	b.lose("a", other, 1, "0")
	require.NoError(t, b.Landed(t.Context(), me, []int64{1, 7}))
	require.Equal(t, []string{"a " + other + " 1", "a " + me + " 2"}, b.lost())
}

// A sweep deletes notes of workers that are gone, and its own worker's notes of claims that are not
// in flight and cannot be any more.
func TestTheSweepForgetsLostClaims(t *testing.T) {
	b := newBench(t)
	die := b.living(other)
	b.lose("a", other, 1, "1 h")
	b.lose("a", "gone", 2, "0")
	b.lose("a", me, 3, "61 s")
	b.lose("a", me, 4, "61 s")
	b.lose("a", me, 5, "50 s")
	sweep := func(own *store.InFlight) {
		_, _, err := b.Sweep(t.Context(), "", 100, own)
		require.NoError(t, err)
	}
	sweep(nil)
	require.Len(t, b.lost(), 5)
	sweep(&store.InFlight{Worker: me, Tokens: []int64{4}, Lease: time.Minute})
	require.Equal(t, []string{"a " + other + " 1", "a " + me + " 4", "a " + me + " 5"}, b.lost())
	die()
	b.exec(`UPDATE gendurable.lost_claims SET lost_at = now() - interval '1 h'`)
	sweep(&store.InFlight{Worker: me, Lease: time.Minute})
	require.Empty(t, b.lost())
}

// A line notices that its session was ended. It then has no lock, and has both again when it is
// next used.
func TestALineHasItsLockAgain(t *testing.T) {
	b := newBench(t)
	line := b.LineOf(me)
	t.Cleanup(func() { require.NoError(t, line.Close(context.Background())) })
	require.NoError(t, line.Present(t.Context(), &store.Presence{Worker: newMark(), Machines: []string{}, Live: time.Minute}))
	require.Equal(t, 1, b.advisoryLocks())
	b.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	steady.Eventually(t, func() bool { return b.advisoryLocks() == 0 })
	require.Error(t, line.Check(t.Context()))
	require.False(t, line.Connected())
	require.NoError(t, line.Check(t.Context()))
	require.True(t, line.Connected())
	require.Equal(t, 1, b.advisoryLocks())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, errors.Is(line.Check(ended), context.Canceled))
}
