package engine_test

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// looks are the exported methods of Admin and of Tx that are no verbs of an operator: they read, or
// do what any program does.
var looks = []string{
	"Audit", "AllAudit", "Examine", "Gates", "GateKeys", "Load", "PausedQueues", "Relations", "Schedules", "AllSchedules", "Why", "Workers", // of Admin
	"Committed", "Nudge", "IsStepOf", "RequireEnded", "Insert", "InsertMany", "GetOrInsert", "Signal", "SignalMany", "SignalOrInsert", // of Tx
}

// verbsOf has the verb that each other method records. Bulk and Migrate plan; what they return
// applies it.
var verbsOf = map[string][]engine.Verb{
	"Cancel": {engine.VerbCancel}, "Retry": {engine.VerbRetry}, "RunNow": {engine.VerbRunNow}, "Reschedule": {engine.VerbReschedule},
	"Pause": {engine.VerbPause}, "Resume": {engine.VerbResume}, "Edit": {engine.VerbEdit}, "Rewind": {engine.VerbRewind}, "Restart": {engine.VerbRestart},
	"PauseQueue": {engine.VerbPauseQueue}, "ResumeQueue": {engine.VerbResumeQueue}, "SetGate": {engine.VerbSetGate}, "DropGate": {engine.VerbDropGate},
	"CloseGate": {engine.VerbCloseGate}, "OpenGate": {engine.VerbOpenGate}, "SetGateWeight": {engine.VerbSetGateWeight},
	"SetGatePlaces": {engine.VerbSetGatePlaces},
	"PauseSchedule": {engine.VerbPauseSchedule}, "ResumeSchedule": {engine.VerbResumeSchedule}, "RunSchedule": {engine.VerbRunSchedule},
	"DeleteSchedule": {engine.VerbDeleteSchedule}, "Migrate": {engine.VerbMigrate},
	"Bulk": {engine.VerbCancel, engine.VerbRetry, engine.VerbRunNow, engine.VerbReschedule, engine.VerbPause, engine.VerbResume, engine.VerbEdit,
		engine.VerbRewind, engine.VerbRestart},
}

// constants returns the names of the package's constants that begin with Verb.
func constants(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						if strings.HasPrefix(name.Name, "Verb") {
							names = append(names, name.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// A verb that is added has to say here whether it is recorded, and the test has to see its record.
func TestNoVerbIsForgotten(t *testing.T) {
	t.Parallel()
	known := map[engine.Verb]bool{}
	for _, verbs := range verbsOf {
		for _, v := range verbs {
			known[v] = true
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*engine.Admin](), reflect.TypeFor[*engine.Tx]()} {
		for m := range of.NumMethod() {
			name := of.Method(m).Name
			_, verb := verbsOf[name]
			require.True(t, verb || slices.Contains(looks, name), "%s.%s: is it audited?", of, name)
		}
	}
	require.Len(t, known, len(constants(t)), "each constant Verb… has its method in verbsOf: %v", constants(t))

	ctx := engine.WithActor(within(t), "ada")
	olds, news := fsm.Declare[string, string]("moves"), fsm.Declare[string, string]("moves", fsm.Version(2))
	step := fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil })
	e, _ := client(t, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(echo), olds.Define(step),
			news.Define(step).From(fsm.Migrate(olds, news, func(s string) (string, error) { return s, nil }, fsm.StepNames{"start": "start"}))}
		c.Schedules = []engine.Schedule{engine.Every("pulse", time.Hour, echoes.New("x"))}
	})
	require.NoError(t, e.Start(ctx))
	a := e.Admin()
	one := func(_ any, err error) {
		t.Helper()
		require.NoError(t, err)
	}
	id, err := e.Insert(ctx, echoes.New("x").After(time.Hour))
	require.NoError(t, err)
	one(e.Insert(ctx, olds.New("x").After(time.Hour)))
	at := time.Now().Add(2 * time.Hour)
	back := "start"
	if i, err := e.Get(ctx, id); err == nil { // that of a job
		back = i.Step
	}
	change := fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`"y"`), nil })
	one(a.Pause(ctx, id))
	one(a.Resume(ctx, id))
	one(a.Reschedule(ctx, id, at))
	one(a.RunNow(ctx, id))
	one(a.Edit(ctx, id, change))
	one(a.Rewind(ctx, id, back, fsm.Change{}))
	one(a.Cancel(ctx, id))
	one(a.Retry(ctx, id))
	one(a.Cancel(ctx, id))
	one(a.Restart(ctx, id))
	one(a.PauseQueue(ctx, "q"))
	one(a.ResumeQueue(ctx, "q"))
	one(a.SetGate(ctx, engine.Gate{Name: "g", Label: "tenant", Places: 1}))
	one(a.CloseGate(ctx, "g/x", time.Time{}))
	one(a.OpenGate(ctx, "g/x"))
	one(a.SetGateWeight(ctx, "g/x", 2))
	one(a.SetGatePlaces(ctx, "g/x", 2))
	one(a.DropGate(ctx, "g"))
	one(a.PauseSchedule(ctx, "pulse"))
	one(a.ResumeSchedule(ctx, "pulse"))
	one(a.RunSchedule(ctx, "pulse"))
	require.NoError(t, a.DeleteSchedule(ctx, "pulse"))
	move, err := a.Migrate(ctx, "moves", 1, 2)
	require.NoError(t, err)
	moved, err := move.Apply(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, moved.Moved)

	recorded := func() map[engine.Verb]int {
		all := map[engine.Verb]int{}
		for entry, err := range a.AllAudit(ctx, engine.AuditQuery{}) {
			require.NoError(t, err)
			require.Equal(t, "ada", entry.Actor)
			all[entry.Verb]++
		}
		return all
	}
	byHand := recorded()
	for v := range known {
		require.Positive(t, byHand[v], "%s leaves no entry in the audit", v)
	}

	// In bulk each leaves as many more as it has changed.
	more := map[engine.Verb][]engine.VerbOption{engine.VerbReschedule: {engine.At(at)}, engine.VerbEdit: {engine.Changing(change)},
		engine.VerbRewind: {engine.ToStep(back)}}
	for _, v := range []engine.Verb{engine.VerbReschedule, engine.VerbRunNow, engine.VerbPause, engine.VerbResume, engine.VerbEdit, engine.VerbRewind,
		engine.VerbCancel, engine.VerbRetry, engine.VerbRestart} {
		switch v { //nolint:exhaustive // the others find what applies
		case engine.VerbRunNow:
			one(a.Reschedule(ctx, id, at))
		case engine.VerbRestart:
			one(a.Cancel(ctx, id))
		}
		before := recorded()[v]
		plan, err := a.Bulk(ctx, v, engine.Filter{Machine: "echo"})
		require.NoError(t, err)
		done, err := plan.Apply(ctx, more[v]...)
		require.NoError(t, err)
		require.Positive(t, done.Changed, v)
		require.Equal(t, before+int(done.Changed), recorded()[v], v)
	}
}

// What the audit keeps of states goes through Redact, of those that it was given before and after.
func TestTheAuditKeepsRedactedStates(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	e, pool := client(t, func(c *engine.Config) {
		c.Redact = func(_ string, state json.RawMessage) json.RawMessage {
			if strings.Contains(string(state), "panic") {
				panic("no idea")
			}
			return json.RawMessage(strings.ReplaceAll(string(state), "4242", "****"))
		}
	})
	machine := fsm.Declare[secret, int]("kept")
	id, err := e.Insert(ctx, machine.New(secret{N: 1, Card: "4242"}).After(time.Hour))
	require.NoError(t, err)
	set := func(card string) fsm.Change {
		return machine.Change(func(s *secret) error { s.Card = card; return nil })
	}
	_, err = e.Admin().Edit(ctx, id, set("4242 4242"))
	require.NoError(t, err)
	_, err = e.Admin().Edit(ctx, id, set("panic"))
	require.NoError(t, err)
	var kept []string
	for entry, err := range e.Admin().AllAudit(ctx, engine.AuditQuery{Instance: id}) {
		require.NoError(t, err)
		for _, facts := range []json.RawMessage{entry.After, entry.Before} {
			var of struct{ State *secret }
			require.NoError(t, json.Unmarshal(facts, &of))
			if of.State == nil {
				kept = append(kept, "nothing")
			} else {
				kept = append(kept, of.State.Card)
			}
		}
	}
	require.Equal(t, []string{"nothing", "**** ****", "**** ****", "****"}, kept)
	i, err := machine.Get(ctx, e, id)
	require.NoError(t, err)
	require.Equal(t, "panic", i.State.Card, "the state itself is not redacted")
	var rows int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM gendurable.history h WHERE h::text LIKE '%4242%'`).Scan(&rows))
	require.Zero(t, rows)
}
