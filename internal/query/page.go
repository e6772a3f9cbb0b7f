package query

import (
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
)

// A page visits a bounded number of rows, and no index but the one it is meant to. So the criteria
// stand in the select list of a common table expression, which carries ids only, so that nothing
// large goes through it. The query itself reads the instances of the page by an array of ids: for a
// join, the planner might walk a whole index (T98).

// span says which rows a page may visit: the ones behind an id, in one direction. If the page goes
// along an index in the order of ids, only that index's rows count.
type span struct {
	after       int64
	oldestFirst bool
	visit       int
	seconds     *float64             // after which walk visits no more rows; nil: there is no such time
	least       int                  // so many rows it visits all the same
	along       []predicate.Instance // what that index has; none: the primary key
}

func (p span) write(b *sql.Builder) *sql.Builder {
	if p.oldestFirst {
		return b.WriteString("id > ").Arg(p.after).WriteString("::bigint")
	}
	return b.WriteString("id < ").Arg(p.after).WriteString("::bigint")
}

func (p span) order() string {
	if p.oldestFirst {
		return "id"
	}
	return "id DESC"
}

// rows writes the condition of the rows that a page goes along.
func (r *Reader) rows(b *sql.Builder, p span) *sql.Builder {
	p.write(b)
	if len(p.along) > 0 {
		b.WriteString(" AND ").Join(r.condition(p.along...))
	}
	return b
}

// walk selects the page along the primary key, or the index of its span: at most limit of the rows
// that fit, and the last row that it may visit. It stops at either. The column edge is NULL if it
// did not come to that row, and otherwise says whether that row fits.
//
// It may visit no row behind the first one at which the time is up, nor more than visit. Rows
// behind the first late one are late as well, and so end the page by its limit.
func (r *Reader) walk(p span, limit int, fits []predicate.Instance, outline bool) predicate.Instance {
	return func(s *sql.Selector) {
		with(s, part{"page", func(b *sql.Builder) {
			b.WriteString("SELECT id, fits, visited, late AND visited > ").Arg(p.least).WriteString("::int AS late FROM (SELECT id, ")
			r.fits(b, fits)
			b.WriteString(" AS fits, clock_timestamp() > statement_timestamp() + make_interval(secs => ").Arg(p.seconds)
			b.WriteString("::float8) AS late, row_number() OVER (ORDER BY " + p.order() + ") AS visited FROM ")
			r.from(b).WriteString(" WHERE ")
			r.rows(b, p).WriteString(" ORDER BY " + p.order() + " LIMIT ").Arg(p.visit).WriteString("::int) w WHERE fits OR late AND visited > ")
			b.Arg(p.least).WriteString("::int OR visited = ").Arg(p.visit).WriteString(" ORDER BY " + p.order() + " LIMIT ").Arg(limit).WriteString("::int")
		}}, part{"last", func(b *sql.Builder) {
			b.WriteString("SELECT coalesce(min(visited) FILTER (WHERE late), ").Arg(p.visit).WriteString(") AS visited FROM page")
		}})
		r.selects(outline, func(b *sql.Builder) {
			b.WriteString("(SELECT fits FROM page WHERE visited = (SELECT visited FROM last))")
		})(s)
		inPage(s, " WHERE visited <= (SELECT visited FROM last)")
	}
}

// find selects the same page of the rows that indexes find, unless these are as many as it may
// visit. Then it selects one of them, of which the column edge is true.
func (r *Reader) find(p span, limit int, by lookup, fits []predicate.Instance, outline bool) predicate.Instance {
	return func(s *sql.Selector) {
		with(s, part{"found", func(b *sql.Builder) {
			r.found(b, by, p.visit, func() {
				b.WriteString("SELECT id, ")
				r.fits(b, fits)
				b.WriteString(" AND ")
				p.write(b).WriteString(" AS fits")
			})
		}}, part{"page", func(b *sql.Builder) {
			b.WriteString("(SELECT id FROM found WHERE fits AND (SELECT count(*) FROM found) < ").Arg(p.visit)
			b.WriteString(" ORDER BY " + p.order() + " LIMIT ").Arg(limit).WriteString("::int) UNION ALL ")
			b.WriteString("SELECT min(id) FROM found HAVING count(*) = ").Arg(p.visit)
		}})
		r.selects(outline, func(b *sql.Builder) {
			b.WriteString("(SELECT count(*) = ").Arg(p.visit).WriteString(" FROM found)")
		})(s)
		inPage(s, "")
	}
}

// found writes a query of the rows that each part of a lookup finds, up to visit of them in all.
func (r *Reader) found(b *sql.Builder, by lookup, visit int, columns func()) {
	one := func(part predicate.Instance) {
		columns()
		b.WriteString(" FROM ")
		r.from(b).WriteString(" WHERE ").Join(r.condition(part)).WriteString(" LIMIT ").Arg(visit).WriteString("::int")
	}
	if len(by.parts) == 1 {
		one(by.parts[0])
		return
	}
	b.WriteString("SELECT * FROM (")
	for i, part := range by.parts {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteByte('(')
		one(part)
		b.WriteByte(')')
	}
	b.WriteString(") f LIMIT ").Arg(visit).WriteString("::int")
}

// ids selects only the ids of rows that fit, and the id of the last row that it may visit. The
// columns fits and edge say which of these a row is.
func (r *Reader) ids(p span, fits []predicate.Instance) predicate.Instance {
	return func(s *sql.Selector) {
		with(s, part{"page", func(b *sql.Builder) {
			b.WriteString("SELECT id, ")
			r.fits(b, fits)
			b.WriteString(" AS fits, row_number() OVER (ORDER BY " + p.order() + ") AS visited FROM ")
			r.from(b).WriteString(" WHERE ")
			r.rows(b, p).WriteString(" ORDER BY " + p.order() + " LIMIT ").Arg(p.visit).WriteString("::int")
		}})
		s.From(sql.Table("page")).Select("id", "fits").AppendSelectExprAs(sql.ExprFunc(func(b *sql.Builder) {
			b.WriteString("visited = ").Arg(p.visit)
		}), "edge")
		s.Where(sql.P(func(b *sql.Builder) { b.WriteString("fits OR visited = ").Arg(p.visit) }))
	}
}

// idsFound is ids for the rows that indexes find, unless these are as many as it may visit. Then it
// selects one of them, of which the column edge is true.
func (r *Reader) idsFound(visit int, by lookup, fits []predicate.Instance) predicate.Instance {
	return func(s *sql.Selector) {
		with(s, part{"found", func(b *sql.Builder) {
			b.WriteString("SELECT id, fits, row_number() OVER () AS visited FROM (")
			r.found(b, by, visit, func() {
				b.WriteString("SELECT id, ")
				r.fits(b, fits)
				b.WriteString(" AS fits")
			})
			b.WriteString(") i")
		}})
		s.From(sql.Table("found")).Select("id", "fits").AppendSelectExprAs(sql.ExprFunc(func(b *sql.Builder) {
			b.WriteString("visited = ").Arg(visit)
		}), "edge")
		s.Where(sql.P(func(b *sql.Builder) {
			b.WriteString("visited = ").Arg(visit).WriteString(" OR fits AND (SELECT count(*) FROM found) < ").Arg(visit)
		}))
	}
}

// part is a common table expression. One that is used twice is read once.
type part struct {
	name  string
	write func(b *sql.Builder)
}

// with puts the parts before the query.
func with(s *sql.Selector, parts ...part) {
	s.Prefix(sql.ExprFunc(func(b *sql.Builder) {
		b.WriteString("WITH ")
		for i, p := range parts {
			if i > 0 {
				b.Comma()
			}
			b.WriteString(p.name + " AS (")
			p.write(b)
			b.WriteByte(')')
		}
	}))
}

// inPage narrows the query to the instances of the page that a WHERE clause selects.
func inPage(s *sql.Selector, where string) {
	s.Where(sql.P(func(b *sql.Builder) {
		b.Ident(s.C(instance.FieldID)).WriteString(" = ANY(ARRAY(SELECT id FROM page" + where + "))")
	}))
}

// from writes the table.
func (r *Reader) from(b *sql.Builder) *sql.Builder {
	return b.WriteString(r.schema).WriteByte('.').Ident(instance.Table)
}

// fits writes whether a row meets all predicates, which may be NULL, as a boolean.
func (r *Reader) fits(b *sql.Builder, all []predicate.Instance) {
	if len(all) == 0 {
		b.WriteString("true")
		return
	}
	b.WriteString("coalesce(").Join(r.condition(all...)).WriteString(", false)")
}

// condition returns what predicates put into the WHERE clause of a query.
func (r *Reader) condition(all ...predicate.Instance) *sql.Predicate {
	builder := sql.Dialect(dialect.Postgres)
	s := builder.Select().From(builder.Table(instance.Table).Schema(r.schema))
	for _, accepts := range all {
		accepts(s)
	}
	return s.P()
}
