// Nightly shows a graph in typed Go: nodes are functions, edges are their arguments. It reads
// which files there are, and loads each as a separate instance. A decision point looks at what was
// loaded and adds a node for each file that is suspect; the report waits for exactly these. If the
// report fails, it sends an alarm. At the end it draws the graph as it has ended, for any viewer
// of Mermaid.
//
//	go run ./examples/nightly
//
// This is the picture, and the guide to graphs has what the program draws:
//
//	orders ─┬─▶ files ─▶ load (a piece per file) ─▶ check ─┬────────────▶ report ┄ failed ┄▶ alert
//	users ──┘                                              └─▶ recount ─▶ report
package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// Nightly begins with a day and ends with a report. Programs that insert it need no more than
// this.
var Nightly = fsm.Declare[string, string]("nightly")

// File is what one piece of the graph loads.
type File struct {
	Table string `json:"table"`
	Part  int    `json:"part"`
}

// Loaded is what one piece has loaded.
type Loaded struct {
	File File `json:"file"`
	Rows int  `json:"rows"`
}

// few is how many rows make a file suspect.
const few = 6

// machines declares the graph. Each node takes what was declared before it, so there is no cycle.
func machines() []fsm.Definition {
	g := dag.New(Nightly)
	orders := dag.Do(g, "orders", dag.In(g), tables("orders", 3))
	users := dag.Do(g, "users", dag.In(g), tables("users", 2))
	files := dag.Do(g, "files", dag.All(orders, users), list)
	loaded := dag.Each(g, "load", files, load, dag.Retry(fsm.RetryPolicy{MaxAttempts: 5}))
	suspect := dag.Prepare(g, "recount", recount)
	checked := dag.Decide(g, "check", loaded, func(_ context.Context, all []Loaded, to *dag.Adder) (int, error) {
		good := 0
		for _, l := range all {
			if l.Rows < few {
				suspect.Add(to, l.File) // in the commit of this result, or not at all
			} else {
				good += l.Rows
			}
		}
		return good, nil
	})
	report := dag.Do3(g, "report", dag.In(g), checked, dag.Added(checked, suspect), sum)
	dag.Do(g, "alert", dag.Failed(report), alert)
	return g.Return(report)
}

// tables returns a node's function, which finds how many parts a table has on a day.
func tables(name string, parts int) func(context.Context, string) (File, error) {
	return func(context.Context, string) (File, error) { return File{Table: name, Part: parts}, nil }
}

func list(_ context.Context, tables []File) (files []File, err error) {
	for _, t := range tables {
		for part := range t.Part {
			files = append(files, File{Table: t.Table, Part: part})
		}
	}
	return files, nil
}

// load runs once for each file, side by side with the others.
func load(_ context.Context, f File) (Loaded, error) {
	return Loaded{File: f, Rows: len(f.Table) * f.Part}, nil
}

// recount runs for the files that check adds, side by side.
func recount(_ context.Context, f File) (int, error) { return len(f.Table) * (f.Part + 1), nil }

// sum gets the rows of the files that were right at once, and of each that was counted again.
func sum(_ context.Context, day string, good int, recounted []int) (string, error) {
	total := good
	for _, n := range recounted {
		total += n
	}
	return fmt.Sprintf("%s: %d rows, %d files were counted again", day, total, len(recounted)), nil
}

// alert runs only if the report has failed.
func alert(_ context.Context, why error) (string, error) {
	return strings.ToUpper(why.Error()), nil
}

func main() { run.Main("gendurable_nightly", night) }

func night(ctx context.Context, out io.Writer, db *run.Database) error {
	eng, err := engine.New(engine.Config{
		Pool:     db.Pool,
		Schema:   db.Schema,
		Machines: machines(),
		Queues:   map[string]engine.Queue{"default": {}},
	})
	if err != nil {
		return err
	}
	return run.While(ctx, eng, func(ctx context.Context) error {
		id, err := eng.Insert(ctx, Nightly.New("2026-11-22").Key("nightly:2026-11-22"))
		if err != nil {
			return err
		}
		report, err := Nightly.Wait(ctx, eng, id)
		if err != nil {
			return err
		}
		graph, err := eng.Graph(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n\n%s", report, graph.Mermaid())
		return nil
	})
}
