package pairs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// verb is what an operator does to one instance in the middle of a case.
type verb struct {
	name string
	// live says that the verb is for an instance that has not ended, if there is one.
	live bool
	do   func(r *rig, target fsm.RawInstance) error
}

var verbs = []verb{
	{"none", false, func(*rig, fsm.RawInstance) error { return nil }},
	{"cancel", true, func(r *rig, i fsm.RawInstance) error {
		_, err := r.eng.Admin().Cancel(r.ctx, i.ID)
		return err
	}},
	{"cancel-all", true, func(r *rig, _ fsm.RawInstance) error {
		_, err := r.eng.Admin().Cancel(r.ctx, r.root, engine.Descendants())
		return err
	}},
	{"retry", true, func(r *rig, i fsm.RawInstance) error { // of one that was cancelled
		if err := r.cancelAndRun(i.ID); err != nil {
			return err
		}
		_, err := r.eng.Admin().Retry(r.ctx, i.ID)
		return err
	}},
	{"restart", true, func(r *rig, i fsm.RawInstance) error {
		if err := r.cancelAndRun(i.ID); err != nil {
			return err
		}
		_, err := r.eng.Admin().Restart(r.ctx, i.ID)
		return err
	}},
	{"rewind", true, func(r *rig, i fsm.RawInstance) error {
		before := map[fsm.ID]bool{} // a round that it makes then may cancel its own rest
		for c, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Parent: i.ID}}) {
			if err != nil {
				return err
			}
			before[c.ID] = true
		}
		_, err := r.eng.Admin().Rewind(r.ctx, i.ID, "start", unit.Change(func(s *state) error {
			*s = beginning(s.Path, s.Kind, s.Life)
			return nil
		}), r.asSeen(i)...)
		if err != nil || i.Status != fsm.StatusAwaitingChildren {
			return err
		}
		if _, err := r.run(mostTakes); err != nil {
			return err
		}
		// It may have ended with the rest of a round above it, and all below it as well.
		if after, err := r.eng.Get(r.ctx, i.ID); err != nil || after.Failure == fsm.FailureCancelled {
			return err
		}
		for c, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Parent: i.ID}}) {
			switch {
			case err != nil:
				return err
			case before[c.ID] && c.Failure == fsm.FailureCancelled:
				r.violate("a rewind cancels children, which go on", "instance %d of %d", c.ID, i.ID)
			}
		}
		return nil
	}},
	{"rewind-late", true, func(r *rig, _ fsm.RawInstance) error { // of a node that has waited, and is beyond its first visit
		for range 4 {
			if _, err := r.run(mostTakes); err != nil {
				return err
			}
			var id *int64
			if err := r.pool.QueryRow(r.ctx, `SELECT min(g.id) FROM gendurable.gen_durable g WHERE g.finished_at IS NULL AND g.visit > 0
				AND g.status <> 'executing' AND EXISTS (SELECT FROM gendurable.edges e WHERE e.to_id = g.id)`).Scan(&id); err != nil {
				return err
			}
			if id != nil {
				r.tell("rewind of node %d", *id)
				_, err := r.eng.Admin().Rewind(r.ctx, fsm.ID(*id), "start", unit.Change(func(s *state) error {
					*s = beginning(s.Path, s.Kind, s.Life)
					return nil
				}))
				return err
			}
			if err := r.serve(); err != nil {
				return err
			}
		}
		return nil
	}},
	{"edit", true, func(r *rig, i fsm.RawInstance) error {
		_, err := r.eng.Admin().Edit(r.ctx, i.ID, unit.Change(func(s *state) error {
			s.Edited = true
			return nil
		}))
		if err != nil {
			return err
		}
		if after, err := unit.Get(r.ctx, r.eng, i.ID); err != nil || !after.State.Edited {
			r.violate("an edit is lost", "of instance %d: %v", i.ID, err)
		}
		return nil
	}},
	{"pause", true, func(r *rig, i fsm.RawInstance) error {
		if _, err := r.eng.Admin().Pause(r.ctx, i.ID); err != nil {
			return err
		}
		if _, err := r.run(mostTakes); err != nil {
			return err
		}
		if r.fleet != nil { // the step that it was at could still end
			var err error
			if i, err = r.eng.Get(r.ctx, i.ID); err != nil || i.Status.Terminal() {
				return err
			}
			if err := r.serve(); err != nil {
				return err
			}
			if _, err := r.run(mostTakes); err != nil {
				return err
			}
		}
		after, err := r.eng.Get(r.ctx, i.ID)
		switch {
		case err != nil:
			return err
		case after.Visit != i.Visit:
			r.violate("a paused instance runs", "%d went on from visit %d to %d", i.ID, i.Visit, after.Visit)
		}
		_, err = r.eng.Admin().Resume(r.ctx, i.ID)
		return err
	}},
	{"migrate", false, func(r *rig, _ fsm.RawInstance) error {
		plan, err := r.eng.Admin().Migrate(r.ctx, unit.Name(), oldUnit.Version(), unit.Version())
		if verb := (*engine.VerbError)(nil); errors.As(err, &verb) { // the definition has no migration
			return nil
		}
		if err != nil {
			return err
		}
		_, err = plan.Apply(r.ctx)
		return err
	}},
	{"delete", true, func(r *rig, _ fsm.RawInstance) error { // and a month later nothing is left
		if _, err := r.eng.Admin().Cancel(r.ctx, r.root, engine.Descendants()); err != nil {
			return err
		}
		r.gone = true
		return r.month()
	}},
	{"gc", false, func(r *rig, _ fsm.RawInstance) error { return errors.Join(r.calm(), r.sweep()) }},
	{"bounded", false, func(r *rig, i fsm.RawInstance) error { return r.boundedVerb(i) }},
}

func verbNames() (all []string) {
	for _, v := range verbs {
		all = append(all, v.name)
	}
	return all
}

// cancelAndRun cancels an instance, and lets some of the consequences run.
func (r *rig) cancelAndRun(id fsm.ID) error {
	if _, err := r.eng.Admin().Cancel(r.ctx, id); err != nil {
		return err
	}
	_, err := r.run(r.taken() + r.random.IntN(verbWithin))
	return err
}

// operate does the case's verb to an instance that the seed chooses. That a verb refuses, since it
// does not apply, is right.
func (r *rig) operate() error {
	v := verbs[slices.IndexFunc(verbs, func(v verb) bool { return v.name == r.c.Verb })]
	if r.c.Seed%3 == 0 {
		if err := r.calm(); err != nil {
			return err
		}
	}
	target, ok, err := r.choose(v.live)
	if err != nil || !ok {
		return err
	}
	err = v.do(r, target)
	r.tell("verb %s, instance %d, %s at step %s, visit %d: %v", v.name, target.ID, target.Status, target.Step, target.Visit, err)
	if refused := (*engine.VerbError)(nil); errors.Is(err, engine.ErrConflict) || errors.As(err, &refused) {
		return nil
	}
	return err
}

// choose chooses an instance of the population, by the seed: one that lives, if there is one and
// live says so. ok is false if none is there.
func (r *rig) choose(live bool) (chosen fsm.RawInstance, ok bool, err error) {
	var all, alive []fsm.RawInstance
	for i, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Machine: unit.Name()}, OldestFirst: true}) {
		if err != nil {
			return i, false, err
		}
		all = append(all, i)
		if !i.Status.Terminal() {
			alive = append(alive, i)
		}
	}
	if live && len(alive) > 0 {
		all = alive
	}
	if len(all) == 0 {
		return fsm.RawInstance{}, false, nil
	}
	return all[r.random.IntN(len(all))], true, nil
}

// repairs is how often the operator restarts what has failed. A case has one fault and one verb, so
// few suffice.
const repairs = 6

// repair mends what is broken, and runs again what has failed, until the root is done.
func (r *rig) repair() error {
	for n := 0; ; n++ {
		r.fault.mend()
		if err := r.finish(); err != nil {
			return err
		}
		i, err := r.eng.Get(r.ctx, r.root)
		switch {
		case err != nil:
			return err
		case i.Status == fsm.StatusDone || r.violated():
			return nil
		case n == repairs && slices.Contains(r.c.Life, "stream"): // one that has failed cannot be restarted
			return nil
		case n == repairs:
			r.violate("it cannot be repaired", "the root is %s after %d restarts: %s", i.Status, n, i.LastError)
			return nil
		}
		_, err = r.eng.Admin().Restart(r.ctx, r.root)
		r.tell("restart of the root, which had failed (%s): %v", i.LastError, err)
		if errors.Is(err, engine.ErrConflict) && slices.Contains(r.c.Life, "stream") {
			return nil
		}
		if err != nil {
			r.violate("it cannot be repaired", "restart: %v", err)
			return nil
		}
	}
}

// finish serves what waits and lets time pass, until everything has ended.
func (r *rig) finish() error {
	const most = 40
	for n := 0; ; n++ {
		if _, err := r.run(mostTakes); err != nil {
			return err
		}
		if err := r.look(); err != nil {
			return err
		}
		var live int
		if err := r.pool.QueryRow(r.ctx, `SELECT count(*) FROM gendurable.gen_durable g WHERE finished_at IS NULL AND NOT `+stuck).Scan(&live); err != nil {
			return err
		}
		switch {
		case live == 0 || r.violated():
			return nil
		case n == most:
			return r.unended()
		}
		if err := r.serve(); err != nil {
			return err
		}
		if err := r.pass(time.Hour << min(n/2, 10)); err != nil {
			return err
		}
	}
}

// serve lets the world outside do what is waited for.
func (r *rig) serve() error {
	for _, f := range r.features {
		if f.serve != nil {
			if err := f.serve(r); err != nil {
				return fmt.Errorf("serve %s: %w", f.name, err)
			}
		}
	}
	return nil
}

// unended notes what has not ended, and why.
func (r *rig) unended() error {
	for i, err := range r.eng.All(r.ctx, engine.Query{OldestFirst: true}) {
		if err != nil {
			return err
		}
		if i.Status.Terminal() || i.Machine == bystander.Name() && i.Labels["opened"] == "" {
			continue
		}
		causes, err := r.eng.Admin().Why(r.ctx, i.ID)
		if err != nil {
			return err
		}
		r.violate("it does not end", "%d, %s at step %s: %v", i.ID, i.Status, i.Step, causes)
	}
	return nil
}
