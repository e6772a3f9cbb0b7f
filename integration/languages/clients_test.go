package languages

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/node"
	"github.com/gendurable/gendurable/internal/tier"
)

// answer is the result of a statement, or its failure.
type answer struct {
	Rows    [][]string
	Code    string // SQLSTATE; "": none
	Message string
}

// one returns the only row.
func (a answer) one(t *testing.T) []string {
	t.Helper()
	require.Empty(t, a.Code, a.Message)
	require.Len(t, a.Rows, 1)
	return a.Rows[0]
}

// call is a call of a function by name, with named arguments.
type call struct {
	function  string
	arguments map[string]any // strings and numbers; a json.RawMessage is JSON
}

// client calls a function of the schema.
type client func(t *testing.T, url string, c call) answer

// clients are the other languages.
var clients = map[string]func(t *testing.T) client{"psql": psql, "node": nodeJS}

// psql calls with literals, as a script does.
func psql(t *testing.T) client {
	t.Helper()
	program, err := exec.LookPath("psql")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
		require.NotEmpty(t, found, "psql is in the path, or where Debian puts it")
		program = found[len(found)-1]
	}
	return func(t *testing.T, url string, c call) answer {
		t.Helper()
		var list []string
		for name, value := range c.arguments {
			text := fmt.Sprint(value)
			if raw, ok := value.(json.RawMessage); ok {
				text = string(raw)
			}
			list = append(list, name+" => '"+strings.ReplaceAll(text, "'", "''")+"'")
		}
		sql := "SELECT * FROM gendurable." + c.function + "(" + strings.Join(list, ", ") + ")"
		cmd := exec.CommandContext(t.Context(), program, "-XAtq", "-v", "VERBOSITY=verbose", "-c", sql, url) //nolint:gosec // the test's own
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			level, rest, found := strings.Cut(stderr.String(), ":")
			require.True(t, found && level == "ERROR", "%v: %s", err, stderr.String())
			code, message, _ := strings.Cut(strings.TrimSpace(rest), ":")
			return answer{Code: code, Message: message}
		}
		var a answer
		for line := range strings.Lines(string(out)) {
			a.Rows = append(a.Rows, strings.Split(strings.TrimSpace(line), "|"))
		}
		return a
	}
}

// nodeJS calls with parameters, by the driver that most of its programs use.
func nodeJS(t *testing.T) client {
	t.Helper()
	tier.Needs(t, tier.CI)
	if !node.Found() {
		t.Skip("there is no Node here")
	}
	dir := t.TempDir()
	require.NoError(t, node.Prepare(dir, "client.js"))
	return func(t *testing.T, url string, c call) answer {
		t.Helper()
		var list []string
		parameters := []any{}
		for name, value := range c.arguments {
			if raw, ok := value.(json.RawMessage); ok {
				value = string(raw)
			}
			parameters = append(parameters, value)
			list = append(list, fmt.Sprintf("%s => $%d", name, len(parameters)))
		}
		told, err := json.Marshal(map[string]any{
			"sql": "SELECT * FROM gendurable." + c.function + "(" + strings.Join(list, ", ") + ")", "parameters": parameters,
		})
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "node", "client.js", string(told)) //nolint:gosec // the test's own
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "DATABASE_URL="+url)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		var a answer
		require.NoError(t, json.Unmarshal(out, &a), "%s", out)
		for _, row := range a.Rows {
			for i, text := range row {
				if text == "true" || text == "false" {
					row[i] = text[:1] // as psql writes it
				}
			}
		}
		return a
	}
}
