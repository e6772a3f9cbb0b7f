package query

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/ent/schedule"
	"github.com/gendurable/gendurable/internal/store"
)

// Schedules lists the schedules behind a name, in order of names, that insert instances within
// bounds.
func (r *Reader) Schedules(ctx context.Context, after string, within store.Bounds, most int) ([]*ent.Schedule, error) {
	// No schedule has an empty name.
	list, err := r.composer().client.Schedule.Query().Where(append(inserts(within), schedule.IDGT(after))...).Order(schedule.ByID()).Limit(most).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return list, nil
}

// inserts returns the predicates of schedules whose instances lie within bounds.
func inserts(b store.Bounds) (all []predicate.Schedule) {
	add := func(given bool, write func(spec string, p *sql.Builder)) {
		if given {
			all = append(all, func(s *sql.Selector) {
				s.Where(sql.P(func(p *sql.Builder) { write(s.C(schedule.FieldSpec), p) }))
			})
		}
	}
	add(b.Queues != nil, func(spec string, p *sql.Builder) {
		p.WriteString(spec + "->>'queue' = ANY(").Arg(b.Queues).WriteString("::text[])")
	})
	add(b.Machines != nil, func(spec string, p *sql.Builder) {
		p.WriteString(spec + "->>'machine' = ANY(").Arg(b.Machines).WriteString("::text[])")
	})
	add(b.Labels != "", func(spec string, p *sql.Builder) {
		p.WriteString(spec + "->'labels' @> ").Arg(b.Labels).WriteString("::jsonb")
	})
	return all
}
