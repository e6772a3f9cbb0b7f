// Package extensions tests the extension of package entity beside ent's features and the extensions
// of ent's contrib module: entgql, entoas, entproto. It is a separate module, so that the project
// needs none of these packages.
package extensions

import (
	"fmt"
	"path/filepath"

	"entgo.io/contrib/entgql"
	"entgo.io/contrib/entoas"
	"entgo.io/contrib/entproto"
	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"github.com/ogen-go/ogen"

	"github.com/gendurable/gendurable/entity/extension"
)

// others are the extensions that a host may use beside the one of package entity, for a client in a
// folder.
var others = map[string]func(folder string) (entc.Extension, error){
	"entgql": func(folder string) (entc.Extension, error) {
		return entgql.NewExtension(entgql.WithWhereInputs(true), entgql.WithSchemaGenerator(), entgql.WithSchemaPath(filepath.Join(folder, "ent.graphql")))
	},
	"entoas":   func(string) (entc.Extension, error) { return entoas.NewExtension(entoas.Spec(ogen.NewSpec())) },
	"entproto": func(string) (entc.Extension, error) { return entproto.NewExtension(entproto.SkipGenFile()) },
}

// generate writes a client of package schema into a folder.
func generate(folder, pkg string, features []gen.Feature, beside ...string) error {
	all := []entc.Extension{extension.New()}
	for _, name := range beside {
		other, err := others[name](folder)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, other)
	}
	config := &gen.Config{Target: folder, Package: pkg, Features: features}
	if err := entc.Generate("./schema", config, entc.Extensions(all...)); err != nil {
		return fmt.Errorf("generate with %v: %w", beside, err)
	}
	return nil
}
