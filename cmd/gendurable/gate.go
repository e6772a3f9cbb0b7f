package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
)

type gateCommands struct {
	List   gateList   `cmd:"" help:"List the gates: whom they concern, what they bound, how many places are taken, how many instances wait, for how long."`
	Set    gateSet    `cmd:"" help:"Bound how many instances execute at a time, how many begin in a period, or both; a gate that is there is changed."`
	Drop   gateDrop   `cmd:"" help:"Remove a gate: who waits there goes on."`
	Keys   gateKeys   `cmd:"" help:"List the keys of a gate that are closed, slowed down, or have a weight or their own places."`
	Close  gateClose  `cmd:"" help:"Let none begin behind a gate, or behind one key of it."`
	Open   gateOpen   `cmd:"" help:"End what close, or a step that was throttled, has closed."`
	Weight gateWeight `cmd:"" help:"Set how many turns a key of a gate, or a gate, gets where others get one."`
	Places gatePlaces `cmd:"" help:"Set how many instances of one key of a gate execute at a time, in place of the gate's places."`
}

type gateList struct{}

// Run runs the command.
func (c *gateList) Run(ctx context.Context, a *app, db *database) error {
	gates, err := db.Admin().Gates(ctx)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"gates": gates}, func(w io.Writer) {
		t := newTable("gate", "of", "bounds", "taken", "values", "waiting", "for")
		for _, g := range gates {
			t.add(g.Name, concerns(&g.Gate), gateStanding(&g), g.Taken, g.Values, g.Waiting, span(g.Lag))
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

// gateStanding says what a gate bounds, until when it is closed, if it is, and how many of its keys
// are.
func gateStanding(g *engine.GateStatus) string {
	if g.ClosedKeys > 0 {
		open := *g
		open.ClosedKeys = 0
		return fmt.Sprintf("%s, keys closed: %d", gateStanding(&open), g.ClosedKeys)
	}
	switch {
	case g.ClosedUntil.IsZero() || g.Closed:
		return bounds(&g.Gate)
	case g.ClosedUntil.Equal(engine.GateForGood):
		return "closed, " + bounds(&g.Gate)
	}
	return fmt.Sprintf("closed until %s, %s", text(g.ClosedUntil), bounds(&g.Gate))
}

// bounds says what a gate bounds.
func bounds(g *engine.Gate) string {
	var parts []string
	add := func(condition bool, format string, args ...any) {
		if condition {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(g.Closed, "closed")
	add(g.Places > 0 && !g.Run, "%d places", g.Places)
	add(g.Places > 0 && g.Run, "%d whole runs", g.Places)
	add(g.Rate.N > 0, "%v", g.Rate)
	add(g.Total > 0, "%d in all", g.Total)
	add(g.TotalRate.N > 0, "%v in all", g.TotalRate)
	add(g.CostLabel != "", "cost %s", g.CostLabel)
	add(g.Adapt, "adapts")
	add(g.Fair, "turns only")
	return strings.Join(parts, ", ")
}

type gateSet struct {
	Gate       string `arg:""                                                                    help:"The name of the gate."`
	Places     *int   `arg:""                                                                    help:"How many execute at a time; 0: none, not given: any number." optional:""`
	Queue      string `help:"Only instances of this queue."                                      placeholder:"NAME"`
	Machine    string `help:"Only instances of this machine."                                    placeholder:"NAME"`
	Step       string `help:"Only at this step of the machine."                                  placeholder:"NAME"`
	Label      string `help:"The bounds are for each value of this label, not for all together." placeholder:"NAME"`
	Rate       string `help:"How many begin in a period, such as 10/s, 500/m or 100/12h."        placeholder:"N/PERIOD"`
	Burst      int    `help:"How many may begin at once after a pause."                          placeholder:"N"`
	Total      int    `help:"How many of all values of the label together execute at a time."    placeholder:"N"`
	TotalRate  string `help:"How many of all values of the label together begin in a period."    placeholder:"N/PERIOD"`
	TotalBurst int    `help:"How many of these may begin at once after a pause."                 placeholder:"N"`
	CostLabel  string `help:"A label whose whole number is what a run costs of the rates."       placeholder:"NAME"`
	Adapt      bool   `help:"Halve the pace of a key while a provider turns its steps away."`
	WholeRun   bool   `help:"An instance keeps its place from its first claim to its end."       name:"run"`
	Fair       bool   `help:"Bound nothing: values of the label only take turns."`
}

// gate returns the gate that the flags describe.
func (c *gateSet) gate() (g engine.Gate, err error) {
	g = engine.Gate{Name: c.Gate, Queue: c.Queue, Machine: c.Machine, Step: c.Step, Label: c.Label,
		Total: c.Total, CostLabel: c.CostLabel, Adapt: c.Adapt, Run: c.WholeRun, Fair: c.Fair}
	if c.Places != nil {
		g.Places, g.Closed = *c.Places, *c.Places == 0
	}
	if g.Rate, err = rate("--rate", c.Rate, c.Burst); err != nil {
		return g, err
	}
	g.TotalRate, err = rate("--total-rate", c.TotalRate, c.TotalBurst)
	return g, err
}

// Validate checks the rates.
func (c *gateSet) Validate() error {
	_, err := c.gate()
	return err
}

// rate reads a rate as its flags have it, such as 10/s.
func rate(flag, text string, burst int) (r engine.Rate, err error) {
	r.Burst = burst
	if text == "" {
		return r, nil
	}
	n, per, _ := strings.Cut(text, "/")
	if r.N, err = strconv.Atoi(n); err == nil {
		if per != "" && strings.IndexByte("0123456789", per[0]) < 0 { // s, m, h
			per = "1" + per
		}
		r.Per, err = time.ParseDuration(per)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %q is no rate; want one like 10/s, 500/m or 100/12h", flag, text)
	}
	return r, nil
}

// Run runs the command.
func (c *gateSet) Run(ctx context.Context, a *app, db *database) error {
	g, err := c.gate()
	if err != nil {
		return err
	}
	changed, err := db.Admin().SetGate(ctx, g)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"gate": g, "changed": changed}, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "%s for %q, of %s: every process knows with its next poll, a second later at most\n", bounds(&g), g.Name, concerns(&g))
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

type gateKeys struct {
	Gate string `arg:"" help:"The name of the gate."`
}

// Run runs the command.
func (c *gateKeys) Run(ctx context.Context, a *app, db *database) error {
	keys, err := db.Admin().GateKeys(ctx, c.Gate)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"keys": keys}, func(w io.Writer) {
		t := newTable("key", "weight", "places", "pace", "closed until")
		for _, k := range keys {
			own := "" // the gate's
			if k.Places > 0 {
				own = strconv.Itoa(k.Places)
			}
			t.add(k.Key, k.Weight, own, fmt.Sprintf("%.0f %%", 100*k.Pace), opens(k.ClosedUntil))
		}
		t.write(w, a.console.width())
	})
}

// opens shows when a closed key opens: "" if it is open.
func opens(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Equal(engine.GateForGood):
		return "opened by hand"
	}
	return text(t)
}

type gateKeyArgument struct {
	Key string `arg:"" help:"The name of a gate, or of one key of it, such as per-customer/acme."`
}

type gateClose struct {
	gateKeyArgument

	Until string `help:"A time like 2026-11-21T18:00:00Z, or a duration from now like 90m; not given: until gate open." placeholder:"TIME"`
}

// Validate checks the time.
func (c *gateClose) Validate() error {
	if c.Until == "" {
		return nil
	}
	_, err := moment("--until", c.Until, time.Time{}, false)
	return err
}

// Run runs the command.
func (c *gateClose) Run(ctx context.Context, a *app, db *database) error {
	var until time.Time
	if c.Until != "" {
		now, err := db.now(ctx)
		if err != nil {
			return err
		}
		if until, err = moment("--until", c.Until, now, false); err != nil {
			return err
		}
	}
	changed, err := db.Admin().CloseGate(ctx, c.Key, until)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"key": c.Key, "until": absent(until), "changed": changed}, func(w io.Writer) {
		switch {
		case !changed:
			fmt.Fprintf(w, "%q was closed for as long already\n", c.Key)
		case until.IsZero():
			fmt.Fprintf(w, "closed %q: what executes goes on, and nothing begins until gendurable gate open %s\n", c.Key, word(c.Key))
		default:
			fmt.Fprintf(w, "closed %q until %s: what executes goes on, and nothing begins before\n", c.Key, text(until))
		}
	})
}

type gateOpen struct{ gateKeyArgument }

// Run runs the command.
func (c *gateOpen) Run(ctx context.Context, a *app, db *database) error {
	changed, err := db.Admin().OpenGate(ctx, c.Key)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"key": c.Key, "changed": changed}, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "opened %q\n", c.Key)
		} else {
			fmt.Fprintf(w, "%q was open already\n", c.Key)
		}
	})
}

type gateWeight struct {
	Key    string `arg:"" help:"A key of a gate, such as per-customer/acme."`
	Weight int    `arg:"" help:"From 1, which is that of all others, to 100."`
}

// Run runs the command.
func (c *gateWeight) Run(ctx context.Context, a *app, db *database) error {
	changed, err := db.Admin().SetGateWeight(ctx, c.Key, c.Weight)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"key": c.Key, "weight": c.Weight, "changed": changed}, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "%q gets %d turns where others get one\n", c.Key, c.Weight)
		} else {
			fmt.Fprintf(w, "%q had that weight already\n", c.Key)
		}
	})
}

type gatePlaces struct {
	Key    string `arg:"" help:"A key of a gate, such as per-customer/acme."`
	Places int    `arg:"" help:"From 1 to 10000; 0: as many as the gate says."`
}

// Run runs the command.
func (c *gatePlaces) Run(ctx context.Context, a *app, db *database) error {
	changed, err := db.Admin().SetGatePlaces(ctx, c.Key, c.Places)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"key": c.Key, "places": c.Places, "changed": changed}, func(w io.Writer) {
		switch {
		case !changed:
			fmt.Fprintf(w, "%q had as many places already\n", c.Key)
		case c.Places == 0:
			fmt.Fprintf(w, "%q has as many places as the gate says\n", c.Key)
		default:
			fmt.Fprintf(w, "%q has %d places now\n", c.Key, c.Places)
		}
	})
}
