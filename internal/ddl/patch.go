package ddl

import (
	"fmt"

	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	entschema "entgo.io/ent/dialect/sql/schema"

	gschema "github.com/gendurable/gendurable/schema"
)

// patcher adds to ent's tables what the annotations of package schema say.
type patcher struct {
	schema *schema.Schema
	enums  map[string]*schema.EnumType
}

// enum makes each enum that a column's annotation names a type of the schema. ent knows the values
// only.
func (p *patcher) enum(table *entschema.Table, added additions) {
	for _, column := range table.Columns {
		name := added.columns[column.Name].Enum
		if name == "" || len(column.Enums) == 0 || p.enums[name] != nil {
			continue
		}
		enum := &schema.EnumType{T: name, Values: column.Enums, Schema: p.schema}
		p.enums[name], p.enums[name+"[]"] = enum, enum
		p.schema.AddObjects(enum)
	}
}

func (p *patcher) table(table *schema.Table, added additions) error {
	for name, sql := range added.columns {
		if err := p.column(table, name, sql); err != nil {
			return err
		}
	}
	for name, sql := range added.indexes {
		index, ok := table.Index(name)
		if !ok {
			return fmt.Errorf("index %q is annotated, and ent has none of that name", name)
		}
		if sql.Constraint {
			index.AddAttrs(postgres.UniqueConstraint(index.Name))
		}
	}
	for _, sql := range added.table.Indexes {
		columns, err := columnsOf(table, sql.Columns)
		if err != nil {
			return fmt.Errorf("index %q: %w", sql.Name, err)
		}
		index := schema.NewIndex(sql.Name).AddColumns(columns...)
		if sql.Expression != "" {
			index.AddExprs(&schema.RawExpr{X: "(" + sql.Expression + ")"})
		}
		if sql.Where != "" {
			index.AddAttrs(&postgres.IndexPredicate{P: sql.Where})
		}
		table.AddIndexes(index)
	}
	if names := added.table.PrimaryKey; len(names) > 0 {
		columns, err := columnsOf(table, names)
		if err != nil {
			return fmt.Errorf("primary key: %w", err)
		}
		table.SetPrimaryKey(schema.NewPrimaryKey(columns...))
	}
	if names := added.table.PartitionByRange; len(names) > 0 {
		columns, err := columnsOf(table, names)
		if err != nil {
			return fmt.Errorf("partitions: %w", err)
		}
		partition := &postgres.Partition{T: postgres.PartitionTypeRange}
		for _, column := range columns {
			partition.Parts = append(partition.Parts, &postgres.PartitionPart{C: column})
		}
		table.AddAttrs(partition)
	}
	return nil
}

func (p *patcher) column(table *schema.Table, name string, sql gschema.ColumnSQL) error {
	found, err := columnsOf(table, []string{name})
	if err != nil {
		return err
	}
	column := found[0]
	if sql.Generated != "" {
		column.SetGeneratedExpr(&schema.GeneratedExpr{Expr: sql.Generated, Type: "STORED"})
	}
	if sql.Identity != "" {
		identity, ok := attribute[*postgres.Identity](column.Attrs)
		if !ok {
			return fmt.Errorf("column %q is annotated as an identity, and is none of ent's", name)
		}
		identity.Generation = sql.Identity
	}
	switch enum := p.enums[sql.Enum]; {
	case sql.Enum == "":
	case enum == nil:
		return fmt.Errorf("column %q: no field has the values of enum %q", name, sql.Enum)
	case sql.Enum == enum.T:
		column.Type.Type = enum
	default:
		column.Type.Type = &postgres.ArrayType{Type: enum, T: sql.Enum}
	}
	return nil
}

func columnsOf(of *schema.Table, names []string) ([]*schema.Column, error) {
	found := make([]*schema.Column, len(names))
	for i, name := range names {
		column, ok := of.Column(name)
		if !ok {
			return nil, fmt.Errorf("ent has no column %q", name)
		}
		found[i] = column
	}
	return found, nil
}

func attribute[T schema.Attr](of []schema.Attr) (found T, ok bool) {
	for _, attr := range of {
		if found, ok = attr.(T); ok {
			return found, true
		}
	}
	return found, false
}
