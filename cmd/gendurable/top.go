package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

type topCommand struct {
	Once  bool          `help:"Write one frame, of one interval, and end."`
	Every time.Duration `default:"2s"                                      help:"How often to refresh."`
}

func (*topCommand) lasts() bool { return true }

// leastEvery keeps a typing error from loading the server.
const leastEvery = 100 * time.Millisecond

// frame is shown at once. The rates are per second, since the frame before; null in the first one.
type frame struct {
	At      time.Time  `json:"at"`
	Rates   *rates     `json:"rates"`
	Queues  []*traffic `json:"queues"`
	Workers []busy     `json:"workers"`

	claimed, inserted int64 // in all
}

type rates struct {
	Inserted float64 `json:"inserted"`
	Claimed  float64 `json:"claimed"`
	Done     float64 `json:"done"`
	Failed   float64 `json:"failed"`
}

// busy is a worker, and how many instances it executes.
type busy struct {
	process

	Executing int64 `json:"executing"`
}

// Run runs the command.
func (c *topCommand) Run(ctx context.Context, a *app) error {
	switch {
	case c.Every < leastEvery:
		return usagef("--every: %v, at least %v", c.Every, leastEvery)
	case !c.Once && (a.console.size == nil || a.console.raw == nil || a.JSON):
		return usagef("top needs a terminal; --once writes one frame, as JSON too")
	}
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	if !c.Once {
		return c.watch(ctx, a, db)
	}
	first, err := db.frame(ctx, nil)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(c.Every):
	}
	second, err := db.frame(ctx, first)
	if err != nil {
		return err
	}
	return a.show(second, func(w io.Writer) { second.write(w, a.console.width(), db.schema, (*table).write) })
}

// A terminal obeys these sequences.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// watch draws frames until a key or a signal ends it; neither is an error.
func (c *topCommand) watch(ctx context.Context, a *app, db *database) error {
	restore, err := a.console.raw()
	if err != nil {
		return fmt.Errorf("read keys from the terminal: %w", err)
	}
	defer restore()
	fmt.Fprint(a.console.out, enterScreen)
	defer fmt.Fprint(a.console.out, leaveScreen)
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	go func() { // a read of a terminal does not end with ctx; the program does
		key := make([]byte, 1)
		for {
			if _, err := a.console.in.Read(key); err != nil || key[0] == 'q' || key[0] == 'Q' || key[0] == interruptKey {
				quit()
				return
			}
		}
	}()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for last := (*frame)(nil); ; {
		next, err := db.frame(ctx, last)
		if ctx.Err() != nil {
			return nil
		}
		var text bytes.Buffer
		width, height := a.console.size()
		if err != nil {
			fmt.Fprintln(&text, "cannot look, trying again:", printable(said(err), true))
		} else {
			last = next
		}
		if last != nil {
			last.write(&text, width, db.schema, (*table).writeCut)
		}
		draw(a.console.out, text.String(), width, height)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// interruptKey is ctrl-c, which a raw terminal passes on as a character.
const interruptKey = 3

// draw overwrites the screen with the part of the text that fits on it.
func draw(w io.Writer, text string, width, height int) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var out strings.Builder
	out.WriteString(goHome)
	for n, line := range lines[:min(len(lines), max(1, height))] {
		if n > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(cut(line, max(1, width)) + clearLine)
	}
	fmt.Fprint(w, out.String()+clearRest)
}

// progressSQL reads the progress of the sequences: each claim draws a token, each insert an id. $1
// is the schema; $2 is the time since when ended instances are counted, NULL for none.
const progressSQL = `SELECT clock_timestamp(),
  (SELECT coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = $1 AND sequencename IN ('gen_durable_id_seq', 'gen_durable_id_draw')),
  (SELECT coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = $1 AND sequencename = 'gen_durable_token'),
  (SELECT count(*) FROM {s}.gen_durable WHERE finished_at > $2::timestamptz AND status = 'done'),
  (SELECT count(*) FROM {s}.gen_durable WHERE finished_at > $2::timestamptz AND status = 'failed')`

// frame reads the next frame, and compares it with the last one.
func (d *database) frame(ctx context.Context, last *frame) (*frame, error) {
	out := &frame{Queues: []*traffic{}, Workers: []busy{}}
	var since *time.Time
	if last != nil {
		since = &last.At
	}
	var done, failed int64
	err := d.pool.QueryRow(ctx, within(d.schema, progressSQL), d.schema, since).Scan(&out.At, &out.inserted, &out.claimed, &done, &failed)
	if err != nil {
		return nil, fmt.Errorf("look for progress: %w", err)
	}
	out.At = out.At.UTC()
	if last != nil {
		per := func(n int64) float64 { return float64(n) / out.At.Sub(last.At).Seconds() }
		out.Rates = &rates{per(out.inserted - last.inserted), per(out.claimed - last.claimed), per(done), per(failed)}
	}
	queues, executing, err := d.traffic(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out.Queues = append(out.Queues, queues[name])
	}
	workers, err := d.Admin().Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range processes(workers) {
		out.Workers = append(out.Workers, busy{p, executing[p.ID]})
	}
	return out, nil
}

// write writes the tables of the frame by layout.
func (f *frame) write(w io.Writer, width int, schema string, layout func(*table, io.Writer, int)) {
	fmt.Fprintf(w, "schema %s at %s\n", schema, text(f.At))
	if f.Rates == nil {
		fmt.Fprintln(w, "per second: …")
	} else {
		fmt.Fprintf(w, "per second: inserted %.1f, claimed %.1f, done %.1f, failed %.1f\n", f.Rates.Inserted, f.Rates.Claimed, f.Rates.Done,
			f.Rates.Failed)
	}
	queues := newTable("queue", "due", "oldest", "delayed", "in line", "executing", "slots", "workers", "paused")
	for _, q := range f.Queues {
		queues.add(q.Queue, q.waiting(q.Due), age(f.At, q.OldestDue), q.waiting(q.Delayed), q.waiting(q.InLine), q.Executing, q.Slots, q.Workers, age(f.At, q.Since))
	}
	fmt.Fprintln(w)
	layout(queues, w, width)
	workers := newTable("worker", "state", "host", "pid", "up", "beat", "executing", "queues")
	for _, p := range f.Workers {
		workers.add(p.ID, p.State, p.Host, p.PID, f.At.Sub(p.Started), max(0, f.At.Sub(p.Beat)), p.Executing, slots(p.Queues))
	}
	fmt.Fprintln(w)
	layout(workers, w, width)
}
