package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func ids(claims []*step.Claim) (out []int64) {
	for _, c := range claims {
		out = append(out, c.ID)
	}
	return out
}

func most(n int) func(*store.ClaimParams)     { return func(p *store.ClaimParams) { p.Limit = n } }
func window(n int) func(*store.ClaimParams)   { return func(p *store.ClaimParams) { p.Window = n } }
func queue(q string) func(*store.ClaimParams) { return func(p *store.ClaimParams) { p.Queue = q } }
func knowing(m ...string) func(*store.ClaimParams) {
	return func(p *store.ClaimParams) { p.Machines = m }
}
func behind(place store.Place) func(*store.ClaimParams) {
	return func(p *store.ClaimParams) { p.After = place }
}

// A large claim tells what it has committed before its rows are read: how many, and behind which
// place the next one goes on. That one, sent at once, takes other rows.
func TestACommittedClaimTellsBeforeItsRows(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority, eligible_at)
		SELECT 'm', 's', n % 3, now() - n % 7 * interval '1 s' FROM generate_series(1, 250) n`)
	var told []store.Sure
	var next store.Claimed
	got := b.claim(most(150), window(150), func(p *store.ClaimParams) {
		p.Committed = func(sure store.Sure) {
			told = append(told, sure)
			next = b.claim(most(100), window(100), behind(sure.Last))
		}
	})
	require.Len(t, got.Claims, 150)
	require.Len(t, told, 1)
	require.Equal(t, 150, told[0].Rows)
	require.True(t, told[0].More)
	require.Zero(t, told[0].Last.Compare(got.Last), "%+v is not %+v", told[0].Last, got.Last)
	require.Positive(t, told[0].Took)
	require.Len(t, next.Claims, 100)
	for _, c := range next.Claims {
		require.NotContains(t, ids(got.Claims), c.ID)
	}
}

// Whatever the place behind which a claim resumes, it takes the same rows as a claim from the
// front, without those that are before the place at its own priority. Claims that follow each
// other, each from where the last one ended, take all rows in order.
func TestClaimBehindAPlace(t *testing.T) {
	b := newBench(t)
	var places []store.Place
	for i := range 60 {
		place := store.Place{Priority: int16(rand.IntN(5) - 2), EligibleAt: time.Unix(1_500_000_000+rand.Int64N(3), 0)}
		if i%2 == 0 {
			place.EligibleAt = place.EligibleAt.Add(time.Microsecond)
		}
		place.ID = b.row("priority, eligible_at", "$1, $2", place.Priority, place.EligibleAt)
		places = append(places, place)
	}
	slices.SortFunc(places, store.Place.Compare)
	for _, place := range append([]store.Place{{}}, places...) {
		want, last := []int64{}, store.Place{}
		for _, p := range places {
			if len(want) < 25 && (p.Compare(place) > 0 || p.Priority < place.Priority) {
				want, last = append(want, p.ID), p
			}
		}
		got := b.claim(most(25), window(25), behind(place))
		require.ElementsMatch(t, want, ids(got.Claims), "behind %+v", place)
		require.Zero(t, last.Compare(got.Last), "%+v is not %+v", got.Last, last)
		require.Positive(t, got.Took)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL`)
	}
	var taken []int64
	for last := (store.Place{}); ; {
		got := b.claim(most(7), behind(last))
		taken = append(taken, ids(got.Claims)...)
		if len(got.Claims) < 7 {
			break
		}
		last = got.Last
	}
	for i, p := range places {
		require.Equal(t, p.ID, taken[i], "place %d", i)
	}
}

// Claims follow the order of priority, eligible_at and id.
func TestClaimOrder(t *testing.T) {
	b := newBench(t)
	type row struct {
		priority, age int
		id            int64
	}
	var rows []row
	for range 60 {
		r := row{priority: rand.IntN(5) - 2, age: rand.IntN(3)}
		r.id = b.row("priority, eligible_at", "$1, '2020-01-01'::timestamptz - $2 * interval '1 s'", r.priority, r.age)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(x, y row) int {
		return slices.Compare([]int64{int64(x.priority), -int64(x.age), x.id}, []int64{int64(y.priority), -int64(y.age), y.id})
	})
	var got []int64
	for len(got) < 60 {
		claimed := b.claim(most(7)).Claims
		require.Len(t, claimed, min(7, 60-len(got)))
		got = append(got, ids(claimed)...)
	}
	for i, r := range rows {
		require.Equal(t, r.id, got[i], "place %d", i)
	}
}

// T89: ties of one insert, and of one round of children, keep the input order, whatever their keys.
func TestClaimOrderOfTies(t *testing.T) {
	b := newBench(t)
	var specs []*step.Spec
	var want []string
	for i := range 30 {
		s := newSpec("")
		if i%2 == 0 {
			s.Key = fmt.Sprint("key ", 99-i)
		}
		specs, want = append(specs, s), append(want, uuid.UUID(s.UID).String())
	}
	_, err := b.Insert(t.Context(), specs)
	require.NoError(t, err)
	parent := b.executing(nil)
	round := kids(10)
	for i := range round {
		round[i].Machine, round[i].Queue = "m", "default"
		want = append(want, uuid.UUID(round[i].UID).String())
	}
	b.commit(newMark(), false, spawnOf(parent, round))
	var got []string
	for _, c := range b.claim(most(100)).Claims {
		got = append(got, uuid.UUID(c.UID).String())
	}
	require.Equal(t, want, got)
}

// newSpec returns the spec of an instance that b.claim would claim.
func newSpec(key string) *step.Spec {
	return &step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "default", State: json.RawMessage(`{}`), Key: key}
}

func TestClaimCarriesTheRow(t *testing.T) {
	b := newBench(t)
	parent := b.row("queue", "'elsewhere'")
	id := b.insert(usual.with(columns{"queue": `'default'`, "correlation_key": `'ck'`, "partition_key": `'pk'`, "parent_id": number(parent),
		"uid": quote(newUID), "gate": `'gate/1'`, "round": `11`, "dropped": `'[{"i": 4, "k": "old", "o": 1}]'`}))
	b.deliver(id, deduped("go", "evt"))
	c := b.claim(knowing("other/1", "machine/3"), queue("default")).Claims[0]
	require.Len(t, c.Awaited, 1)
	require.WithinDuration(t, time.Now(), c.Awaited[0].At, time.Minute)
	c.Awaited[0].At, c.Awaited[0].ID = time.Time{}, 0
	require.WithinDuration(t, time.Now().Add(-24*time.Hour), c.InsertedAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), c.Deadline, time.Minute)
	require.InDelta(t, 24*time.Hour, c.Life, float64(time.Minute))
	c.Deadline, c.Life = time.Time{}, 0
	require.Positive(t, c.Token)
	require.Greater(t, c.FencingToken, c.Token, "of a keyed row, drawn once its key was granted")
	require.Equal(t, &step.Claim{ID: id, UID: uuid.MustParse(newUID), Machine: "machine", Version: 3, Step: "here", Queue: "default", Priority: 7,
		CorrelationKey: "ck", PartitionKey: "pk", State: json.RawMessage(`{"state": "old"}`), Attempt: 4, Crashes: 3, Visit: 11, Token: c.Token, FencingToken: c.FencingToken,
		Parent: parent, ParentRound: 6, Depth: 2, Round: 11, JoinsAt: 8, TimedOut: true, Gate: "gate/1", InsertedAt: c.InsertedAt,
		Awaited: []step.Signal{{Name: "go", Payload: json.RawMessage(`{}`), DedupKey: "evt"}},
		Dropped: []step.Dropped{{Index: 4, Key: "old", Occupant: 1}}}, c)
}

func TestTokensGrowWithEveryClaim(t *testing.T) {
	b := newBench(t)
	b.row("", "")
	b.row("", "")
	b.row("", "")
	var last int64
	for range 3 {
		claims := b.claim().Claims
		require.Len(t, claims, 3)
		highest := last
		for _, c := range claims {
			require.Greater(t, c.Token, last)
			highest = max(highest, c.Token)
		}
		last = highest
		_, err := b.Release(t.Context(), me, claims)
		require.NoError(t, err)
	}
	require.EqualValues(t, 9, last&drawn, "drawn for claimed rows only")
}

// A release passes over a row that another session has locked, names it, and gives the others back.
// It does not name what was taken away before.
func TestReleasePassesOverLockedRows(t *testing.T) {
	b := newBench(t)
	for range 4 {
		b.row("", "")
	}
	claims := b.claim().Claims
	require.Len(t, claims, 4)
	locked, taken := claims[1].ID, claims[2].ID
	b.exec(`UPDATE gendurable.gen_durable SET claim_token = claim_token + 1 WHERE id = $1`, taken)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, locked)
	aside := []store.Aside{}
	for _, c := range claims {
		aside = append(aside, store.Aside{Claim: c})
	}
	done, err := b.Release(t.Context(), me, claims[:3])
	require.NoError(t, err)
	require.Equal(t, 1, done.Claims)
	require.Equal(t, []int64{locked}, done.Locked)
	done, err = b.SetAside(t.Context(), me, aside)
	require.NoError(t, err)
	require.Equal(t, 1, done.Claims)
	require.Equal(t, []int64{locked}, done.Locked)
	require.NoError(t, stranger.Rollback(t.Context()))
	done, err = b.Release(t.Context(), me, claims)
	require.NoError(t, err)
	require.Equal(t, 1, done.Claims)
	require.Empty(t, done.Locked)
	require.Equal(t, 3, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable'`))
}

// Runs of one attempt that are cut off in a row are one entry among the errors, which counts them,
// so that a step that begins again for ever keeps its number and pushes out no other error. Claims
// beside them that had not begun get none, and what foreign SQL has put there does no harm.
func TestRunsThatWereCutOffAreCounted(t *testing.T) {
	b := newBench(t)
	cut, beside := b.row("errors", `'[{"kind": "retry", "error": "before"}]'`), b.row("", "")
	release := func(why string) {
		claims := b.claim().Claims
		require.Len(t, claims, 2)
		for _, c := range claims {
			if c.ID == cut {
				c.CutOff = why
			}
		}
		done, err := b.Release(t.Context(), me, claims)
		require.NoError(t, err)
		require.Equal(t, 2, done.Claims)
	}
	counted := func() string {
		return b.text(`SELECT string_agg(concat_ws(' ', e->>'kind', e->>'error', e->>'times'), ', ' ORDER BY n)
			FROM gendurable.gen_durable, jsonb_array_elements(errors) WITH ORDINALITY AS l(e, n) WHERE id = $1`, cut)
	}
	for range 30 {
		release("lost")
	}
	release("drained")
	require.Equal(t, "retry before, release drained 31", counted())
	for column, value := range map[string]string{"attempt": "attempt + 1", "visit": "visit + 1"} {
		b.exec(`UPDATE gendurable.gen_durable SET `+column+` = `+value+` WHERE id = $1`, cut)
		release(column)
		release(column)
		require.True(t, strings.HasSuffix(counted(), ", release "+column+" 2"), counted())
	}
	for _, odd := range []string{`{}`, `1`, `[]`, `[1]`, `[{"kind": "release", "visit": 1, "attempt": 1, "times": "x"}]`,
		`[{"kind": "release", "visit": 1, "attempt": 1, "times": 1e300}]`, `[{"kind": "release", "visit": 1, "attempt": 1, "times": 1.5}]`} {
		b.exec(`UPDATE gendurable.gen_durable SET errors = $2 WHERE id = $1`, cut, odd)
		release("odd")
		require.Contains(t, counted(), "release odd ", odd)
		require.Positive(t, b.number(`SELECT (errors->-1->>'times')::int FROM gendurable.gen_durable WHERE id = $1`, cut), odd)
	}
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND errors IS NOT NULL`, beside))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE attempt > 1 OR crashes > 0`))
}

// A claim does not find rows that are delayed, paused, parked, ended, claimed or in another queue,
// and passes over rows that another session has locked.
func TestClaimPassesOver(t *testing.T) {
	b := newBench(t)
	b.row("priority, eligible_at", "-9, now() + interval '1 hour'")
	b.row("priority, paused", "-9, true")
	b.row("priority, queue", "-9, 'elsewhere'")
	b.row("priority, status, awaits", "-9, 'awaiting_signal', '{go}'")
	b.row("priority, status, finished_at", "-9, 'done', now()")
	b.executing(columns{"priority": `-9`})
	held, free := b.row("", ""), b.row("", "")
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, held)
	require.Equal(t, []int64{free}, ids(b.claim().Claims))
	require.NoError(t, stranger.Rollback(t.Context()))
	require.Equal(t, []int64{held}, ids(b.claim().Claims))
	require.Empty(t, b.claim().Claims)
}

// T8: the foreign key of an open transaction's signal hides no row from the pick.
func TestClaimBesideAForeignKeysLock(t *testing.T) {
	b := newBench(t)
	id := b.row("", "")
	stranger := b.begin()
	b.inTx(stranger, `INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id)
	require.Equal(t, []int64{id}, ids(b.claim().Claims))
}

func TestNextDue(t *testing.T) {
	b := newBench(t)
	require.Negative(t, b.claim().NextDue)
	b.row("priority, eligible_at", "9, now() + interval '1 hour'")
	b.row("priority, eligible_at", "1, now() + interval '1 day'")
	b.row("priority, eligible_at, paused", "1, now() + interval '1 second', true")
	b.row("priority, eligible_at, queue", "1, now() + interval '1 second', 'elsewhere'")
	b.row("", "")
	got := b.claim()
	require.Len(t, got.Claims, 1)
	require.Greater(t, got.NextDue, 50*time.Minute)
	require.LessOrEqual(t, got.NextDue, time.Hour)
}

func TestClaimTakesWhatHasComeDue(t *testing.T) {
	b := newBench(t)
	b.row("eligible_at", "clock_timestamp() + interval '100 ms'")
	for got := b.claim(); len(got.Claims) == 0; got = b.claim() {
		require.GreaterOrEqual(t, got.NextDue, time.Duration(0), "also when it comes due during the claim")
		require.LessOrEqual(t, got.NextDue, 100*time.Millisecond)
	}
}

func TestAwaitedSignalsComeWithTheClaim(t *testing.T) {
	b := newBench(t)
	one, two, none := b.row("awaits", "'{a,b}'"), b.row("awaits", "'{b}'"), b.row("", "")
	for _, id := range []int64{one, two, none} {
		for _, name := range []string{"b", "a", "x", "b"} {
			b.deliver(id, named(name))
		}
	}
	claims := b.claim().Claims
	require.Equal(t, []int64{one, two, none}, ids(claims))
	require.Equal(t, []string{"b", "a", "b"}, namesOf(claims[0].Awaited))
	require.Equal(t, []string{"b", "b"}, namesOf(claims[1].Awaited))
	require.Empty(t, claims[2].Awaited)
	require.Less(t, claims[0].Awaited[0].ID, claims[0].Awaited[2].ID, "oldest first")
}

// T74: rows of a machine or version that this worker does not know are set aside once, are
// reported, and lose no attempt. A worker that knows them takes them in their place of the order.
func TestUnknownMachines(t *testing.T) {
	b := newBench(t)
	var unknown []int64
	for i := range 5 {
		unknown = append(unknown, b.row("priority, fsm_version", "$1, 2", i))
	}
	known := b.row("priority", "2")
	got := b.claim()
	require.Equal(t, []int64{known}, ids(got.Claims))
	require.Equal(t, 5, got.Moved)
	require.Equal(t, []string{"m/2"}, got.Aside)
	got = b.claim()
	require.Zero(t, got.Moved, "they are out of the way")
	found, err := b.Poll(t.Context(), []string{"default"}, []string{"m/1"}, nil)
	require.NoError(t, err)
	require.Empty(t, found.Due)
	found, err = b.Poll(t.Context(), []string{"default"}, []string{"m/2"}, nil)
	require.NoError(t, err)
	require.Contains(t, found.Due, "default")

	require.Equal(t, unknown[:3], ids(b.claim(knowing("m/2", "x/1"), most(3)).Claims))
	require.Equal(t, unknown[3:], ids(b.claim(knowing("m/2", "x/1")).Claims))
	require.Zero(t, b.number(`SELECT sum(attempt + crashes) FROM gendurable.gen_durable`))
}

// A set-aside row that was parked or retried comes back visible, for workers that know its machine
// by then.
func TestSetAsideIsOnlyAHint(t *testing.T) {
	b := newBench(t)
	aside := b.row("pick_lane, priority", "2, 5")
	visible := b.row("priority", "7")
	require.Equal(t, []int64{aside, visible}, ids(b.claim().Claims), "in the order, as if it had never been aside")
}

// T60, T94: rows that cannot run do not starve others, and the cost of each pick is bounded: it
// moves a window of them out of the way.
func TestBlockedRowsDoNotStarveOthers(t *testing.T) {
	b := newBench(t)
	for name, columns := range map[string]string{
		"unknown machine":   "'x', 's', 'unknown machine', 0, now(), NULL",
		"one key":           "'m', 's', 'one key', 0, now(), 'hot'",
		"future":            "'m', 's', 'future', n % 3 - 9, now() + interval '1 hour', NULL",
		"future of a key":   "'m', 's', 'future of a key', -9, now() + interval '1 hour', 'hot'",
		"many idle keys":    "'m', 's', 'many idle keys', 0, now(), 'k' || n % 5",
		"unknown and keyed": "'x', 's', 'unknown and keyed', 0, now(), 'u' || n % 5",
	} {
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, priority, eligible_at, partition_key)
			SELECT ` + columns + ` FROM generate_series(1, 500) n`)
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, priority) SELECT 'm', 's', $1, 1 FROM generate_series(1, 10)`, name)
		got, claims := 0, 0
		for ; got < 10; claims++ {
			require.Less(t, claims, 9, "%s: %d of 10 after %d claims", name, got, claims)
			for _, c := range b.claim(queue(name), most(20), window(100)).Claims {
				if c.Priority == 1 {
					got++
				}
			}
		}
	}
}

// Two workers share a queue without ever sharing a row.
func TestWorkersSideBySide(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'm', 's' FROM generate_series(1, 400)`)
	found := make(chan []int64, 4)
	for i := range 4 {
		go func() {
			var mine []int64
			for empty := 0; empty < 3; {
				got, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: fmt.Sprint("w", i), Machines: []string{"m/1"}, Limit: 9,
					Window: 20, Lease: lease})
				if err != nil || len(got.Claims) == 0 {
					empty++
				}
				mine = append(mine, ids(got.Claims)...)
			}
			found <- mine
		}()
	}
	var all []int64
	for range 4 {
		all = append(all, <-found...)
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 400)
}
