package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// VerbMigrate is the verb of [Admin.Migrate], in the audit.
const VerbMigrate = Verb(store.Migrate)

const (
	// migrateBatch is how many instances an eager migration reads, and moves in one transaction.
	migrateBatch = 100
	// migrateFaults bounds MigrationPlan.Faults.
	migrateFaults = 1000
)

// MigrationPlan is a dry run of an eager migration that can be carried out.
type MigrationPlan struct {
	Machine   string           `json:"machine"`
	From      int              `json:"from"`
	To        int              `json:"to"`
	Ready     int64            `json:"ready"`             // instances that Apply would move
	Executing int64            `json:"executing"`         // that a worker executes: their next claim converts them
	Waiting   map[string]int64 `json:"waiting,omitempty"` // by step, those that stay until they come to a step that the migration names
	Faulty    int64            `json:"faulty"`            // whose state cannot be converted
	Faults    []MigrationFault `json:"faults,omitempty"`  // the first 1,000 of them, by id

	admin *Admin
	chain []*step.Migration
}

// MigrationFault is an instance whose state cannot be converted, or that Postgres refuses to
// change.
type MigrationFault struct {
	ID    fsm.ID `json:"id"`
	Step  string `json:"step"`
	Error string `json:"error"`
}

// Migrated says what Apply has done.
type Migrated struct {
	Moved   int64          `json:"moved"`
	Skipped int64          `json:"skipped"` // changed or locked by others meanwhile: the next Apply, or their next claim, takes them
	Plan    *MigrationPlan `json:"plan"`    // what was left, as it was found
}

// Err returns an error if there are faults, and nil otherwise.
func (p *MigrationPlan) Err() error {
	if p.Faulty == 0 {
		return nil
	}
	return fmt.Errorf("migrate machine %q from version %d to %d: %d instances cannot be converted, the first is %d: %s", p.Machine, p.From, p.To,
		p.Faulty, p.Faults[0].ID, p.Faults[0].Error)
}

// Migrate plans to bring the live instances of a version of a machine to a newer one now, rather
// than when each runs next. It needs the registered definition of the newer version, with its
// migrations (fsm.Defined.From). It is a dry run: it converts all states in memory and changes
// nothing. It reads the whole table, in pages, and may run beside workers of both versions.
//
// Errors: a *[VerbError], also for more than MaxPlan instances.
func (a *Admin) Migrate(ctx context.Context, machine string, from, to int) (plan *MigrationPlan, err error) {
	defer a.engine.explain(ctx, toRead("gen_durable"), &err)
	if err := a.whole(VerbMigrate.method()); err != nil {
		return nil, err
	}
	m := a.engine.env.Machine(machine, to)
	if m == nil {
		return nil, &VerbError{VerbMigrate, "to", fmt.Errorf("machine %.80q version %d is not registered here", machine, to)}
	}
	p := &MigrationPlan{Machine: machine, From: from, To: to, admin: a, chain: m.Chain(from)}
	if len(p.chain) == 0 {
		return nil, &VerbError{VerbMigrate, "from", fmt.Errorf("machine %.80q version %d has no migration from version %d", machine, to, from)}
	}
	return p, p.walk(ctx, nil)
}

// Apply moves the instances that can be moved: those that are not executing, and whose step the
// migration names. It looks anew: it may be called again, after an error as well, and does the
// rest. It leaves instances that were changed or locked meanwhile. The audit records each
// instance.
//
// Errors: a *[VerbError].
func (p *MigrationPlan) Apply(ctx context.Context, options ...VerbOption) (done Migrated, err error) {
	defer p.admin.engine.explain(ctx, toOperate, &err)
	by, err := p.admin.by(ctx, VerbMigrate, options)
	if err != nil {
		return done, err
	}
	own := &MigrationPlan{Machine: p.Machine, From: p.From, To: p.To, admin: p.admin, chain: p.chain}
	done.Plan = own
	refused := 0
	err = own.walk(ctx, func(all []store.Moved) error {
		err := p.admin.engine.patiently(ctx, task{doing: "migrate instances"}, func() error {
			n, some, err := p.admin.engine.store.Move(ctx, p.Machine, p.From, p.To, all, by)
			done.Moved += int64(n)
			refused += len(some)
			for _, r := range some {
				own.fault(fsm.ID(r.ID), "", r.Err)
			}
			return err
		})
		return err
	})
	done.Skipped = max(0, own.Ready-done.Moved-int64(refused))
	own.Ready = done.Skipped
	return done, err
}

// walk counts the instances of the old version, and gives those that can be moved to move.
func (p *MigrationPlan) walk(ctx context.Context, move func([]store.Moved) error) error {
	var ids []int64
	err := p.admin.engine.patiently(ctx, task{doing: "select instances"}, func() error {
		found, err := p.admin.engine.reads.Select(ctx, store.Migrate, &store.Filter{Machine: p.Machine, Version: p.From}, MaxPlan)
		ids = found
		return err
	})
	if most, over := errors.AsType[*store.TooManyError](err); over {
		return &VerbError{VerbMigrate, "machine", fmt.Errorf("selects %w", most)}
	}
	if err != nil {
		return err
	}
	for some := range slices.Chunk(ids, migrateBatch) {
		var found []store.Unmoved
		err := p.admin.engine.patiently(ctx, task{doing: "read instances"}, func() (err error) {
			found, err = p.admin.engine.store.Unmoved(ctx, some, p.Machine, p.From)
			return err
		})
		if err != nil {
			return err
		}
		var ready []store.Moved
		for _, one := range found {
			if m, ok := p.convert(&one); ok {
				ready = append(ready, m)
			}
		}
		if move == nil || len(ready) == 0 {
			continue
		}
		if err := move(ready); err != nil {
			return err
		}
	}
	return nil
}

// convert counts an instance, and returns what it becomes if it can be moved now.
func (p *MigrationPlan) convert(u *store.Unmoved) (m store.Moved, ok bool) {
	to, arrives := step.Arrives(p.chain, u.Step)
	if !arrives {
		if p.Waiting == nil {
			p.Waiting = map[string]int64{}
		}
		p.Waiting[u.Step]++
		return m, false
	}
	state, err := converted(p.admin.engine.env, p.chain, u.State)
	switch {
	case err != nil:
		p.fault(fsm.ID(u.ID), u.Step, err)
		return m, false
	case u.Status == string(fsm.StatusExecuting):
		p.Executing++
		return m, false
	}
	p.Ready++
	return store.Moved{Unmoved: *u, Step: to, State: state}, true
}

func (p *MigrationPlan) fault(id fsm.ID, at string, err error) {
	if p.Faulty++; len(p.Faults) < migrateFaults {
		p.Faults = append(p.Faults, MigrationFault{ID: id, Step: at, Error: step.SanitizeError(err)})
	}
}

// converted converts a state by the host's functions, whose panic is an error.
func converted(env *step.Env, chain []*step.Migration, state json.RawMessage) (_ json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &fsm.PanicError{Value: p}
		}
	}()
	for _, one := range chain {
		if state, err = one.Convert(env, state); err != nil {
			return nil, err
		}
	}
	return state, nil
}
