package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Gate bounds how many instances execute at a time: a row of gates.
type Gate struct{ ent.Schema }

// Annotations names the table and its checks.
func (Gate) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "gates"},
		entsql.Checks(map[string]string{
			// The name ends at the first slash of an instance's gate.
			"gates_names_check": `octet_length(name) BETWEEN 1 AND 64 AND strpos(name, '/') = 0 AND octet_length(queue) BETWEEN 1 AND 512 ` +
				`AND octet_length(machine) BETWEEN 1 AND 512 AND octet_length(step) BETWEEN 1 AND 512 AND octet_length(label) BETWEEN 1 AND 64`,
			"gates_places_check": `places BETWEEN 0 AND 10000 AND total BETWEEN 0 AND 10000 AND (step IS NULL OR machine IS NOT NULL)`,
			// A rate has all of its three numbers, or none. Periods are in microseconds.
			"gates_rates_check": `num_nonnulls(rate, rate_per, rate_burst) IN (0, 3) AND rate BETWEEN 1 AND 1000000 ` +
				`AND rate_per BETWEEN 1000 AND 31536000000000 AND rate_burst BETWEEN 1 AND 1000000 ` +
				`AND num_nonnulls(total_rate, total_rate_per, total_rate_burst) IN (0, 3) AND total_rate BETWEEN 1 AND 1000000 ` +
				`AND total_rate_per BETWEEN 1000 AND 31536000000000 AND total_rate_burst BETWEEN 1 AND 1000000`,
			"gates_cost_check": `octet_length(cost_label) BETWEEN 1 AND 64`,
		}),
	}
}

// Fields returns the columns.
func (Gate) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("name"),
		field.Text("queue").Optional().Nillable().Comment("only instances of this queue"),
		field.Text("machine").Optional().Nillable().Comment("only instances of this machine"),
		field.Text("step").Optional().Nillable().Comment("only at this step of the machine"),
		field.Text("label").Optional().Nillable().Comment("so many of each value of this label, instead of so many in all"),
		field.Int32("places").Optional().Nillable().Comment("how many execute at a time; NULL: any number"),
		field.Time("updated_at").Annotations(now()),
		field.Int32("rate").Optional().Nillable().Comment("how many begin in a period; NULL: any number"),
		field.Int64("rate_per").Optional().Nillable().Comment("the period, in microseconds"),
		field.Int32("rate_burst").Optional().Nillable().Comment("how many begin at once after a pause"),
		field.Int32("total").Optional().Nillable().Comment("of a gate with a label: places of all values together"),
		field.Int32("total_rate").Optional().Nillable().Comment("of a gate with a label: the rate of all values together"),
		field.Int64("total_rate_per").Optional().Nillable(),
		field.Int32("total_rate_burst").Optional().Nillable(),
		field.Text("cost_label").Optional().Nillable().Comment("the label whose value says for how many an instance counts in the rates"),
		field.Bool("adapt").Annotations(entsql.DefaultExpr("false")).Comment("a key that is told of too many requests becomes slower for a while"),
		field.Bool("run").Annotations(entsql.DefaultExpr("false")).Comment("bounds instances from their first claim to their end, instead of steps"),
	}
}

// GateKey holds the facts about one value of a gate's label: a row of gate_keys. The key of a gate
// itself is its name: that row has the debt of its total rate.
type GateKey struct{ ent.Schema }

// Annotations names the table and its checks.
func (GateKey) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "gate_keys"},
		entsql.Checks(map[string]string{
			"gate_keys_check": `octet_length(key) BETWEEN 1 AND 1200 AND weight BETWEEN 1 AND 100 AND places BETWEEN 1 AND 10000 AND debt >= 0 AND debt <= 1e12 ` +
				`AND pace > 0 AND pace <= 1 AND isfinite(at) AND isfinite(closed_until)`,
		}),
	}
}

// Fields returns the columns.
func (GateKey) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("key").Comment("name, or name/value, as in an instance's gate"),
		field.Float("debt").Annotations(entsql.DefaultExpr("0")).Comment("what has begun and is not paid off by the rate yet, at the time at"),
		field.Time("at").Annotations(now()),
		field.Float("pace").Annotations(entsql.DefaultExpr("1")).Comment("the part of the rate that counts, at the time at"),
		field.Time("closed_until").Optional().Nillable().Comment("none begins before"),
		field.Int32("weight").Annotations(entsql.DefaultExpr("1")).Comment("its share beside other keys of the queue"),
		field.Int32("places").Optional().Nillable().Comment("how many of it execute at a time, in place of the gate's places"),
		field.Time("slowed_at").Optional().Nillable().Comment("when the pace was last halved"),
	}
}

// Indexes returns the indexes of the keys that are closed, and of the keys that have their own
// places. Claims change other columns.
func (GateKey) Indexes() []ent.Index {
	return []ent.Index{
		partial("gate_keys_closed", "closed_until IS NOT NULL", "closed_until"),
		partial("gate_keys_places", "places IS NOT NULL", "id"),
	}
}
