package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// Options of [Run]; all are required.
type Options struct {
	Pool      *pgxpool.Pool
	Schema    string // of the engine, migrated
	Directory string // to read; a symbolic link is followed here and nowhere else
	Progress  *run.Progress
}

// ErrDifferent says that the engine and the plain walk disagree on a tree that stood still.
var ErrDifferent = errors.New("ingest: the totals differ from those of a plain walk")

// Run ingests a directory, compares with a plain walk and prints both. An ingest of the same
// directory that was interrupted is finished, not begun anew.
func Run(ctx context.Context, o Options) error {
	root, err := filepath.EvalSymlinks(o.Directory)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return fmt.Errorf("find the directory to ingest: %w", err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("ingest %s: not a directory that can be read", root), err)
	}
	return compare(ctx, o, diskReader(), Path(root))
}

// compare ingests between two plain walks: where those two differ, the tree has changed meanwhile
// and proves nothing.
func compare(ctx context.Context, o Options, files reader, root Path) error {
	o.Progress.Say("ingest %s", root)
	before, walked, err := timed(func() (Totals, error) { return plain(ctx, files, root) })
	if err != nil {
		return fmt.Errorf("walk %s: %w", root, err)
	}
	resumed := false
	ingested, took, err := timed(func() (totals Totals, err error) {
		totals, resumed, err = durable(ctx, o, files, root)
		return totals, err
	})
	if err != nil {
		return err
	}
	after, _, err := timed(func() (Totals, error) { return plain(ctx, files, root) })
	if err != nil {
		return fmt.Errorf("walk %s: %w", root, err)
	}
	same, still := ingested.Sums == after.Sums, before.Sums == after.Sums
	verdict := "  ok    the same totals and digest as of a plain walk\n"
	switch {
	case same:
	case resumed:
		o.Progress.Say("the tree has changed since the interrupted ingest began; once more")
		return compare(ctx, o, files, root)
	case still:
		verdict = "  FAIL  not the same as of a plain walk\n"
		err = fmt.Errorf("%w: %+v, walk: %+v", ErrDifferent, ingested.Sums, after.Sums)
	default:
		verdict = "  --    the tree was being changed: nothing to compare with\n"
	}
	o.Progress.Block(table(root, ingested, after, took, walked) + verdict)
	return err
}

func timed(f func() (Totals, error)) (Totals, time.Duration, error) {
	began := time.Now()
	totals, err := f()
	return totals, time.Since(began), err
}

// durable has the engine read the tree; resumed tells that an earlier run began it.
func durable(ctx context.Context, o Options, files reader, root Path) (totals Totals, resumed bool, err error) {
	eng, err := engine.New(engine.Config{
		Pool:     o.Pool,
		Schema:   o.Schema,
		Machines: ingest{files}.definitions(),
		Queues:   map[string]engine.Queue{"ingest": {Concurrency: 64}},
		NoGC:     true,
	})
	if err != nil {
		return Totals{}, false, err
	}
	err = run.While(ctx, eng, func(ctx context.Context) error {
		// The key is the directory: while one ingest of it is under way, this one is the same.
		began, err := eng.GetOrInsert(ctx, Directory.New(Walk{Path: root}).KeyFromState())
		if err != nil {
			return fmt.Errorf("begin to ingest %s: %w", root, err)
		}
		if resumed = began.Duplicate; resumed {
			o.Progress.Say("an ingest of it was interrupted; it goes on")
		}
		return run.Together(ctx,
			func(ctx context.Context) error { return watch(ctx, o, began.ID) },
			func(ctx context.Context) (err error) {
				totals, err = Directory.Wait(ctx, eng, began.ID)
				return err
			},
		)
	})
	return totals, resumed, err
}

// watch shows how many instances there are and how many have ended, until the root has.
func watch(ctx context.Context, o Options, root fsm.ID) error {
	look := `select count(*), count(*) filter (where finished_at is not null), coalesce(bool_or(finished_at is not null) filter (where id = $1), false)
		from ` + pgx.Identifier{o.Schema, "gen_durable"}.Sanitize() + `
		where id >= $1 and queue = 'ingest'`
	for {
		var all, ended int
		var done bool
		if err := o.Pool.QueryRow(ctx, look, int64(root)).Scan(&all, &ended, &done); err != nil {
			return fmt.Errorf("look at the ingest: %w", err)
		}
		o.Progress.Status("ingest: %s directories and files found, %s read", run.Count(all), run.Count(ended))
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func table(root Path, totals, plain Totals, took, walked time.Duration) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t gendurable\t plain walk\t\n")
	for _, row := range []struct {
		name string
		of   func(Totals) int64
	}{
		{"directories", func(t Totals) int64 { return t.Directories }},
		{"files", func(t Totals) int64 { return t.Files }},
		{"bytes", func(t Totals) int64 { return t.Bytes }},
		{"lines", func(t Totals) int64 { return t.Lines }},
		{"longest line", func(t Totals) int64 { return t.Longest }},
		{"links, not followed", func(t Totals) int64 { return t.Links }},
		{"special, not read", func(t Totals) int64 { return t.Special }},
		{"unreadable", func(t Totals) int64 { return t.Unreadable }},
		{"vanished", func(t Totals) int64 { return t.Vanished }},
	} {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", row.name, run.Count(row.of(totals)), run.Count(row.of(plain)))
	}
	fmt.Fprintf(w, "digest\t%.12s\t%.12s\t\n", totals.Digest, plain.Digest)
	fmt.Fprintf(w, "seconds\t%.1f\t%.1f\t\n", took.Seconds(), walked.Seconds())
	_ = w.Flush() // a strings.Builder takes all
	for _, problem := range totals.Problems {
		fmt.Fprintf(&text, "  unreadable: %s\n", problem)
	}
	return fmt.Sprintf("\ningest of %s\n%s\n", root, text.String())
}
