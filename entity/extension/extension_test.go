package extension

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"entgo.io/ent/entc/gen"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entity"
)

// said is a type as ent loads it: its annotations have been through JSON.
func said(t *testing.T, a entity.Annotation, fields ...string) *gen.Type {
	t.Helper()
	text, err := json.Marshal(a)
	require.NoError(t, err)
	var loaded any
	require.NoError(t, json.Unmarshal(text, &loaded))
	n := &gen.Type{Config: &gen.Config{}, Name: "Order", ID: &gen.Field{Name: "id"}, Annotations: gen.Annotations{a.Name(): loaded}}
	for _, f := range fields {
		n.Fields = append(n.Fields, &gen.Field{Name: f})
	}
	return n
}

// updating says that updates of some fields signal.
func updating(fields ...string) entity.Annotation {
	return entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse, OnUpdate: fields}
}

// What a schema says is checked before anything is written.
func TestCheck(t *testing.T) {
	t.Parallel()
	right := entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse}
	require.NoError(t, check(said(t, right, entity.Field, "cents")))
	require.NoError(t, check(&gen.Type{Name: "Ledger"}), "no machine drives it")

	for name, wrong := range map[string]*gen.Type{
		"no name":                said(t, entity.Annotation{OnDelete: entity.Leave}, entity.Field),
		`"never" is neither`:     said(t, entity.Annotation{Machine: "checkout", OnDelete: "never"}, entity.Field),
		"use the mixin":          said(t, right, "cents"),
		"field instance has":     said(t, right, entity.Field, "instance"),
		"field gendurable has":   said(t, right, entity.Field, "gendurable"),
		"points at the instance": said(t, updating("instance_id"), entity.Field),
		`has no field "price"`:   said(t, updating("price"), entity.Field, "cents"),
		"cents is named twice":   said(t, updating("cents", "cents"), entity.Field, "cents"),
		"it needs OnUpdate":      said(t, entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse, UpdateNeedsLive: true}, entity.Field),
	} {
		require.ErrorContains(t, check(wrong), name)
	}
	fixed := said(t, updating("cents"), entity.Field, "cents")
	require.NoError(t, check(fixed))
	fixed.Fields[1].Immutable = true
	require.ErrorContains(t, check(fixed), "cents is immutable")
	composite := said(t, right, entity.Field)
	composite.ID = nil
	require.ErrorContains(t, check(composite), "an id of one field")
	for _, name := range []string{"instance", "gendurable"} {
		edged := said(t, right, entity.Field)
		edged.Edges = []*gen.Edge{{Name: name}}
		require.ErrorContains(t, check(edged), "edge "+name+" has")
	}
	require.NoError(t, check(said(t, right, entity.Field, "durable")))

	for name, why := range map[string]string{"Gendurable_Entity": "the file gendurable_entity.go", "Durable": "the method Durable", "Within": "the method Within", "InTx": "the method InTx", "CommitBy": "the method CommitBy"} {
		require.ErrorContains(t, named(&gen.Type{Name: name}), why)
		require.ErrorContains(t, named(&gen.Type{Name: name}), "give the type another name")
	}
	for _, name := range []string{"DurableEnt", "Durableent", "Durablefsm", "Durableinstance", "Durablepredicate", "Slices"} {
		require.ErrorContains(t, named(&gen.Type{Name: name}), "the name of this type's package: give the type another name", name)
	}
	require.NoError(t, named(&gen.Type{Name: "Gendurable"}))

	graph := &gen.Graph{Config: &gen.Config{}, Nodes: []*gen.Type{composite}}
	written := false
	err := New().Hooks()[0](gen.GenerateFunc(func(*gen.Graph) error { written = true; return nil })).Generate(graph)
	require.ErrorContains(t, err, "schema Order: entity.DrivenBy")
	require.False(t, written)
}

// typed says which types the machine has.
func typed(state, result entity.Type) entity.Annotation {
	return entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse, Version: 1, State: &state, Result: &result}
}

func of(path, name string) entity.Type {
	return entity.Type{Name: `"` + path + `".` + name, Imports: []string{path}}
}

// A client that could not name the machine's types is not generated.
func TestTypesThatTheClientCannotName(t *testing.T) {
	t.Parallel()
	plain := entity.Type{Name: "int64"}
	in := func(pkg string, a entity.Annotation) *gen.Type {
		n := said(t, a, entity.Field)
		n.Config = &gen.Config{Package: pkg}
		return n
	}
	for path, by := range map[string]string{
		"example.com/shop/machine":              "example.com/other/ent",
		"example.com/shop/internal/machine":     "example.com/shop/ent",
		"example.com/shop/internal":             "example.com/shop",
		"example.com/internals/machine":         "example.com/shop/ent",
		"example.com/a/internal/b/internal/own": "example.com/a/internal/b/ent",
	} {
		require.NoError(t, check(in(by, typed(of(path, "Cart"), plain))), path)
	}
	for path, by := range map[string]string{
		"example.com/shop/internal/machine":     "example.com/shopping/ent",
		"example.com/shop/internal":             "example.com/ent",
		"internal/machine":                      "example.com/ent",
		"example.com/a/internal/b/internal/own": "example.com/a/ent",
	} {
		err := check(in(by, typed(plain, of(path, "Cart"))))
		require.ErrorContains(t, err, `the result of machine "checkout": `+path+" is internal")
		require.ErrorContains(t, err, "move the type, or use entity.DrivenByName")
	}
	inside := typed(plain, plain)
	inside.Fields = []entity.StateField{{Type: of("example.com/shop/internal/kinds", "Kind"), Go: "In.Kind"}}
	require.NoError(t, check(in("example.com/shop/ent", inside)))
	require.ErrorContains(t, check(in("example.com/ent", inside)), `the state's field In.Kind of machine "checkout": example.com/shop/internal/kinds is internal`)
	err := check(in("example.com/ent", typed(entity.Type{Fault: "it has no name: give it one"}, plain)))
	require.ErrorContains(t, err, `the state of machine "checkout": it has no name: give it one, or use entity.DrivenByName`)
}

// No two packages have one name in the generated files.
func TestAliases(t *testing.T) {
	t.Parallel()
	both := typed(of("example.com/a/shop", "Cart"), of("example.com/b/go-Shop", "Receipt"))
	both.Result.Name = `map["example.com/b/go-Shop".Kind]*"example.com/b/shop".Receipt`
	both.Result.Imports = []string{"example.com/b/go-Shop", "example.com/b/shop", "example.com/b/shop", fsmPath, "example.com/ent"}
	n := said(t, both, entity.Field)
	all, err := aliases(n.Annotations)
	require.NoError(t, err)
	require.Equal(t, []alias{{"durableshop", "example.com/a/shop"}, {"durablegoshop", "example.com/b/go-Shop"},
		{"durableshop2", "example.com/b/shop"}, {"durableent2", "example.com/ent"}}, all)
	state, err := goType(n, *both.State)
	require.NoError(t, err)
	require.Equal(t, "durableshop.Cart", state)
	result, err := goType(n, *both.Result)
	require.NoError(t, err)
	require.Equal(t, "map[durablegoshop.Kind]*durableshop2.Receipt", result)
	none := of(fsmPath, "None")
	result, err = goType(n, none)
	require.NoError(t, err)
	require.Equal(t, "durablefsm.None", result)

	other := &gen.Type{Name: "DurableShop", Config: &gen.Config{}}
	require.ErrorContains(t, distinct(&gen.Graph{Nodes: []*gen.Type{n, other}}), "schema DurableShop: ")
	other.Name = "Shop"
	require.NoError(t, distinct(&gen.Graph{Nodes: []*gen.Type{n, other}}))
}

// The generated struct of a state's fields has a struct for each struct of the state.
func TestMembers(t *testing.T) {
	t.Parallel()
	fields := []entity.StateField{{Go: "A", Of: "Text"}, {Go: "In.B", Of: "Ordered"}, {Go: "C", Of: "Ordered", Type: entity.Type{Name: `"time".Time`}}, {Go: "In.D", Of: "Bool"}}
	require.Equal(t, []member{{Name: "A", Field: &fields[0]}, {Name: "In", Inside: []member{{Name: "B", Field: &fields[1]}, {Name: "D", Field: &fields[3]}}},
		{Name: "C", Field: &fields[2]}}, members(&entity.Annotation{Fields: fields}))
	var made []string
	for i := range fields {
		made = append(made, constructor(&fields[i]))
	}
	require.Equal(t, []string{"Text", "Number", "Time", "Bool"}, made)

	a := typed(of("example.com/shop", "Cart"), entity.Type{Name: "int64"})
	a.Fields = []entity.StateField{{Type: of("example.com/kinds", "Kind"), Go: "Kind", Of: "Text"}}
	all, err := aliases(said(t, a, entity.Field).Annotations)
	require.NoError(t, err)
	require.Equal(t, []alias{{"durablekinds", "example.com/kinds"}, {"durableshop", "example.com/shop"}}, all)
}

// A package that imports the generated client cannot have the machine's types.
func TestTypesBesideTheClient(t *testing.T) {
	t.Parallel()
	n := said(t, typed(of("github.com/gendurable/gendurable/engine", "Inserted"), entity.Type{Name: "int64"}), entity.Field)
	graph := func(pkg string) *gen.Graph {
		return &gen.Graph{Config: &gen.Config{Package: pkg}, Nodes: []*gen.Type{n}}
	}
	require.NoError(t, acyclic(graph("example.com/shop/ent")))
	err := acyclic(graph("github.com/gendurable/gendurable/ent"))
	require.ErrorContains(t, err, "schema Order: entity.DrivenBy: package github.com/gendurable/gendurable/engine, of the machine's types, imports the generated client by")
	require.ErrorContains(t, err, "or use entity.DrivenByName")
}

// The generator refuses types that have the name of a package which the templates import.
func TestImported(t *testing.T) {
	t.Parallel()
	text, err := files.ReadFile("entity.tmpl")
	require.NoError(t, err)
	_, imports, _ := strings.Cut(string(text), `define "import/additional/gendurable"`)
	imports, _, _ = strings.Cut(imports, "end }}")
	found := regexp.MustCompile(`(?m)^\s*(\w+) "`).FindAllStringSubmatch(imports, -1)
	require.NotEmpty(t, found)
	for _, f := range found {
		require.Contains(t, imported, f[1])
	}
}

// ofEnt is what ent generates, as far as a guard needs it, with what the templates add.
const ofEnt = `package ent

// Save creates the Order in the database.
func (_c *OrderCreate) Save(ctx context.Context) (*Order, error) { return nil, _c.check() }

// check runs all checks.
func (_c *OrderCreate) check() error { return nil }

// durableSave is the template's.
func (_c *OrderCreate) durableSave(ctx context.Context) (*Order, error) { return _c.saveAlone(ctx) }

// durableCheck is the template's.
func (_c *OrderCreate) durableCheck() error { return _c.checkFields() }

// Save of another type stays.
func (_c *LedgerCreate) Save(ctx context.Context) (*Ledger, error) { return nil, nil }

// durableSave is the template's, before ent's.
func (_c *OrderCreateBulk) durableSave() { _c.saveAlone() }

// Save creates the Order entities in the database.
func (_c *OrderCreateBulk) Save() {}
`

// A guarded type gets the methods of the templates, and ent's under other names. Another type's
// file is not touched.
func TestGuard(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "order_create.go")
	run := func(a entity.Annotation, source string) (string, error) {
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		n := said(t, a, entity.Field)
		n.Config = &gen.Config{Target: folder}
		err := New().Hooks()[0](gen.GenerateFunc(func(*gen.Graph) error { return nil })).Generate(&gen.Graph{Config: n.Config, Nodes: []*gen.Type{n}})
		written, readErr := os.ReadFile(file)
		require.NoError(t, readErr)
		return string(written), err
	}
	plain := entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse}
	written, err := run(plain, ofEnt)
	require.NoError(t, err)
	require.Equal(t, ofEnt, written)

	required := plain
	required.Required = true
	written, err = run(required, ofEnt)
	require.NoError(t, err)
	check := strings.NewReplacer("// check runs all checks.", "// checkFields is check as ent generates it.", ") check()", ") checkFields()", ") durableCheck()", ") check()")
	require.Equal(t, check.Replace(ofEnt), written)

	creating := plain
	creating.OnCreate = true
	written, err = run(creating, ofEnt)
	require.NoError(t, err)
	save := strings.NewReplacer("// Save creates the Order in the database.", "// saveAlone is Save as ent generates it.",
		"// Save creates the Order entities in the database.", "// saveAlone is Save as ent generates it.",
		"*OrderCreate) Save(", "*OrderCreate) saveAlone(", "*OrderCreateBulk) Save(", "*OrderCreateBulk) saveAlone(", ") durableSave(", ") Save(")
	require.Equal(t, save.Replace(check.Replace(ofEnt)), written)

	// An ent that names them otherwise is no ent without a guard.
	for _, lacks := range []string{") check(", ") durableCheck(", "*OrderCreate) Save(", "*OrderCreateBulk) Save("} {
		_, err = run(creating, strings.Replace(ofEnt, lacks, ") another(", 1))
		require.ErrorContains(t, err, "this version of ent is not known")
	}
	require.NoError(t, os.Remove(file))
	n := said(t, required, entity.Field)
	n.Config = &gen.Config{Target: folder}
	require.ErrorIs(t, guard(n), os.ErrNotExist)
}

// Methods of an update have no comment of ent's. They move as well, and so do those that save.
func TestGuardOfUpdates(t *testing.T) {
	t.Parallel()
	const update = `package ent

func (_u *OrderUpdate) sqlSave(ctx context.Context) (int, error) { return 0, nil }

// durableSave is the template's.
func (_u *OrderUpdate) durableSave(ctx context.Context) (int, error) { return _u.sqlSaveAlone(ctx) }

func (_u *OrderUpdateOne) sqlSave(ctx context.Context) (*Order, error) { return nil, nil }

// durableSave is the template's.
func (_u *OrderUpdateOne) durableSave(ctx context.Context) (*Order, error) { return _u.sqlSaveAlone(ctx) }
`
	folder := t.TempDir()
	for file, source := range map[string]string{"order_create.go": ofEnt, "order_update.go": update} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(source), 0o600))
	}
	n := said(t, updating("cents"), entity.Field, "cents")
	n.Config = &gen.Config{Target: folder}
	require.NoError(t, guard(n))
	written, err := os.ReadFile(filepath.Join(folder, "order_update.go"))
	require.NoError(t, err)
	want := strings.NewReplacer("func (_u *OrderUpdate) sqlSave(", "// sqlSaveAlone is sqlSave as ent generates it.\nfunc (_u *OrderUpdate) sqlSaveAlone(",
		"func (_u *OrderUpdateOne) sqlSave(", "// sqlSaveAlone is sqlSave as ent generates it.\nfunc (_u *OrderUpdateOne) sqlSaveAlone(", ") durableSave(", ") sqlSave(").Replace(update)
	require.Equal(t, want, string(written))
	written, err = os.ReadFile(filepath.Join(folder, "order_create.go"))
	require.NoError(t, err)
	require.Contains(t, string(written), "*OrderCreate) saveAlone(")
	require.Contains(t, string(written), "*OrderCreate) check(", "its creation is not guarded")
}
