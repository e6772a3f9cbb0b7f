package engine_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

// SQL of others may have written labels that are no texts. Each reader shows what is readable, and
// none takes what is not for an outage that will pass.
func TestLabelsThatAreNoTexts(t *testing.T) {
	t.Parallel()
	e, pool := client(t, line)
	ctx := within(t)
	id, err := e.Insert(ctx, parcels.New(parcel{1}).Label("a", "x").After(time.Hour))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET labels = '{"a": "x", "n": 7, "none": null}', trace = '{"t": [1]}'`)
	require.NoError(t, err)
	want := map[string]string{"a": "x", "n": "7"}

	row, err := e.Ent().Instance.Query().Where(instance.ID(id)).Only(ctx)
	require.NoError(t, err)
	require.Equal(t, fsm.Texts(want), row.Labels)
	require.Equal(t, fsm.Texts{"t": "[1]"}, row.Trace)
	raw, err := e.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, want, raw.Labels)
	page, err := e.List(ctx, engine.Query{Filter: engine.Filter{Labels: map[string]string{"a": "x"}}})
	require.NoError(t, err)
	require.Equal(t, want, page.Instances[0].Labels)
	examined, causes, err := e.Admin().Examine(ctx, id)
	require.NoError(t, err)
	require.NotEmpty(t, causes)
	require.Equal(t, fsm.Texts(want), examined.Labels)
}

// The compiler is the first wall: each of these lines would bypass the fences.
func TestAWriteThroughEntDoesNotCompile(t *testing.T) {
	t.Parallel()
	packages := compiled(t, "../engine", "../ent")
	require.Empty(t, complaints(t, packages, `row, err := client.Instance.Query().Where(instance.Machine("m")).Only(ctx)`, `_, _ = row.QueryChildren(), err`))

	var writes []string
	for _, entity := range entities(t, packages) {
		for _, write := range []string{"Create()", "CreateBulk()", "MapCreateBulk(nil, nil)", "Update()", "UpdateOne(nil)", "UpdateOneID(1)", "Delete()", "DeleteOne(nil)", "DeleteOneID(1)"} {
			writes = append(writes, fmt.Sprintf("client.%s.%s", entity, write))
		}
		writes = append(writes, fmt.Sprintf("new(ent.%s).Update()", entity))
	}
	writes = append(writes, "client.Schema.Create(ctx)", `client.ExecContext(ctx, "TRUNCATE gen_durable")`)
	refused := complaints(t, packages, writes...)
	require.Len(t, refused, len(writes))
	for i, err := range refused {
		require.Regexp(t, `undefined \(type .* has no field or method`, err, writes[i])
	}
}

// Whatever ent will generate one day, here is what it may.
func TestEntHasNothingButReads(t *testing.T) {
	t.Parallel()
	packages := compiled(t, "../ent")
	scope := imported(t, packages, "ent").Scope()
	all := entities(t, packages)
	require.Contains(t, all, "Instance")
	for _, entity := range all {
		for of, allowed := range map[string]string{
			entity + "Client": `Get|GetX|Query\w*|Intercept|Interceptors`,
			entity:            `Query\w*|Value|String|Unwrap`,
		} {
			methods := types.NewMethodSet(types.NewPointer(scope.Lookup(of).Type()))
			require.NotZero(t, methods.Len())
			for method := range methods.Methods() {
				if method.Obj().Exported() {
					require.Regexp(t, "^("+allowed+")$", method.Obj().Name(), "a method of %s", of)
				}
			}
		}
	}
	for _, name := range scope.Names() {
		builder, _ := scope.Lookup(name).(*types.TypeName)
		if builder != nil && builder.Exported() {
			require.NotRegexp(t, `.(Create|CreateBulk|Update|UpdateOne|Upsert|Delete|DeleteOne|Mutation)$`, name)
		}
	}
}

// Postgres is the second wall: a host's own predicate may call any function.
func TestATransactionOfEntWritesNothing(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	_, err := e.Insert(t.Context(), echoes.New("hello"))
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `CREATE SEQUENCE drawn`)
	require.NoError(t, err)

	tx, err := e.Ent().Tx(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }() // the failed statement has ended it already
	_, err = tx.Instance.Query().Where(func(s *entsql.Selector) {
		s.Where(entsql.And(entsql.EQ(s.C(instance.FieldMachine), echoes.Name()), entsql.ExprP("nextval('drawn') > 0")))
	}).All(t.Context())
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "25006", refused.Code, "read_only_sql_transaction")

	var called bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT is_called FROM drawn`).Scan(&called))
	require.False(t, called)
}

// complaints are the type checker's about a function of these statements.
func complaints(t *testing.T, packages types.Importer, statements ...string) []string {
	t.Helper()
	source := `package host
import ("context"; "github.com/gendurable/gendurable/engine"; "github.com/gendurable/gendurable/ent"; "github.com/gendurable/gendurable/ent/instance")
var _, _ = instance.Machine, ent.Desc
func _(ctx context.Context, eng *engine.Engine) {
client := eng.Ent()
` + strings.Join(statements, "\n") + "\n}\n"
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "host.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	var found []string
	config := types.Config{Importer: packages, Error: func(err error) { found = append(found, err.Error()) }}
	_, _ = config.Check("host", files, []*ast.File{file}, nil) // its first error is among those found
	return found
}

// entities are the names of what a client of package ent has a client for.
func entities(t *testing.T, packages types.Importer) []string {
	t.Helper()
	fields, ok := imported(t, packages, "ent").Scope().Lookup("Client").Type().Underlying().(*types.Struct)
	require.True(t, ok)
	var names []string
	for field := range fields.Fields() {
		if field.Exported() {
			names = append(names, field.Name())
		}
	}
	require.NotEmpty(t, names)
	return names
}

func imported(t *testing.T, packages types.Importer, name string) *types.Package {
	t.Helper()
	p, err := packages.Import("github.com/gendurable/gendurable/" + name)
	require.NoError(t, err)
	return p
}

// compiled imports packages and what they need, from the go command's cache.
func compiled(t *testing.T, roots ...string) types.Importer {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, roots...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	listing, err := list.Output()
	require.NoError(t, err, stderr.String())
	export := map[string]string{}
	for _, p := range regexp.MustCompile(`(?m)^(\S+) (\S+)$`).FindAllStringSubmatch(string(listing), -1) {
		export[p[1]] = p[2]
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })
}
