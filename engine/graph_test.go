package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/nodeedge"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// part is a node of the graphs below: it says who it is and what it was given, fails if its name
// begins with a capital, and waits at a gate if it is called gate.
type part struct{ Name string }

var (
	partMachine  = fsm.Declare[part, string]("part")
	wholeMachine = fsm.Declare[string, string]("whole")
)

func partDefinition(gate chan struct{}) fsm.Definition {
	return partMachine.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[part, string]) (fsm.Outcome, error) {
		name := v.State.Name
		if name == "gate" {
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		given := ""
		for _, from := range []string{"a", "b", "c", "F"} {
			if _, waited := v.Upstream(from); waited {
				result, err := partMachine.Upstream(v, from)
				if _, failed := errors.AsType[*fsm.FailedError](err); failed {
					result = "!"
				} else if err != nil {
					return nil, err
				}
				given += result
			}
		}
		if strings.ToLower(name) != name {
			return v.Fail(errors.New("no")), nil
		}
		return v.Done(name + "(" + given + ")"), nil
	}))
}

// wholeDefinition makes the graph that its state describes: names, each with those that it waits
// for after a colon, "?" for an end and "!" for a failure.
func wholeDefinition() fsm.Definition {
	return wholeMachine.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			text, fast := strings.CutSuffix(v.State, " fast")
			var nodes []fsm.GraphNode
			for _, word := range strings.Fields(text) {
				name, before, _ := strings.Cut(word, ":")
				n := fsm.Node(name, partMachine.New(part{name}))
				for _, one := range strings.FieldsFunc(before, func(r rune) bool { return r == ',' }) {
					switch from := strings.TrimRight(one, "?!"); {
					case strings.HasSuffix(one, "?"):
						n = n.AfterEnd(from)
					case strings.HasSuffix(one, "!"):
						n = n.AfterFailure(from)
					default:
						n = n.After(from)
					}
				}
				nodes = append(nodes, n)
			}
			out := v.ScheduleGraph("join", v.State, nodes...)
			if fast {
				out.FailFast()
			}
			return out, nil
		}),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			var all []string
			for _, c := range partMachine.Children(v) {
				result, err := c.Result()
				if err != nil {
					result = fmt.Sprint(c.Status, " ", c.Failure)
				}
				all = append(all, c.Node+"="+result)
			}
			return v.Done(strings.Join(all, " ")), nil
		}))
}

func TestGraph(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{partDefinition(gate), wholeDefinition()}
		c.DrainTimeout = time.Millisecond
	})
	whole := func(graph string) string {
		id, err := e.Insert(t.Context(), wholeMachine.New(graph))
		require.NoError(t, err)
		got, err := wholeMachine.Wait(within(t), e, id)
		require.NoError(t, err)
		return got
	}
	for graph, want := range map[string]string{
		"":                          "",
		"a b":                       "a=a() b=b()",
		"a b:a c:a d:b,c":           "a=a() b=b(a()) c=c(a()) d=d(b(a())c(a()))",
		"F a:F b:a? c:F!":           "F=failed decided a=failed skipped b=b(!) c=c(!)",
		"F a:F b:a c:b d:c?":        "F=failed decided a=failed skipped b=failed skipped c=failed skipped d=d(!)",
		"a b:a!":                    "a=a() b=failed skipped",
		"F a:F? b:F gate:a,b fast":  "",
		"a b:a c:b d:c e:d f:e g:f": "a=a() b=b(a()) c=c(b(a())) d=d(c(b(a()))) e=e() f=f() g=g()",
	} {
		got := whole(graph)
		if strings.HasSuffix(graph, "fast") {
			require.Contains(t, got, "F=failed decided")
			continue
		}
		require.Equal(t, want, got, graph)
	}

	// A node that waits says for which; a node is not run by itself; a graph is over with its root.
	root, err := e.Insert(t.Context(), wholeMachine.New("gate a:gate b:a,gate"))
	require.NoError(t, err)
	node := func(name string) (id fsm.ID) {
		require.Eventually(t, func() bool {
			return pool.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node = $2`, root, name).Scan(&id) == nil
		}, testPatience, testGlance)
		return id
	}
	causes, err := e.Admin().Why(t.Context(), node("b"))
	require.NoError(t, err)
	require.Len(t, causes, 1)
	require.Equal(t, engine.CauseNodes, causes[0].Kind)
	require.Equal(t, []string{"gate", "a"}, causes[0].Names)
	require.Equal(t, []fsm.ID{node("gate"), node("a")}, causes[0].IDs)
	require.Contains(t, causes[0].String(), "it waits for 2 nodes of its graph since ")
	drawn, err := e.Graph(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, []engine.GraphEdge{{From: "gate", To: "a", Needs: fsm.StatusDone}, {From: "gate", To: "b", Needs: fsm.StatusDone},
		{From: "a", To: "b", Needs: fsm.StatusDone}}, drawn.Edges)
	before, err := e.Ent().NodeEdge.Query().Where(nodeedge.ToID(node("b"))).Order(nodeedge.ByFromID()).All(t.Context())
	require.NoError(t, err)
	require.Len(t, before, 2)
	require.Equal(t, []fsm.ID{node("gate"), node("a")}, []fsm.ID{before[0].FromID, before[1].FromID})
	require.Equal(t, []int{0, 1, 2}, []int{drawn.Nodes[0].Waits, drawn.Nodes[1].Waits, drawn.Nodes[2].Waits})
	require.Equal(t, node("b"), drawn.Nodes[2].ID)
	require.Contains(t, drawn.Mermaid(), "waits for 2")
	require.Contains(t, drawn.DOT(), "s0 -> s2")
	none, err := e.Graph(t.Context(), node("b"))
	require.NoError(t, err)
	require.Empty(t, none.Nodes)
	_, err = e.Graph(t.Context(), fsm.ID(999_999))
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Admin().Cancel(t.Context(), root)
	require.NoError(t, err)
	close(gate)
	for _, name := range []string{"a", "b"} {
		_, err = partMachine.Wait(within(t), e, node(name))
		failed, ok := errors.AsType[*fsm.FailedError](err)
		require.True(t, ok, "%v", err)
		require.Contains(t, []fsm.Failure{fsm.FailureSkipped, fsm.FailureCancelled}, failed.Failure)
	}
	_, err = e.Admin().Retry(t.Context(), node("a"))
	require.ErrorIs(t, err, engine.ErrConflict)
	require.ErrorContains(t, err, "it is a node of a graph")
}
