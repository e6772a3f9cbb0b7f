package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/neighbours"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// unbound are the methods of an Engine that Bounded does not have, each with the reason.
var unbound = map[string]string{
	"State": "of the process", "Start": "of the process", "Stop": "of the process", "Run": "of the process", "Warnings": "of the process",
	"Activity": "of the process", "Health": "of the process and its database",
	"WithPgx": "a transaction of the host", "WithSQL": "a transaction of the host", "WithEnt": "a transaction of the host",
	"Ent": "queries of the host, which Where bounds", "EntOn": "queries of the host, which Where bounds",
	"HasInstance": "queries of the host, which Where bounds", "HasOccupant": "queries of the host, which Where bounds",
	"ByInstance": "orders rows of the host's queries", "ByInstanceExpr": "orders rows of the host's queries",
	"GetOrInsert": "it needs a key, and all instances share keys", "SignalOrInsert": "it needs a key, and all instances share keys",
	"SignalMany": "its statements look at no bounds: Signal looks at each target",
	"Within":     "it makes a Bounded",
}

// These stand for an argument in a table of calls: each target in turn, and each id.
type (
	eachTarget struct{}
	eachID     struct{}
)

// asks is a call of a method, without the context. refuses says that it cannot keep to any bounds.
type asks struct {
	method  string
	refuses bool
	args    []any
}

func asked(method string, args ...any) asks  { return asks{method, false, args} }
func denied(method string, args ...any) asks { return asks{method, true, args} }

// boundCalls are calls of each method of Bounded.
func boundCalls() []asks {
	paid, machine := fsm.DeclareSignal[string]("go").With("x"), fsm.Declare[string, string]("our", fsm.Queue("ours"))
	theirs := fsm.Declare[string, string]("their", fsm.Queue("theirs"))
	return []asks{
		asked("Get", eachTarget{}), asked("Errors", eachTarget{}), asked("History", eachTarget{}), asked("HistoryBack", eachTarget{}, int64(0)),
		asked("Graph", eachTarget{}), denied("ChildCounts", eachTarget{}),
		asked("List", engine.Query{}), asked("List", engine.Query{Filter: engine.Filter{Queue: "theirs"}}), asked("List", engine.Query{Filter: engine.Filter{ErrorText: "hidden"}}),
		asked("List", engine.Query{Filter: engine.Filter{Within: engine.Bounds{Queues: []string{"theirs", "ours"}}}}),
		asked("List", engine.Query{Filter: engine.Filter{Parent: 7_700_000_000_000_003}}), asked("All", engine.Query{Limit: 1}),
		asked("Counts", engine.CountsOptions{}), asked("Failures", engine.FailuresOptions{}), asked("Failures", engine.FailuresOptions{Queue: "theirs"}),
		asked("Rates", engine.RatesOptions{}), asked("Lag", "ours", "theirs"), asked("GateLag"), asked("GateLag", "hidden-gate"),
		asked("Definitions"), asked("Drawing", "our", 0, engine.CountsOptions{}), asked("Drawing", "their", 0, engine.CountsOptions{}),
		asked("StepTimes", "our", engine.HistoryOptions{}), asked("StepTimes", "their", engine.HistoryOptions{}),
		asked("StepFailures", "their", engine.HistoryOptions{}), asked("StepEdges", "their", engine.HistoryOptions{}), asked("StepFailures", "our", engine.HistoryOptions{}),
		asked("StepEdges", "our", engine.HistoryOptions{}),
		asked("Codec"), asked("Definition", "our", 1), asked("Wait", eachTarget{}), asked("WaitParked", eachTarget{}, int64(-1)),
		asked("Signal", eachTarget{}, paid), asked("Signal", fsm.Key("absent-key"), paid.KeepFor(time.Hour)),
		asked("Insert", machine.New("x").Label("tenant", "ours")), asked("Insert", theirs.New("x")),
		asked("Insert", machine.New("x").Label("tenant", "ours").Key("hidden-key")), asked("Insert", machine.New("x").Label("tenant", "ours").PartitionKey("shared-partition")),
		asked("InsertMany", []fsm.Spec{machine.New("x").Label("tenant", "ours"), theirs.New("x")}), asked("InsertMany", []fsm.Spec{machine.New("y").Label("tenant", "ours")}),
		asked("Admin"),
	}
}

// adminCalls are calls of each method of Admin, those that read first and those that end instances
// last.
func adminCalls() []asks {
	change := fsm.ChangeJSON(func(state json.RawMessage) (json.RawMessage, error) { return state, nil })
	later := time.Now().Add(time.Hour)
	everything := engine.Filter{All: true}
	wide := engine.Filter{All: true, Within: engine.Bounds{Queues: []string{"theirs", "ours"}}}
	return []asks{
		asked("Why", eachTarget{}), asked("Examine", eachTarget{}), asked("Relations", eachID{}),
		asked("Schedules", engine.ScheduleQuery{}), asked("AllSchedules", engine.ScheduleQuery{Within: engine.Bounds{Queues: []string{"theirs", "ours"}}}),
		asked("Gates"), asked("GateKeys", "hidden-gate"), asked("GateKeys", "our-gate"), asked("Load"), asked("PausedQueues"), denied("Workers"),
		denied("Audit", engine.AuditQuery{}), denied("AllAudit", engine.AuditQuery{Subject: "gate hidden-gate"}),
		asked("Audit", engine.AuditQuery{Instance: 7_700_000_000_000_005}), asked("AllAudit", engine.AuditQuery{Instance: 1001}),
		denied("Migrate", "their", 1, 2),
		denied("SetGate", engine.Gate{Name: "our-gate", Queue: "ours", Places: 1}), denied("DropGate", "hidden-gate"), denied("CloseGate", "hidden-gate", time.Time{}),
		denied("OpenGate", "hidden-gate"), denied("SetGateWeight", "hidden-gate/x", 2), denied("SetGatePlaces", "hidden-gate/x", 2),
		denied("PauseSchedule", "hidden-schedule"), denied("ResumeSchedule", "hidden-schedule"), denied("RunSchedule", "hidden-schedule"), denied("DeleteSchedule", "hidden-schedule"),
		denied("PauseQueue", "theirs"), denied("ResumeQueue", "theirs"), asked("PauseQueue", "ours"), asked("ResumeQueue", "ours"),
		asked("RunNow", eachTarget{}), asked("Pause", eachTarget{}), asked("Resume", eachTarget{}), asked("Retry", eachTarget{}),
		asked("Bulk", engine.VerbCancel, engine.Filter{Status: []fsm.Status{fsm.StatusRunnable}}), asked("Restart", eachTarget{}),
		asked("Edit", eachTarget{}, change), asked("Rewind", eachTarget{}, "start", change), asked("Reschedule", eachTarget{}, later),
		asked("Bulk", engine.VerbPause, everything), asked("Bulk", engine.VerbCancel, engine.Filter{Queue: "theirs"}), asked("Bulk", engine.VerbRetry, wide),
		asked("Cancel", eachTarget{}, engine.Within(engine.Bounds{Queues: []string{"theirs"}})), // which widens nothing
		asked("Cancel", eachTarget{}), asked("Cancel", eachTarget{}, engine.Descendants()), asked("Bulk", engine.VerbCancel, wide),
	}
}

// ask calls a method, and reads what it returns to the end.
func ask(ctx context.Context, of any, method string, args []any) (out []any, err error) {
	in := []reflect.Value{}
	f := reflect.ValueOf(of).MethodByName(method)
	if f.Type().NumIn() > 0 && f.Type().In(0) == reflect.TypeFor[context.Context]() {
		in = append(in, reflect.ValueOf(ctx))
	}
	for _, arg := range args {
		in = append(in, reflect.ValueOf(arg))
	}
	for _, one := range f.Call(in) {
		switch v := one.Interface().(type) {
		case error:
			err = v
		case iter.Seq2[engine.Transition, error]:
			out, err = drain(out, v)
		case iter.Seq2[fsm.RawInstance, error]:
			out, err = drain(out, v)
		case iter.Seq2[engine.StoredSchedule, error]:
			out, err = drain(out, v)
		case iter.Seq2[engine.AuditEntry, error]:
			out, err = drain(out, v)
		case *engine.Plan:
			if v == nil {
				continue
			}
			done, failed := v.Apply(ctx)
			out, err = append(out, v, done), failed
		default:
			out = append(out, v)
		}
	}
	return out, err
}

func drain[T any](into []any, all iter.Seq2[T, error]) ([]any, error) {
	for one, err := range all {
		if err != nil {
			return into, err
		}
		into = append(into, one)
	}
	return into, nil
}

// each puts targets in the place of placeholders.
func (a asks) each(targets []fsm.Target) (all [][]any) {
	n := slices.IndexFunc(a.args, func(arg any) bool { return arg == any(eachTarget{}) || arg == any(eachID{}) })
	if n < 0 {
		return [][]any{a.args}
	}
	for _, target := range targets {
		if _, id := target.(fsm.ID); !id && a.args[n] == any(eachID{}) {
			continue
		}
		args := slices.Clone(a.args)
		args[n] = target
		all = append(all, args)
	}
	return all
}

// A method that is added has to take a side: it is in the table, and keeps to the bounds or says
// that it cannot, or it is in unbound with the reason.
func TestEachMethodTakesASide(t *testing.T) {
	t.Parallel()
	named := func(calls []asks, method string) bool {
		return slices.ContainsFunc(calls, func(c asks) bool { return c.method == method })
	}
	bounded, admin := reflect.TypeFor[*engine.Bounded](), reflect.TypeFor[*engine.Admin]()
	for m := range reflect.TypeFor[*engine.Engine]().Methods() {
		_, has := bounded.MethodByName(m.Name)
		require.NotEqual(t, has, unbound[m.Name] != "", "%s: has Bounded this method, or why not?", m.Name)
	}
	for m := range bounded.Methods() {
		require.True(t, named(boundCalls(), m.Name), "Bounded.%s is not in the table", m.Name)
	}
	for m := range admin.Methods() {
		require.True(t, named(adminCalls(), m.Name), "Admin.%s is not in the table", m.Name)
	}
}

// To a caller who is bound, no method tells of instances outside, and none changes them.
func TestNoMethodLeadsOutOfBounds(t *testing.T) {
	t.Parallel()
	for name, within := range neighbours.Bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := neighbours.New(t)
			b := n.Engine.Within(within)
			before := n.Hidden(t)
			targets := []fsm.Target{fsm.ID(7_700_000_000_009_999), fsm.Key("absent-key"), fsm.Key("hidden-key"), fsm.Key("shared-key")}
			for _, of := range []map[string]fsm.ID{n.Ours, n.Theirs} {
				for _, id := range of {
					targets = append(targets, id)
				}
			}
			slices.SortFunc(targets, func(a, b fsm.Target) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			hides := slices.Clone(neighbours.Secrets)
			for _, id := range n.Theirs {
				hides = append(hides, fmt.Sprint(id))
			}
			answered := map[string]int{}
			run := func(of any, call asks) {
				for _, args := range call.each(targets) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if strings.HasPrefix(call.method, "Wait") {
						i, err := n.Engine.Get(ctx, args[0].(fsm.Target))
						over := i.Status.Terminal() || call.method == "WaitParked" && i.Status != fsm.StatusRunnable
						if err == nil && within.Cover(i.Queue, i.Machine, i.Labels) && !over {
							cancel()
							continue // it would wait
						}
					}
					out, err := ask(ctx, of, call.method, args)
					cancel()
					what := fmt.Sprint(call.method, args)
					if call.refuses {
						assert.ErrorIs(t, err, engine.ErrBounds, what)
						wrong, typed := errors.AsType[*engine.BoundsError](err)
						assert.True(t, typed && wrong.Call != "" && wrong.Err != nil, what)
					}
					text, fault := json.Marshal(out)
					if fault != nil { // a function
						text = []byte(fmt.Sprint(out...))
					}
					said := string(text)
					if err != nil {
						said += err.Error()
					} else {
						answered[call.method]++
					}
					for _, c := range out {
						if causes, is := c.([]engine.Cause); is {
							said += fmt.Sprint(causes)
						}
					}
					for _, secret := range hides {
						if !strings.Contains(what, secret) { // its own words are repeated
							assert.NotContains(t, said, secret, what)
						}
					}
				}
			}
			for _, call := range boundCalls() {
				run(b, call)
			}
			for _, call := range adminCalls() {
				run(b.Admin(), call)
			}
			for _, call := range slices.Concat(boundCalls(), adminCalls()) {
				whole := slices.Contains([]string{"Rates", "Lag", "Load", "PausedQueues", "PauseQueue", "ResumeQueue"}, call.method) && (within.Machines != nil || within.Labels != nil) ||
					slices.Contains([]string{"Counts", "Drawing", "Gates", "GateKeys", "GateLag"}, call.method) && within.Labels != nil ||
					strings.HasPrefix(call.method, "Step") && (within.Queues != nil || within.Labels != nil)
				if !call.refuses && !whole {
					require.Positive(t, answered[call.method], "%s answers something", call.method)
				}
				if whole {
					require.Zero(t, answered[call.method], call.method)
				}
			}
			require.Equal(t, before, n.Hidden(t), "nothing outside was changed")
			var kept int
			require.NoError(t, n.Pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.kept_signals`).Scan(&kept))
			require.Zero(t, kept, "a kept message is for whichever instance comes")
		})
	}
}

// An instance outside has the same answer as one that does not exist.
func TestOutsideOfBoundsNothingExists(t *testing.T) {
	t.Parallel()
	n := neighbours.New(t)
	ctx := t.Context()
	for name, within := range neighbours.Bounds {
		b := n.Engine.Within(within)
		answer := func(of any, call asks, target fsm.Target) string {
			args := call.each([]fsm.Target{target})
			if len(args) == 0 {
				return ""
			}
			out, err := ask(ctx, of, call.method, args[0])
			text, fault := json.Marshal(out)
			require.NoError(t, fault)
			return strings.ReplaceAll(fmt.Sprint(string(text), err), fmt.Sprint(target), "…")
		}
		for of, calls := range map[any][]asks{b: boundCalls(), b.Admin(): adminCalls()} {
			for _, call := range calls {
				if len(call.args) == 0 || call.args[0] != any(eachTarget{}) && call.args[0] != any(eachID{}) {
					continue
				}
				require.Equal(t, answer(of, call, fsm.ID(7_700_000_000_009_999)), answer(of, call, n.Theirs["parked"]), "%s: %s", name, call.method)
				require.Equal(t, answer(of, call, fsm.Key("absent")), answer(of, call, fsm.Key("hidden-key")), "%s: %s by key", name, call.method)
			}
		}
		// By a key that an instance outside occupies, the one within is found which had it before.
		i, err := b.Get(ctx, fsm.Key("shared-key"))
		require.NoError(t, err)
		require.Equal(t, n.Ours["key lost"], i.ID)
		_, err = b.Wait(ctx, fsm.Key("shared-key"))
		require.ErrorIs(t, err, engine.ErrNotFound, "which does not occupy it")
	}
	_, err := n.Engine.Within(neighbours.Bounds["label"]).Admin().Cancel(ctx, n.Ours["graph"])
	require.ErrorIs(t, err, engine.ErrOutside)
}

// statementLog notes what is sent.
type statementLog struct {
	mu  sync.Mutex
	all []string
}

func (s *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, q.SQL)
	return ctx
}

func (*statementLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statementLog) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// A caller who is bound to nothing sends what the engine sends, by each read.
func TestWithoutBoundsReadsSendTheSame(t *testing.T) {
	t.Parallel()
	n := neighbours.New(t)
	log := &statementLog{}
	pool := pgtest.Pool(t, n.URL, func(c *pgxpool.Config) { c.ConnConfig.Tracer = log })
	made := func() *engine.Engine { // each, since an engine keeps counts
		e, err := engine.New(engine.Config{Pool: pool})
		require.NoError(t, err)
		return e
	}
	bare, bound := made(), made().Within(engine.Bounds{})
	sent := 0
	compare := func(of, with any, calls []asks) {
		for _, call := range calls {
			if slices.Contains([]string{"Signal", "Insert", "InsertMany", "Admin", "Definition", "Codec"}, call.method) {
				continue
			}
			for _, args := range call.each([]fsm.Target{n.Ours["failed"], n.Theirs["failed"], fsm.Key("shared-key"), fsm.Key("absent")}) {
				if strings.HasPrefix(call.method, "Wait") && args[0] == any(fsm.Key("shared-key")) {
					continue // it would wait
				}
				want, err := ask(t.Context(), of, call.method, args)
				statements := log.taken()
				got, fault := ask(t.Context(), with, call.method, args)
				require.Equal(t, err, fault, "%s%v", call.method, args)
				require.Len(t, got, len(want))
				require.Equal(t, statements, log.taken(), "%s%v", call.method, args)
				require.NotErrorIs(t, err, engine.ErrBounds)
				sent += len(statements)
			}
		}
	}
	compare(bare, bound, boundCalls())
	reads := adminCalls()
	compare(bare.Admin(), bound.Admin(), reads[:slices.IndexFunc(reads, func(c asks) bool { return c.method == "Migrate" })])
	require.Greater(t, sent, 20)
}

// An ended instance is found by its key while none occupies it: the newest.
func TestAnEndedInstanceIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	n := neighbours.New(t)
	ctx, e := t.Context(), n.Engine
	i, err := e.Get(ctx, fsm.Key("shared-key"))
	require.NoError(t, err)
	require.Equal(t, n.Theirs["key taken"], i.ID, "the occupant comes first")
	_, err = e.Admin().Cancel(ctx, i.ID)
	require.NoError(t, err)
	i, err = e.Get(ctx, fsm.Key("shared-key"))
	require.NoError(t, err)
	require.Equal(t, n.Theirs["key taken"], i.ID, "the newest of those that have ended")
	require.Equal(t, fsm.StatusFailed, i.Status)
	list, err := e.Errors(ctx, fsm.Key("shared-key"))
	require.NoError(t, err)
	require.Len(t, list, 1, "that it was cancelled")
	causes, err := e.Admin().Why(ctx, fsm.Key("shared-key"))
	require.NoError(t, err)
	require.Equal(t, engine.CauseEnded, causes[0].Kind)
	for name, verb := range map[string]func() error{
		"retry":  func() error { _, err := e.Admin().Retry(ctx, fsm.Key("shared-key")); return err },
		"wait":   func() error { _, err := e.Wait(ctx, fsm.Key("shared-key")); return err },
		"absent": func() error { _, err := e.Get(ctx, fsm.Key("absent")); return err },
	} {
		require.ErrorIs(t, verb(), engine.ErrNotFound, name)
	}
	_, err = e.Signal(ctx, fsm.Key("shared-key"), fsm.DeclareSignal[string]("go").With("x"))
	require.ErrorIs(t, err, engine.ErrNoTarget)
}
