package work

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// jumps are the keys of a queue's lines that this process has seen to be blocked, as runs of
// consecutive keys. Some of them are fresh: they may be able to begin by now. A claim jumps
// over the runs, and visits what is fresh in them: see store.Jumps.
//
// It comes into being when a claim has visited as many keys as it may, in vain: see scouter. A
// process that never meets so many blocked keys keeps nothing, and its claims send what they always
// sent.
//
// A key becomes fresh when something happens of which this process knows:
//
//   - A claim of it at the key ends, after the commit of that.
//   - A row gets in line: a claim of the process puts it there, or finds that it was inserted.
//   - Its time comes: it was closed, or in debt.
//   - An operator has opened it, by this process.
//
// The next pass of the scouter finds all other changes, also in other processes.
//
// Two looks may be under way: a slice of the scouter, and a claim. Neither sees a
// change after its snapshot. So each change has a number, and each look the number at which it
// began. A look takes back only what is older. If the process has forgotten all runs meanwhile, a
// slice that began before brings none of them back.
type jumps struct {
	mu     sync.Mutex
	active bool // a claim was cut off, and the scouter has yet to find that few keys are blocked
	runs   []run
	fresh  map[string]int64 // the number of the change
	due    map[string]time.Duration
	times  times // of due, and some that are out of date
	number int64
	epoch  int64 // the number at which all runs were last forgotten

	known int64          // the greatest id that a claim, or the scouter, has seen
	seen  map[int64]bool // the ids up to lateMost below it that were found in line

	next    time.Duration // when the next pass is due
	cost    time.Duration // of the last pass
	ended   time.Duration // when the last pass ended that has seen all keys
	passing bool          // a pass is under way
	again   bool          // another one is wanted soon, since the last one began
}

// run is a run of consecutive keys, from the first one to a text behind the last one.
type run struct {
	from, to string
	keys     int
}

const (
	// runLeast is how many keys a run has at least: a jump costs about as much as a visit.
	runLeast = 4
	// jumpsLeast is how few blocked keys are not worth remembering.
	jumpsLeast = 1000
	// runsMost and freshMost bound what one claim is told. It visits fewer keys than freshMost.
	runsMost, freshMost = 300, 1200
	// keptMost bounds the fresh keys of a queue, which each claim sorts. Beyond it the process forgets
	// what it knows.
	keptMost = 5000
	// lateMost is how far below the greatest id that it has seen a claim looks for rows in line: those
	// were inserted by transactions that took longer than others.
	lateMost = 200
	// behindMost is how many ids a claim may be behind before the scouter has to look instead.
	behindMost = 5000
	// dueNear is how much sooner the time of a key has to come than was noted to be noted again.
	dueNear = 50 * time.Millisecond
	// dueLeast is how soon a claim is repeated for keys whose time comes one after the other.
	dueLeast = 10 * time.Millisecond
	// passTimes × the time that the scouter takes for a pass is the pause before the next one, at
	// least passLeast and at most passMost. A pass that is wanted sooner comes after hasteTimes × that
	// time.
	passTimes, hasteTimes = 20, 4
	passLeast, passMost   = 250 * time.Millisecond, 25 * time.Second
	// oldest is for how long claims jump over runs without a pass that has seen all keys, besides the
	// time that passes take: passes may fail again and again, and runs are out of date by then.
	oldest = 4 * passMost
	// farthest bounds in how long the time of a key comes that is noted: a pass tells later ones.
	farthest = 2 * passMost
)

// on begins to remember, unless the last pass has just found that it is not worth it, and reports
// whether a pass is due.
func (j *jumps) on(now time.Duration) (due bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.active && j.next > now {
		return false
	}
	if !j.active {
		j.active, j.fresh, j.due, j.next, j.ended = true, map[string]int64{}, map[string]time.Duration{}, 0, now
	} else if len(j.runs) == 0 {
		j.hasten(now)
	}
	return j.next <= now
}

// off forgets everything. The caller holds mu.
func (j *jumps) off() {
	j.active, j.runs, j.fresh, j.due, j.times, j.known, j.seen = false, nil, nil, nil, nil, 0, nil
}

// forget lets all keys be visited, and has the scouter look at once.
func (j *jumps) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.active {
		j.next = 0
		j.drop()
	}
}

// drop is forget, without a look at once. The caller holds mu.
func (j *jumps) drop() {
	j.number++
	j.runs, j.epoch, j.again = nil, j.number, true
}

// soon has the scouter look as soon as its pace allows, and reports whether it looks at all.
func (j *jumps) soon(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hasten(now)
	return j.active
}

// hasten is soon under mu.
func (j *jumps) hasten(now time.Duration) {
	if j.active {
		j.again = true
		j.next = min(j.next, now+max(passLeast, hasteTimes*j.cost))
	}
}

// until returns in how long a pass is due, or a negative number.
func (j *jumps) until(now time.Duration) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.active {
		return -1
	}
	return max(0, j.next-now)
}

// open makes keys fresh, and reports whether a claim may find them so. Empty ones are none.
func (j *jumps) open(keys ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.number
	if j.active {
		j.freshen(keys...)
	}
	return j.number > before
}

// freshen is open under mu.
func (j *jumps) freshen(keys ...string) {
	for _, key := range keys {
		if key == "" {
			continue
		}
		j.number++
		delete(j.due, key)
		if j.passing || j.inRun(key) { // a pass may have seen the key before this
			j.fresh[key] = j.number
		}
	}
	if len(j.fresh) > keptMost {
		j.fresh = map[string]int64{}
		j.drop() // claims visit all keys until the next pass
	}
}

// inRun reports whether claims jump over a key. The caller holds mu.
func (j *jumps) inRun(key string) bool {
	i, ok := slices.BinarySearchFunc(j.runs, key, func(r run, key string) int { return cmp.Compare(r.from, key) })
	if !ok {
		i--
	}
	return i >= 0 && key < j.runs[i].to
}

// begin begins a pass.
func (j *jumps) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passing, j.again = true, false
}

// end ends a pass, also one that has failed.
func (j *jumps) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passing = false
}

// look returns the number at which a look begins.
func (j *jumps) look() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.number
}

// found takes over a slice, which began at a key, by a look that began at a number.
func (j *jumps) found(from string, s *store.Scouted, began int64, now time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.active || began < j.epoch {
		return
	}
	within := func(key string) bool { return key >= from && (s.Next == "" || key < s.Next) }
	var runs []run
	for _, r := range j.runs { // what is left of them outside the slice
		if r.from < from {
			runs = append(runs, run{r.from, min(r.to, from), r.keys})
		}
	}
	for i, r := range s.Runs {
		add := run{r.First, store.AfterKey(r.Last), r.Keys}
		if n := len(runs) - 1; i == 0 && s.Opens && n >= 0 && runs[n].to == from && gateOf(runs[n].from) == gateOf(add.from) {
			runs[n].to, runs[n].keys = add.to, runs[n].keys+add.keys
			continue
		}
		if r.Keys >= runLeast || i == len(s.Runs)-1 && s.Ends && s.Next != "" {
			runs = append(runs, add)
		}
	}
	for _, r := range j.runs {
		if s.Next != "" && r.to > s.Next {
			runs = append(runs, run{max(r.from, s.Next), r.to, r.keys})
		}
	}
	j.runs = runs
	maps.DeleteFunc(j.fresh, func(key string, n int64) bool { return n <= began && within(key) })
	for _, d := range s.Due {
		if _, again := j.fresh[d.Key]; !again {
			j.expect(d, now)
		}
	}
	if j.known == 0 {
		j.known = max(1, s.Newest)
	}
}

// gateOf returns the name of the gate of a key.
func gateOf(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// expect notes when the time of a key comes. The caller holds mu.
func (j *jumps) expect(d store.BlockedKey, now time.Duration) {
	if *d.Wait > farthest.Microseconds() { // a key may be closed for thousands of years
		return
	}
	at := now + time.Duration(*d.Wait)*time.Microsecond
	if old, ok := j.due[d.Key]; ok && at-old < time.Second && old-at < dueNear {
		return
	}
	j.due[d.Key] = at
	heap.Push(&j.times, timed{at, d.Key})
}

// passed ends a pass that took so long, and found so many blocked keys.
func (j *jumps) passed(blocked int, cost, now time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cost, j.next, j.ended = cost, now+min(max(passTimes*cost, passLeast), passMost), now
	if blocked < jumpsLeast {
		j.off()
		return
	}
	if j.again { // since this pass began
		j.hasten(now)
	}
	if len(j.times) > 2*len(j.due) {
		j.times = j.times[:0]
		for key, at := range j.due {
			j.times = append(j.times, timed{at, key})
		}
		heap.Init(&j.times)
	}
}

// horizon is for how long a pass tells when the time of a key comes: until the one after the next.
func (j *jumps) horizon() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cost == 0 { // there was none
		return 2 * passMost
	}
	return 2 * min(max(passTimes*j.cost, time.Second), passMost)
}

// timed is when the time of a key comes. times are in the order of a heap.
type timed struct {
	at  time.Duration
	key string
}

type times []timed

func (t *times) Len() int           { return len(*t) }
func (t *times) Less(a, b int) bool { return (*t)[a].at < (*t)[b].at }
func (t *times) Swap(a, b int)      { (*t)[a], (*t)[b] = (*t)[b], (*t)[a] }
func (t *times) Push(x any)         { *t = append(*t, x.(timed)) } //nolint:forcetypeassert // expect pushes nothing else
func (t *times) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}
