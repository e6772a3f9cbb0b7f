package scaffold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/entc/gen"
	"github.com/stretchr/testify/require"
)

// host is the part of a host's client that the files use, as ent and the extension generate it.
const host = `package ent
import (
	"context"
	"entgo.io/ent/dialect/sql"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	one "CLIENT/PACKAGE"
	IMPORTS
)
type (
	Client struct { ENTITY *ENTITYClient }
	Tx struct { ENTITY *ENTITYClient }
	ENTITYClient struct{}
	ENTITY struct { ID IDTYPE; FIELD STATUSTYPE }
	query struct{}
	update struct{}
)
func (*Client) Tx(context.Context) (*Tx, error) { return nil, nil }
func (*Client) InTx(f func(ctx context.Context, tx *Tx) (fsm.Outcome, error)) fsm.Outcome { return nil }
func (*Tx) Durable(*engine.Engine) *engine.Tx { return nil }
func (*Tx) Commit() error { return nil }
func (*Tx) Rollback() error { return nil }
func (*ENTITYClient) Query() *query { return nil }
func (*ENTITYClient) UpdateOneID(IDTYPE) *update { return nil }
func (*ENTITYClient) UpdateOne(*ENTITY) *update { return nil }
func (*query) Where(...one.Predicate) *query { return nil }
func (*query) Order(...func(*sql.Selector)) *query { return nil }
func (*query) Limit(int) *query { return nil }
func (*query) Clone() *query { return nil }
func (*query) IDs(context.Context) ([]IDTYPE, error) { return nil, nil }
func (*query) All(context.Context) ([]*ENTITY, error) { return nil, nil }
func (*update) SETTER(STATUSTYPE) *update { return nil }
func (*update) SetInstanceID(fsm.ID) *update { return nil }
func (*update) Exec(context.Context) error { return nil }
`

// ofEntity is the package of the entity.
const ofEntity = `package PACKAGE
import (
	"entgo.io/ent/dialect/sql"
	IMPORTS
)
type Predicate func(*sql.Selector)
type OWN string
func FIELDIn(...STATUSTYPE) Predicate { return nil }
func InstanceIDIsNil() Predicate { return nil }
func IDIn(...IDTYPE) Predicate { return nil }
func IDGT(IDTYPE) Predicate { return nil }
func ByID() func(*sql.Selector) { return nil }
`

// odd are columns whose names could break Go code.
func odd() map[string]*Column {
	column := func(change func(c *Column)) *Column {
		c := &Column{Entity: "Order", Field: "status", Client: "example.com/shop/ent", ID: Type{Name: "int"}, Values: []string{"a", "b", "c"}}
		change(c)
		return c
	}
	all := map[string]*Column{
		"values": column(func(c *Column) {
			c.Values = []string{"in-progress", "in_progress", "PAID", "paid", "2nd", "type", "--", "支付", `quo"te`, "back`tick", "per%cent", "a to b", "a", "b to a", "b",
				"machine", "Work", "Key", "end", "wait", "*/", "new\nline", "\u202e"}
		}),
		"a field of two words":     column(func(c *Column) { c.Field = "api_state" }),
		"a field of the mutation":  column(func(c *Column) { c.Field = "op" }),
		"a machine with a verb":    column(func(c *Column) { c.Machine = "100%d\"`" }),
		"a string id":              column(func(c *Column) { c.ID = Type{Name: "string"} }),
		"a uuid":                   column(func(c *Column) { c.ID = Type{"uuid.UUID", "github.com/google/uuid"} }),
		"a client of another name": column(func(c *Column) { c.Client = "example.com/db" }),
		"a type of the host":       column(func(c *Column) { c.Type = Type{"shop.Status", "example.com/shop"} }),
		"a type of a like name":    column(func(c *Column) { c.Type = Type{"order.Status", "example.com/other/order"} }),
		"types of one package": column(func(c *Column) {
			c.Type, c.ID = Type{"engine.Status", "example.com/engine"}, Type{"engine.ID", "example.com/engine"}
		}),
	}
	for _, name := range used {
		entity := strings.ToUpper(name[:1]) + name[1:]
		if gen.ValidSchemaName(entity) == nil && entity != "Tx" { // of which ent's client has two
			all["entity "+entity] = column(func(c *Column) { c.Entity = entity })
		}
	}
	return all
}

// The files compile with all kinds of names. Each value is a step, in turn one that waits and
// one that works, with ways back.
func TestOddNamesCompile(t *testing.T) {
	t.Parallel()
	imports := compiled(t)
	for name, c := range odd() {
		of := Choice{}
		for i, v := range c.Values[1:] {
			of.Transitions = append(of.Transitions, c.Values[i]+":"+v)
			if i%2 == 0 {
				of.Waits = append(of.Waits, c.Values[i])
			}
			if i > 0 && i%3 == 0 {
				of.Transitions = append(of.Transitions, c.Values[i]+":"+c.Values[0])
			}
		}
		p, err := c.Plan("orders", of)
		require.NoError(t, err, name)
		require.Empty(t, p.Without, name)
		imports.check(t, p)
	}
}

// No package of a host gets a name that the files declare or import.
func TestUsedNames(t *testing.T) {
	t.Parallel()
	p, err := delivery().Plan("deliveries", choice())
	require.NoError(t, err)
	declared := compiled(t).check(t, p)
	require.Contains(t, declared, "fsm")
	require.Contains(t, declared, "specs")
	delete(declared, "delivery") // the package of the entity itself
	require.ElementsMatch(t, slices.Collect(maps.Keys(declared)), used)
}

// check compiles the files of a plan. It returns the names that begin with a small letter.
func (f *fakes) check(t *testing.T, p *Plan) map[string]bool {
	t.Helper()
	written, err := p.Files()
	require.NoError(t, err)
	f.texts, f.checked = fakesOf(p.Column), map[string]*types.Package{}
	var parsed []*ast.File
	for _, one := range written {
		file, err := parser.ParseFile(f.files, one.Name, one.Text, parser.SkipObjectResolution)
		require.NoError(t, err, "%s", one.Text)
		parsed = append(parsed, file)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{}}
	_, err = (&types.Config{Importer: f}).Check("orders", f.files, parsed, info)
	require.NoError(t, err, "%s", texts(written))
	names := map[string]bool{}
	for _, object := range slices.Concat(slices.Collect(maps.Values(info.Defs)), slices.Collect(maps.Values(info.Implicits))) {
		if object == nil || object.Parent() == nil || object.Exported() || object.Name() == "_" {
			continue // no name, or a field's or method's
		}
		names[object.Name()] = true
	}
	return names
}

func texts(files []File) (all string) {
	for _, f := range files {
		all += string(f.Text)
	}
	return all
}

// fakesOf are the packages that a column's files import from the host.
func fakesOf(c *Column) map[string]string {
	pkg := strings.ToLower(c.Entity)
	status, imports, own := "one."+pascal(c.Field), "", pascal(c.Field)
	all := map[string]string{}
	for _, t := range []Type{c.ID, c.Type} {
		if name, _, found := strings.Cut(t.Name, "."); found && !strings.Contains(imports, t.Path) {
			imports += fmt.Sprintf("foreign%s %q\n", name, t.Path)
			all[t.Path] = "package " + name + "\ntype ID int\ntype Status string\ntype UUID [16]byte\n"
		}
	}
	qualified := func(t Type) string {
		if strings.Contains(t.Name, ".") {
			return "foreign" + t.Name
		}
		return t.Name
	}
	inEntity := own
	if c.Type.Name != "" {
		status, inEntity, own = qualified(c.Type), qualified(c.Type), "unused"
	}
	fill := func(text, status string) string {
		return strings.NewReplacer("IMPORTS", imports, "CLIENT", c.Client, "PACKAGE", pkg, "ENTITY", c.Entity, "IDTYPE", qualified(c.ID),
			"STATUSTYPE", status, "OWN", own, "FIELD", pascal(c.Field), "SETTER", setter(c.Field)).Replace(text)
	}
	all[c.Client+"/"+pkg] = fill(ofEntity, inEntity)
	all[c.Client] = fill(host, status)
	return all
}

// fakes imports packages of the host from their texts, and others as they are compiled.
type fakes struct {
	files    *token.FileSet
	exports  map[string]string
	texts    map[string]string
	checked  map[string]*types.Package
	compiled types.Importer
}

func (f *fakes) open(path string) (io.ReadCloser, error) {
	file, ok := f.exports[path]
	if !ok {
		return nil, fmt.Errorf("package %q is not used in this module", path)
	}
	return os.Open(file)
}

// Import returns a package.
func (f *fakes) Import(path string) (*types.Package, error) {
	text, ok := f.texts[path]
	if !ok {
		return f.compiled.Import(path)
	}
	if f.checked[path] != nil {
		return f.checked[path], nil
	}
	file, err := parser.ParseFile(f.files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: f, Error: func(error) {}} // an import that it does not use is no fault of the files
	pkg, _ := config.Check(path, f.files, []*ast.File{file}, nil)
	f.checked[path] = pkg
	return pkg, nil
}

// compiled imports the packages that the files import, from the go command's cache.
func compiled(t *testing.T) *fakes {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", "../../engine", "../../durabletest", "entgo.io/ent/dialect/sql")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	listing, err := command.Output()
	require.NoError(t, err, complaints.String())
	f := &fakes{files: token.NewFileSet(), exports: map[string]string{}}
	f.compiled = importer.ForCompiler(f.files, "gc", f.open)
	for decoder := json.NewDecoder(bytes.NewReader(listing)); ; {
		var p struct{ ImportPath, Export string }
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return f
		}
		require.NoError(t, err)
		f.exports[p.ImportPath] = p.Export
	}
}
