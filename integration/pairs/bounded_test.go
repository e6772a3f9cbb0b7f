package pairs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// aside is a second queue, for half of the instances if the verb is "bounded".
const aside = "aside"

// sided says of an instance, by its path, on which side of the bounds it may lie.
func (r *rig) sided(s fsm.Spec, at state) fsm.Spec {
	if r.c.Verb != "bounded" {
		return s
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(at.Path))
	if h.Sum32()%2 == 0 {
		s = s.Queue(aside)
	}
	return s.Label("side", []string{"left", "right"}[h.Sum32()/2%2])
}

// boundses are the bounds of operators.
var boundses = []engine.Bounds{
	{Labels: map[string]string{"side": "left"}},
	{Labels: map[string]string{"side": "right"}},
	{Queues: []string{"default"}},
	{Queues: []string{aside}, Labels: map[string]string{"side": "left"}},
	{Machines: []string{"unit"}},
	{Machines: []string{"stranger", "bystander"}},
	{Queues: []string{"default"}, Machines: []string{"unit"}},
	{Queues: []string{"default", aside}}, // all
}

// boundedVerbs are verbs on one instance: on one that has failed, if failed says so.
var boundedVerbs = []struct {
	name   string
	failed bool
	do     func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error
}{
	{"cancel", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Cancel(r.ctx, id, within...)
		return err
	}},
	{"cancel with descendants", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Cancel(r.ctx, id, append(within, engine.Descendants())...)
		return err
	}},
	{"retry", true, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Retry(r.ctx, id, within...)
		return err
	}},
	{"restart", true, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Restart(r.ctx, id, within...)
		return err
	}},
	{"rewind", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Rewind(r.ctx, id, "start", unit.Change(func(s *state) error {
			*s = beginning(s.Path, s.Kind, s.Life)
			return nil
		}), within...)
		return err
	}},
	{"edit", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Edit(r.ctx, id, unit.Change(func(s *state) error {
			s.Edited = true
			return nil
		}), within...)
		return err
	}},
	{"pause", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.Pause(r.ctx, id, within...)
		return err
	}},
	{"run now", false, func(r *rig, id fsm.ID, by *engine.Admin, within ...engine.VerbOption) error {
		_, err := by.RunNow(r.ctx, id, within...)
		return err
	}},
}

// shownRow is an instance. Its row has everything that a verb may change.
type shownRow struct {
	id             fsm.ID
	queue, machine string
	labels         map[string]string
	live           bool
	row            string
}

// rows reads all instances. The row leaves out the place in lines: instances move up when another
// one leaves the line, also across bounds.
func (r *rig) rows() (all map[fsm.ID]shownRow, err error) {
	rows, _ := r.pool.Query(r.ctx, `SELECT g.id, g.queue, g.fsm, coalesce(g.labels, '{}'), g.finished_at IS NULL,
		((to_jsonb(g) - 'pick_lane' - 'gate' - 'run_gate' - 'updated_at') || jsonb_build_object('signals', (SELECT count(*) FROM gendurable.signals s WHERE s.target_id = g.id),
			'edges', (SELECT count(*) FROM gendurable.edges e WHERE e.to_id = g.id)))::text
		FROM gendurable.gen_durable g`)
	all = map[fsm.ID]shownRow{}
	var one shownRow
	_, err = pgx.ForEachRow(rows, []any{&one.id, &one.queue, &one.machine, &one.labels, &one.live, &one.row}, func() error {
		all[one.id] = one
		one.labels = nil
		return nil
	})
	return all, err
}

// boundedVerb does a verb within bounds to an instance within or outside. It must neither show nor
// change any instance outside, and change nothing at all if it is refused. The engines of a fleet
// do not work meanwhile.
func (r *rig) boundedVerb(target fsm.RawInstance) error {
	verb, bounds := boundedVerbs[r.random.IntN(len(boundedVerbs))], boundses[r.random.IntN(len(boundses))]
	if r.random.IntN(3) > 0 {
		inside, err := r.aliveWithin(bounds)
		if err != nil {
			return err
		}
		if len(inside) > 0 {
			target = inside[r.random.IntN(len(inside))]
		}
	}
	if verb.failed && !target.Status.Terminal() {
		if err := r.cancelAndRun(target.ID); err != nil {
			return err
		}
	}
	if err := r.calm(); err != nil {
		return err
	}
	wake, err := r.sleep()
	if err != nil {
		return err
	}
	if err := errors.Join(r.bounded(verb.name, verb.do, bounds, target.ID), wake()); err != nil {
		return err
	}
	if verb.name == "pause" {
		if _, err = r.eng.Admin().Resume(r.ctx, target.ID); errors.Is(err, engine.ErrConflict) {
			return nil
		}
	}
	return err
}

// aliveWithin returns the instances within bounds that have not ended.
func (r *rig) aliveWithin(bounds engine.Bounds) (all []fsm.RawInstance, err error) {
	for i, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Machine: unit.Name()}, OldestFirst: true}) {
		if err != nil {
			return nil, err
		}
		if !i.Status.Terminal() && bounds.Cover(i.Queue, i.Machine, i.Labels) {
			all = append(all, i)
		}
	}
	return all, nil
}

// sleep stops a fleet. Until wake starts it anew, an engine that does nothing by itself does the
// verbs.
func (r *rig) sleep() (wake func() error, err error) {
	if r.fleet == nil {
		return func() error { return nil }, nil
	}
	for _, e := range r.fleet {
		err = errors.Join(err, e.Stop(r.ctx))
	}
	if r.fleet = []*engine.Engine{}; err != nil {
		return nil, err
	}
	if r.eng, err = r.elsewhere(); err != nil {
		return nil, err
	}
	idle := r.eng
	return func() error { return errors.Join(r.launchAll(), idle.Stop(r.ctx)) }, nil
}

// bounded does the verb while nothing else changes.
func (r *rig) bounded(name string, do func(*rig, fsm.ID, *engine.Admin, ...engine.VerbOption) error, bounds engine.Bounds, target fsm.ID) error {
	before, err := r.rows()
	if err != nil {
		return err
	}
	inside := func(one shownRow) bool { return bounds.Cover(one.queue, one.machine, one.labels) }
	if err := r.shown(bounds, before, inside); err != nil {
		return err
	}
	if err := r.withheld(bounds, before, inside, target); err != nil {
		return err
	}
	var refused error
	if r.random.IntN(2) == 0 {
		refused = do(r, target, r.eng.Within(bounds).Admin())
	} else {
		refused = do(r, target, r.eng.Admin(), engine.Within(bounds))
	}
	r.tell("verb %s within %+v, instance %d, which lies within: %t: %v", name, bounds, target, inside(before[target]), refused)
	var wrong *engine.VerbError
	switch {
	case refused == nil, errors.Is(refused, engine.ErrConflict), errors.Is(refused, engine.ErrNotFound), errors.As(refused, &wrong):
	case errors.Is(refused, engine.ErrDuplicate):
	default:
		return refused
	}
	after, err := r.rows()
	if err != nil {
		return err
	}
	if _, there := before[target]; there && !inside(before[target]) && !errors.Is(refused, engine.ErrNotFound) && wrong == nil {
		r.violate("a bounded verb tells of an instance outside", "%s of %d: %v", name, target, refused)
	}
	all := !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(one shownRow) bool { return !inside(one) })
	if all && (errors.Is(refused, engine.ErrOutside) || errors.Is(refused, engine.ErrNotFound)) {
		r.violate("a bounded verb is refused, though nothing lies outside", "%s of %d: %v", name, target, refused)
	}
	for id := range after {
		if _, there := before[id]; !there {
			r.violate("a bounded call inserts an instance outside, or with a key", "%d", id)
		}
	}
	for id, one := range before {
		switch now, ok := after[id]; {
		case ok && now.row == one.row:
		case !inside(one):
			r.violate("a bounded verb changes a row outside", "%s of %d changes %d: %s, then %s", name, target, id, one.row, now.row)
		case refused != nil:
			r.violate("a verb that was refused changes something", "%s of %d (%v) changes %d", name, target, refused, id)
		}
	}
	return nil
}

// shown finds out whether bounded reads show the instances inside, and no others.
func (r *rig) shown(bounds engine.Bounds, all map[fsm.ID]shownRow, inside func(shownRow) bool) error {
	var want []fsm.ID
	live := 0
	for id, one := range all {
		if inside(one) {
			if want = append(want, id); one.live {
				live++
			}
		}
	}
	slices.Sort(want)
	for name, list := range map[string]iter.Seq2[fsm.RawInstance, error]{
		"a filter": r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Within: bounds}}), "a bounded engine": r.eng.Within(bounds).All(r.ctx, engine.Query{}),
	} {
		got := []fsm.ID{}
		for i, err := range list {
			if err != nil {
				return err
			}
			got = append(got, i.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			r.violate("a bounded list shows others than lie inside", "by %s within %+v: %v instead of %v", name, bounds, got, want)
		}
	}
	plan, err := r.eng.Admin().Bulk(r.ctx, engine.VerbCancel, engine.Filter{All: true, Within: bounds})
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if int(plan.Matched) != live {
		r.violate("a bounded plan is for others than lie inside", "within %+v: %d instead of %d", bounds, plan.Matched, live)
	}
	return nil
}

// noise is a signal that no machine knows.
var noise = fsm.DeclareSignal[string]("noise")

// someAsked is about how many instances a bounded engine is asked for.
const someAsked = 8

// withheld asks a bounded engine for instances inside and outside, and lets it signal to those
// outside and insert another one. Instances outside do not exist for it.
func (r *rig) withheld(bounds engine.Bounds, all map[fsm.ID]shownRow, inside func(shownRow) bool, target fsm.ID) error {
	b := r.eng.Within(bounds)
	ids := slices.Sorted(maps.Keys(all))
	r.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for n, id := range append([]fsm.ID{target}, ids...) {
		if n > someAsked {
			break
		}
		in := inside(all[id])
		switch _, err := b.Get(r.ctx, id); {
		case in && err == nil, !in && errors.Is(err, engine.ErrNotFound):
		case err != nil && !errors.Is(err, engine.ErrNotFound):
			return err
		default:
			r.violate("a bounded engine shows an instance outside, or hides one inside", "within %+v: %d, which lies within: %t: %v", bounds, id, in, err)
		}
		if in {
			continue
		}
		if d, err := b.Signal(r.ctx, id, noise.With("")); !errors.Is(err, engine.ErrNoTarget) {
			r.violate("a bounded engine signals to an instance outside", "within %+v: %d: %+v, %v", bounds, id, d, err)
		}
		for child, err := range b.All(r.ctx, engine.Query{Filter: engine.Filter{Parent: id}}) {
			if err != nil {
				return err
			}
			r.violate("a bounded engine shows children of an instance outside", "within %+v: %d of %d", bounds, child.ID, id)
		}
	}
	for _, spec := range []fsm.Spec{unit.New(beginning("beside", child, nil)).Key("beside"), bystander.New(state{}).Queue("beside"), parcel.New(state{}).Queue("beside")} {
		o := spec.Options()
		if o.Key == "" && bounds.Cover(o.Queue, o.Machine, nil) {
			continue
		}
		if _, err := b.Insert(r.ctx, spec); !errors.Is(err, engine.ErrBounds) {
			r.violate("a bounded engine inserts an instance outside, or with a key", "within %+v: %v", bounds, err)
		}
	}
	return nil
}
