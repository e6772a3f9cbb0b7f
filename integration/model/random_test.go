package model_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

const (
	operations   = 200 // number in one history, on average
	compareEvery = 10  // operations between comparisons of the whole tables
	population   = 16  // number of instances from which a history inserts no more
)

// TestOneWorker runs histories of a single worker.
func TestOneWorker(t *testing.T) { check(t, worker{name: nameOf("one"), machines: machines}) }

// TestThreeWorkers runs histories of three workers, two of which do not know all machines.
func TestThreeWorkers(t *testing.T) {
	check(t, worker{name: nameOf("one"), machines: machines}, worker{name: nameOf("two"), machines: machines[:1]}, worker{name: nameOf("three"), machines: machines[1:]})
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := configure(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(2)
	}
	pgtest.NoLeaks(m)
}

// configure gives rapid the number of histories, for two tests together, which N overrides, and
// their seed. But in the proof and with N, both are the same in every run: a red run of all tests
// is the change's.
func configure() error {
	n, seed := tier.Pick(40, 5000), uint64(1)
	if text := os.Getenv("N"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			return fmt.Errorf("N=%q: want the number of histories", text)
		}
	}
	if os.Getenv("N") != "" || tier.Long() {
		seed = max(1, rand.Uint64()) // rapid takes 0 for none
	}
	checks := (n + 1) / 2
	if testing.Short() {
		checks *= 5 // rapid runs a fifth of them then
	}
	defaults := map[string]string{
		"rapid.checks": strconv.Itoa(checks), "rapid.steps": strconv.Itoa(operations), "rapid.nofailfile": "true",
		"rapid.seed": cmp.Or(os.Getenv("RAPID_SEED"), strconv.FormatUint(seed, 10)),
	}
	flag.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
	for name, value := range defaults {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("flag %s: %w", name, err)
		}
	}
	return nil
}

// random checks a property in as many random histories as configured, and logs their number and
// seed.
func random(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	tier.Figure(t, "%s histories of %s", flag.Lookup("rapid.checks").Value, t.Name())
	t.Logf("-rapid.checks=%s -rapid.seed=%s", flag.Lookup("rapid.checks").Value, flag.Lookup("rapid.seed").Value)
	rapid.Check(t, property)
}

func check(t *testing.T, workers ...worker) {
	t.Parallel()
	w := newWorld(t)
	count := map[string]int{}
	random(t, func(t *rapid.T) {
		h := &history{pair: newPair(t, w), t: t, count: count}
		for n := range workers {
			h.actors = append(h.actors, &actor{worker: workers[n]})
		}
		h.record(one(h, []string{"", "a"}, "recorded machine"))
		if h.gated = h.flip("gates"); h.gated {
			h.setGates()
		}
		h.inserts()
		t.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) { h.compare() }, "operation": func(t *rapid.T) { h.t = t; h.operate() }})
		h.end()
	})
	if !t.Failed() {
		t.Log("operations:", count)
		for _, o := range possible {
			require.Positive(t, count[o.name], "%s never happened", o.name)
		}
	}
}

// actor is a worker with the claims that it holds, and some that are spent: committed already, or
// lost with a process. Only the fence knows whether a held one is still current.
type actor struct {
	worker
	held  []claim
	spent []claim
}

// history is a pair with its actors.
type history struct {
	*pair
	t      *rapid.T
	actors []*actor
	done   int
	count  map[string]int
}

// possible lists the operations with their weights. An operation reports whether it had anything to
// operate on.
var possible = []struct {
	name   string
	weight int
	do     func(*history) bool
}{
	{"insert", 3, (*history).inserts},
	{"enter", 2, (*history).enters},
	{"commit", 16, (*history).commits},
	{"claim", 8, (*history).claims},
	{"advance", 3, (*history).advances},
	{"deliver", 10, (*history).delivers},
	{"deliver many", 3, (*history).deliversMany},
	{"wake", 4, (*history).wakes},
	{"crash", 2, (*history).crashes},
	{"beat", 1, (*history).beats},
	{"release", 2, (*history).releases},
	{"commit late", 3, (*history).commitsLate},
	{"reap", 2, func(h *history) bool { h.reap(&one(h, h.actors, "reaper").worker, h.page()); return true }},
	{"cancel", 1, (*history).cancels},
	{"redrive", 2, (*history).redrives},
	{"restart", 3, (*history).restarts},
	{"pause", 1, (*history).pauses},
	{"reschedule", 1, (*history).reschedules},
	{"prune", 1, func(h *history) bool { h.prune(retention, h.page()); return true }},
	{"time out", 2, func(h *history) bool { h.timeOut(h.page()); return true }},
	{"expire", 2, func(h *history) bool { h.expire(h.page()); return true }},
	{"cancel rest", 2, func(h *history) bool { h.cancelRest(h.page()); return true }},
	{"skip", 2, func(h *history) bool { h.skips(h.page()); return true }},
	{"sweep", 1, (*history).sweeps},
	{"fire", 1, func(h *history) bool { h.fire(); return true }},
	{"stray", 1, (*history).strays},
	{"pause queue", 1, func(h *history) bool { h.pauseQueue(one(h, queues, "queue"), h.flip("pause")); return true }},
	{"arrive", 3, (*history).arrives},
	{"transact", 3, (*history).transacts},
	{"read", 1, (*history).reads},
	{"hold", 3, (*history).holds},
	{"gate", 2, (*history).setGates},
	{"linger", 2, (*history).lingers},
	{"edit", 1, (*history).edits},
	{"rewind", 1, (*history).rewinds},
	{"migrate", 1, (*history).migrates},
	{"set aside", 2, (*history).setsAside},
	{"recall", 2, (*history).recalls},
	{"keep", 4, (*history).keeps},
	{"meet kept", 1, (*history).meets},
	{"hand over", 2, func(h *history) bool { h.handOver(); return true }},
}

var weighted = func() (all []int) {
	for n, o := range possible {
		for range o.weight {
			all = append(all, n)
		}
	}
	return all
}()

// operate does one operation. It tries the next if there is nothing to do.
func (h *history) operate() {
	n := one(h, weighted, "operation")
	for !possible[n].do(h) {
		n = (n + 1) % len(possible)
	}
	h.count[possible[n].name]++
}

func (h *history) compare() {
	if h.done++; h.done%compareEvery == 0 {
		h.compareTables()
	}
}

// end checks that everything that the history has left can still run.
func (h *history) end() {
	h.letGo()
	h.compareTables()
	h.advance(2 * time.Hour)
	h.reap(&h.actors[0].worker, 1000)
	h.timeOut(1000)
	h.expire(1000)
	h.cancelRest(1000)
	h.skips(1000)
	for _, q := range queues {
		h.recall(&h.actors[0].worker, q, steps)
		h.claim(&h.actors[0].worker, q, 1000, wide)
	}
	h.compareTables()
}

func (h *history) inserts() bool {
	if !h.room() {
		return false
	}
	h.insert(h.specs(4)...)
	return true
}

func (h *history) claims() bool {
	a, queue := one(h, h.actors, "worker"), one(h, queues, "queue")
	if len(h.left(&a.worker, queue)) == 0 && rapid.IntRange(0, 9).Draw(h.t, "in vain") < 9 {
		return false
	}
	a.held = append(a.held, h.claim(&a.worker, queue, h.upTo(4, "limit"), one(h, []look{narrow, narrow, wide, behind}, "look"))...)
	return true
}

// busy returns an actor that holds claims, or nil.
func (h *history) busy() *actor {
	var busy []*actor
	for _, a := range h.actors {
		if len(a.held) > 0 {
			busy = append(busy, a)
		}
	}
	if len(busy) == 0 {
		return nil
	}
	return one(h, busy, "worker")
}

// take takes some of an actor's claims, at least one.
func (h *history) take(a *actor) []claim {
	var taken []claim
	for range h.upTo(min(4, len(a.held)), "claims") {
		n := rapid.IntRange(0, len(a.held)-1).Draw(h.t, "claim")
		taken = append(taken, a.held[n])
		a.held = slices.Delete(a.held, n, n+1)
	}
	return taken
}

func (h *history) commits() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	taken := h.take(a)
	if len(a.spent) > 0 && h.rarely("with a late one") {
		taken = append(taken, one(h, a.spent, "late"))
	}
	h.decide(a, distinct(taken))
	return true
}

// commitsLate commits outcomes of claims that have been committed already, or belong to a process
// that was taken for dead.
func (h *history) commitsLate() bool {
	for _, a := range h.actors {
		if len(a.spent) > 0 {
			h.looks()
			h.decide(a, []claim{one(h, a.spent, "late")})
			return true
		}
	}
	return false
}

func (h *history) decide(a *actor, claims []claim) {
	decisions := make([]decision, len(claims))
	slow := h.rarely("slow")
	for n, c := range claims {
		decisions[n].claim = c
		decisions[n].outcome, decisions[n].keep = h.outcome(&c)
		slow = slow || decisions[n].slow()
	}
	if slow { // it would wait for a stranger
		decisions = slices.DeleteFunc(decisions, func(d decision) bool {
			if h.stuck(&d) && h.model.Holds(&d.Claim) {
				a.held = append(a.held, d.claim)
			}
			return h.stuck(&d)
		})
	}
	if n := slices.IndexFunc(decisions, func(d decision) bool { return d.outcome.Graph != nil }); n >= 0 { // it goes alone
		for m, d := range decisions {
			if m != n && h.model.Holds(&d.Claim) {
				a.held = append(a.held, d.claim)
			}
		}
		decisions = decisions[n : n+1]
	}
	if len(decisions) == 0 {
		return
	}
	on := h.commit(slow, decisions...)
	a.held = append(a.held, on...)
	for _, d := range decisions {
		if !slices.ContainsFunc(on, func(c claim) bool { return c.ID == d.ID && c.Visit == d.Visit }) {
			a.spend(d.claim)
		}
	}
}

// transacts commits one outcome in its step's own transaction. It does not begin if it would have
// to wait for another session.
func (h *history) transacts() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	n := rapid.IntRange(0, len(a.held)-1).Draw(h.t, "claim")
	d := decision{claim: a.held[n]}
	d.outcome, d.keep = h.outcome(&d.claim)
	if h.stuck(&d) {
		return false
	}
	a.held = slices.Delete(a.held, n, n+1)
	a.held = append(a.held, h.transact(d)...)
	a.spend(d.claim)
	return true
}

func (a *actor) spend(claims ...claim) {
	a.spent = append(a.spent, claims...)
	a.spent = a.spent[max(0, len(a.spent)-4):]
}

func (h *history) delivers() bool {
	to, name, ok := h.wakeable()
	if !ok {
		return false
	}
	h.deliver(to, name, h.payload(), one(h, dedupKeys, "dedup key"))
	return true
}

// deliversMany sends signals in one transaction, often several to one instance.
func (h *history) deliversMany() bool {
	var list []letter
	for range h.upTo(4, "letters") {
		to, name, ok := h.wakeable()
		if !ok {
			return false
		}
		for range h.upTo(3, "to it") {
			list = append(list, letter{to, name, h.payload(), one(h, dedupKeys, "dedup key")})
			name = one(h, names, "name")
		}
	}
	h.deliverMany(list)
	return true
}

// arrives sends a signal with start.
func (h *history) arrives() bool {
	spec := h.spec()
	spec.Key = one(h, keys[2:], "key")
	if i := h.model.Occupant(spec.Key); spec.Scope == model.ScopeNone || !h.room() || i != nil && h.model.Held(i.ID) {
		return false
	}
	h.arrive(spec, one(h, names, "name"), h.payload(), one(h, dedupKeys, "dedup key"))
	return true
}

// holds makes another session hold some instances, or release them.
func (h *history) holds() bool {
	if h.held() && !h.rarely("more") {
		h.letGo()
		return true
	}
	var ids []model.ID
	for range h.upTo(3, "held") {
		where := one(h, []func(*model.Instance) bool{
			func(i *model.Instance) bool { return i.Status == model.Runnable && i.PartitionKey != "" },
			func(i *model.Instance) bool { return i.Status == model.Executing },
			func(i *model.Instance) bool { return i.Status == model.AwaitingChildren },
			func(*model.Instance) bool { return true },
		}, "of those that")
		if id := h.someID(where); id != 0 && !h.model.Held(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return false
	}
	h.hold(ids...)
	return true
}

func (h *history) held() bool {
	return len(h.model.Instances(func(i *model.Instance) bool { return h.model.Held(i.ID) })) > 0
}

func (h *history) sweeps() bool {
	if h.held() { // it reports what it misses
		return false
	}
	h.sweep("north", "south")
	return true
}

func (h *history) strays() bool {
	a, queue := one(h, h.actors, "worker"), one(h, queues, "queue")
	h.stray(&a.worker, queue, a.held)
	return true
}

// page returns the number of rows that a sweep looks at: few, so that histories exceed it, or all.
func (h *history) page() int { return one(h, []int{2, 1000}, "page") }

// crashes makes a process forget its claims, or others take it for dead.
func (h *history) crashes() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	a.spend(a.held...)
	a.held = nil
	return true
}

func (h *history) beats() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	h.beat(&a.worker, distinct(a.held)...)
	return true
}

// takeLocked takes claims of a worker to be given back. The worker keeps the claims whose rows
// another session has locked: nothing becomes of them.
func (h *history) takeLocked(a *actor) []claim {
	taken := h.take(a)
	for _, c := range taken {
		if h.model.Held(c.ID) {
			a.held = append(a.held, c)
		} else {
			a.spend(c)
		}
	}
	return taken
}

func (h *history) releases() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	held := h.takeLocked(a)
	for n := range held {
		held[n].Ran = h.flip("ran")
	}
	h.release(&a.worker, held...)
	return true
}

// distinct keeps the newest claim of each instance: a newer one voids the older in the same
// process.
func distinct(claims []claim) []claim {
	var out []claim
	for n, c := range claims {
		if !slices.ContainsFunc(claims[n+1:], func(newer claim) bool { return newer.ID == c.ID }) {
			out = append(out, c)
		}
	}
	return out
}

func (h *history) advances() bool {
	h.advance(one(h, []time.Duration{time.Microsecond, time.Second, 10 * time.Second, 10 * time.Second, lease + time.Second, 2 * time.Hour}, "time"))
	return true
}

func (h *history) redrives() bool {
	id := h.someID(func(i *model.Instance) bool { return i.Status == model.Failed && i.Pending > 0 && h.free(i) })
	if id == 0 || h.rarely("any") {
		id = h.someID(func(i *model.Instance) bool { return i.Status == model.Failed && h.free(i) })
	}
	if id == 0 {
		return false
	}
	h.redrive(id)
	return true
}

func (h *history) cancels() bool {
	live := func(i *model.Instance) bool { return !i.Status.Terminal() && h.free(i) }
	id := h.someID(func(i *model.Instance) bool { return live(i) && i.Status == model.AwaitingChildren })
	if id == 0 || h.rarely("any") {
		id = h.someID(live)
	}
	switch {
	case id == 0:
		return false
	case !h.held() && h.flip("family"):
		h.cancelFamily(id)
	default:
		h.cancel(id)
	}
	return true
}

// pauses mostly pauses runnable instances, and resumes paused ones.
func (h *history) pauses() bool {
	if id := h.someID(func(i *model.Instance) bool { return i.Paused && h.free(i) }); id != 0 && h.flip("resume") {
		h.resume(id)
		return true
	}
	id := h.someID(func(i *model.Instance) bool { return i.Status == model.Runnable && h.free(i) })
	if id == 0 || h.rarely("any") {
		id = h.someID(h.free)
	}
	if id == 0 {
		return false
	}
	h.pause(id)
	return true
}

func (h *history) reschedules() bool {
	id := h.someID(func(i *model.Instance) bool { return i.Status == model.Runnable && h.free(i) })
	switch {
	case id == 0:
		return false
	case h.flip("now"):
		h.runNow(id)
	default:
		h.reschedule(id, one(h, []time.Duration{-time.Minute, 0, time.Microsecond, time.Second, time.Hour}, "in"))
	}
	return true
}

func (h *history) reads() bool {
	h.read(h.address())
	return true
}

// free reports whether an operator can change an instance at once, without waiting for another
// session.
func (h *history) free(i *model.Instance) bool {
	return !h.model.Held(i.ID) && (i.Parent == 0 || !h.model.Held(i.Parent)) && !h.model.HeldBehind(i.ID)
}
