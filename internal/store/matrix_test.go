package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// sampled says of each case of a matrix in turn whether it is tested: one case in short of make
// test, one in ci of make ci, and all in make proof. SEED chooses others.
func sampled(t *testing.T, short, ci int) func() bool {
	t.Helper()
	seed := uint64(tier.Size(t, "SEED", 1, 1, 1)) //nolint:gosec // any number
	share := tier.Size(t, "SHARE", short, ci, 1)
	dice := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a sample
	return func() bool { return dice.IntN(share) == 0 }
}

// transition is one way in which a row changes, with a rule for each column that may change. A
// column without a rule must stay unchanged.
type transition struct {
	name    string // as in docs/outcomes.txt or docs/changes.txt
	from    string // the name of a fixture
	with    columns
	prepare func(s *scene)
	outcome func(s *scene) *step.Commit // committed alone and among all others, in both lanes
	keep    bool
	drop    bool           // the row is not to be kept
	happens func(s *scene) // the change, if it is not an outcome
	makes   rules
}

// group is one table of docs/outcomes.txt, or of docs/changes.txt.
type group struct {
	title, about string
	transitions  []transition
}

// known lists the columns of gen_durable, in the order of the documentation. A new column must be
// added here, and to each transition that changes it.
var known = []string{
	"id", "uid", "fsm", "fsm_version", "status", "step", "state", "result", "last_error", "errors", "failure", "fingerprint", "finished_at",
	"awaits", "await_deadline", "timed_out", "attempt", "crashes", "visit", "eligible_at",
	"locked_by", "lease_expires_at", "claim_token", "commit_id", "queue", "priority", "partition_key", "pick_lane", "paused",
	"correlation_key", "correlation_scope", "correlation_guard",
	"round", "children_pending", "dropped", "parent_id", "parent_round", "joined", "depth", "inserted_at", "updated_at",
	"deadline", "labels", "trace", "gate", "place", "seat", "run_gate", "run_place", "aside_step", "retain", "progress",
	"join_round", "join_size", "join_done", "join_failed", "wake_done", "wake_failed", "wake_ended", "losers", "graphs", "node",
	"stream_most", "stream_nth", "stream_visit",
}

var around = []string{itsInbox, itsChildren, itsBarrier, itsNext}

func TestEveryColumnIsInTheMatrix(t *testing.T) {
	b := newBench(t)
	rows, err := b.pool.Query(t.Context(), `SELECT column_name FROM information_schema.columns
		WHERE table_schema = 'gendurable' AND table_name = 'gen_durable'`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, names, known)
	for _, g := range matrix {
		for _, x := range g.transitions {
			for name := range x.makes {
				require.True(t, slices.Contains(known, name) || slices.Contains(around, name), "%s: %s", x.name, name)
			}
		}
	}
}

func TestEveryTransitionOnEveryColumn(t *testing.T) {
	b := newBench(t)
	for _, g := range matrix {
		for _, x := range g.transitions {
			if x.happens == nil {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				b.t = t
				s := b.newScene(&x)
				s.require(&x, s.run(func() { x.happens(s) }))
			})
		}
	}
}

func TestEveryOutcomeOnEveryColumn(t *testing.T) {
	b := newBench(t)
	for _, mode := range []struct {
		slow   bool
		record *store.Record
	}{{slow: false}, {slow: true}, {record: &store.Record{Took: time.Second}}} {
		slow := mode.slow
		var all []*transition
		var scenes []*scene
		for _, g := range matrix {
			for _, x := range g.transitions {
				if x.outcome == nil {
					continue
				}
				t.Run(fmt.Sprintf("%s, slow %t, recorded %t", x.name, slow, mode.record != nil), func(t *testing.T) {
					b.t = t
					s := b.newScene(&x)
					s.record = mode.record
					e := s.entry(&x)
					s.require(&x, s.run(func() { s.commit(s.mark, slow, e) }))
				})
				b.t = t
				s := b.newScene(&x)
				s.record = mode.record
				all, scenes = append(all, &x), append(scenes, s)
			}
		}
		t.Run(fmt.Sprintf("all in one batch, slow %t, recorded %t", slow, mode.record != nil), func(t *testing.T) {
			b.t = t
			b.allInOneBatch(all, scenes, slow)
		})
	}
}

// allInOneBatch commits the outcomes of all scenes in one batch, in which none may affect another.
func (b bench) allInOneBatch(all []*transition, scenes []*scene, slow bool) {
	b.t.Helper()
	var batch []store.Entry
	var members []int
	together := newMark()
	for i, x := range all {
		scenes[i].t = b.t
		e := scenes[i].entry(x)
		if e.Keyed() && !slow || e.Commit.Graph != nil { // which is alone
			continue
		}
		scenes[i].mark = together
		scenes[i].was, scenes[i].from = scenes[i].photograph(), scenes[i].clock()
		batch, members = append(batch, e), append(members, i)
	}
	require.Greater(b.t, len(batch), 10)
	b.commit(together, slow, batch...)
	for _, i := range members {
		scenes[i].until = scenes[i].clock()
		scenes[i].require(all[i], scenes[i].photograph())
	}
}

// patient is a wait that outlasts every test.
const patient = time.Minute

// inLane returns how long a commit waits: in the slow lane for the rows that others hold, otherwise
// not at all.
func inLane(slow bool) time.Duration {
	if slow {
		return patient
	}
	return 0
}

// commit commits entries of worker me, and expects that all apply.
func (b bench) commit(mark string, slow bool, entries ...store.Entry) store.Committed {
	b.t.Helper()
	got, err := b.Commit(b.t.Context(), me, mark, entries, inLane(slow))
	require.NoError(b.t, err)
	for _, e := range entries {
		require.True(b.t, got.Applied[e.Claim.ID], "instance %d was left out", e.Claim.ID)
	}
	return got
}

func (s *scene) entry(x *transition) store.Entry {
	return store.Entry{Claim: s.claim, Commit: x.outcome(s), Keep: x.keep, Drop: x.drop, Record: s.record}
}

// require compares two images of the row under the rules.
func (s *scene) require(x *transition, now image) {
	s.t.Helper()
	for _, name := range slices.Concat(known, around) {
		r, ok := x.makes[name]
		if !ok {
			r = unchanged
		}
		if !r.holds(s, s.was[name], now[name]) {
			require.Failf(s.t, x.name, "%s: want %s (%s)\n  was %s\n  is  %s", name, r.text, x.name, show(s.was[name]), show(now[name]))
		}
	}
	// A kit's clock takes an instance for delayed that is due later than it was written. It treats
	// one that was only inserted apart.
	if show(now["status"]) != "runnable" || show(now["eligible_at"]) == show(s.was["eligible_at"]) || show(now["updated_at"]) == show(now["inserted_at"]) {
		return
	}
	due, err := time.Parse(time.RFC3339Nano, show(now["eligible_at"]))
	require.NoError(s.t, err)
	written, err := time.Parse(time.RFC3339Nano, show(now["updated_at"]))
	require.NoError(s.t, err)
	require.False(s.t, due.After(written) && due.Before(time.Now()),
		"%s: due at %v, written at %v", x.name, due, written)
}

func show(v *string) string {
	if v == nil {
		return "NULL"
	}
	return *v
}

// spec returns the spec of a child or an instance to insert, with all fields set.
func (s *scene) spec(key string) step.Spec {
	return step.Spec{UID: uuid.MustParse(newUID), Machine: "new machine", Version: 2, Step: "first", Queue: "new queue", Priority: -5,
		State: []byte(`{"state": "new"}`), Key: key, PartitionKey: "new partition"}
}

const newUID = "33333333-3333-4333-8333-333333333333"

// nChildren returns specs of n children without keys.
func (s *scene) nChildren(n int) []step.Spec {
	out := make([]step.Spec, n)
	for i := range out {
		out[i] = step.Spec{UID: uuid.New(), Machine: "kid", Version: 1, Step: "start", Queue: "kids", State: []byte(`{}`)}
	}
	return out
}

// withKeys sets the keys for which children compete.
func withKeys(specs []step.Spec, keys ...string) []step.Spec {
	for i, k := range keys {
		specs[i].Key = k
	}
	return specs
}

// kid makes an executing child of the scene's row.
func (s *scene) kid(more columns) {
	s.t.Helper()
	id := s.insert(columns{"fsm": `'kid'`, "step": `'work'`, "status": `'executing'`, "locked_by": quote(me), "claim_token": `5`,
		"lease_expires_at": `now() - interval '1 second'`, "parent_id": number(s.id), "parent_round": `9`}.with(more))
	s.kids = append(s.kids, &step.Claim{ID: id, Step: "work", Token: 5, Parent: s.id, ParentRound: 9})
}

func (s *scene) kidEnds(outcome step.Commit) {
	s.t.Helper()
	s.commit(s.mark, false, store.Entry{Claim: s.kids[0], Commit: &outcome})
}

var tomorrow = time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
