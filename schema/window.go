package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
)

// Window holds the facts by which inserts of one key know of each other: a row of windows. It
// exists from the first insert until the GC finds that the window is closed and that its instance
// no longer waits.
type Window struct{ ent.Schema }

// Annotations names the table and its checks.
func (Window) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "windows"},
		entsql.Checks(map[string]string{
			// The kind, a colon, and a key of at most 512 bytes.
			"windows_names_check": `octet_length(name) BETWEEN 3 AND 530`,
			"windows_times_check": `isfinite(opened_at) AND isfinite(until)`,
		}),
	}
}

// Fields returns the columns.
func (Window) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("name").Comment("the kind (throttle, once or debounce), a colon, and the key"),
		field.UUID("uid", uuid.UUID{}).Comment("of the spec that opened the window; of a debounce, of the newest spec"),
		field.Int64("instance").GoType(fsm.ID(0)).Annotations(entsql.DefaultExpr("0")).Comment("that has the window; it may be gone"),
		field.Time("opened_at"),
		field.Time("until").Comment("when the window closes; of a debounce, when its instance is due"),
	}
}
