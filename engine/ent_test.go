package engine_test

import (
	"bytes"
	"context"
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
	"entgo.io/ent/entql"
	entprivacy "entgo.io/ent/privacy"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/intercept"
	"github.com/gendurable/gendurable/ent/privacy"
	"github.com/gendurable/gendurable/ent/signal"
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

// A host's rule is a traversal of its client, written once for all entities with names of fields.
func TestAPolicyHoldsForTheQueriesOfAClient(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx := within(t)
	mine, err := e.Insert(ctx, echoes.New("mine").Queue("mine").Key("mine").After(time.Hour))
	require.NoError(t, err)
	theirs, err := e.Insert(ctx, echoes.New("theirs").Queue("theirs").After(time.Hour))
	require.NoError(t, err)

	policy := entprivacy.Policies{privacy.Policy{Query: privacy.QueryPolicy{
		privacy.InstanceQueryRuleFunc(func(ctx context.Context, _ *ent.InstanceQuery) error {
			if ctx.Value(operator{}) != nil {
				return privacy.Allow
			}
			return privacy.Skip
		}),
		privacy.FilterFunc(func(_ context.Context, f privacy.Filter) error {
			in, ok := f.(interface{ WhereQueue(p entql.StringP) })
			if !ok {
				return privacy.Denyf("rows without a queue")
			}
			in.WhereQueue(entql.StringEQ("mine"))
			return privacy.Skip
		}),
	}}}
	bounded := e.Ent()
	bounded.Intercept(ent.TraverseFunc(policy.EvalQuery))
	ids, err := bounded.Instance.Query().IDs(ctx)
	require.NoError(t, err)
	require.Equal(t, []fsm.ID{mine}, ids)
	_, err = bounded.Instance.Get(ctx, theirs)
	require.True(t, ent.IsNotFound(err))
	_, err = bounded.Worker.Query().Count(ctx)
	require.ErrorIs(t, err, privacy.Deny)
	ids, err = bounded.Instance.Query().Order(instance.ByID()).IDs(context.WithValue(ctx, operator{}, true))
	require.NoError(t, err)
	require.Equal(t, []fsm.ID{mine, theirs}, ids)

	// An interceptor of package intercept is of one entity, or of all.
	named := e.Ent()
	var seen []string
	named.Intercept(intercept.TraverseFunc(func(_ context.Context, q intercept.Query) error {
		seen = append(seen, q.Type())
		q.Limit(1)
		return nil
	}))
	named.Instance.Intercept(intercept.TraverseInstance(func(_ context.Context, q *ent.InstanceQuery) error {
		q.Where(instance.Queue("theirs"))
		return nil
	}))
	ids, err = named.Instance.Query().IDs(ctx)
	require.NoError(t, err)
	require.Equal(t, []fsm.ID{theirs}, ids)
	require.Equal(t, []string{ent.TypeInstance}, seen)

	// Neither the next client nor the engine knows these rules.
	n, err := e.Ent().Instance.Query().Count(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	page, err := e.List(ctx, engine.Query{})
	require.NoError(t, err)
	require.Len(t, page.Instances, 2)
}

type operator struct{}

// Filters by edges from ent's own template would look for the tables in the search_path.
func TestFiltersFindTheTablesOfTheSchema(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	var path string
	require.NoError(t, pool.QueryRow(ctx, `SHOW search_path`).Scan(&path))
	require.NotContains(t, path, "gendurable")
	parent, err := e.Insert(ctx, echoes.New("parent").After(time.Hour))
	require.NoError(t, err)
	child, err := e.Insert(ctx, echoes.New("child").After(time.Hour))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET parent_id = $1 WHERE id = $2`, parent, child)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, parent)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.history (instance, kind) VALUES ($1, 'next')`, child)
	require.NoError(t, err)

	for name, test := range map[string]struct {
		filter func(f *ent.InstanceFilter)
		want   fsm.ID
	}{
		"with an inbox":      {func(f *ent.InstanceFilter) { f.WhereHasSignals() }, parent},
		"with a signal":      {func(f *ent.InstanceFilter) { f.WhereHasSignalsWith(signal.Name("go")) }, parent},
		"with a child":       {func(f *ent.InstanceFilter) { f.WhereHasChildren() }, parent},
		"with a parent":      {func(f *ent.InstanceFilter) { f.WhereHasParentWith(instance.ID(parent)) }, child},
		"by a field's name":  {func(f *ent.InstanceFilter) { f.Where(entql.FieldEQ(instance.FieldID, int64(child))) }, child},
		"by its typed field": {func(f *ent.InstanceFilter) { f.WhereID(entql.Int64EQ(int64(child))) }, child},
		"by a field that is": {func(f *ent.InstanceFilter) {
			f.Where(entql.FieldNotNil(instance.FieldParentID))
		}, child},
	} {
		t.Run(name, func(t *testing.T) {
			q := e.Ent().Instance.Query()
			test.filter(q.Filter())
			ids, err := q.IDs(ctx)
			require.NoError(t, err)
			require.Equal(t, []fsm.ID{test.want}, ids)
		})
	}
	rows := e.Ent().Transition.Query()
	rows.Filter().WhereKind(entql.StringEQ("next"))
	n, err := rows.Count(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	for _, p := range []entql.P{entql.FieldEQ("gone", 1), entql.HasEdge("signals")} {
		q := e.Ent().Transition.Query()
		q.Filter().Where(p)
		_, err = q.Count(ctx)
		require.ErrorContains(t, err, "was not found for node")
	}
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
