//go:build mutants

package model_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

func TestMutants(t *testing.T) {
	store, err := filepath.Abs("../../internal/store")
	require.NoError(t, err)
	all := slices.Concat(mutants, changeMutants, keepMutants, gateMutants, graphMutants, streamMutants, restartMutants, growMutants)
	tier.Figure(t, "%d mutants", len(all))
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel() // a compiler keeps one core busy, the linker another
			path := filepath.Join(store, m.file)
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			mutant := filepath.Join(t.TempDir(), m.file)
			require.NoError(t, os.WriteFile(mutant, []byte(strings.Replace(string(source), m.from, m.to, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
			require.NoError(t, err)
			plan := filepath.Join(t.TempDir(), "overlay.json")
			require.NoError(t, os.WriteFile(plan, overlay, 0o600))
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", plan, "-rapid.shrinktime=1ms", ".").CombinedOutput()
			require.Error(t, err, "not noticed")
			require.Contains(t, string(out), "--- FAIL", "%s", out)
			for _, told := range regexp.MustCompile(`--- FAIL: (\w+)|failed after (\d+) tests`).FindAllString(string(out), -1) {
				t.Log(told)
			}
		})
	}
}
