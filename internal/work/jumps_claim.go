package work

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// tell sets the jumps of a claim, and returns the number at which it looks.
func (j *jumps) tell(p *store.ClaimParams, now time.Duration) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.active {
		return 0
	}
	for len(j.times) > 0 && j.times[0].at <= now {
		d := heap.Pop(&j.times).(timed) //nolint:forcetypeassert // it has nothing else
		if at, ok := j.due[d.key]; ok && at == d.at {
			j.freshen(d.key)
		}
	}
	if len(j.runs) > 0 && now-j.ended > oldest+hasteTimes*j.cost {
		j.drop()
	}
	if len(j.runs) == 0 {
		return j.number
	}
	for _, r := range nearest(j.runs, runsMost, p.Lines, func(r run) string { return r.from }) {
		p.Jumps.Froms, p.Jumps.Tos = append(p.Jumps.Froms, r.from), append(p.Jumps.Tos, r.to)
	}
	fresh := slices.DeleteFunc(slices.Sorted(maps.Keys(j.fresh)), func(key string) bool { return runAt(p.Jumps.Froms, p.Jumps.Tos, key) < 0 })
	p.Jumps.Fresh = nearest(fresh, freshMost, p.Lines, func(key string) string { return key })
	p.Jumps.After = max(1, j.known-lateMost)
	return j.number
}

// runAt returns the run in which a key is, or a negative number.
func runAt(froms, tos []string, key string) int {
	i, ok := slices.BinarySearch(froms, key)
	if !ok {
		i--
	}
	if i < 0 || key >= tos[i] {
		return -1
	}
	return i
}

// nearest returns at most so many of all, in the same order: an equal share of each gate, from the
// key on at which the claim goes on there.
func nearest[T any](all []T, most int, turn store.Turn, key func(T) string) []T {
	if len(all) <= most {
		return all
	}
	var gates [][]T
	for i, one := range all {
		if i == 0 || gateOf(key(one)) != gateOf(key(all[i-1])) {
			gates = append(gates, nil)
		}
		n := len(gates) - 1
		gates[n] = append(gates[n], one)
	}
	var some []T
	for _, of := range gates {
		share := max(1, most/len(gates))
		if len(of) <= share {
			some = append(some, of...)
			continue
		}
		name := gateOf(key(of[0])) + "/"
		at, ok := slices.BinarySearchFunc(of, turn.Gates[name].After, func(one T, after string) int { return cmp.Compare(key(one), after) })
		if !ok {
			at-- // the run in which it goes on
		}
		at = max(0, at)
		if over := at + share - len(of); over > 0 { // around
			some = append(append(some, of[:over]...), of[at:]...)
		} else {
			some = append(some, of[at:at+share]...)
		}
	}
	return some
}

// learned has the consequences of a claim.
type learned struct {
	more bool          // keys have become fresh that it was not told of
	next time.Duration // in how long the next one may find some; negative: not known
	look bool          // the scouter has to look sooner than it would
}

// learn takes over what a claim has found that looked at a number.
func (j *jumps) learn(told *store.Jumps, c *store.Claimed, looked int64, now time.Duration) learned {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.active {
		return learned{next: -1}
	}
	before := j.next
	for _, v := range c.Vain {
		j.vain(told, v, looked, now)
	}
	j.freshen(c.Entered...)
	out := learned{more: len(c.Entered) > 0, next: -1}
	if told.After > 0 {
		out.more = j.arrived(&c.Arrived, now) || out.more
		if c.Arrived.More {
			out.next = passLeast // to read on
		}
	}
	out.look = j.next < before
	for len(j.times) > 0 {
		if d := j.times[0]; j.due[d.key] != d.at {
			heap.Pop(&j.times)
			continue
		}
		out.next = sooner(out.next, max(dueLeast, j.times[0].at-now))
		break
	}
	return out
}

// vain takes a key that was visited in vain back into its run. If it was not to be visited, the
// fresh key before it has nothing in line any more. The caller holds mu.
func (j *jumps) vain(told *store.Jumps, v store.BlockedKey, looked int64, now time.Duration) {
	r := runAt(told.Froms, told.Tos, v.Key)
	if r < 0 {
		return
	}
	key := v.Key
	if i, ok := slices.BinarySearch(told.Fresh, key); !ok {
		if i == 0 || told.Fresh[i-1] < told.Froms[r] {
			return // it begins the run
		}
		key = told.Fresh[i-1]
	}
	if n, ok := j.fresh[key]; ok && n <= looked {
		delete(j.fresh, key)
	}
	if v.Wait != nil && j.fresh[v.Key] == 0 {
		j.expect(v, now)
	}
}

// arrived makes the keys of new rows fresh. The caller holds mu.
func (j *jumps) arrived(a *store.Arrived, now time.Duration) (more bool) {
	if j.seen == nil {
		j.seen = map[int64]bool{}
	}
	for i, id := range a.IDs {
		if !j.seen[id] {
			j.seen[id], more = true, true
			j.freshen(a.Keys[i])
		}
	}
	if a.New < j.known-lateMost { // the server has lost rows, at a failover
		j.known = a.New
		clear(j.seen)
	}
	switch before := j.known; {
	case a.More && a.New-max(before, a.Last) > behindMost:
		j.known = a.New
		j.hasten(now)
	case a.Last > before:
		// Rows of other transactions, with ids in between, may become visible later.
		if j.known = a.Last; a.Last-before > lateMost {
			j.hasten(now)
		}
	}
	maps.DeleteFunc(j.seen, func(id int64, _ bool) bool { return id <= j.known-lateMost })
	return more
}
