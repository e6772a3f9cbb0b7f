package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's drawing is the one that its program's machine makes of itself: frame readme has the
// main function that prints it.
func TestTheREADMEsDrawingIsItsProgram(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	var program, drawing string
	for _, b := range readme.blocks {
		switch {
		case b.frame == "readme":
			require.Empty(t, program, "the README has one program")
			program = framed(t, b)
		case b.language == "mermaid":
			require.Empty(t, drawing, "the README has one drawing")
			drawing = b.text
		}
	}
	require.NotEmpty(t, program)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	command := exec.CommandContext(t.Context(), "go", "run", file) //nolint:gosec // the README's own
	command.Dir = root
	var complaints bytes.Buffer
	command.Stderr = &complaints
	drawn, err := command.Output()
	require.NoError(t, err, complaints.String())
	require.Equal(t, string(drawn), drawing, "draw it anew: the program of the README prints what is on the left")
}
