package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// enter inserts specs as claimed, and returns their claims.
func (b bench) enter(list ...*step.Spec) ([]store.Inserted, []*step.Claim) {
	b.t.Helper()
	i := b.Insertion(list)
	require.True(b.t, i.Claim(me, lease))
	got, err := i.Try(b.t.Context())
	require.NoError(b.t, err)
	return got, i.Claims()
}

// whole returns the row of an instance as JSON, without what differs between two inserts.
func (b bench) whole(id int64) string {
	b.t.Helper()
	return b.text(`SELECT (to_jsonb(g) - '{id,uid,inserted_at,updated_at,eligible_at,lease_expires_at,claim_token,deadline}'::text[])::text
		FROM gendurable.gen_durable g WHERE id = $1`, id)
}

// An instance that is inserted as claimed equals, in every column, one that was inserted and then
// claimed, and its claim equals that claim.
func TestInsertAsClaimedIsInsertAndClaim(t *testing.T) {
	b := newBench(t)
	for name, edit := range map[string]func(x *step.Spec){
		"plain":      func(*step.Spec) {},
		"with a key": func(x *step.Spec) { x.Key = "k" },
		"with everything": func(x *step.Spec) {
			x.Key, x.Scope, x.Priority, x.Deadline = "all", step.ScopeAll, -3, time.Hour
			x.State = json.RawMessage(`{"b": 1.50, "a": [1e3, "ä"], "b": 2}`)
			x.Labels, x.Trace = json.RawMessage(`{"tenant":"t"}`), json.RawMessage(`{"traceparent":"00"}`)
			x.Retain = step.Retain{Done: step.RetainNone, Failed: time.Hour}
		},
		"of a large state": func(x *step.Spec) {
			x.State = json.RawMessage(`{"m": 1e100000, "s": "` + strings.Repeat("x", 20_000) + `"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			x := newSpec("")
			edit(x)
			usual := b.insertSpecs([]*step.Spec{x})[0].ID
			want := b.claimOne()
			row := b.whole(usual)
			b.exec(`DELETE FROM gendurable.gen_durable`)

			y := *x
			done, claims := b.enter(&y)
			require.Len(t, claims, 1)
			got := claims[0]
			require.Equal(t, store.Inserted{ID: got.ID, Claimed: true}, done[0])
			require.Equal(t, row, b.whole(got.ID))
			require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE lease_expires_at - eligible_at = $1
				AND abs(extract(epoch FROM inserted_at - eligible_at)) < 60 AND abs(extract(epoch FROM updated_at - eligible_at)) < 60
				AND claim_token = $2 AND uid = $3 AND deadline IS NOT DISTINCT FROM eligible_at + $4::interval`,
				lease, got.Token, uuid.UUID(x.UID).String(), interval(x.Deadline)))
			require.Greater(t, got.Token, want.Token)
			require.Equal(t, got.Token, got.FencingToken)
			if name == "of a large state" {
				require.True(t, got.Partial)
				held, err := b.Complete(t.Context(), me, got, 1<<20)
				require.NoError(t, err)
				require.True(t, held)
				require.Equal(t, string(want.State), string(got.State))
			}
			require.WithinDuration(t, want.InsertedAt, got.InsertedAt, time.Minute)
			require.WithinDuration(t, want.Deadline, got.Deadline, time.Minute)
			require.InDelta(t, want.Life, got.Life, float64(time.Minute))
			for _, c := range []*step.Claim{want, got} {
				c.ID, c.Token, c.FencingToken, c.InsertedAt, c.Deadline, c.Life, c.Awaited = 0, 0, 0, time.Time{}, time.Time{}, 0, nil
			}
			want.Partial = false
			require.Equal(t, want, got)
			b.exec(`DELETE FROM gendurable.gen_durable`)
		})
	}
}

func interval(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// The claims hold: they are committed as any, and another worker's commit is refused.
func TestWhatIsInsertedAsClaimedIsFenced(t *testing.T) {
	b := newBench(t)
	list := newSpecs(20, true)
	done, claims := b.enter(list...)
	require.Len(t, claims, 20)
	require.Empty(t, b.claim().Claims, "nobody else claims them")
	for i, one := range done {
		require.Equal(t, one.ID, claims[i].ID, "in input order")
	}
	wrong := *claims[0]
	wrong.Token++
	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: &wrong, Commit: ending(step.Done)}}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied)
	for _, c := range claims {
		b.outcome(c, *ending(step.Done))
	}
	require.Equal(t, 20, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'`))
}

// An occupied key gives no claim, and the others have theirs. Of two equal keys the first wins.
func TestInsertAsClaimedOnOccupiedKeys(t *testing.T) {
	b := newBench(t)
	held := b.keyed("held")
	got, claims := b.enter(specsOf("new", "held", "", "new")...)
	require.Equal(t, []store.Inserted{{ID: got[0].ID, Claimed: true}, dup(held), {ID: got[2].ID, Claimed: true}, dup(got[0].ID)}, got)
	require.Equal(t, []int64{got[0].ID, got[2].ID}, ids(claims))
	require.Equal(t, "awaiting_signal", b.status(held))
}

// Only what is due at once, in one queue, without a partition key, a policy, a window or a gate, is
// inserted as claimed, and only once by an Insertion.
func TestWhatIsNotInsertedAsClaimed(t *testing.T) {
	b := newBench(t)
	for name, edit := range map[string]func(x *step.Spec){
		"delayed":          func(x *step.Spec) { x.Delay = time.Nanosecond },
		"at a time":        func(x *step.Spec) { x.At = time.Now().Add(-time.Hour) },
		"a partition key":  func(x *step.Spec) { x.PartitionKey = "k" },
		"a policy":         func(x *step.Spec) { x.Key, x.Conflict = "k", step.ConflictReplace },
		"a window":         func(x *step.Spec) { x.Window = step.Window{Kind: step.WindowOnce, Key: "w", For: time.Hour} },
		"of another queue": func(x *step.Spec) { x.Queue = "elsewhere" },
		"of a megabyte":    func(x *step.Spec) { x.State = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`) },
	} {
		x := newSpec("")
		edit(x)
		require.False(t, store.MayClaim([]*step.Spec{newSpec(""), x}), name)
		require.False(t, b.Insertion([]*step.Spec{newSpec(""), x}).Claim(me, lease), name)
	}
	require.False(t, store.MayClaim(newSpecs(101, false)))
	require.False(t, store.MayClaim(nil))
	require.True(t, store.MayClaim(newSpecs(100, true)))

	_, err := b.SetGate(t.Context(), store.Gate{Name: "g", Machine: "m", Step: "s", Places: 1}, store.By{Actor: "test"})
	require.NoError(t, err)
	_, err = b.Poll(t.Context(), nil, nil, nil)
	require.NoError(t, err)
	require.False(t, b.Insertion(specsOf("")).Claim(me, lease), "at a gate")
}

// An insert that waits for its key waits briefly, since a slot waits with it. The next try is the
// usual one: no worker has claimed its instances.
func TestInsertAsClaimedWaitsBriefly(t *testing.T) {
	b := newBench(t)
	tx := b.begin()
	b.inTx(tx, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'k', `+liveScope+`)`)
	i := b.Insertion(specsOf("k"))
	require.True(t, i.Claim(me, lease))
	_, err := i.Try(t.Context())
	require.True(t, store.IsLockTimeout(err), "%v", err)
	require.False(t, store.Unknown(err))
	require.Empty(t, i.Claims())
	require.NoError(t, tx.Rollback(t.Context()))
	got, err := i.Try(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Inserted{ID: got[0].ID}, got[0])
	require.Empty(t, i.Claims())
	require.Equal(t, "runnable", b.status(got[0].ID))
}

// A signal that is kept for a key goes into the inbox of whom is inserted as claimed.
func TestInsertAsClaimedTakesKeptSignals(t *testing.T) {
	b := newBench(t)
	_, err := b.Keep(t.Context(), store.Address{Key: "k"}, &step.Signal{Name: "go", Keep: time.Hour}, 10)
	require.NoError(t, err)
	_, claims := b.enter(specsOf("k")...)
	require.Equal(t, 1, b.number(fmt.Sprintf(`SELECT count(*) FROM gendurable.signals WHERE target_id = %d`, claims[0].ID)))
	require.Empty(t, claims[0].Awaited)
}
