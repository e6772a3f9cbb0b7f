package extensions

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/entc/gen"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// choice is what a host lets ent generate.
type choice struct {
	name     string
	least    tier.Tier
	features []gen.Feature
	beside   []string
}

func choices() (all []choice) {
	names := slices.Sorted(maps.Keys(others))
	// Beside entgql 0.7.0 the features sql/schemaconfig and sql/globalid do not compile together, with
	// or without the extension of package entity: gql_node.go imports graphql twice.
	most := slices.DeleteFunc(slices.Clone(gen.AllFeatures), func(f gen.Feature) bool { return f.Name == gen.FeatureSchemaConfig.Name })
	all = append(all,
		choice{"everything", tier.CI, most, names},
		choice{"nothing", tier.Proof, nil, nil},
		choice{"all features", tier.Proof, gen.AllFeatures, nil},
		choice{"all extensions", tier.Proof, nil, names},
	)
	for i, name := range names {
		all = append(all, choice{name, tier.Proof, nil, []string{name}}, choice{name + " and all features", tier.Proof, most, []string{name}})
		for _, other := range names[i+1:] {
			all = append(all, choice{name + " and " + other, tier.Proof, nil, []string{name, other}})
		}
	}
	for _, f := range gen.AllFeatures {
		all = append(all, choice{f.Name, tier.Proof, []gen.Feature{f}, nil})
	}
	return all
}

// The extension goes together with ent's features and with the other extensions: a client is
// generated with each choice, vetted, and a program runs with it.
func TestBesideFeaturesAndExtensions(t *testing.T) {
	program, err := os.ReadFile("testdata/program.go.txt")
	require.NoError(t, err)
	for _, c := range choices() {
		t.Run(c.name, func(t *testing.T) {
			tier.Needs(t, c.least)
			folder := "testdata/" + strings.NewReplacer(" ", "_", "/", "_", "-", "_").Replace("generated "+c.name)
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.MkdirAll(folder+"/run", 0o755))
			t.Cleanup(func() {
				if !t.Failed() {
					_ = os.RemoveAll(folder)
				}
			})
			pkg := "github.com/gendurable/gendurable/integration/extensions/" + folder
			require.NoError(t, generate(folder, pkg, c.features, c.beside...))
			if slices.Contains(c.beside, "entoas") {
				describes(t, folder+"/openapi.json")
			}
			source := strings.ReplaceAll(string(program), "GENERATED", pkg)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "run", "main.go"), []byte(source), 0o600))
			command(t, "go", "vet", "./"+folder+"/...")
			command(t, "go", "run", "./"+folder+"/run", pgtest.Migrated(t))
		})
	}
}

// describes checks that the answers of the document have the field of the instance, as an integer,
// and that its requests have no such field.
func describes(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema struct{ Properties map[string]any }
				}
			}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(text, &document))
	require.Equal(t, map[string]any{"type": "integer", "format": "int64"}, document.Components.Schemas["OrderRead"].Properties[entity.Field])
	for verb, path := range map[string]string{"post": "/orders", "patch": "/orders/{id}"} {
		written := document.Paths[path][verb].RequestBody.Content["application/json"].Schema.Properties
		require.Contains(t, written, "cents")
		require.NotContains(t, written, entity.Field)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, fmt.Sprintf("%s %v: %s", name, args, out))
}
