package ddl

import (
	"cmp"
	"fmt"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"

	gschema "github.com/gendurable/gendurable/schema"
)

// additions are the annotations of a schema that ent's description of its table leaves out, by the
// names of columns and indexes.
type additions struct {
	table   gschema.TableSQL
	columns map[string]gschema.ColumnSQL
	indexes map[string]gschema.IndexSQL
}

// additionsOf reads the annotations of the schemas, by the names of their tables.
func additionsOf(schemas []ent.Interface) (map[string]additions, error) {
	all := map[string]additions{}
	for _, s := range schemas {
		var name string
		added := additions{columns: map[string]gschema.ColumnSQL{}, indexes: map[string]gschema.IndexSQL{}}
		for _, annotation := range s.Annotations() {
			switch a := annotation.(type) {
			case entsql.Annotation:
				name = cmp.Or(a.Table, name)
			case gschema.TableSQL:
				added.table = a
			}
		}
		if name == "" {
			return nil, fmt.Errorf("schema %T does not name its table", s)
		}
		for _, field := range s.Fields() {
			descriptor := field.Descriptor()
			for _, annotation := range descriptor.Annotations {
				if a, ok := annotation.(gschema.ColumnSQL); ok {
					added.columns[cmp.Or(descriptor.StorageKey, descriptor.Name)] = a
				}
			}
		}
		for _, index := range s.Indexes() {
			descriptor := index.Descriptor()
			for _, annotation := range descriptor.Annotations {
				if a, ok := annotation.(gschema.IndexSQL); ok {
					added.indexes[descriptor.StorageKey] = a
				}
			}
		}
		all[name] = added
	}
	return all, nil
}
