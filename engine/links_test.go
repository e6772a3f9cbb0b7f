package engine_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A host links what it names, and nothing for those who migrate, generate or test: no driver of
// Atlas, no HCL, no MySQL, no templates, whose reflection would keep all methods of the program.
func TestWhatAHostLinks(t *testing.T) {
	t.Parallel()
	modules := []string{
		"github.com/gendurable/gendurable", "entgo.io/ent", "github.com/google/uuid",
		"github.com/jackc/pgx/v5", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2",
		"golang.org/x/sync", "golang.org/x/text",
	}
	for _, of := range []string{"engine", "fsm", "ent", "entity", "entpgx", "signal"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{if .Module}}{{.Module.Path}}{{end}}", "../"+of)
		out, err := list.Output()
		require.NoError(t, err)
		linked := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
			linked[path] = true
			if module != "" {
				require.Contains(t, modules, module, "%s links %s", of, path)
			}
		}
		require.True(t, linked["github.com/gendurable/gendurable/"+of])
		for _, heavy := range []string{
			"entgo.io/ent/dialect/sql/schema", "entgo.io/ent/entc/gen", "text/template", "html/template", "testing",
			"github.com/gendurable/gendurable/ent/migrate", "github.com/gendurable/gendurable/migrate",
		} {
			require.False(t, linked[heavy], "%s links %s", of, heavy)
		}
	}
}
