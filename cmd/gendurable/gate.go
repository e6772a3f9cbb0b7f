package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gendurable/gendurable/engine"
)

type gateCommands struct {
	List gateList `cmd:"" help:"List the gates: whom they concern, how many places they have, how many are taken, how many instances wait."`
	Set  gateSet  `cmd:"" help:"Bound how many instances execute at a time; a gate that is there is changed."`
	Drop gateDrop `cmd:"" help:"Remove a gate: who waits there goes on."`
}

type gateList struct{}

// Run runs the command.
func (c *gateList) Run(ctx context.Context, a *app, db *database) error {
	gates, err := db.Admin().Gates(ctx)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"gates": gates}, func(w io.Writer) {
		t := newTable("gate", "of", "places", "taken", "values", "waiting")
		for _, g := range gates {
			t.add(g.Name, concerns(&g.Gate), g.Places, g.Taken, g.Values, g.Waiting)
		}
		t.write(w, a.console.width())
	})
}

// concerns says whom a gate concerns.
func concerns(g *engine.Gate) string {
	var parts []string
	for _, p := range [][2]string{{"queue", g.Queue}, {"machine", g.Machine}, {"step", g.Step}, {"each", g.Label}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

type gateSet struct {
	Gate    string `arg:""                                                             help:"The name of the gate."`
	Places  int    `arg:""                                                             help:"How many execute at a time; 0: none."`
	Queue   string `help:"Only instances of this queue."                               placeholder:"NAME"`
	Machine string `help:"Only instances of this machine."                             placeholder:"NAME"`
	Step    string `help:"Only at this step of the machine."                           placeholder:"NAME"`
	Label   string `help:"So many for each value of this label, not for all together." placeholder:"NAME"`
}

// Run runs the command.
func (c *gateSet) Run(ctx context.Context, a *app, db *database) error {
	g := engine.Gate{Name: c.Gate, Queue: c.Queue, Machine: c.Machine, Step: c.Step, Label: c.Label, Places: c.Places}
	changed, err := db.Admin().SetGate(ctx, g)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"gate": g, "changed": changed}, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "%d places of %q, of %s: every process knows with its next poll, a second later at most\n", g.Places, g.Name, concerns(&g))
		} else {
			fmt.Fprintf(w, "%q was that already\n", g.Name)
		}
	})
}

type gateDrop struct {
	Gate string `arg:"" help:"The name of the gate."`
}

// Run runs the command.
func (c *gateDrop) Run(ctx context.Context, a *app, db *database) error {
	changed, err := db.Admin().DropGate(ctx, c.Gate)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"gate": c.Gate, "changed": changed}, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "dropped %q: who waits there goes on\n", c.Gate)
		} else {
			fmt.Fprintf(w, "there is no gate %q\n", c.Gate)
		}
	})
}
