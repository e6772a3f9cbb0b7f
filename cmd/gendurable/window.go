package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/window"
	"github.com/gendurable/gendurable/fsm"
)

type windowCommands struct {
	List windowList `cmd:"" help:"List the windows that inserts have opened, by kind and key: of throttles, once per period, and debounces."`
}

type windowList struct {
	Kind   string `default:""                                                     enum:",throttle,once,debounce"        help:"Only windows of this kind: throttle, once or debounce."`
	Prefix string `help:"Only those whose key begins like this; it needs a kind." placeholder:"TEXT"`
	All    bool   `help:"Also those that have closed, until the GC deletes them."`
	Limit  int    `default:"100"                                                  help:"How many at most; 1 to 10,000."`
}

// Validate checks the flags.
func (c *windowList) Validate() error {
	switch {
	case c.Prefix != "" && c.Kind == "":
		return errors.New("--prefix needs --kind")
	case c.Limit < 1 || c.Limit > 10_000:
		return fmt.Errorf("--limit %d: want 1 to 10,000", c.Limit)
	}
	return nil
}

// opened is a window.
type opened struct {
	Kind     string    `json:"kind"`
	Key      string    `json:"key"`
	Instance fsm.ID    `json:"instance"` // that has it; it may be gone
	Opened   time.Time `json:"opened_at"`
	Until    time.Time `json:"until"`
	Open     bool      `json:"open"`
}

// Run runs the command.
func (c *windowList) Run(ctx context.Context, a *app, db *database) error {
	now, err := db.now(ctx)
	if err != nil {
		return err
	}
	q := db.all.Ent().Window.Query().Order(window.ByID()).Limit(c.Limit)
	if c.Kind != "" {
		q = q.Where(func(s *sql.Selector) { s.Where(sql.HasPrefix(s.C(window.FieldID), c.Kind+":"+c.Prefix)) })
	}
	if !c.All {
		q = q.Where(window.UntilGT(now))
	}
	rows, err := q.All(ctx)
	if err != nil {
		return err
	}
	out := windows(rows, now)
	return a.show(map[string]any{"windows": out}, func(w io.Writer) {
		t := newTable("kind", "key", "instance", "opened", "until")
		for _, o := range out {
			until := "closed for " + span(now.Sub(o.Until))
			if o.Open {
				until = "for another " + span(o.Until.Sub(now))
			}
			t.add(o.Kind, o.Key, o.Instance, span(now.Sub(o.Opened))+" ago", until)
		}
		t.write(w, a.console.width())
	})
}

func windows(rows []*ent.Window, now time.Time) []opened {
	out := make([]opened, len(rows))
	for n, row := range rows {
		kind, key, _ := strings.Cut(row.ID, ":")
		out[n] = opened{kind, key, row.Instance, row.OpenedAt.UTC(), row.Until.UTC(), row.Until.After(now)}
	}
	return out
}
