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
	List     machineList     `cmd:"" help:"List the machines that programs have stored, that have instances, or that workers register."`
	Times    machineTimes    `cmd:"" help:"Show how long the steps of a machine run and wait, from the history."`
	Failures machineFailures `cmd:"" help:"Show what goes wrong at the steps of a machine, the most frequent first, from the history."`
	Edges    machineEdges    `cmd:"" help:"Count the ways between the steps of a machine that were really taken, from the history."`
	Graph    machineGraph    `cmd:"" help:"Draw a machine as the program that runs it has stored it, with how many instances stand at each step."`
}

type machineList struct {
	counting
}

// machine is one version of a machine. Counts are null if they were not made.
type machine struct {
	Machine string               `json:"machine"`
	Version int                  `json:"version"`
	Workers int                  `json:"workers"` // live ones that are not about to stop
	Steps   int                  `json:"steps"`   // of the stored definition; 0: no worker has registered it
	Counts  map[fsm.Status]int64 `json:"counts"`
}

// machines lists all versions of all machines.
type machines struct {
	Machines []*machine `json:"machines"`
	Counted  *counted   `json:"counted"`

	counts []engine.Count
	stored []engine.StoredDefinition
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
	head := []string{"machine", "version", "workers", "steps"}
	if m.Counted != nil {
		head = append(head, "runnable", "executing", "awaiting", "done", "failed")
	}
	t := newTable(head...)
	for _, one := range m.Machines {
		row := []any{one.Machine, one.Version, one.Workers, one.Steps}
		if m.Counted != nil {
			row = append(row, one.Counts[fsm.StatusRunnable], one.Counts[fsm.StatusExecuting],
				one.Counts[fsm.StatusAwaitingSignal]+one.Counts[fsm.StatusAwaitingChildren], one.Counts[fsm.StatusDone], one.Counts[fsm.StatusFailed])
		}
		t.add(row...)
	}
	t.write(w, width)
}

// machines returns the machines that programs have stored or workers register, and the machines of
// the counted instances.
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
	stored, err := db.Definitions(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range stored {
		get(d.Machine, d.Version).Steps = len(d.Graph.Steps)
	}
	var workers []engine.Worker
	if !db.bound() { // else a worker works for others, too
		if workers, err = db.Admin().Workers(ctx); err != nil {
			return nil, err
		}
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
	})), counted, counts, stored}, nil
}

type machineGraph struct {
	counting
	Machine string `arg:""                                                                help:"The name of the machine."`
	Version int    `help:"The version of the machine; the newest known one unless given." placeholder:"N"`
	Format  string `default:"mermaid"                                                     enum:"mermaid,dot"              help:"mermaid or dot."`
}

// graph is a machine as it was stored, with counts at its steps. Counts are null if they were not
// made.
type graph struct {
	Machine  string              `json:"machine"`
	Version  int                 `json:"version"`
	Versions []int               `json:"versions"` // all known ones
	Stored   bool                `json:"stored"`   // false: no worker has registered the definition, and where the steps lead is not known
	Steps    []engine.StepCounts `json:"steps"`
	Counted  *counted            `json:"counted"`
	Format   string              `json:"format"`
	Graph    string              `json:"graph"`
}

// Validate checks the values.
func (c *machineGraph) Validate() error {
	if c.Version < 0 {
		return fmt.Errorf("--version: %d, at least 1", c.Version)
	}
	return c.counting.Validate()
}

// Run runs the command.
func (c *machineGraph) Run(ctx context.Context, a *app, db *database) error {
	all, err := c.machines(ctx, db)
	if err != nil {
		return err
	}
	out := graph{Machine: c.Machine, Version: c.Version, Format: c.Format, Counted: all.Counted}
	for _, m := range all.Machines {
		if m.Machine == c.Machine {
			out.Versions = append(out.Versions, m.Version)
		}
	}
	if all.Counted == nil && (len(out.Versions) == 0 || c.Version > 0 && !slices.Contains(out.Versions, c.Version)) {
		var why strings.Builder
		c.write(&why, nil)
		return &exitError{codeTimeout, errors.New(cmp.Or(strings.TrimSpace(why.String()), "no worker has registered the machine yet: start one; --count 0 does not look for instances"))}
	}
	switch {
	case len(out.Versions) == 0:
		return &exitError{codeNotFound, fmt.Errorf("no worker has registered a machine %q, and no instance of it exists; gendurable machine list has the names", c.Machine)}
	case c.Version == 0:
		out.Version = out.Versions[len(out.Versions)-1]
	case !slices.Contains(out.Versions, c.Version):
		return &exitError{codeNotFound, fmt.Errorf("no worker has registered version %d of machine %q, and no instance of it exists; known: %v",
			c.Version, c.Machine, out.Versions)}
	}
	out.draw(all)
	return a.show(out, func(w io.Writer) { fmt.Fprint(w, out.Graph) })
}

// draw adds the steps and the drawing.
func (g *graph) draw(all *machines) {
	drawn := engine.Draw(g.Machine, g.Version, all.stored, all.counts)
	g.Stored, g.Steps = drawn.Stored, drawn.Steps
	comment := "%%"
	if g.Graph = drawn.Graph.Mermaid(); g.Format == "dot" {
		comment, g.Graph = "//", drawn.Graph.DOT()
	}
	if !g.Stored {
		g.Graph = comment + " the steps at which instances stand; no worker has registered where they lead\n" + g.Graph
	}
	if g.Counted == nil {
		g.Graph = comment + " without counts\n" + g.Graph
	}
}
