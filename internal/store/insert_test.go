package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func specsOf(keys ...string) (out []*step.Spec) {
	for _, k := range keys {
		out = append(out, newSpec(k))
	}
	return out
}

func dup(id int64) store.Inserted { return store.Inserted{ID: id, Duplicate: true} }

func (b bench) insertSpecs(list []*step.Spec) []store.Inserted {
	b.t.Helper()
	got, err := b.Insert(b.t.Context(), list)
	require.NoError(b.t, err)
	require.Len(b.t, got, len(list))
	return got
}

// Ids are drawn in input order, although rows are inserted in key order, and each result belongs to
// its own spec (T53, T89).
func TestInsertResultsInInputOrder(t *testing.T) {
	b := newBench(t)
	for _, keyed := range []bool{false, true} {
		list := newSpecs(100, keyed)
		got := b.insertSpecs(list)
		var last int64
		for i, r := range got {
			require.False(t, r.Duplicate)
			require.Greater(t, r.ID, last)
			last = r.ID
			require.Equal(t, uuid.UUID(list[i].UID).String(), b.text(`SELECT uid::text FROM gendurable.gen_durable WHERE id = $1`, r.ID))
		}
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// The first of two equal keys wins. A duplicate carries the id of the instance that occupies the
// key.
func TestInsertDuplicates(t *testing.T) {
	b := newBench(t)
	held := b.keyed("held")
	b.row("correlation_key", "'no address'")
	b.row("status, finished_at, correlation_key, correlation_scope", "'done', now(), 'ended', "+liveScope)
	kept := b.row("status, finished_at, correlation_key, correlation_scope", "'done', now(), 'kept', enum_range(NULL::gendurable.durable_status)")
	list := specsOf("z", "held", "", "a", "z", "no address", "kept", "a", "ended", "")
	list[9].Key, list[9].Scope = "held", step.ScopeNone // a key that is no address collides with nothing
	got := b.insertSpecs(list)
	for i, want := range []store.Inserted{{}, dup(held), {}, {}, dup(got[0].ID), {}, dup(kept), dup(got[3].ID), {}, {}} {
		require.Equal(t, want.Duplicate, got[i].Duplicate, "place %d", i)
		if want.Duplicate {
			require.Equal(t, want.ID, got[i].ID, "place %d", i)
		}
	}
	require.Equal(t, 10, b.number(`SELECT count(*) FROM gendurable.gen_durable`), "4 were there, 6 are new")
}

// The scope decides in which statuses the key stays occupied.
func TestKeysByScope(t *testing.T) {
	b := newBench(t)
	for scope, free := range map[step.Scope][2]bool{ // whether the key is free after Done, and after Fail
		step.ScopeLive: {true, true}, step.ScopeLiveOrDone: {false, true}, step.ScopeLiveOrFailed: {true, false},
		step.ScopeAll: {false, false}, step.ScopeNone: {true, true},
	} {
		for i, kind := range []step.Kind{step.Done, step.Fail} {
			s := newSpec(fmt.Sprint("key ", scope, kind))
			s.Scope = scope
			b.insertSpecs([]*step.Spec{s})
			c := b.claimOne()
			again := newSpec(s.Key)
			again.Queue = "elsewhere"
			require.Equal(t, scope != step.ScopeNone, b.insertSpecs([]*step.Spec{again})[0].Duplicate, "while it executes")
			b.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'elsewhere'`)
			b.outcome(c, *ending(kind))
			require.Equal(t, free[i], !b.insertSpecs([]*step.Spec{again})[0].Duplicate, "scope %d after %s", scope, kind)
		}
	}
}

// The occupant's end is not committed yet when the insert finds the key. The insert waits, and gets
// the key.
func TestInsertBehindTheEndOfAnOccupant(t *testing.T) {
	b := newBench(t)
	id := b.keyed("k")
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = $1`, id)
	result := make(chan error, 1)
	var got []store.Inserted
	go func() {
		var err error
		got, err = b.Insert(t.Context(), specsOf("a", "k"))
		result <- err
	}()
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	require.NoError(t, <-result)
	require.False(t, got[1].Duplicate)
	require.EqualValues(t, got[1].ID, b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = 'k'`))
}

// T54: the key is freed after the row was dropped and before anyone looked for its occupant. Here a
// trigger frees it in between.
func TestInsertOnAKeyThatIsFreedMeanwhile(t *testing.T) {
	b := newBench(t)
	id := b.keyed("k")
	b.exec(fmt.Sprintf(`CREATE FUNCTION free() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = %d; RETURN NULL; END $$`, id))
	b.exec(`CREATE TRIGGER free AFTER INSERT ON gendurable.gen_durable FOR EACH STATEMENT EXECUTE FUNCTION free()`)
	got := b.insertSpecs(specsOf("a", "k", "b"))
	for _, r := range got {
		require.False(t, r.Duplicate)
		require.Positive(t, r.ID)
	}
	require.EqualValues(t, got[1].ID, b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = 'k'`))
}

// T52: two processes insert the same new keys in opposite orders. Rows are inserted in key order,
// so the later process waits at the first key that both have, and holds none that the other needs.
// (A deadlock would not fail the insert, which repeats itself.)
func TestInsertOfTheSameKeysInOppositeOrders(t *testing.T) {
	b := newBench(t)
	watch := &interloper{}
	watched := b.beside(watch.on, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "5ms" })
	insert := func(keys []string, into *[]store.Inserted, done chan<- error) {
		var err error
		*into, err = watched.Insert(t.Context(), specsOf(keys...))
		done <- err
	}
	const rounds, sides = 50, 2
	for round := range rounds {
		var forth, back []store.Inserted
		keys := []string{fmt.Sprint(round, " a"), fmt.Sprint(round, " k"), fmt.Sprint(round, " z")}
		backwards := slices.Clone(keys)
		slices.Reverse(backwards)
		done := make(chan error, sides)
		stranger := b.begin() // it makes both meet in the middle in the first round
		if round == 0 {
			b.inTx(stranger, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', $1, `+liveScope+`)`, keys[1])
		}
		go insert(keys, &forth, done)
		go insert(backwards, &back, done)
		if round == 0 {
			b.waiting(sides)
		}
		require.NoError(t, stranger.Rollback(t.Context()))
		require.NoError(t, errors.Join(<-done, <-done))
		slices.Reverse(back)
		for i := range keys {
			require.Equal(t, forth[i].ID, back[i].ID)
			require.NotEqual(t, forth[i].Duplicate, back[i].Duplicate)
		}
	}
	require.Zero(t, watch.deadlocks.Load())
}

// T29, T95: an insert whose first attempt took effect recognises its own rows, and does not report
// them as duplicates.
func TestInsertRecognisesItsOwn(t *testing.T) {
	b := newBench(t)
	held := b.keyed("held")
	list := specsOf("a", "held", "b")
	first := b.insertSpecs(list)
	require.Equal(t, first, b.insertSpecs(list))
	require.Equal(t, []bool{false, true, false}, []bool{first[0].Duplicate, first[1].Duplicate, first[2].Duplicate})
	require.Equal(t, held, first[1].ID)
	require.Equal(t, 3, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
}

// The answer to the COMMIT is lost. With keys the insert tries again by itself; without keys it
// returns ErrUnknown.
func TestInsertWithoutAnswer(t *testing.T) {
	b := newBench(t)
	got := b.cutting().insertSpecs(specsOf("a", "b"))
	require.False(t, got[0].Duplicate || got[1].Duplicate)
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.gen_durable`))

	_, err := b.cutting().Insert(t.Context(), specsOf("c", ""))
	require.ErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, 4, b.number(`SELECT count(*) FROM gendurable.gen_durable`), "it had taken effect")
}

// T29: before the second attempt the instance has run and ended, and has left the scope of its key.
// It does not start a second time.
func TestInsertWithoutAnswerOfWhatHasEnded(t *testing.T) {
	b := newBench(t)
	again := &interloper{text: "OVERRIDING SYSTEM VALUE"}
	inserter := b.cutting(func(c *pgxpool.Config) { c.ConnConfig.Tracer = again })
	held := b.keyed("held")
	again.act = func() {
		again.acted.Store(false) // act at the next attempt, too
		b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id <> $1 AND status = 'runnable'`, held)
	}
	list := specsOf("a", "held", "b")
	got := inserter.insertSpecs(list)
	require.Equal(t, []bool{false, true, false}, []bool{got[0].Duplicate, got[1].Duplicate, got[2].Duplicate})
	require.Equal(t, held, got[1].ID)
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'`))
	require.Equal(t, 3, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE correlation_key = 'a' AND id = `+strconv.FormatInt(got[0].ID, 10)))
}

// One entry that Postgres refuses takes the others with it, and is a data fault.
func TestInsertRefused(t *testing.T) {
	b := newBench(t)
	list := specsOf("a", "", "b")
	list[1].State = []byte(`{"a": "\u0000"}`)
	_, err := b.Insert(t.Context(), list)
	require.Equal(t, store.FaultData, store.Classify(err), err)
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
}

func TestInsertNothing(t *testing.T) {
	b := newBench(t)
	require.Empty(t, b.insertSpecs(nil))
}

// Labels, trace and deadline arrive with the claim, also for a child. They are empty if the spec
// has none.
func TestInsertedWithWhatAccompaniesAnInstance(t *testing.T) {
	b := newBench(t)
	accompanied := func() *step.Spec {
		x := newSpec("")
		x.Labels, x.Trace, x.Deadline = json.RawMessage(`{"customer":"7","empty":""}`), json.RawMessage(`{"traceparent":"00-a-b-01"}`), time.Hour
		return x
	}
	had := func(c *step.Claim) {
		require.Equal(t, map[string]string{"customer": "7", "empty": ""}, c.Labels)
		require.Equal(t, map[string]string{"traceparent": "00-a-b-01"}, c.Trace)
		require.WithinDuration(t, c.InsertedAt.Add(time.Hour), c.Deadline, time.Minute)
		i, err := b.Get(t.Context(), byID(c.ID))
		require.NoError(t, err)
		require.Equal(t, c.Labels, i.Labels)
		require.True(t, c.Deadline.Equal(i.Deadline))
	}
	b.insertSpecs([]*step.Spec{accompanied(), newSpec("")})
	got := b.claim().Claims
	require.Len(t, got, 2)
	had(got[0])
	require.Nil(t, got[1].Labels)
	require.Nil(t, got[1].Trace)
	require.Zero(t, got[1].Deadline)

	spawn := []step.Spec{*accompanied()}
	b.commit(newMark(), false, store.Entry{Claim: got[1], Commit: &step.Commit{Kind: step.Children, Step: "s", State: json.RawMessage(`{}`), Spawn: spawn}})
	child := b.claimOne()
	require.Equal(t, got[1].ID, child.Parent)
	had(child)
}
