package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type machineCommands struct {
	List  machineList  `cmd:"" help:"List the machines that have instances, or that workers register."`
	Graph machineGraph `cmd:"" help:"Draw the steps of a machine, with how many instances stand at each."`
}

type machineList struct {
	counting
}

// machine is one version of a machine. Counts are null if they were not made.
type machine struct {
	Machine string               `json:"machine"`
	Version int                  `json:"version"`
	Workers int                  `json:"workers"` // live ones that are not about to stop
	Counts  map[fsm.Status]int64 `json:"counts"`
}

// machines lists all versions of all machines.
type machines struct {
	Machines []*machine `json:"machines"`
	Counted  *counted   `json:"counted"`

	counts []engine.Count
}

// Run runs the command.
func (c *machineList) Run(ctx context.Context, a *app, db *database) error {
	out, err := c.machines(ctx, db)
	if err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) {
		out.write(w, a.console.width())
		c.write(w, out.Counted)
	})
}

func (m *machines) write(w io.Writer, width int) {
	head := []string{"machine", "version", "workers"}
	if m.Counted != nil {
		head = append(head, "runnable", "executing", "awaiting", "done", "failed")
	}
	t := newTable(head...)
	for _, one := range m.Machines {
		row := []any{one.Machine, one.Version, one.Workers}
		if m.Counted != nil {
			row = append(row, one.Counts[fsm.StatusRunnable], one.Counts[fsm.StatusExecuting],
				one.Counts[fsm.StatusAwaitingSignal]+one.Counts[fsm.StatusAwaitingChildren], one.Counts[fsm.StatusDone], one.Counts[fsm.StatusFailed])
		}
		t.add(row...)
	}
	t.write(w, width)
}

// machines returns the machines that workers register, and those of the counted instances.
func (c *counting) machines(ctx context.Context, db *database) (*machines, error) {
	counts, counted, err := c.all(ctx, db)
	if err != nil {
		return nil, err
	}
	type identity struct {
		name    string
		version int
	}
	known := map[identity]*machine{}
	get := func(name string, version int) *machine {
		id := identity{name, version}
		if known[id] == nil {
			known[id] = &machine{Machine: name, Version: version}
			if counted != nil {
				known[id].Counts = zeros()
			}
		}
		return known[id]
	}
	for _, c := range counts {
		get(c.Machine, c.Version).Counts[c.Status] += c.Count
	}
	workers, err := db.Admin().Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		if !w.Live || w.Draining {
			continue
		}
		for _, id := range w.Machines {
			cut := strings.LastIndexByte(id, '/')
			if version, err := strconv.Atoi(id[cut+1:]); cut > 0 && err == nil {
				get(id[:cut], version).Workers++
			}
		}
	}
	return &machines{some(slices.SortedFunc(maps.Values(known), func(a, b *machine) int {
		return cmp.Or(strings.Compare(a.Machine, b.Machine), cmp.Compare(a.Version, b.Version))
	})), counted, counts}, nil
}

type machineGraph struct {
	counting
	Machine string `arg:""                                                                help:"The name of the machine."`
	Version int    `help:"The version of the machine; the newest known one unless given." placeholder:"N"`
	Format  string `default:"mermaid"                                                     enum:"mermaid,dot"              help:"mermaid or dot."`
}

// graph is the part of a machine's graph that the database knows.
type graph struct {
	Machine  string      `json:"machine"`
	Version  int         `json:"version"`
	Versions []int       `json:"versions"` // all known ones
	Steps    []graphStep `json:"steps"`
	Format   string      `json:"format"`
	Graph    string      `json:"graph"`
}

// graphStep is a step that instances stand at, or ended at.
type graphStep struct {
	Step   string               `json:"step"`
	Counts map[fsm.Status]int64 `json:"counts"`
}

// Validate checks the values.
func (c *machineGraph) Validate() error {
	if c.Version < 0 {
		return fmt.Errorf("--version: %d, at least 1", c.Version)
	}
	if c.Count == 0 {
		return errors.New("--count: the drawing is of what is counted")
	}
	return c.counting.Validate()
}

// Run runs the command.
func (c *machineGraph) Run(ctx context.Context, a *app, db *database) error {
	all, err := c.machines(ctx, db)
	if err != nil {
		return err
	}
	if all.Counted == nil {
		var why strings.Builder
		c.write(&why, nil)
		return &exitError{codeTimeout, errors.New(strings.TrimSpace(why.String()))}
	}
	out := graph{Machine: c.Machine, Version: c.Version, Format: c.Format}
	for _, m := range all.Machines {
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
	out.draw(all.counts)
	return a.show(out, func(w io.Writer) { fmt.Fprint(w, out.Graph) })
}

// draw adds the steps of the graph's version, from the counts by step.
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
