package ddl

import (
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
)

// edges returns the table of the edges of graphs. Its key is two columns, which ent has only for
// relations between entities; and nobody reads it through the client.
func edges(in *schema.Schema) *schema.Table {
	from, to := schema.NewIntColumn("from_id", postgres.TypeBigInt), schema.NewIntColumn("to_id", postgres.TypeBigInt)
	needs := schema.NewIntColumn("needs", postgres.TypeSmallInt)
	table := schema.NewTable("edges").SetSchema(in).AddColumns(from, to, needs)
	table.SetPrimaryKey(schema.NewPrimaryKey(from, to))
	table.AddIndexes(schema.NewIndex("edges_to").AddColumns(to))
	table.AddChecks(schema.NewCheck().SetName("edges_needs_check").SetExpr("needs BETWEEN 0 AND 3"))
	return table
}
