package work

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// aLine is a model of a queue's lines at a gate. All its keys but one are blocked for good. The
// jumps of a process, and the looks of its scouter and its claims, are real; what they look at is
// this.
type aLine struct {
	jumps
	blocked []string // the others
	key     string
	rows    int  // in line at the key
	held    bool // its place is taken
	begun   int
	ids     []int64 // of rows that have got in line
	wait    *int64  // what a look tells of the key while it is held
}

func newLine(held bool, rows int) *aLine {
	l := &aLine{key: "g/5", held: held, rows: rows}
	for i := range runLeast {
		l.blocked = append(l.blocked, fmt.Sprintf("g/4%d", i), fmt.Sprintf("g/6%d", i))
	}
	slices.Sort(l.blocked)
	l.on(0)
	return l
}

// keys returns the keys in line, and whether each is blocked.
func (l *aLine) keys() (keys []string, blocked map[string]bool) {
	blocked = map[string]bool{}
	for _, key := range l.blocked {
		keys, blocked[key] = append(keys, key), true
	}
	if l.rows > 0 {
		keys, blocked[l.key] = append(keys, l.key), l.held
	}
	slices.Sort(keys)
	return keys, blocked
}

// scouted is what a slice of all lines tells.
func (l *aLine) scouted() store.Scouted {
	keys, blocked := l.keys()
	out := store.Scouted{Newest: 1}
	for _, key := range keys {
		if n := len(out.Runs) - 1; !blocked[key] {
			out.Runs = append(out.Runs, store.KeyRun{})
		} else if n < 0 || out.Runs[n].Keys == 0 {
			out.Runs = append(slices.DeleteFunc(out.Runs, func(r store.KeyRun) bool { return r.Keys == 0 }), store.KeyRun{First: key, Last: key, Keys: 1})
		} else {
			out.Runs[n].Last, out.Runs[n].Keys = key, out.Runs[n].Keys+1
		}
	}
	out.Runs = slices.DeleteFunc(out.Runs, func(r store.KeyRun) bool { return r.Keys == 0 })
	if l.rows > 0 && l.held && l.wait != nil {
		out.Due = []store.BlockedKey{{Key: l.key, Wait: l.wait}}
	}
	return out
}

// jump is jumpText.
func jump(to *store.Jumps, lo string) string {
	r := runAt(to.Froms, to.Tos, lo)
	if r < 0 {
		return lo
	}
	if i, _ := slices.BinarySearch(to.Fresh, lo); i < len(to.Fresh) && to.Fresh[i] < to.Tos[r] {
		return to.Fresh[i]
	}
	return to.Tos[r]
}

// walk is a claim that has been told something: it begins a row of the key if it visits that.
func (l *aLine) walk(p *store.ClaimParams) (out store.Claimed, visits int) {
	keys, blocked := l.keys()
	for lo := "g/"; ; visits++ {
		i, _ := slices.BinarySearch(keys, jump(&p.Jumps, lo))
		if i == len(keys) {
			break
		}
		if key := keys[i]; !blocked[key] {
			l.rows, l.begun = l.rows-1, l.begun+1
		} else if len(p.Jumps.Froms) > 0 {
			v := store.BlockedKey{Key: key}
			if key == l.key {
				v.Wait = l.wait
			}
			out.Vain = append(out.Vain, v)
		}
		lo = store.AfterKey(keys[i])
	}
	for _, id := range l.ids {
		if p.Jumps.After > 0 && id > p.Jumps.After {
			out.Arrived.IDs, out.Arrived.Keys, out.Arrived.Last = append(out.Arrived.IDs, id), append(out.Arrived.Keys, l.key), id
		}
	}
	return out, visits
}

// claim is a whole claim. It returns how many keys it has visited.
func (l *aLine) claim(now time.Duration) int {
	p := store.ClaimParams{}
	looked := l.tell(&p, now)
	out, visits := l.walk(&p)
	l.learn(&p.Jumps, &out, looked, now)
	return visits
}

// actor does steps one after the other, others in between.
type actor []func()

// interleave calls play for each order of the steps of all actors.
func interleave(lengths []int, play func(order []int)) {
	var order []int
	var more func()
	more = func() {
		done := true
		for i := range lengths {
			if lengths[i] > 0 {
				done = false
				lengths[i]--
				order = append(order, i)
				more()
				order = order[:len(order)-1]
				lengths[i]++
			}
		}
		if done {
			play(order)
		}
	}
	more()
}

// faults are what an actor may do wrong. Each has to be found.
type faults struct{ sliceLooksLate, claimLooksLate, opensBeforeCommit bool }

// actors are the scouter, with two passes of one slice, claims, and an event at the key.
func (l *aLine) actors(f faults, commit, notice func()) []actor {
	slice := func() actor {
		var began int64
		var s store.Scouted
		return actor{func() { began = l.look() }, func() { s = l.scouted() }, func() {
			if f.sliceLooksLate {
				began = l.look()
			}
			l.found("", &s, began, 0)
		}}
	}
	claim := func() actor {
		var p store.ClaimParams
		var looked int64
		var out store.Claimed
		return actor{func() { looked = l.tell(&p, 0) }, func() { out, _ = l.walk(&p) }, func() {
			if f.claimLooksLate {
				looked = l.look()
			}
			l.learn(&p.Jumps, &out, looked, 0)
		}}
	}
	claims := claim()
	if tier.Long() {
		claims = append(claims, claim()...)
	}
	event := actor{commit, notice}
	if f.opensBeforeCommit {
		event = actor{notice, commit}
	}
	return []actor{append(slice(), slice()...), claims, event}
}

// lost plays all orders of the actors, and counts those after which the key has been missed: two
// more claims, without the scouter, do not begin its row.
func lost(world func() (l *aLine, commit, notice func()), f faults) (orders, lost int) {
	l, commit, notice := world()
	var lengths []int
	for _, a := range l.actors(f, commit, notice) {
		lengths = append(lengths, len(a))
	}
	interleave(lengths, func(order []int) {
		l, commit, notice := world()
		actors := l.actors(f, commit, notice)
		for _, i := range order {
			actors[i][0]()
			actors[i] = actors[i][1:]
		}
		l.claim(time.Second)
		l.claim(time.Second)
		if orders++; l.begun == 0 {
			lost++
		}
	})
	return orders, lost
}

// In each order of the slices of the scouter, a claim, and a change that sets a key free, the
// claims after that begin there. They need not wait for the scouter.
func TestNoFreeKeyIsMissed(t *testing.T) {
	none := func() {}
	began := func(l *aLine) { // it was blocked before all this, and in a run
		s := l.scouted()
		l.found("", &s, l.look(), 0)
	}
	worlds := map[string]func() (*aLine, func(), func()){
		"its claim ends": func() (*aLine, func(), func()) {
			l := newLine(true, 1)
			return l, func() { l.held = false }, func() { l.open(l.key) }
		},
		"its claim ends, in a run": func() (*aLine, func(), func()) {
			l := newLine(true, 1)
			began(l)
			l.open(l.key) // claims have visited it
			return l, func() { l.held = false }, func() { l.open(l.key) }
		},
		"a row is inserted": func() (*aLine, func(), func()) {
			l := newLine(false, 0)
			began(l)
			return l, func() { l.rows, l.ids = 1, []int64{77} }, none
		},
		"a row gets in line": func() (*aLine, func(), func()) {
			l := newLine(false, 0)
			began(l)
			return l, func() { l.rows = 1 }, func() { l.open(l.key) }
		},
		"its time comes": func() (*aLine, func(), func()) {
			l := newLine(true, 1)
			soon := (50 * time.Millisecond).Microseconds()
			l.wait = &soon
			began(l)
			return l, func() { l.held = false }, none
		},
	}
	for name, world := range worlds {
		orders, missed := lost(world, faults{})
		t.Logf("%s: %d orders", name, orders)
		require.Zero(t, missed, name)
	}
	ends := worlds["its claim ends, in a run"]
	for name, f := range map[string]faults{"a slice that looks late": {sliceLooksLate: true}, "a claim that looks late": {claimLooksLate: true},
		"a key that is opened before the commit": {opensBeforeCommit: true}} {
		_, missed := lost(ends, f)
		require.Positive(t, missed, "%s is not found", name)
	}
}

// A claim visits one key of a run at most, and the fresh ones. It visits no key in vain twice. So
// it is with a fresh key at which nothing is in line any more.
func TestClaimsVisitWhatIsFresh(t *testing.T) {
	l := newLine(true, 1)
	all := 2*runLeast + 1
	require.Equal(t, all, l.claim(0))
	s := l.scouted()
	require.Len(t, s.Runs, 1)
	l.found("", &s, l.look(), 0)
	require.Equal(t, 1, l.claim(0), "the first of the run, on the way to it")
	l.open(l.key, "g/425", "g/9")
	require.Equal(t, 3, l.claim(0), "the key, and what is behind that without rows")
	require.Equal(t, 1, l.claim(0))
	require.NotContains(t, l.fresh, l.key)
	require.NotContains(t, l.fresh, "g/425")
	l.forget()
	require.Equal(t, all, l.claim(0), "the gates have changed")
	require.Zero(t, l.until(0))
	l.passed(jumpsLeast-1, time.Second, 0)
	require.Negative(t, l.until(0), "there are few of them")
	require.False(t, l.on(time.Second), "it has just looked")
	require.Negative(t, l.until(0))
	l.open(l.key)
	require.Empty(t, l.fresh)
	require.True(t, l.on(passTimes*time.Second))
}

// Slices that meet in the middle of a run make one run of it, and replace older runs. Runs end with
// their gate.
func TestRunsOfSlices(t *testing.T) {
	var j jumps
	j.on(0)
	run5 := func(first, last string) []store.KeyRun { return []store.KeyRun{{First: first, Last: last, Keys: 5}} }
	j.found("", &store.Scouted{Runs: run5("g/a", "g/e"), Ends: true, Next: store.AfterKey("g/e")}, 0, 0)
	j.found(store.AfterKey("g/e"), &store.Scouted{Runs: run5("g/f", "g/k"), Opens: true, Ends: true, Next: store.AfterKey("g/k")}, 0, 0)
	j.found(store.AfterKey("g/k"), &store.Scouted{Runs: run5("h/a", "h/e"), Opens: true}, 0, 0)
	require.Equal(t, []run{{"g/a", store.AfterKey("g/k"), 10}, {"h/a", store.AfterKey("h/e"), 5}}, j.runs)
	j.found("g/c", &store.Scouted{Next: "g/f"}, 0, 0)
	require.Equal(t, []run{{"g/a", "g/c", 10}, {"g/f", store.AfterKey("g/k"), 10}, {"h/a", store.AfterKey("h/e"), 5}}, j.runs)
	j.found("", &store.Scouted{Runs: []store.KeyRun{{First: "g/a", Last: "g/c", Keys: 3}}}, 0, 0)
	require.Empty(t, j.runs, "it is too short")
}

// A claim is told of so many runs and fresh keys, from the key on at which it goes on at each gate.
func TestAClaimIsToldTheNearest(t *testing.T) {
	var all []string
	for _, gate := range []string{"a", "b"} {
		for i := range 100 {
			all = append(all, fmt.Sprintf("%s/%02d", gate, i))
		}
	}
	same := func(key string) string { return key }
	require.Len(t, nearest(all, 200, store.Turn{}, same), 200)
	got := nearest(all, 20, store.Turn{Gates: map[string]store.GateTurn{"a/": {After: "a/95"}, "b/": {After: "b/505"}}}, same)
	require.Equal(t, []string{"a/00", "a/01", "a/02", "a/03", "a/04", "a/95", "a/96", "a/97", "a/98", "a/99",
		"b/50", "b/51", "b/52", "b/53", "b/54", "b/55", "b/56", "b/57", "b/58", "b/59"}, got)
}

// A key whose time comes is fresh from then on. The next claim is due when the time of the next one
// comes.
func TestTheTimeOfAKey(t *testing.T) {
	l := newLine(true, 1)
	in := (3 * time.Second).Microseconds()
	l.wait = &in
	s := l.scouted()
	l.found("", &s, l.look(), 0)
	var p store.ClaimParams
	looked := l.tell(&p, time.Second)
	require.Empty(t, p.Jumps.Fresh)
	require.Equal(t, 2*time.Second, l.learn(&p.Jumps, &store.Claimed{}, looked, time.Second).next)
	p = store.ClaimParams{}
	looked = l.tell(&p, 3*time.Second)
	require.Equal(t, []string{l.key}, p.Jumps.Fresh)
	again := (time.Second).Microseconds()
	got := l.learn(&p.Jumps, &store.Claimed{Vain: []store.BlockedKey{{Key: l.key, Wait: &again}}}, looked, 3*time.Second)
	require.Equal(t, time.Second, got.next)
	require.Empty(t, l.fresh)
}

// A claim makes the keys of new rows fresh once, and reads on if there are more. If it is far
// behind, the scouter looks instead.
func TestNewRowsAreFreshOnce(t *testing.T) {
	l := newLine(true, 1)
	s := l.scouted()
	s.Newest = 1000
	l.found("", &s, l.look(), 0)
	l.passed(1000, time.Second, 0)
	var p store.ClaimParams
	looked := l.tell(&p, 0)
	require.EqualValues(t, 1000-lateMost, p.Jumps.After)
	late := store.Arrived{IDs: []int64{900, 1001}, Keys: []string{"g/42", "g/43"}, Last: 1001, New: 1001}
	got := l.learn(&p.Jumps, &store.Claimed{Arrived: late}, looked, 0)
	require.True(t, got.more)
	require.False(t, got.look)
	require.Len(t, l.fresh, 2)
	l.fresh = map[string]int64{}
	require.False(t, l.learn(&p.Jumps, &store.Claimed{Arrived: late}, looked, 0).more, "it has seen them")
	require.Empty(t, l.fresh)
	require.Equal(t, passTimes*time.Second, l.until(0))
	got = l.learn(&p.Jumps, &store.Claimed{Arrived: store.Arrived{Last: 1500, More: true, New: 1500 + behindMost + 1}}, looked, 0)
	require.Equal(t, learned{next: passLeast, look: true}, got)
	require.Equal(t, hasteTimes*time.Second, l.until(0))
	require.EqualValues(t, 1500+behindMost+1, l.known)
	l.open("h/1")
	require.Empty(t, l.fresh, "claims visit it anyway")
	l.begin()
	for i := range keptMost + 1 {
		l.open(fmt.Sprint("g/", i))
	}
	l.end()
	require.Empty(t, l.runs, "there are too many")
	require.Empty(t, l.fresh)
	l.learn(&p.Jumps, &store.Claimed{Arrived: store.Arrived{Last: 20, New: 20}}, looked, 0)
	require.EqualValues(t, 20, l.known, "the server has lost rows")
}

// A slice that began before all runs were forgotten brings none back, and the pass that it belongs
// to is followed by another one soon.
func TestAForgottenRunStaysForgotten(t *testing.T) {
	for name, drop := range map[string]func(l *aLine){
		"forget": func(l *aLine) { l.forget() },
		"too many keys": func(l *aLine) {
			for i := range keptMost + 1 {
				l.open(fmt.Sprint("g/", i))
			}
		},
	} {
		l := newLine(true, 1)
		l.begin()
		began := l.look()
		s := l.scouted()
		drop(l)
		l.found("", &s, began, 0)
		l.passed(2*jumpsLeast, time.Second, 0)
		l.end()
		require.Empty(t, l.runs, name)
		require.Equal(t, hasteTimes*time.Second, l.until(0), name)
		l.begin()
		l.found("", &s, l.look(), 0)
		l.passed(2*jumpsLeast, time.Second, 0)
		l.end()
		require.NotEmpty(t, l.runs, name)
		require.Equal(t, passTimes*time.Second, l.until(0), name)
	}
}

// A key that is closed for good has no time that a claim could wait for, and the heap of times does
// not grow with each visit.
func TestTimesAreBounded(t *testing.T) {
	l := newLine(true, 1)
	s := l.scouted()
	l.found("", &s, l.look(), 0)
	forGood := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).Unix() * 1_000_000 // as a gate that is closed without a time
	for _, wait := range []int64{forGood, math.MaxInt64, farthest.Microseconds() + 1} {
		l.expect(store.BlockedKey{Key: l.key, Wait: &wait}, 0)
	}
	require.Empty(t, l.times)
	for i := range 100 {
		wait := (time.Duration(100-i) * 100 * time.Millisecond).Microseconds()
		l.expect(store.BlockedKey{Key: l.key, Wait: &wait}, 0)
	}
	l.passed(2*jumpsLeast, time.Second, 0)
	require.Len(t, l.times, 1)
	require.Equal(t, l.due[l.key], l.times[0].at)
}

// While passes fail, claims jump over runs for a bounded time only.
func TestOldRunsAreDropped(t *testing.T) {
	l := newLine(true, 1)
	s := l.scouted()
	l.found("", &s, l.look(), 0)
	l.passed(2*jumpsLeast, time.Second, 0)
	l.held = false // by another process
	require.Equal(t, 1, l.claim(oldest))
	require.Zero(t, l.begun)
	l.claim(oldest + hasteTimes*time.Second + 1)
	require.Equal(t, 1, l.begun)
}
