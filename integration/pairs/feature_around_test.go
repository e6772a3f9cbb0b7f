package pairs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// The history, which has exactly the outcomes that were applied.
var _ = register(feature{
	name:   "history",
	steps:  plain("history"),
	define: func(_ *rig, d *fsm.Defined[state, int]) *fsm.Defined[state, int] { return d.History(fsm.KeepStates) },
	check: func(r *rig) error {
		rows, _ := r.pool.Query(r.ctx, `SELECT instance, array_agg(kind ORDER BY visit, at) FROM gendurable.history
			WHERE actor IS NULL AND kind = ANY($1) GROUP BY 1`,
			[]string{"next", "again", "await", "children", "rejoin", "done"})
		var id int64
		var kinds []string
		recorded := map[fsm.ID][]string{}
		_, err := pgx.ForEachRow(rows, []any{&id, &kinds}, func() error {
			recorded[fsm.ID(id)] = slices.Sorted(slices.Values(kinds))
			return nil
		})
		for id, ran := range r.applied() {
			ran = slices.DeleteFunc(slices.Sorted(slices.Values(ran)), func(kind string) bool { return kind == "fail" || kind == "retry" })
			if !slices.Equal(ran, recorded[id]) {
				r.violate("the history has other outcomes than were applied", "instance %d: applied %v, recorded %v", id, ran, recorded[id])
			}
		}
		return err
	},
})

// All instances are inserted as ones of the older version, and converted when they first run.
var _ = register(feature{
	name:  "version",
	steps: plain("version"),
	define: func(r *rig, d *fsm.Defined[state, int]) *fsm.Defined[state, int] {
		steps := fsm.StepNames{"start": "start"}
		for _, f := range r.features {
			steps[f.name] = f.name
		}
		return d.From(fsm.Migrate(oldUnit, unit, func(s state) (state, error) {
			s.Old = false
			return s, nil
		}, steps))
	},
	make: func(s state) fsm.Spec {
		s.Old = true
		return oldUnit.New(s)
	},
	check: func(r *rig) error {
		var old int
		err := r.pool.QueryRow(r.ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE fsm = 'unit' AND status = 'done' AND (fsm_version = 1 OR state -> 'old' = 'true')`).Scan(&old)
		if old > 0 {
			r.violate("an instance is done unconverted", "%d", old)
		}
		return err
	},
})

// The root stands for an entity of the host, which inserts and deletes both in one transaction.
var _ = register(feature{
	name:  "entity",
	steps: plain("entity"),
	insert: func(r *rig, s fsm.Spec) (id fsm.ID, err error) {
		err = pgx.BeginFunc(r.ctx, r.pool, func(tx pgx.Tx) error {
			if id, err = r.eng.WithPgx(tx).Insert(r.ctx, s); err != nil {
				return err
			}
			if err := r.eng.WithPgx(tx).RequireEnded(r.ctx, id); !errors.Is(err, engine.ErrLive) {
				r.violate("an entity may be deleted while its instance lives", "%d: %v", id, err)
			}
			_, err = tx.Exec(r.ctx, `INSERT INTO host.entities VALUES ('root', $1)`, int64(id))
			return err
		})
		return id, err
	},
	check: func(r *rig) error {
		return pgx.BeginFunc(r.ctx, r.pool, func(tx pgx.Tx) error {
			if err := r.eng.WithPgx(tx).RequireEnded(r.ctx, r.root); err != nil {
				r.violate("an entity cannot be deleted though its instance has ended", "%v", err)
				return nil
			}
			_, err := tx.Exec(r.ctx, `DELETE FROM host.entities`)
			return err
		})
	},
})

// A schedule inserts the root.
var _ = register(feature{
	name:  "schedule",
	steps: plain("schedule"),
	config: func(r *rig, c *engine.Config) {
		spec := r.spec(beginning("root", root, r.c.Life))
		if o := spec.Options(); o.Key != "" || o.Delay != 0 || o.Window != (fsm.Window{}) { // which a schedule refuses, or has of its own
			return
		}
		c.Schedules = []engine.Schedule{engine.Every("unit", 365*24*time.Hour, spec)}
	},
	prepare: func(r *rig) error { // one root is enough
		_, err := r.eng.Admin().PauseSchedule(r.ctx, "unit")
		if errors.Is(err, engine.ErrNoSchedule) {
			return nil
		}
		return err
	},
	insert: func(r *rig, s fsm.Spec) (fsm.ID, error) {
		id, err := r.eng.Admin().RunSchedule(r.ctx, "unit")
		if errors.Is(err, engine.ErrNoSchedule) {
			return r.eng.Insert(r.ctx, s)
		}
		return id, err
	},
})

// A step's own transaction, whose write takes effect once, with its outcome.
var _ = register(feature{
	name: "intx",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{r.step("intx", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
				if _, err := tx.Exec(ctx, `INSERT INTO host.booked VALUES ($1, $2)`, int64(v.ID), v.Visit); err != nil {
					return nil, err
				}
				return r.onward(v, v.State), nil
			}), nil
		})}
	},
	check: func(r *rig) error {
		rows, _ := r.pool.Query(r.ctx, `SELECT format('instance %s, visit %s: %s', instance, visit, count(*)) FROM host.booked GROUP BY instance, visit HAVING count(*) > 1
			UNION ALL SELECT format('instance %s: %s', g.id, g.status) FROM gendurable.gen_durable g
			WHERE g.status = 'done' AND g.state -> 'life' ? 'intx' AND g.state ->> 'kind' = 'root' AND g.state #>> '{life,0}' = 'intx'
				AND NOT EXISTS (SELECT FROM host.booked b WHERE b.instance = g.id)`)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, f := range found {
			r.violate("a step's own transaction took effect twice, or never", "%s", f)
		}
		return err
	},
})
