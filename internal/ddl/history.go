package ddl

import (
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
)

// history returns the table of the transitions. To ent it is a view, so its columns stand here once
// more; a test compares them.
func history(in *schema.Schema) *schema.Table {
	moment := schema.NewTimeColumn("at", postgres.TypeTimestampTZ).SetDefault(&schema.RawExpr{X: "now()"})
	instance := schema.NewNullIntColumn("instance", postgres.TypeBigInt)
	text := func(name string) *schema.Column { return schema.NewNullStringColumn(name, postgres.TypeText) }
	table := schema.NewTable("history").SetSchema(in).AddColumns(
		moment, instance,
		schema.NewNullIntColumn("visit", postgres.TypeBigInt), schema.NewNullIntColumn("took", postgres.TypeBigInt),
		schema.NewNullIntColumn("waited", postgres.TypeBigInt), schema.NewNullIntColumn("attempt", postgres.TypeInteger),
		schema.NewNullIntColumn("fsm_version", postgres.TypeInteger), schema.NewStringColumn("kind", postgres.TypeText),
		schema.NewNullColumn("worker").SetType(&postgres.UUIDType{T: postgres.TypeUUID}),
		text("fsm"), text("step"), text("to_step"), text("failure"), text("error"), text("actor"), text("reason"), text("subject"),
		schema.NewNullJSONColumn("diff", postgres.TypeJSONB), schema.NewNullJSONColumn("before", postgres.TypeJSONB),
		schema.NewNullJSONColumn("after", postgres.TypeJSONB))
	// One instance has few rows, so they are sorted when they are read.
	table.AddIndexes(schema.NewIndex("history_instance").AddColumns(instance))
	// Operators' verbs are few among many transitions, which are in none of these indexes.
	table.AddIndexes(
		schema.NewIndex("history_verbs").AddColumns(moment).AddAttrs(&postgres.IndexPredicate{P: "actor IS NOT NULL"}),
		schema.NewIndex("history_actor").AddColumns(column(table, "actor"), moment).AddAttrs(&postgres.IndexPredicate{P: "actor IS NOT NULL"}),
		schema.NewIndex("history_kind").AddColumns(column(table, "kind"), moment).AddAttrs(&postgres.IndexPredicate{P: "actor IS NOT NULL"}),
		schema.NewIndex("history_subject").AddColumns(column(table, "subject"), moment).AddAttrs(&postgres.IndexPredicate{P: "subject IS NOT NULL"}))
	table.AddAttrs(&postgres.Partition{T: postgres.PartitionTypeRange, Parts: []*postgres.PartitionPart{{C: moment}}})
	return table
}

// column returns a column of a table that has it.
func column(of *schema.Table, name string) *schema.Column {
	c, _ := of.Column(name)
	return c
}
