package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

// Worker is a process that works on queues, as it registers at every heartbeat: a row of workers.
// No promise of the engine depends on this table; leases decide.
type Worker struct{ ent.Schema }

// Annotations names the table and its check.
func (Worker) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "workers"},
		entsql.Checks(map[string]string{
			"workers_finite_check": `isfinite(started_at) AND isfinite(beat_at) AND isfinite(expires_at)`,
		}),
	}
}

// Fields returns the columns.
func (Worker) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Comment("as in locked_by of what it executes"),
		field.Text("host"),
		field.Int32("pid"),
		field.Text("version").Comment("of the program's main module"),
		field.JSON("queues", map[string]int{}).Comment("how many steps of each run at once"),
		field.Other("machines", Names{}).SchemaType(postgres("text[]")).Comment("that it can run, as name/version"),
		field.Bool("draining").Annotations(entsql.DefaultExpr("false")).Comment("it is about to stop, and claims nothing"),
		field.Time("started_at").Annotations(now()),
		field.Time("beat_at").Annotations(now()),
		field.Time("expires_at").Comment("when it counts as gone, unless it beats before"),
		field.Int32("release").Annotations(entsql.DefaultExpr("1")).Comment("the number of its release: what it can serve"),
	}
}
