package environments

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// complaints are an engine's log records at level warning or above.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

func (c *complaints) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *complaints) WithGroup(string) slog.Handler      { return c }

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
	return nil
}

// expected are the complaints that the scenario provokes, or that a test server or a busy machine
// causes.
var expected = []string{
	"Postgres may lose committed steps", "reaped claims whose lease had expired", "whose machine is not registered here",
	"SQLSTATE 57014", "SQLSTATE 55P03",
}

// unexpected returns the other complaints, except those that are normal in this environment. A
// repetition without an SQLSTATE follows a fault of the network, or a beat that came too late.
func (c *complaints) unexpected(here []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.lines), func(line string) bool {
		known := func(words string) bool { return strings.Contains(line, words) }
		return slices.ContainsFunc(expected, known) || slices.ContainsFunc(here, known) || known("; retrying") && !known("SQLSTATE")
	})
}
