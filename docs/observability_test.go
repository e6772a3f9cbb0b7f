package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The guide names each attribute that the library logs, by its type, and no other: programs that
// search logs rely on them.
func TestLogAttributesAreDocumented(t *testing.T) {
	t.Parallel()
	attribute := regexp.MustCompile(`slog\.([A-Z]\w*)\((?:"(\w+)"|([^")]+))`)
	kinds := map[string]string{
		"String": "text", "Int": "number", "Int64": "number", "Bool": "true or false", "Duration": "duration", "Any": "any", "Group": "group",
	}
	logged := map[string]string{}
	for _, folder := range []string{"cluster", "engine", "entpgx", "fsm", "internal/send", "internal/step", "internal/store", "internal/survive", "internal/work", "migrate", "migrations", "signal", "telemetry"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(at) != ".go" || strings.HasSuffix(at, "_test.go") {
				return err
			}
			text, err := os.ReadFile(at)
			for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
				kind, isAttribute := kinds[m[1]]
				if !isAttribute {
					continue
				}
				require.NotEmpty(t, m[2], "%s: the name of an attribute is written, not made: %s", at, m[0])
				if before := logged[m[2]]; before != "" {
					require.Equal(t, before, kind, "%s: attribute %q has two types", at, m[2])
				}
				logged[m[2]] = kind
			}
			return err
		}))
	}
	ofKind, name := regexp.MustCompile(`^- \*([a-z ]+)\*: (.+)\.$`), regexp.MustCompile("(?:^|; )`(\\w+)`")
	documented := map[string]string{}
	for _, line := range read(t, "docs/guide/observability.md").lines {
		if m := ofKind.FindStringSubmatch(line); m != nil {
			for _, named := range name.FindAllStringSubmatch(m[2], -1) {
				documented[named[1]] = m[1]
			}
		}
	}
	require.Equal(t, logged, documented)
}
