package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/store"
)

// StoredDefinition is a version of a machine as the program that declared it last has stored it.
type StoredDefinition struct {
	Machine    string      `json:"machine"`
	Version    int         `json:"version"`
	Graph      fsm.Diagram `json:"graph"`
	DeclaredAt time.Time   `json:"declared_at"` // when a program declared it first
	UpdatedAt  time.Time   `json:"updated_at"`  // when a program declared it otherwise than the one before
}

// Definitions lists the machines that programs have declared, by name and version: Start of an
// engine with queues stores the definitions of its Config. So a program can draw machines that it
// was not compiled with. A definition stays when no program declares it any more.
func (e *Engine) Definitions(ctx context.Context) ([]StoredDefinition, error) {
	return e.definitions(ctx, "", 0)
}

func (e *Engine) definitions(ctx context.Context, machine string, version int) (list []StoredDefinition, err error) {
	defer e.explain(ctx, toRead("definitions"), &err)
	var rows []*ent.Definition
	err = e.patiently(ctx, task{doing: "list definitions"}, func() error {
		rows, err = e.reads.Definitions(ctx, machine, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	list = make([]StoredDefinition, len(rows))
	for i, row := range rows {
		list[i] = StoredDefinition{Machine: row.Machine, Version: int(row.Version), DeclaredAt: row.DeclaredAt, UpdatedAt: row.UpdatedAt}
		if err := json.Unmarshal(row.Graph, &list[i].Graph); err != nil {
			return nil, fmt.Errorf("read the definition of %s: %w", row.ID, err)
		}
	}
	return list, nil
}

// Drawing is a version of a machine with how many instances stand at its steps, or ended there. Its
// Graph draws itself, as Mermaid or DOT, with the counts beneath the names.
type Drawing struct {
	Machine string       `json:"machine"`
	Version int          `json:"version"`
	Stored  bool         `json:"stored"` // false: no program has stored a definition; Graph has the steps that instances stand at, without arrows
	Graph   fsm.Diagram  `json:"graph"`
	Steps   []StepCounts `json:"steps"` // those of the definition, then others that instances stand at
}

// StepCounts are the numbers of instances at one step.
type StepCounts struct {
	Step    string               `json:"step"`
	Defined bool                 `json:"defined"` // false: the stored definition has no such step
	Counts  map[fsm.Status]int64 `json:"counts"`  // without statuses that no instance has
}

// Drawing draws one version of a machine with live counts, which [Engine.Counts] makes. Version 0
// is the newest that is stored or has instances.
//
// Errors: the errors of Counts; a *[QueryError]; ErrNotFound if nothing is known of the machine.
func (e *Engine) Drawing(ctx context.Context, machine string, version int, o CountsOptions) (Drawing, error) {
	return e.drawing(ctx, machine, version, true, func() (Counts, error) { return e.Counts(ctx, o) })
}

// drawing draws a machine by its definition, unless that is hidden, and by counts.
func (e *Engine) drawing(ctx context.Context, machine string, version int, defined bool, count func() (Counts, error)) (Drawing, error) {
	if err := checkName(machine, fsm.MaxNameBytes); err != nil {
		return Drawing{}, badQuery("Machine", "%w", err)
	}
	if version < 0 || version > math.MaxInt32 {
		return Drawing{}, badQuery("Version", "%d, want 1 to %d, or 0", version, math.MaxInt32)
	}
	stored, err := e.definitions(ctx, machine, version)
	if err != nil {
		return Drawing{}, err
	}
	if !defined {
		stored = nil
	}
	counts, err := count()
	if err != nil {
		return Drawing{}, err
	}
	newest := 0
	for _, d := range stored {
		newest = max(newest, d.Version)
	}
	for _, c := range counts.Counts {
		if c.Machine == machine && (version == 0 || c.Version == version) {
			newest = max(newest, c.Version)
		}
	}
	if newest == 0 {
		return Drawing{}, fmt.Errorf("%w: no definition of machine %.80q is stored, and it has no instances", ErrNotFound, machine)
	}
	return Draw(machine, newest, stored, counts.Counts), nil
}

// Draw draws one version of a machine from what [Engine.Definitions] and [Engine.Counts] have
// returned, which may be of other machines, too.
func Draw(machine string, version int, stored []StoredDefinition, counts []Count) Drawing {
	d := Drawing{Machine: machine, Version: version, Graph: fsm.Diagram{Machine: machine, Version: version}, Steps: []StepCounts{}}
	for _, s := range stored {
		if s.Machine == machine && s.Version == version {
			d.Stored, d.Graph = true, s.Graph
			d.Graph.Steps = slices.Clone(s.Graph.Steps)
		}
	}
	at := map[string]int{}
	add := func(step string, defined bool) {
		at[step] = len(d.Steps)
		d.Steps = append(d.Steps, StepCounts{step, defined, map[fsm.Status]int64{}})
	}
	for _, s := range d.Graph.Steps {
		add(s.Name, true)
	}
	for _, c := range counts {
		if c.Machine != machine || c.Version != version {
			continue
		}
		if _, known := at[c.Step]; !known {
			add(c.Step, false)
			d.Graph.Steps = append(d.Graph.Steps, fsm.DiagramStep{Name: c.Step})
		}
		d.Steps[at[c.Step]].Counts[c.Status] += c.Count
	}
	for i, s := range d.Steps {
		var note []string
		if d.Stored && !s.Defined {
			note = append(note, "not defined")
		}
		for _, status := range fsm.Statuses() {
			if s.Counts[status] > 0 {
				note = append(note, fmt.Sprintf("%d %s", s.Counts[status], status))
			}
		}
		d.Graph.Steps[i].Note = strings.Join(note, ", ")
	}
	return d
}

// Warnings returns what is odd about the machines of the Config: steps that nothing leads to, dead
// ends, and queues of machines that this engine does not serve, though it serves others. New has
// logged them. [fsm.Check] returns them as an error, for a test.
func (e *Engine) Warnings() []fsm.Warning { return slices.Clone(e.warnings) }

// warned returns the warnings of all machines, and logs them.
func (c Config) warned() (all []fsm.Warning) {
	for _, d := range c.Machines {
		g := fsm.DiagramOf(d)
		found := g.Warnings()
		queue := hidden.Machine(d).Queue
		if _, served := c.Queues[queue]; !served && len(c.Queues) > 0 {
			found = append(found, fsm.Warning{Machine: g.Machine, Version: g.Version, Kind: fsm.WarningUnserved, Queue: queue})
		}
		for _, w := range found {
			c.Logger.LogAttrs(context.Background(), slog.LevelWarn, "odd definition", slog.String("machine", w.Machine), slog.Int("version", w.Version),
				slog.String("step", w.Step), slog.Any("error", w))
		}
		all = append(all, found...)
	}
	return all
}

// storeDefinitions stores the machines of the Config, and returns which machines are noted as
// recorded. A lock on one of the rows keeps only that row from being stored.
func (e *Engine) storeDefinitions(ctx context.Context) (recorded []string, err error) {
	var list []store.Definition
	for _, d := range e.config.Machines {
		g := fsm.DiagramOf(d)
		text, err := json.Marshal(g)
		if err != nil {
			return nil, fmt.Errorf("store the definition of %s/%d: %w", g.Machine, g.Version, err)
		}
		list = append(list, store.Definition{Machine: g.Machine, Version: g.Version, Graph: string(text)})
	}
	return e.store.StoreDefinitions(ctx, list)
}
