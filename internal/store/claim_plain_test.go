package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func keyless(p *store.ClaimParams) { p.Plain = true }

// Where no row has a partition key, a plain claim and another have the same effect.
func TestAPlainClaimIsAClaim(t *testing.T) {
	type outcome struct {
		claims []any
		aside  []string
		rows   []string // afterwards
		moved  int
		last   int64
		waits  bool
	}
	rows := []string{
		`'m', 's', 'default', 5, now() - interval '2 s', false, null`,
		`'m', 's', 'default', 0, now() - interval '1 s', false, '{go}'`,
		`'m', 's', 'default', 0, now() - interval '3 s', false, null`,
		`'m', 's', 'default', -1, now() + interval '1 hour', false, null`,
		`'m', 's', 'default', -2, now(), true, null`,
		`'unknown', 's', 'default', -3, now(), false, null`,
		`'m', 's', 'other', -4, now(), false, null`,
		`'m', 's', 'default', 9, now(), false, null`,
	}
	claims := func(b bench, how ...func(*store.ClaimParams)) outcome {
		for _, r := range rows {
			b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, priority, eligible_at, paused, awaits) VALUES (` + r + `)`)
		}
		b.exec(`INSERT INTO gendurable.signals (target_id, name) SELECT id, 'go' FROM gendurable.gen_durable WHERE awaits IS NOT NULL`)
		got := b.claim(append(how, knowing("m/1"), most(3), window(1000))...)
		require.False(t, got.Keyed)
		return outcome{claims: describe(got.Claims), aside: got.Aside, moved: got.Moved, last: got.Last.ID, waits: got.NextDue > 0,
			rows: b.column(`SELECT concat_ws(' ', id, status, pick_lane, locked_by, claim_token, lease_expires_at > now()) FROM gendurable.gen_durable ORDER BY id`)}
	}
	b := newBench(t)
	as := claims(b)
	require.Equal(t, as, claims(benchOn(t, pgtest.Pool(t, pgtest.Migrated(t))), keyless))
	require.Len(t, as.claims, 3)
}

// describe returns what a claim brings of its instances, but for times.
func describe(claims []*step.Claim) (out []any) {
	for _, c := range claims {
		out = append(out, []any{c.ID, c.Machine, c.Step, c.Token, c.FencingToken, c.Priority, len(c.Awaited)})
	}
	return out
}

// A row with a key keeps a plain claim from everything, since rows behind it would overtake it, and
// it may have to wait for another. It holds nothing up: the next claim takes all.
func TestAPlainClaimLeavesAQueueWithKeysAsItIs(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, partition_key, priority)
		SELECT 'm', 's', CASE WHEN n = 77 THEN 'key' END, n FROM generate_series(1, 150) n`)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority) VALUES ('unknown', 's', 0)`)
	before := b.everything()
	got := b.claim(keyless, most(120), window(1000), func(p *store.ClaimParams) {
		p.Committed = func(store.Sure) { t.Error("told of a claim that took nothing") }
	})
	require.Empty(t, got.Claims)
	require.True(t, got.Keyed)
	require.Zero(t, got.Moved)
	require.Equal(t, before, b.everything())

	got = b.claim(most(120), window(1000))
	require.Len(t, got.Claims, 120)
	require.True(t, got.Keyed)
	require.Equal(t, 1, got.Moved)
	got = b.claim(keyless, most(1000), window(1000))
	require.Len(t, got.Claims, 30, "the row with a key runs, and the others have none")
	require.False(t, got.Keyed)
}

// At a gate, and while rows are set apart, a plain claim is one like others.
func TestAPlainClaimWhereItCannotBe(t *testing.T) {
	b := newBench(t)
	keyed := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'key'`})
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() - interval '1 s'`)
	got := b.claim(keyless, func(p *store.ClaimParams) { p.Gated = true })
	require.Equal(t, []int64{keyed}, ids(got.Claims))

	bad := b.insert(columns{"fsm": `'m'`, "step": `'s'`})
	b.refuse(`RAISE 'no'`, bad)
	got = b.claim(keyless)
	require.Empty(t, got.Claims)
	require.Len(t, got.Refused, 1)
	other := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'another'`})
	got = b.claim(keyless)
	require.Equal(t, []int64{other}, ids(got.Claims))
}
