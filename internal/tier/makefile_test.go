package tier_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that is renamed would run with the race detector again.
func TestTheTestsOfTheMakefileExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	list := regexp.MustCompile(`(?m)^UNRACED := \^\(([\w|]+)\)\$\$$`).FindSubmatch(makefile)
	require.NotNil(t, list)
	var sources strings.Builder
	for _, pattern := range []string{"../../dashboard/*_test.go", "../../integration/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file) //nolint:gosec // of this repository
			require.NoError(t, err)
			sources.Write(source)
		}
	}
	for name := range strings.SplitSeq(string(list[1]), "|") {
		require.Contains(t, sources.String(), "func "+name+"(t *testing.T)")
	}
}
