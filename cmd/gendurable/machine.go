package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type machineCommands struct {
	List  machineList  `cmd:"" help:"List the machines that instances are of or workers register."`
	Graph machineGraph `cmd:"" help:"Draw the steps that instances of a machine stand at, with how many."`
}

type machineList struct{}

// machine is one version of one.
type machine struct {
	Machine string               `json:"machine"`
	Version int                  `json:"version"`
	Workers int                  `json:"workers"` // live ones that are not about to stop
	Counts  map[fsm.Status]int64 `json:"counts"`
}

// Run the command.
func (*machineList) Run(ctx context.Context, a *app, db *database) error {
	counts, err := db.count(ctx, a.Timeout)
	if err != nil {
		return err
	}
	out, err := db.machines(ctx, counts)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"machines": out}, func(w io.Writer) {
		t := newTable("machine", "version", "workers", "runnable", "executing", "awaiting", "done", "failed")
		for _, m := range out {
			t.add(m.Machine, m.Version, m.Workers, m.Counts[fsm.StatusRunnable], m.Counts[fsm.StatusExecuting],
				m.Counts[fsm.StatusAwaitingSignal]+m.Counts[fsm.StatusAwaitingChildren], m.Counts[fsm.StatusDone], m.Counts[fsm.StatusFailed])
		}
		t.write(w, a.console.width())
	})
}

func (d *database) count(ctx context.Context, timeout time.Duration) ([]engine.Count, error) {
	if timeout == 0 {
		timeout = 10 * time.Minute // the most that Counts takes
	}
	counts, err := d.Counts(ctx, engine.CountsOptions{Timeout: min(max(timeout, time.Second), 10*time.Minute)})
	return counts.Counts, err
}

func (d *database) machines(ctx context.Context, counts []engine.Count) ([]*machine, error) {
	type identity struct {
		name    string
		version int
	}
	known := map[identity]*machine{}
	get := func(name string, version int) *machine {
		id := identity{name, version}
		if known[id] == nil {
			known[id] = &machine{Machine: name, Version: version, Counts: map[fsm.Status]int64{}}
			for _, s := range fsm.Statuses() {
				known[id].Counts[s] = 0
			}
		}
		return known[id]
	}
	for _, c := range counts {
		get(c.Machine, c.Version).Counts[c.Status] += c.Count
	}
	workers, err := d.Admin().Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		if !w.Live || w.Draining {
			continue
		}
		for _, id := range w.Machines {
			cut := strings.LastIndexByte(id, '/')
			var version int
			if _, err := fmt.Sscan(id[cut+1:], &version); cut < 0 || err != nil {
				continue
			}
			get(id[:cut], version).Workers++
		}
	}
	return some(slices.SortedFunc(maps.Values(known), func(a, b *machine) int {
		return cmp.Or(strings.Compare(a.Machine, b.Machine), cmp.Compare(a.Version, b.Version))
	})), nil
}

type machineGraph struct {
	Machine string `arg:""                                               help:"Its name."`
	Version int    `help:"Of it; the newest that is known unless given." placeholder:"N"`
	Format  string `default:"mermaid"                                    enum:"mermaid,dot" help:"mermaid or dot."`
}

// graph is what the database knows of a machine's.
type graph struct {
	Machine  string      `json:"machine"`
	Version  int         `json:"version"`
	Versions []int       `json:"versions"` // all that are known
	Steps    []graphStep `json:"steps"`
	Format   string      `json:"format"`
	Graph    string      `json:"graph"`
}

// graphStep is a step that instances stand at, or ended at.
type graphStep struct {
	Step   string               `json:"step"`
	Counts map[fsm.Status]int64 `json:"counts"`
}

// Validate the values.
func (c *machineGraph) Validate() error {
	if c.Version < 0 {
		return fmt.Errorf("--version: %d, at least 1", c.Version)
	}
	return nil
}

// Run the command.
func (c *machineGraph) Run(ctx context.Context, a *app, db *database) error {
	counts, err := db.count(ctx, a.Timeout)
	if err != nil {
		return err
	}
	all, err := db.machines(ctx, counts)
	if err != nil {
		return err
	}
	out := graph{Machine: c.Machine, Version: c.Version, Format: c.Format}
	for _, m := range all {
		if m.Machine == c.Machine {
			out.Versions = append(out.Versions, m.Version)
		}
	}
	switch {
	case len(out.Versions) == 0:
		return &exitError{codeNotFound, fmt.Errorf("no instance is of machine %q, and no live worker registers it", c.Machine)}
	case c.Version == 0:
		out.Version = out.Versions[len(out.Versions)-1]
	case !slices.Contains(out.Versions, c.Version):
		return &exitError{codeNotFound, fmt.Errorf("no instance is of version %d of machine %q, and no live worker registers it; known: %v",
			c.Version, c.Machine, out.Versions)}
	}
	out.draw(counts)
	return a.show(out, func(w io.Writer) { fmt.Fprint(w, out.Graph) })
}

// draw adds the steps of the graph's version. Counts come by step.
func (g *graph) draw(counts []engine.Count) {
	g.Steps = []graphStep{}
	for _, c := range counts {
		if c.Machine != g.Machine || c.Version != g.Version {
			continue
		}
		if n := len(g.Steps); n == 0 || g.Steps[n-1].Step != c.Step {
			g.Steps = append(g.Steps, graphStep{c.Step, map[fsm.Status]int64{}})
		}
		g.Steps[len(g.Steps)-1].Counts[c.Status] += c.Count
	}
	drawn := fsm.Graph{Machine: g.Machine, Version: g.Version}
	for _, s := range g.Steps {
		var note []string
		for _, status := range fsm.Statuses() {
			if s.Counts[status] > 0 {
				note = append(note, fmt.Sprintf("%d %s", s.Counts[status], status))
			}
		}
		drawn.Steps = append(drawn.Steps, fsm.GraphStep{Name: s.Step, Note: strings.Join(note, ", ")})
	}
	const hint = " the steps that instances stand at; where they lead only the program knows: fsm.GraphOf draws its definition\n"
	if g.Format == "dot" {
		g.Graph = "//" + hint + drawn.DOT()
	} else {
		g.Graph = "%%" + hint + drawn.Mermaid()
	}
}
