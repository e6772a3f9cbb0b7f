package integration

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// journal holds an engine's log, a line per record. It also goes to the test's output.
type journal struct {
	also io.Writer

	mu   sync.Mutex
	text bytes.Buffer
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	return &journal{also: t.Output()}
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// Write implements io.Writer, for handlers and for the output of processes.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Write(p)
	return j.also.Write(p)
}

// lines returns the lines that contain every one of the words.
func (j *journal) lines(words ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
next:
	for line := range strings.Lines(j.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// says requires that a fault is logged, and not over and over: an operator must find the line, and
// a disk must hold the log.
func (j *journal) says(t *testing.T, words ...string) {
	t.Helper()
	found := len(j.lines(words...))
	require.NotZero(t, found, "no line says %q", words)
	require.Less(t, found, 20, "%q is said over and over", words)
}

// isShort requires that the whole log is short enough to read.
func (j *journal) isShort(t *testing.T) {
	t.Helper()
	require.Less(t, len(j.lines("level=WARN"))+len(j.lines("level=ERROR")), 60)
}
