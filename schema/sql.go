package schema

import "entgo.io/ent"

// All returns a value of each schema.
func All() []ent.Interface {
	return []ent.Interface{
		Instance{}, Signal{}, Schedule{}, Worker{}, PausedQueue{}, Gate{}, GateKey{}, LostClaim{}, Transition{}, NodeEdge{},
		RecordedMachine{}, Definition{}, KeptSignal{}, Window{},
	}
}

// TableSQL annotates a schema with parts of its table that ent cannot declare. Package internal/ddl
// adds the parts to the desired schema. Other tools ignore the annotation.
type TableSQL struct {
	// Before is SQL that has to run before any table is made, such as functions that a generated
	// column calls.
	Before string `json:",omitempty"`
	// PrimaryKey has the columns of the key, of a table without an id.
	PrimaryKey []string `json:",omitempty"`
	// PartitionByRange has the columns by whose ranges the table is partitioned.
	PartitionByRange []string `json:",omitempty"`
	// Indexes are on expressions, or on a table without an id, for whose indexes ent's loader panics.
	Indexes []TableIndex `json:",omitempty"`
}

// TableIndex is an index of a table: on its columns, or on an expression.
type TableIndex struct {
	Name       string
	Columns    []string `json:",omitempty"`
	Expression string   `json:",omitempty"`
	// Where is the predicate of a partial index.
	Where string `json:",omitempty"`
}

// Name returns the name by which ent keeps the annotation.
func (TableSQL) Name() string { return "TableSQL" }

// ColumnSQL annotates a field with parts of its column that ent cannot declare.
type ColumnSQL struct {
	// Enum is the name of the column's enum type in Postgres, or that name with [] for an array of it.
	// The type has the values of the field that ent knows as an enum.
	Enum string `json:",omitempty"`
	// Generated is the expression of a column that Postgres computes and stores.
	Generated string `json:",omitempty"`
	// Identity is ALWAYS or BY DEFAULT, of an id that Postgres draws from a sequence.
	Identity string `json:",omitempty"`
}

// Name returns the name by which ent keeps the annotation.
func (ColumnSQL) Name() string { return "ColumnSQL" }

// IndexSQL annotates an index with a part that ent cannot declare.
type IndexSQL struct {
	// Constraint makes a unique index a constraint of the table.
	Constraint bool `json:",omitempty"`
}

// Name returns the name by which ent keeps the annotation.
func (IndexSQL) Name() string { return "IndexSQL" }

// TableOnly annotates a schema that the client of package ent leaves out, since only statements of
// the engine read the table.
type TableOnly struct{}

// Name returns the name by which ent keeps the annotation.
func (TableOnly) Name() string { return "TableOnly" }

// Reference annotates a schema with a pair of edges that have no foreign key. If Edges returned
// them, every tool that loads the schemas would declare one. The generator of package ent makes the
// client's edges from it.
type Reference struct {
	// Edge leads to the row that Field names, an optional field of the schema.
	Edge, Field string
	// Type is the schema of that row, and Ref its edge back, to any number of rows.
	Type, Ref string
}

// Name returns the name by which ent keeps the annotation.
func (Reference) Name() string { return "Reference" }
