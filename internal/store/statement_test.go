package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

// Each text that the store can send stands, whole, in a file of testdata/sql; what it is on the
// shards of a distributed schema, where that is more than other names, in testdata/sql/shards. So a
// change of a fragment shows in each statement that has it, and a plan cannot change unseen.
// -update writes the files.
func TestStatements(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, s := range store.Statements() {
		require.Empty(t, texts[s.File], "another statement has the name and the form of %s", s.File)
		require.NotRegexp(t, `\{[a-z]+(?: [a-z]+)?\}`, s.Text, "a slot that nothing resolves")
		texts[s.File] = s.Text + "\n"
		if s.Shards != s.Text {
			texts["shards/"+s.File] = s.Shards + "\n"
		}
	}
	const dir = "testdata/sql"
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir+"/shards", 0o755))
		for file, text := range texts {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
	}
	for _, pattern := range []string{"*.sql", "shards/*.sql"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, path := range files {
			file := strings.TrimPrefix(filepath.ToSlash(path), dir+"/")
			require.NotEmpty(t, texts[file], "%s: there is no such statement", file)
			is, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(is), texts[file], "%s: go test ./internal/store -run TestStatements$ -update writes it", file)
			delete(texts, file)
		}
	}
	for file := range texts {
		t.Errorf("%s: a statement without its file: -update writes it", file)
	}
}

// onlyOnCitus are statements that ask what only Citus has.
var onlyOnCitus = map[string]bool{"enter.sql": true, "shards.sql": true, "node.sql": true, "roll_history.at_the_coordinator.sql": true}

// Postgres takes each text, with the types of its parameters, on each major version that the tests
// meet, and on shards.
func TestPostgresPreparesEachStatement(t *testing.T) {
	b := newBench(t)
	conn, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, s := range store.Statements() {
		if onlyOnCitus[s.File] && !pgtest.IsDistributed() {
			continue
		}
		_, err := conn.Conn().Prepare(t.Context(), s.File, b.SQL(s.File))
		assert.NoError(t, err, s.File)
	}
}

// The list of statements is complete: only named makes one, for declarations of the package, and
// only stmt makes a text one of the pipeline.
func TestOnlyNamedMakesStatements(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	makers, users := map[string]bool{"named": true}, map[string][]string{} // by the functions that they use
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok {
				switch of := literal.Type.(type) {
				case *ast.Ident:
					require.True(t, of.Name != "statement" || file == "statement.go", "%s makes a statement past named", file)
				case *ast.SelectorExpr:
					require.True(t, of.Sel.Name != "Stmt" || file == "statement.go" || len(literal.Elts) == 0, "%s makes a Stmt past stmt", file)
				}
			}
			return true
		})
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if id, ok := call.Fun.(*ast.Ident); ok {
						users[id.Name] = append(users[id.Name], f.Name.Name)
					}
				}
				return true
			})
		}
	}
	// A function that makes a statement may serve declarations as well, if no other function uses it.
	for more := true; more; {
		more = false
		for maker := range makers {
			for _, user := range users[maker] {
				if !makers[user] {
					makers[user], more = true, true
				}
			}
		}
	}
	require.Equal(t, map[string]bool{"named": true, "formsOf": true, "sweepsOf": true}, makers, "these functions make statements")
}

// A text is joined from parts, by a form, and nothing looks into it or changes it behind that but
// the resolver of its slots. These are all uses of what could.
func TestNothingChangesTexts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	changers := regexp.MustCompile(`strings\.(Replace|ReplaceAll|NewReplacer|Cut|CutPrefix|CutSuffix|Split|SplitN|Index|Trim\w*|Fields)\(|regexp\.MustCompile\(`)
	uses := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		uses[file] = changers.FindAllString(string(source), -1)
		if uses[file] == nil {
			delete(uses, file)
		}
	}
	require.Equal(t, map[string][]string{
		"gate.go":   {"strings.Cut("},                                                      // the key of a gate
		"shards.go": {"regexp.MustCompile(", "strings.ReplaceAll(", "regexp.MustCompile("}, // the slots; queries of ent; the name of an index in an error
		"tx_sql.go": {"strings.NewReplacer("},                                              // the text of an array
	}, uses)
}
