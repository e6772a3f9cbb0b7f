package pairs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
)

// cents is the price of an entity, of which each update tells the instance.
var cents = fsm.DeclareSignal[int64]("cents")

// raisedSQL is an update as a client with OnUpdate sends it, its lock included: see package
// entity/extension. This package has no generated client of a host.
const raisedSQL = `UPDATE host.seats SET cents = cents + 1 FROM (SELECT s.number FROM host.seats s
	WHERE s.instance_id = ANY($1::bigint[]) ORDER BY s.number FOR UPDATE) l WHERE seats.number = l.number RETURNING instance_id, cents`

// An instance that waits until its entity changes. The host changes the entities of half of those
// that wait at once, and tells their instances by one SignalMany in the transaction of the change.
var _ = register(feature{
	name:  "update",
	bound: func(l *engine.Limits) { l.Inbox++ }, // beside what another feature has sent
	steps: func(r *rig) []fsm.StepDef[state, int] {
		wait := func(v *visit) fsm.Outcome { return v.Await("update.got", v.State, cents).Timeout(90 * 24 * time.Hour) }
		return []fsm.StepDef[state, int]{
			r.step("update", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
					_, err := tx.Exec(ctx, `INSERT INTO host.seats (number, instance_id) VALUES ($1, $2)
						ON CONFLICT (number) DO UPDATE SET instance_id = excluded.instance_id`, v.State.Path, int64(v.ID))
					return wait(v), err
				}), nil
			}),
			r.step("update.got", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
				told, ok, err := cents.First(v)
				if err != nil || !ok { // it was retried after a cancel, and waits again
					return wait(v), err
				}
				var has int64
				if err := r.pool.QueryRow(ctx, `SELECT cents FROM host.seats WHERE number = $1`, v.State.Path).Scan(&has); err != nil {
					return nil, err
				}
				if told > has {
					r.violate("an instance is told of an update that is not there", "%s is told of %d and has %d", v.State.Path, told, has)
				}
				return r.onward(v, v.State), nil
			}),
		}
	},
	serve: func(r *rig) error {
		waiting, err := r.waitingAt("update.got")
		if err != nil || len(waiting) == 0 {
			return err
		}
		return r.raise(waiting)
	},
})

// raise changes the entities of instances in a transaction, which the host begins anew at a
// savepoint, and finds out whether all instances are woken.
func (r *rig) raise(waiting []fsm.RawInstance) error {
	tx, err := entpgx.New(r.pool).Tx(r.ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	verbs := r.eng.WithEnt(tx)
	var told []fsm.ID
	for _, end := range []string{"ROLLBACK TO SAVEPOINT raise", "RELEASE SAVEPOINT raise"} { // the host repeats what has failed
		if err := tx.Exec(r.ctx, "SAVEPOINT raise", []any{}, nil); err != nil {
			return err
		}
		if told, err = r.raiseIn(tx, verbs, waiting); err != nil {
			return err
		}
		if err := tx.Exec(r.ctx, end, []any{}, nil); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	verbs.Committed(r.ctx)
	for _, was := range waiting {
		is, err := r.eng.Get(r.ctx, was.ID)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if slices.Contains(told, is.ID) && is.Status == fsm.StatusAwaitingSignal && is.Step == was.Step && is.Visit == was.Visit {
			r.violate("an update wakes nobody", "%d at visit %d of %s", is.ID, is.Visit, is.Step)
		}
	}
	return nil
}

// raiseIn sends three letters for each entity that it changes. The second is a duplicate, and the
// third has no target. It returns the instances that took the first.
func (r *rig) raiseIn(tx dialect.Tx, verbs *engine.Tx, waiting []fsm.RawInstance) (told []fsm.ID, err error) {
	native, ok := entpgx.NativeOf(tx)
	if !ok {
		return nil, errors.New("it is no transaction of entpgx")
	}
	var ids []int64
	for _, i := range waiting {
		ids = append(ids, int64(i.ID))
	}
	const each = 3
	var letters []engine.Letter
	rows, _ := native.Tx.Query(r.ctx, raisedSQL, ids)
	var id, price int64
	_, err = pgx.ForEachRow(rows, []any{&id, &price}, func() error {
		m := cents.With(price).DedupKey(fmt.Sprint("cents ", price))
		nobody := fsm.Key(fmt.Sprint("nobody of ", id))
		letters = append(letters, engine.Letter{To: fsm.ID(id), Message: m}, engine.Letter{To: fsm.ID(id), Message: m}, engine.Letter{To: nobody, Message: m})
		return nil
	})
	if err != nil {
		return nil, err
	}
	done, err := verbs.SignalMany(r.ctx, letters)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(done); i += each {
		first, second, third := done[i], done[i+1], done[i+2]
		live := !errors.Is(first.Err, engine.ErrNoTarget)
		switch to := letters[i].To; {
		case live && first.Err != nil || first.Duplicate:
			r.violate("an update is not told", "%v: %+v", to, first)
		case live && !second.Duplicate, !live && !errors.Is(second.Err, engine.ErrNoTarget):
			r.violate("one of two equal letters is no duplicate", "%v: %+v", to, second)
		case !errors.Is(third.Err, engine.ErrNoTarget):
			r.violate("a letter arrives where nobody is", "%v: %+v", letters[i+2].To, third)
		case live:
			told = append(told, first.To)
		}
	}
	return told, nil
}
