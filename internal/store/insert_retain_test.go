package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Each insertion stores the retentions of its specs, and none of those that have none.
func TestInsertionsStoreRetentions(t *testing.T) {
	b := newBench(t)
	own := func(x *step.Spec) *step.Spec {
		x.Retain = step.Retain{Done: step.RetainNone, Failed: time.Hour}
		return x
	}
	verbs := map[string]func(list []*step.Spec){
		"plain": func(list []*step.Spec) { b.insertSpecs(list) },
		"keyed": func(list []*step.Spec) {
			list[0].Key, list[1].Key, list[2].Key = "c", "b", "a"
			b.insertSpecs(list)
		},
		"large": func(list []*step.Spec) {
			for _, x := range list {
				x.State, x.Key = json.RawMessage(`"`+strings.Repeat("x", 9<<20)+`"`), "large "+x.Step
			}
			b.insertSpecs(list)
		},
		"children": func(list []*step.Spec) {
			b.commit(newMark(), false, spawnOf(b.executing(nil), []step.Spec{*list[0], *list[1], *list[2]}))
		},
		"signal with start": func(list []*step.Spec) {
			for _, x := range list {
				x.Key = "start " + x.Step
				_, err := b.DeliverOrInsert(t.Context(), x, named("go"), 10)
				require.NoError(t, err)
			}
		},
		"replaced": func(list []*step.Spec) {
			for i, x := range list {
				x.Key, x.Conflict = "replaced "+x.Step, step.ConflictReplace
				before := newSpec(x.Key)
				if i != 1 {
					own(before).Retain.Done = time.Minute
				}
				b.insertSpecs([]*step.Spec{before})
			}
			b.insertSpecs(list)
		},
	}
	for name, insert := range verbs {
		list := []*step.Spec{newSpec(""), own(newSpec("")), newSpec("")}
		list[0].Step, list[1].Step, list[2].Step = "x", "y", "z"
		insert(list)
		require.Equal(t, []string{"x NULL", "y {0,3600000000,-1}", "z NULL"},
			b.column(`SELECT step || ' ' || coalesce(retain::text, 'NULL') FROM gendurable.gen_durable WHERE step IN ('x', 'y', 'z') ORDER BY step`), name)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

func TestPruneByOwnRetention(t *testing.T) {
	b := newBench(t)
	const hours = 3600_000_000
	kept := func(done, failed, cancelled int) string {
		return "'{" + number(done) + "," + number(failed) + "," + number(cancelled) + "}'"
	}
	b.ended("done", 2, "retain", kept(1*hours, -1, -1))
	b.ended("failed", 2, "retain", kept(-1, 1*hours, -1))
	b.ended("done", 1, "retain", kept(0, -1, -1))
	cancelled := b.ended("failed", 2, "retain", kept(-1, 1*hours, -1))
	b.exec(`UPDATE gendurable.gen_durable SET failure = 'cancelled' WHERE id = $1`, cancelled)
	b.ended("done", 30, "retain", "'{}'")
	stay := []int64{
		b.ended("done", 30, "retain", kept(31*hours, -1, -1)), b.ended("failed", 30, "retain", kept(0, 31*hours, 0)),
		b.ended("failed", 2, "retain", kept(0, -1, 0)), b.ended("done", 2, "retain", kept(-1, 0, 0)), b.row("retain", kept(0, 0, 0)),
		b.ended("done", 30, "retain", "'{9223372036854775807,9223372036854775807}'"),
	}
	later := b.ended("failed", 30, "retain", kept(0, 0, 31*hours))
	b.exec(`UPDATE gendurable.gen_durable SET failure = 'cancelled' WHERE id = $1`, later)
	// A child stays for its parent, whose retention is longer, and goes before it.
	parent := b.ended("done", 30, "retain, round", kept(31*hours, 0, 0)+", 3")
	child := b.ended("done", 30, "retain, parent_id, parent_round", kept(0, 0, 0)+", $1, 3", parent)
	require.Equal(t, 5, b.prune(aDay).Instances)
	require.Equal(t, append(stay, later, parent, child), b.left())
	b.exec(`UPDATE gendurable.gen_durable SET retain = '{1}' WHERE id = $1`, parent)
	require.Equal(t, 2, b.prune(aDay).Instances)
}

// A row that is not to be kept goes with its Done, and its inbox, whose unread signals are counted.
// It is there for the riders: the next of its partition key comes forward.
func TestDoneOfARowThatIsNotKept(t *testing.T) {
	b := newBench(t)
	done := func(c *step.Claim) store.Entry {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}, Drop: true}
	}
	id := b.row("retain, partition_key", "'{0,-1,-1}', 'p'")
	behind := b.row("pick_lane, partition_key, priority", "1, 'p', 1")
	c := b.claimOne()
	require.True(t, c.Fleeting)
	b.deliver(id, named("go"))
	got := b.commit(newMark(), false, done(c))
	require.Equal(t, []store.Unread{{Instance: id, Name: "go", Number: 1}}, got.Unread)
	require.True(t, got.Applied[id])
	require.Equal(t, []int64{behind}, b.left())
	require.Equal(t, 0, b.number(`SELECT count(*) FROM gendurable.signals`))
	next := b.claimOne()
	require.Equal(t, behind, next.ID)
	require.False(t, next.Fleeting)
	b.exec(`DELETE FROM gendurable.gen_durable`)

	// These stay.
	parent := b.joiner(1)
	kid := b.kidOf(parent)
	b.commit(newMark(), false, done(kid))
	was := b.executing(columns{"round": `3`})
	was.Round = 3
	b.commit(newMark(), false, done(was))
	turned := b.executing(nil)
	b.deliver(turned.ID, named("late"))
	unless := done(turned)
	unless.Commit.Unless = &step.Unless{Names: []string{"late"}, Step: "late"}
	require.True(t, b.commit(newMark(), false, unless).Turned[turned.ID])
	stale := b.executing(nil)
	stale.Token++
	left, err := b.Commit(t.Context(), me, newMark(), []store.Entry{done(stale)}, 0)
	require.NoError(t, err)
	require.Empty(t, left.Applied)
	referred := b.executing(nil)
	b.exec(`CREATE TABLE hosts (id bigint REFERENCES gendurable.gen_durable)`)
	b.exec(`INSERT INTO hosts VALUES ($1)`, referred.ID)
	require.True(t, b.commit(newMark(), false, done(referred)).Applied[referred.ID])
	require.Equal(t, "done", b.status(referred.ID))
	// An open transaction that has just referred to it keeps it, and no session waits for that.
	held, beside := b.executing(nil), b.executing(nil)
	tx := b.begin()
	b.inTx(tx, `INSERT INTO hosts VALUES ($1)`, held.ID)
	require.Len(t, b.commit(newMark(), false, done(held), done(beside)).Applied, 2)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "done", b.status(held.ID))
	require.Equal(t, []int64{parent, kid.ID, was.ID, turned.ID, stale.ID, referred.ID, held.ID}, b.left())
	require.Equal(t, "runnable", b.status(parent))
}

// Progress is there at once, while the claim holds and not after.
func TestPublish(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	for _, try := range []struct {
		worker string
		token  int64
		held   bool
	}{{me, c.Token, true}, {me, c.Token + 1, false}, {"another", c.Token, false}} {
		held, err := b.Publish(t.Context(), try.worker, c.ID, try.token, []byte(`{"of": `+number(try.token)+`}`))
		require.NoError(t, err)
		require.Equal(t, try.held, held)
	}
	got, err := b.Get(t.Context(), byID(c.ID))
	require.NoError(t, err)
	require.JSONEq(t, `{"of": 7}`, string(got.Progress))
	b.outcome(c, step.Commit{Kind: step.Next, Step: "s"})
	got, err = b.Get(t.Context(), byID(c.ID))
	require.NoError(t, err)
	require.JSONEq(t, `{"of": 7}`, string(got.Progress), "it stays")
}
