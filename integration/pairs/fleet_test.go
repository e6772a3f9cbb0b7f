package pairs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/steady"
)

// Two engines that work by themselves, in place of one that is worked by hand. So steps run beside
// each other, claims are kept, and a claim jumps over blocked keys. The seed does not repeat such a
// case exactly. A verb strikes while engines work, or, with a third of the seeds, while nothing can
// run.
var _ = register(feature{name: "fleet", steps: plain("fleet")})

// gives is how long the case waits for a fleet that does not go on, of the time in which the
// process runs. Only a fault exhausts it: engines repeat a transaction within seconds.
const gives = 20 * time.Second

// launchAll starts a fleet.
func (r *rig) launchAll() error {
	if r.leaving == nil {
		r.leaving = make(chan *engine.Engine, 1)
	}
	r.fleet = make([]*engine.Engine, len(r.pools)) // before steps run
	for n := range r.fleet {
		e, err := r.launch(n)
		if err != nil {
			return err
		}
		r.fleet[n] = e
	}
	r.eng = r.fleet[0]
	return nil
}

// launch starts an engine that works by itself.
func (r *rig) launch(n int) (*engine.Engine, error) {
	c := r.config(r.pools[n])
	c.Heartbeat, c.NoGC = time.Second, true
	c.DrainTimeout = 50 * time.Millisecond // the fault "drain" has a step that waits for the end of its context
	queue := engine.Queue{PollMin: 10 * time.Millisecond, PollMax: 50 * time.Millisecond}
	c.Queues = map[string]engine.Queue{"default": queue, aside: queue}
	e, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	return e, e.Start(r.ctx)
}

// leave ends an engine of the fleet, once another one has started in its place.
func (r *rig) leave(e *engine.Engine) error {
	n := slices.Index(r.fleet, e)
	if n < 0 { // it has stopped meanwhile
		return nil
	}
	next, err := r.launch(n)
	if err != nil {
		return err
	}
	if r.fleet[n] = next; r.eng == e {
		r.eng = next
	}
	r.tell("engine %d of the fleet stops, and another one has started", n)
	return e.Stop(r.ctx)
}

// deploy starts all engines of a fleet anew.
func (r *rig) deploy() error {
	for _, e := range slices.Clone(r.fleet) {
		if err := r.leave(e); err != nil {
			return err
		}
	}
	return nil
}

// calm lets a fleet work until nothing can run.
func (r *rig) calm() error {
	if r.fleet == nil {
		return nil
	}
	_, err := r.run(mostTakes)
	return err
}

// taken returns how many steps have begun.
func (r *rig) taken() int {
	r.m.Lock()
	defer r.m.Unlock()
	return r.takes
}

// unheld waits until no other session holds a row.
func (r *rig) unheld() {
	r.m.Lock() // a step may be about to have one held
	defer r.m.Unlock()
	r.held.Wait()
}

// violated reports whether something is wrong.
func (r *rig) violated() bool {
	r.m.Lock()
	defer r.m.Unlock()
	return len(r.violations) > 0
}

// asSeen are the options of a verb that is to strike an instance as it was seen, while engines
// work.
func (r *rig) asSeen(i fsm.RawInstance) []engine.VerbOption {
	if r.fleet == nil {
		return nil
	}
	return []engine.VerbOption{engine.IfUnchanged(i)}
}

// alone reports whether no two steps of an instance may run at once. A step whose claim was taken
// away may still run when the next one begins.
func (r *rig) alone() bool {
	return slices.Contains([]string{"none", "pause", "migrate", "gc", "edit"}, r.c.Verb) &&
		!slices.Contains([]string{"kill", "stop", "over"}, r.c.Fault)
}

// runs notes that a step begins. The function that it returns notes that the step has ended.
func (r *rig) runs(v *visit) (ended func()) {
	r.progress.Add(1)
	r.m.Lock()
	defer r.m.Unlock()
	if r.begun[v.ID] = true; r.leaving == nil {
		return func() {}
	}
	r.takes++
	if r.running[v.ID]++; r.running[v.ID] > 1 && r.alone() {
		r.violations = append(r.violations, violation{"two steps of an instance run at once", fmt.Sprintf("%d at %s", v.ID, v.Step)})
	}
	return func() {
		r.m.Lock()
		defer r.m.Unlock()
		r.running[v.ID]--
	}
}

// stuck is the condition that the row g is there to be blocked.
const stuck = `(g.fsm = 'bystander' AND NOT coalesce(g.labels ? 'opened', false))`

// undoneSQL lists the work that engines have to do now, and the instances that may run now, unless
// something holds them back. Both are of one snapshot: an instance between two steps is in it once.
const undoneSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
	SELECT x.what, x.id, x.status FROM c CROSS JOIN LATERAL (
		SELECT 'claim' AS what, g.id, g.status FROM gendurable.gen_durable g WHERE g.status = 'executing'
		UNION ALL SELECT 'skip', g.id, g.status FROM gendurable.gen_durable g WHERE g.status = 'runnable' AND g.pick_lane = 5 AND NOT g.paused
		UNION ALL SELECT 'rest', g.id, g.status FROM gendurable.gen_durable g WHERE g.losers IS NOT NULL
			AND (g.status <> 'awaiting_children' OR g.losers[1] <> g.round) OR g.graphs IS NOT NULL AND g.finished_at IS NOT NULL
		UNION ALL SELECT 'timeout', g.id, g.status FROM gendurable.gen_durable g
			WHERE g.status IN ('awaiting_signal', 'awaiting_children') AND g.await_deadline <= c.now
		UNION ALL SELECT 'deadline', g.id, g.status FROM gendurable.gen_durable g WHERE g.finished_at IS NULL AND g.deadline <= c.now
		UNION ALL SELECT '', g.id, g.status FROM gendurable.gen_durable g WHERE g.status = 'runnable' AND g.pick_lane <> 5 AND NOT g.paused
			AND g.eligible_at <= c.now AND g.fsm <> 'stranger' AND NOT ` + stuck + `) x ORDER BY 2`

// holding are causes for which an instance does not run until something else happens. Others go by
// themselves.
var holding = []engine.CauseKind{
	engine.CausePaused, engine.CauseUnconverted, engine.CauseQueuePaused, engine.CauseDelayed, engine.CauseNoStep, engine.CauseKeyBehind,
	engine.CauseGate, engine.CauseGateRun, engine.CauseGateClosed, engine.CauseGateRate,
}

// await waits until nothing can run, or until so many steps have begun. It asks Why whether
// something holds an instance back: Why does not use the hints of claims. An instance that engines
// leave, though nothing holds it back, is a violation.
func (r *rig) await(until int) (left bool, err error) {
	type progress struct {
		steps int
		due   string
	}
	var busy string
	var seen progress
	looks := 0
	calm := steady.Happens(r.t, gives, func() (now progress, done bool) {
		if err = r.relieve(); err != nil {
			return now, true
		}
		now.steps = r.taken()
		if left = now.steps >= until; left || r.ctx.Err() != nil {
			return now, true
		}
		var due []fsm.ID
		if busy, due, err = r.due(); err != nil || busy == "" && len(due) == 0 {
			return now, true
		}
		if now.due = fmt.Sprint(busy, due); now != seen {
			seen, looks = now, 0
		}
		if looks++; busy != "" || looks < 6 { // it may just be about to be claimed
			return now, false
		}
		busy, err = r.heldBack(due)
		return now, err != nil || busy == ""
	})
	switch {
	case err == nil && r.ctx.Err() != nil:
		return left, context.Cause(r.ctx)
	case err != nil:
		return left, err
	case left && until >= mostTakes:
		return true, errTooMany
	case !calm:
		r.violate("engines leave work undone", "%s", busy)
	}
	return left, nil
}

// relieve ends the engine whose step waits for that, if one does.
func (r *rig) relieve() error {
	select {
	case e := <-r.leaving:
		return r.leave(e)
	default:
		return nil
	}
}

// due returns the work that engines have to do, or else the instances that may run now.
func (r *rig) due() (must string, due []fsm.ID, err error) {
	rows, _ := r.pool.Query(r.ctx, undoneSQL)
	var what, status string
	var id fsm.ID
	var all []string
	_, err = pgx.ForEachRow(rows, []any{&what, (*int64)(&id), &status}, func() error {
		if what == "" {
			due = append(due, id)
		} else {
			all = append(all, fmt.Sprintf("%s %d, %s", what, id, status))
		}
		return nil
	})
	if err != nil || len(all) > 0 {
		return fmt.Sprint(all), nil, err
	}
	return "", due, nil
}

// heldBack returns an instance that nothing holds back, or "".
func (r *rig) heldBack(due []fsm.ID) (free string, err error) {
	for _, id := range due {
		causes, err := r.eng.Admin().Why(r.ctx, id)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(causes, func(c engine.Cause) bool { return slices.Contains(holding, c.Kind) }) {
			return fmt.Sprintf("instance %d: %v", id, causes), nil
		}
	}
	return "", nil
}

// linger is how long a statement is under way to a slow server, and its answer back.
func (r *rig) linger() {
	if r.c.Fault == "slow" {
		pace.Sleep(r.ctx, time.Duration(rand.IntN(1500))*time.Microsecond) //nolint:gosec // any number
	}
}

// applied returns the outcomes that were applied, by instance.
func (r *rig) applied() map[fsm.ID][]string {
	r.m.Lock()
	defer r.m.Unlock()
	return maps.Clone(r.ran)
}
