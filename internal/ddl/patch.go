package ddl

import (
	"fmt"
	"slices"

	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	entschema "entgo.io/ent/dialect/sql/schema"

	gschema "github.com/gendurable/gendurable/schema"
)

// patcher adds to ent's tables what ent cannot express.
type patcher struct {
	schema *schema.Schema
	tables []*entschema.Table
	status *schema.EnumType // nil until the first column of that type
}

func (p *patcher) table(table *schema.Table) error {
	for _, column := range table.Columns {
		if err := p.column(table, column); err != nil {
			return fmt.Errorf("column %q: %w", column.Name, err)
		}
	}
	// The reference has it, the table does not: it would lock the parent for each child.
	table.ForeignKeys = slices.DeleteFunc(table.ForeignKeys, func(key *schema.ForeignKey) bool { return key.Symbol == gschema.ParentKey })
	for _, index := range table.Indexes {
		// The base declares a constraint, and an index is not one: ON CONFLICT takes either, but the
		// catalogs differ.
		if index.Name == "signals_target_id_dedup_key_key" {
			index.AddAttrs(postgres.UniqueConstraint(index.Name))
		}
		if index.Name == "gen_durable_retained" { // ent knows indexes of columns only
			index.Parts = nil
			index.AddExprs(&schema.RawExpr{X: "(" + gschema.RetainedUntil + ")"})
		}
	}
	switch table.Name {
	case "edges": // ent knows keys of two columns for relations with foreign keys only
		table.SetPrimaryKey(schema.NewPrimaryKey(column(table, "from_id"), column(table, "to_id")))
	case "history":
		table.AddAttrs(&postgres.Partition{T: postgres.PartitionTypeRange, Parts: []*postgres.PartitionPart{{C: column(table, "at")}}})
	}
	return nil
}

// column returns a column of a table that has it.
func column(of *schema.Table, name string) *schema.Column {
	c, _ := of.Column(name)
	return c
}

func (p *patcher) column(table *schema.Table, column *schema.Column) error {
	switch column.Name {
	case "id":
		// With ALWAYS, no statement can insert an id that the sequence would reach later.
		identity := &postgres.Identity{}
		for _, attr := range column.Attrs {
			if found, ok := attr.(*postgres.Identity); ok {
				identity = found
			}
		}
		identity.Generation = postgres.GeneratedTypeAlways
	case "correlation_guard":
		column.SetGeneratedExpr(&schema.GeneratedExpr{Expr: guard, Type: "STORED"})
	case "fingerprint":
		column.SetGeneratedExpr(&schema.GeneratedExpr{Expr: alike, Type: "STORED"})
	}

	switch columnType := column.Type.Type.(type) {
	case *postgres.UserDefinedType:
		if columnType.T != statusType {
			return fmt.Errorf("no type %q", columnType.T)
		}
		if err := p.declareStatus(table.Name, column.Name); err != nil {
			return err
		}
		column.Type.Type = p.status
	case *postgres.ArrayType:
		if columnType.T == statusType+"[]" {
			column.Type.Type = &postgres.ArrayType{Type: p.status, T: columnType.T}
		}
	}
	return nil
}

// declareStatus makes the enum a type of the schema; ent knows its values only.
func (p *patcher) declareStatus(table, column string) error {
	if p.status != nil {
		return nil
	}
	for _, t := range p.tables {
		if t.Name != table {
			continue
		}
		if c, ok := t.Column(column); ok && len(c.Enums) > 0 {
			p.status = &schema.EnumType{T: statusType, Values: c.Enums, Schema: p.schema}
			p.schema.AddObjects(p.status)
			return nil
		}
	}
	return fmt.Errorf("no values of enum %q", statusType)
}
