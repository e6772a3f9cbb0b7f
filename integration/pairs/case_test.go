package pairs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
)

// Case is what one run does. Its text, as String returns it, is the value of CASE.
type Case struct {
	Life  []string
	Verb  string
	Fault string
	Seed  uint64
}

func (c Case) String() string {
	return strings.Join([]string{strings.Join(c.Life, ","), c.Verb, c.Fault, strconv.FormatUint(c.Seed, 10)}, "/")
}

func parse(text string) (c Case, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return c, fmt.Errorf("a case is features/verb/fault/seed, such as graph,join/cancel/month/7, and not %q", text)
	}
	c = Case{Life: strings.Split(parts[0], ","), Verb: parts[1], Fault: parts[2]}
	if c.Seed, err = strconv.ParseUint(parts[3], 10, 64); err != nil {
		return c, err
	}
	for _, name := range c.Life {
		if registry[name] == nil {
			return c, fmt.Errorf("no feature is called %q: there are %v", name, names())
		}
	}
	if !slices.Contains(verbNames(), c.Verb) {
		return c, fmt.Errorf("no verb is called %q: there are %v", c.Verb, verbNames())
	}
	if !slices.Contains(faults, c.Fault) {
		return c, fmt.Errorf("no fault is called %q: there are %v", c.Fault, faults)
	}
	return c, nil
}

// strikeWithin bounds the run of a step that the fault strikes, and verbWithin the number of steps
// before the verb: most lives are that long at least. If one is shorter, the verb meets an ended
// instance.
const strikeWithin, verbWithin = 12, 14

// patience is for how long the process may run while a case neither begins a step nor lets time
// pass: only a fault exhausts it. Other bounds are on how often a case does that.
const patience = 2 * time.Minute

// patiently returns a context that ends when the process has run for patience without progress.
func patiently(ctx context.Context, progress *atomic.Int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		watch, tick := steady.Begin(), time.NewTicker(time.Second)
		defer watch.End()
		defer tick.Stop()
		for last, at := progress.Load(), watch.Ran(); watch.Ran()-at < patience; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if now := progress.Load(); now != last {
				last, at = now, watch.Ran()
			}
		}
		cancel(errors.New("the case makes no progress"))
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// play runs a case, and returns what it found and the story.
func play(t *testing.T, b *base, c Case) (violations []violation, story string, err error) {
	r := &rig{base: b, t: t, log: t.Output(), c: c, random: rand.New(rand.NewPCG(c.Seed, 1)), store: store.New(entpgx.New(b.pool), schema),
		today: time.Now().UTC().Truncate(time.Microsecond), ran: map[fsm.ID][]string{}, begun: map[fsm.ID]bool{}, counts: map[string]int{},
		running: map[fsm.ID]int{}}
	ctx, cancel := patiently(t.Context(), &r.progress)
	defer cancel()
	r.ctx = ctx
	if err := b.clear(ctx); err != nil {
		return nil, "", err
	}
	for _, name := range c.Life {
		if f := registry[name]; !slices.Contains(r.features, f) {
			r.features = append(r.features, f)
		}
	}
	if !slices.Contains([]string{"none", "bound", "month", "slow"}, c.Fault) {
		r.fault = &struck{name: c.Fault, at: 1 + r.random.IntN(strikeWithin)}
	}
	if err := r.start(); err != nil {
		return nil, "", errors.Join(err, r.stop(context.WithoutCancel(ctx)))
	}
	if err = r.play(); errors.Is(err, errTooMany) {
		r.violate("it runs on and on", "%s", r.last())
		err = nil
	}
	r.unheld()
	if stopped := r.stop(context.WithoutCancel(ctx)); err == nil {
		err = stopped
	}
	return r.violations, r.text(), err
}

// play goes through the phases of a case.
func (r *rig) play() error {
	for _, f := range r.features {
		if f.prepare != nil {
			if err := f.prepare(r); err != nil {
				return fmt.Errorf("prepare %s: %w", f.name, err)
			}
		}
	}
	spec, insert := r.spec(beginning("root", root, r.c.Life)), func(r *rig, s fsm.Spec) (fsm.ID, error) { return r.eng.Insert(r.ctx, s) }
	for _, f := range r.features {
		if f.insert != nil {
			insert = f.insert
		}
	}
	var err error
	if r.root, err = insert(r, spec); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	if _, err := r.run(1 + r.random.IntN(verbWithin)); err != nil {
		return err
	}
	if err := r.operate(); err != nil {
		return err
	}
	if r.c.Fault == "month" {
		if err := r.monthPasses(); err != nil {
			return err
		}
	}
	if !r.gone {
		if err := r.repair(); err != nil || r.violated() {
			return err
		}
		if err := r.deploy(); err != nil { // so that no hook of an engine that works by itself is still to come
			return err
		}
		for _, f := range r.features {
			if f.check != nil {
				if err := f.check(r); err != nil {
					return fmt.Errorf("check %s: %w", f.name, err)
				}
			}
		}
	}
	for _, f := range r.features {
		if f.end != nil {
			if err := f.end(r); err != nil {
				return fmt.Errorf("end %s: %w", f.name, err)
			}
		}
	}
	if err := r.month(); err != nil {
		return err
	}
	return r.leftover()
}

// cancelsRest reports whether a feature of the life cancels children that it does not wait for.
func (r *rig) cancelsRest() bool {
	return slices.Contains(r.c.Life, "rest") || slices.Contains(r.c.Life, "early")
}

// link is an instance beneath another one.
type link struct {
	parent fsm.ID
	node   bool
}

// above returns the links from an instance to its root.
func (r *rig) above(id fsm.ID) ([]link, error) {
	rows, _ := r.pool.Query(r.ctx, `WITH RECURSIVE up AS (SELECT parent_id, node FROM gendurable.gen_durable WHERE id = $1
		UNION ALL SELECT g.parent_id, g.node FROM up JOIN gendurable.gen_durable g ON g.id = up.parent_id)
		SELECT parent_id, node IS NOT NULL FROM up WHERE parent_id IS NOT NULL`, int64(id))
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l link, err error) {
		err = row.Scan((*int64)(&l.parent), &l.node)
		return l, err
	})
}

// over reports whether an instance was cancelled with a graph whose root has ended: a quorum of
// added nodes lets the root of "left" go on, and fail. If the GC deletes a row too early, that
// is another violation.
func (r *rig) over(above []link) bool {
	return slices.ContainsFunc(above, func(l link) bool {
		p, err := r.eng.Get(r.ctx, l.parent)
		return err != nil || l.node && p.Status.Terminal()
	})
}

// monthPasses pauses an instance that lives, if one does, so that the population is alive while a
// month passes, and resumes it then. A root that had ended before is gone.
func (r *rig) monthPasses() error {
	if r.gone {
		return nil
	}
	if err := r.calm(); err != nil {
		return err
	}
	i, ok, err := r.choose(true)
	if err != nil || !ok {
		return err
	}
	above, err := r.above(i.ID)
	if err != nil {
		return err
	}
	_, err = r.eng.Admin().Pause(r.ctx, i.ID)
	r.tell("a month passes, and instance %d is paused: %v", i.ID, err)
	paused := err == nil
	if err := r.month(); err != nil {
		return err
	}
	if paused {
		_, err := r.eng.Admin().Resume(r.ctx, i.ID)
		if err != nil && !(i.ID != r.root && r.cancelsRest()) && !r.over(above) { // it may have been of the rest
			r.violate("a paused instance is gone, or goes on", "%d: %v", i.ID, err)
			return nil
		}
	}
	_, err = r.eng.Get(r.ctx, r.root)
	if r.gone = errors.Is(err, engine.ErrNotFound); r.gone { // it has ended, or r.sweep has noted that it was needed
		return nil
	}
	return err
}
