package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/fsm"
)

// Schedule inserts an instance at each of its occurrences: a row of schedules.
type Schedule struct{ ent.Schema }

// Annotations names the table and its checks.
func (Schedule) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "schedules"},
		entsql.Checks(map[string]string{
			"schedules_names_check": `octet_length(name) BETWEEN 1 AND 256 AND octet_length(expression) BETWEEN 1 AND 512 ` +
				`AND octet_length(time_zone) BETWEEN 1 AND 512`,
			"schedules_policy_check": `catch_up IN ('none', 'latest', 'all') AND overlap IN ('allow', 'skip') AND jitter >= 0`,
			// An infinite time does not scan into a time.Time; a spec is always an object.
			"schedules_finite_check": `isfinite(next_at) AND isfinite(last_at) AND isfinite(paused_at) AND jsonb_typeof(spec) = 'object'::text`,
			"schedules_times_check":  `isfinite(updated_at)`,
		}),
	}
}

// Fields returns the columns.
func (Schedule) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("name").Comment("the schedule's name"),
		field.JSON("spec", json.RawMessage{}).Comment("what is inserted, its state as the codec has encoded it"),
		field.Text("expression").Comment("a cron expression, or @every and a duration"),
		field.Text("time_zone").Annotations(entsql.Default("UTC")),
		field.Text("catch_up").Annotations(entsql.Default("latest")).Comment("what becomes of missed occurrences: none, latest or all"),
		field.Text("overlap").Annotations(entsql.Default("allow")).Comment("or skip, while the newest occurrence's instance is live"),
		field.Int64("jitter").Annotations(entsql.DefaultExpr("0")).Comment("µs by which instances are delayed at most"),
		field.Time("next_at").Comment("the occurrence that comes next, or is due"),
		field.Time("last_at").Optional().Nillable().Comment("the newest occurrence that was fired"),
		field.Int64("last_instance").GoType(fsm.ID(0)).Optional().Nillable().Comment("the newest instance; it may be gone"),
		field.Time("paused_at").Optional().Nillable(),
		field.Time("updated_at").Annotations(now()),
	}
}

// Indexes returns the index by which every worker asks each second which schedules are due.
func (Schedule) Indexes() []ent.Index {
	return []ent.Index{partial("schedules_due", "paused_at IS NULL", "next_at")}
}
