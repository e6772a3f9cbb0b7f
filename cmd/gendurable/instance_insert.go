package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type instanceInsert struct {
	Machine string `arg:"" help:"The machine's name."`
	State   string `arg:"" default:"null"             help:"The state, as JSON; - reads it from standard input." optional:""`

	Version    int               `help:"The machine's version; the newest that a program has stored unless given." placeholder:"N"`
	Step       string            `help:"The first step; the initial one unless given."                             placeholder:"NAME"`
	Queue      string            `default:"default"                                                                help:"The queue. What the program declares is not stored, so give it here."`
	Priority   int               `help:"Within the queue; lower ones run first."`
	Key        string            `help:"The correlation key."                                                      placeholder:"KEY"`
	Scope      string            `default:"live"                                                                   enum:"live,live-or-done,live-or-failed,all,none"                            help:"How long the key is occupied: live, live-or-done, live-or-failed, all or none."`
	OnConflict string            `default:"refuse"                                                                 enum:"refuse,replace,newest"                                                help:"What to do when the key is taken: refuse, replace one that still waits, or cancel it for the newest."`
	Label      map[string]string `help:"A label; repeatable."                                                      mapsep:"none"                                                               placeholder:"NAME=VALUE"`
	Partition  string            `help:"The partition key."                                                        placeholder:"KEY"`
	Delay      time.Duration     `help:"How long to wait before the first step."`
	At         string            `help:"When to run the first step, in place of --delay."                          placeholder:"TIME"`
	Deadline   time.Duration     `help:"The instance fails if it has not ended by then; 0: no deadline."`

	RetainDone      string `help:"How long to keep it after it is done, or none."      placeholder:"DURATION"`
	RetainFailed    string `help:"How long to keep it after it has failed, or none."   placeholder:"DURATION"`
	RetainCancelled string `help:"How long to keep it after it is cancelled, or none." placeholder:"DURATION"`

	Unknown bool `help:"Insert even if no worker has registered the machine, this version of it or this step."`
}

// inserted is what became of the command.
type inserted struct {
	ID       fsm.ID `json:"id"`
	Machine  string `json:"machine"`
	Version  int    `json:"version"`
	Step     string `json:"step"`
	Replaced bool   `json:"replaced,omitempty"` // the instance was there, and is now this one
}

// Validate checks what needs no database.
func (c *instanceInsert) Validate() error {
	if c.State != fromInput && !json.Valid([]byte(c.State)) {
		return errStateNotJSON
	}
	_, err := c.retention()
	return err
}

var errStateNotJSON = fmt.Errorf("the state is not JSON; a text needs its quotes: '\"text\"'")

// retention reads the three flags.
func (c *instanceInsert) retention() (r fsm.Retention, err error) {
	for _, one := range []struct {
		flag, text string
		to         *time.Duration
	}{{"done", c.RetainDone, &r.Done}, {"failed", c.RetainFailed, &r.Failed}, {"cancelled", c.RetainCancelled, &r.Cancelled}} {
		switch one.text {
		case "":
		case "none":
			*one.to = fsm.RetainNone
		default:
			if *one.to, err = time.ParseDuration(one.text); err != nil || *one.to <= 0 {
				return r, fmt.Errorf("--retain-%s: %q is neither a duration like 720h nor none", one.flag, one.text)
			}
		}
	}
	return r, nil
}

// Run runs the command.
func (c *instanceInsert) Run(ctx context.Context, a *app, db *database) error {
	state := []byte(c.State)
	if c.State == fromInput {
		read, err := io.ReadAll(a.console.in)
		if err != nil {
			return fmt.Errorf("read the state: %w", err)
		}
		if !json.Valid(read) {
			return usagef("%w", errStateNotJSON)
		}
		state = read
	}
	if err := c.find(ctx, db); err != nil {
		return err
	}
	spec, err := c.spec(ctx, db, state)
	if err != nil {
		return err
	}
	done, err := db.InsertMany(ctx, []fsm.Spec{spec})
	if err != nil {
		return err
	}
	out := inserted{ID: done[0].ID, Machine: c.Machine, Version: c.Version, Step: c.Step, Replaced: done[0].Replaced}
	if done[0].Duplicate {
		return &exitError{codeConflict, fmt.Errorf("the key %q is taken by instance %d; nothing was inserted", c.Key, out.ID)}
	}
	return a.show(out, func(w io.Writer) {
		did := "inserted"
		if out.Replaced {
			did = "replaced"
		}
		fmt.Fprintf(w, "%s %d, %s/%d at step %s\n", did, out.ID, printable(out.Machine, false), out.Version, printable(out.Step, false))
	})
}

// find completes version and step by the definitions that programs have stored, and refuses
// others.
func (c *instanceInsert) find(ctx context.Context, db *database) error {
	stored, err := db.Definitions(ctx)
	if err != nil {
		return err
	}
	names, graphs := map[string]bool{}, map[int]fsm.Diagram{}
	for _, d := range stored {
		names[d.Machine] = true
		if d.Machine == c.Machine {
			graphs[d.Version] = d.Graph
		}
	}
	versions := slices.Sorted(maps.Keys(graphs))
	if c.Version == 0 {
		c.Version = 1
		if len(versions) > 0 {
			c.Version = versions[len(versions)-1]
		}
	}
	graph, known := graphs[c.Version]
	switch {
	case c.Unknown || known:
	case len(versions) > 0:
		return &exitError{codeNotFound, fmt.Errorf("no worker has registered version %d of machine %q, only %v; start one that knows it, or pass --unknown",
			c.Version, c.Machine, versions)}
	case len(names) == 0:
		return &exitError{codeNotFound, fmt.Errorf("machine %q: no worker has registered a machine yet; start one, or pass --unknown", c.Machine)}
	default:
		return &exitError{codeNotFound, fmt.Errorf("no worker has registered a machine %q, only %s; start one that knows it, or pass --unknown",
			c.Machine, quoted(slices.Sorted(maps.Keys(names))))}
	}
	if c.Step == "" {
		c.Step = "start"
		if graph.Initial != "" {
			c.Step = graph.Initial
		}
	}
	if known && !c.Unknown && !graph.Has(c.Step) {
		var steps []string
		for _, s := range graph.Steps {
			steps = append(steps, s.Name)
		}
		return usagef("--step: %s/%d has no step %q, only %s", c.Machine, c.Version, c.Step, quoted(steps))
	}
	if graph.Keyed && c.Key == "" {
		// The command cannot make the key: it is a function of the program, or a hash of the state as
		// the program's type encodes it.
		return usagef("--key: instances of %s/%d have the key that their program declares; give the one that it makes of this state", c.Machine, c.Version)
	}
	return nil
}

// quoted lists names; "none" if there is none.
func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(out, ", ")
}

var (
	scopes = map[string]fsm.Scope{"live": fsm.ScopeLive, "live-or-done": fsm.ScopeLiveOrDone, "live-or-failed": fsm.ScopeLiveOrFailed,
		"all": fsm.ScopeAll, "none": fsm.ScopeNone}
	conflicts = map[string]fsm.Conflict{"refuse": fsm.ConflictRefuse, "replace": fsm.ConflictReplace, "newest": fsm.ConflictNewest}
)

// spec returns what to insert.
func (c *instanceInsert) spec(ctx context.Context, db *database, state json.RawMessage) (spec fsm.Spec, err error) {
	retention, err := c.retention()
	if err != nil {
		return spec, err
	}
	machine := fsm.Declare[json.RawMessage, json.RawMessage](c.Machine, fsm.Version(c.Version), fsm.Initial(c.Step), fsm.Queue(c.Queue))
	spec = machine.New(state).Priority(c.Priority).Scope(scopes[c.Scope]).OnConflict(conflicts[c.OnConflict]).Deadline(c.Deadline).Retain(retention)
	for name, value := range c.Label {
		spec = spec.Label(name, value)
	}
	if c.Key != "" {
		spec = spec.Key(fsm.Key(c.Key))
	}
	if c.Partition != "" {
		spec = spec.PartitionKey(c.Partition)
	}
	if c.Delay != 0 {
		spec = spec.After(c.Delay)
	}
	if c.At != "" {
		now, err := db.now(ctx)
		if err != nil {
			return spec, err
		}
		at, err := moment("--at", c.At, now, false)
		if err != nil {
			return spec, err
		}
		spec = spec.At(at)
	}
	return spec, nil
}

type instanceChildren struct {
	Target address `arg:"" help:"An id, or key: and a correlation key."`
}

// Run runs the command.
func (c *instanceChildren) Run(ctx context.Context, a *app, db *database) error {
	found, err := db.ChildCounts(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	return a.show(found, func(w io.Writer) {
		t := newTable("round", "machine", "status", "count")
		for _, one := range found.Counts {
			t.add(one.Round, one.Machine, string(one.Status), one.Count)
		}
		t.write(w, a.console.width())
		if found.AtLeast {
			fmt.Fprintf(w, "… and maybe more: %d were counted\n", engine.MaxChildren)
		}
	})
}
