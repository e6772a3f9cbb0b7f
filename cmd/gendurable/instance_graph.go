package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gendurable/gendurable/engine"
)

type instanceGraph struct {
	Target address `arg:""            help:"An id, or key: and a correlation key."`
	Format string  `default:"mermaid" enum:"mermaid,dot"                           help:"mermaid or dot."`
}

// nodes is a graph with its drawing.
type nodes struct {
	engine.GraphStatus

	Format string `json:"format"`
	Graph  string `json:"graph"`
}

// Run runs the command.
func (c *instanceGraph) Run(ctx context.Context, a *app, db *database) error {
	found, err := db.Graph(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	out := nodes{found, c.Format, found.Mermaid()}
	if c.Format == "dot" {
		out.Graph = found.DOT()
	}
	return a.show(out, func(w io.Writer) {
		if len(out.Nodes) == 0 {
			fmt.Fprintf(w, "the newest children of instance %d are no nodes of a graph\n", out.Root)
			return
		}
		fmt.Fprint(w, out.Graph)
	})
}
