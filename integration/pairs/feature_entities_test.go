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

// parcel is the machine that drives parcels, which are entities of the host.
var parcel = fsm.Declare[state, int]("parcel")

// These are the statements that a client sends which package entity/extension generates: see
// upsertInstances and insertInstances of its template. This package belongs to the library's
// module, which has no generated client of a host.
const (
	upsertSQL  = `INSERT INTO host.parcels (number) SELECT unnest($1::text[]) ON CONFLICT (number) DO UPDATE SET number = excluded.number RETURNING id`
	withoutSQL = `SELECT id, number FROM host.parcels e WHERE e.id = ANY($1::bigint[]) AND e.instance_id IS NULL ORDER BY id FOR UPDATE`
	drivenSQL  = `UPDATE host.parcels e SET instance_id = i.instance FROM unnest($1::bigint[], $2::bigint[]) AS i (id, instance)
		WHERE e.id = i.id`
)

// upsert saves parcels, and inserts the instances of those that have none, in one call, all in a
// transaction of the host. It returns the instances, and a function to call after the commit.
func (r *rig) upsert(ctx context.Context, eng *engine.Engine, tx dialect.Tx, numbers []string, spec func(number string) fsm.Spec) (ids []fsm.ID, committed func(), err error) {
	native, ok := entpgx.NativeOf(tx)
	if !ok {
		return nil, nil, errors.New("it is no transaction of entpgx")
	}
	var saved, without []int64
	var specs []fsm.Spec
	send := func(read func(pgx.Rows) error, text string, args ...any) error {
		b := &pgx.Batch{} // which a mutant may change
		b.Queue(text, args...).Query(read)
		return native.Tx.SendBatch(ctx, b).Close()
	}
	if err := send(func(rows pgx.Rows) (err error) {
		saved, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}, upsertSQL, numbers); err != nil {
		return nil, nil, err
	}
	if err := send(func(rows pgx.Rows) error {
		var id int64
		var number string
		_, err := pgx.ForEachRow(rows, []any{&id, &number}, func() error {
			without, specs = append(without, id), append(specs, spec(number))
			return nil
		})
		return err
	}, withoutSQL, saved); err != nil || len(specs) == 0 {
		return nil, func() {}, err
	}
	verbs := eng.WithEnt(tx)
	inserted, err := verbs.InsertMany(ctx, specs)
	if err != nil {
		return nil, nil, err
	}
	for n, in := range inserted {
		if in.Duplicate || in.Throttled {
			r.violate("an entity has no instance, and cannot get one", "number %d of %v: %+v", n, numbers, in)
		}
		ids = append(ids, in.ID)
	}
	err = send(func(pgx.Rows) error { return nil }, drivenSQL, without, ids)
	return ids, func() { verbs.Committed(ctx) }, err
}

// The instances of entities, as OnCreate has a client insert them: the root's in a transaction of
// the client, and in each instance two more behind an upsert in a step's own transaction.
var _ = register(feature{
	name: "oncreate",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{r.step("oncreate", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return engine.InTx(func(ctx context.Context, native pgx.Tx) (fsm.Outcome, error) {
				tx, err := entpgx.Adopt(ctx, entpgx.New(r.pool), native)
				if err != nil {
					return nil, err
				}
				numbers := []string{v.State.Path + "/first", v.State.Path + "/second"}
				if _, _, err := r.upsert(ctx, engine.FromContext(ctx), tx, numbers, ofParcel); err != nil { // the engine tells of its own commit
					return nil, err
				}
				return r.onward(v, v.State), nil
			}), nil
		})}
	},
	config: func(r *rig, c *engine.Config) { c.Machines = append(c.Machines, r.parcels()) },
	insert: (*rig).insertEntity,
	check: func(r *rig) error {
		rows, _ := r.pool.Query(r.ctx, `SELECT 'instance ' || g.id || ' of none' FROM gendurable.gen_durable g
			WHERE g.fsm = 'parcel' AND NOT EXISTS (SELECT FROM host.parcels e WHERE e.instance_id = g.id)
			UNION ALL SELECT e.number || ' without an instance' FROM host.parcels e WHERE e.instance_id IS NULL`)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, f := range found {
			r.violate("an entity and its instance are not there together", "%s", f)
		}
		if err != nil {
			return err
		}
		rows, _ = r.pool.Query(r.ctx, `SELECT number FROM host.parcels`)
		numbers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		rows, _ = r.pool.Query(r.ctx, `SELECT state ->> 'path', state -> 'life' FROM gendurable.gen_durable WHERE fsm = 'unit' AND status = 'done'`)
		var path string
		var life []string
		_, err = pgx.ForEachRow(rows, []any{&path, &life}, func() error {
			if taken(life, "oncreate") && !(slices.Contains(numbers, path+"/first") && slices.Contains(numbers, path+"/second")) {
				r.violate("a step is over without the entities that it created", "%s", path)
			}
			return nil
		})
		return err
	},
	end: func(r *rig) error { // deletes the entities, of which all instances have ended
		return pgx.BeginFunc(r.ctx, r.pool, func(tx pgx.Tx) error {
			rows, _ := tx.Query(r.ctx, `DELETE FROM host.parcels WHERE instance_id IS NOT NULL RETURNING instance_id`)
			ids, err := pgx.CollectRows(rows, pgx.RowTo[fsm.ID])
			if err != nil {
				return err
			}
			if err := r.eng.WithPgx(tx).RequireEnded(r.ctx, ids...); errors.Is(err, engine.ErrLive) && !r.gone {
				r.violate("an entity cannot be deleted though its instance has ended", "%v", err)
				return nil
			}
			_, err = r.eng.WithPgx(tx).Cancel(r.ctx, ids)
			return err
		})
	},
})

// parcels is the definition of the machine.
func (r *rig) parcels() fsm.Definition {
	return parcel.Define(
		fsm.Step("start", func(ctx context.Context, v *fsm.Visit[state, int]) (fsm.Outcome, error) {
			return v.Next("packed", v.State).After(time.Hour), r.driven(ctx, v.ID, v.State.Path)
		}),
		fsm.Step("packed", func(_ context.Context, v *fsm.Visit[state, int]) (fsm.Outcome, error) { return v.Done(1), nil }))
}

// insertEntity inserts a root as the instance of an entity, beside another entity.
func (r *rig) insertEntity(s fsm.Spec) (fsm.ID, error) {
	tx, err := entpgx.New(r.pool).Tx(r.ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()            //nolint:errcheck // after the commit it does nothing
	path := s.State().(state).Path //nolint:forcetypeassert // every root has one
	spec := func(number string) fsm.Spec {
		if number == path {
			return s
		}
		return ofParcel(number)
	}
	var ids []fsm.ID
	var committed func()
	for _, end := range []string{"ROLLBACK TO SAVEPOINT entity", "RELEASE SAVEPOINT entity"} { // the host repeats what has failed
		if err := tx.Exec(r.ctx, "SAVEPOINT entity", []any{}, nil); err != nil {
			return 0, err
		}
		if ids, committed, err = r.upsert(r.ctx, r.eng, tx, []string{path, path + "/beside"}, spec); err != nil {
			return 0, err
		}
		if err := tx.Exec(r.ctx, end, []any{}, nil); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	committed()
	return ids[0], nil
}

func ofParcel(number string) fsm.Spec {
	return parcel.New(state{Path: number}).Key(fsm.Key("parcel:" + number))
}

// driven finds out whether the entity of an instance that runs was committed with it, and has it.
func (r *rig) driven(ctx context.Context, id fsm.ID, number string) error {
	var of *fsm.ID
	err := r.pool.QueryRow(ctx, `SELECT instance_id FROM host.parcels WHERE number = $1`, number).Scan(&of)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (of == nil || *of != id) {
		r.violate("an instance runs that its entity does not have", "%d of %s, which has %s", id, number, fmt.Sprint(of))
		return nil
	}
	return err
}
