package environments

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// complaints are what an engine has logged as a warning or worse.
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

// expected are those that the scenario provokes, and those about a server that is there for tests.
var expected = []string{"Postgres may lose committed steps", "reaped claims whose lease had expired", "whose machine is not registered here"}

// unexpected returns the others.
func (c *complaints) unexpected() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rest []string
next:
	for _, line := range c.lines {
		for _, words := range expected {
			if strings.Contains(line, words) {
				continue next
			}
		}
		rest = append(rest, line)
	}
	return rest
}
