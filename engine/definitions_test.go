package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A program that was not compiled with a machine can draw it.
func ExampleEngine_Drawing() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	console, err := engine.New(engine.Config{Pool: shop.pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	drawing, err := console.Drawing(context.Background(), "checkout", 0, engine.CountsOptions{})
	fmt.Print(drawing.Graph.Mermaid())
	fmt.Println(drawing.Steps[1].Step, drawing.Steps[1].Counts, err)
	// Output:
	// %% checkout/1
	// flowchart TD
	//   s0(["start"])
	//   s1["ship<br/>1 awaiting_signal"]
	//   s0 --> s1
	// ship map[awaiting_signal:1] <nil>
}

// declares is the Config of a worker of machine "m", version 1, whose step start leads to these.
func declares(to ...string) func(*engine.Config) {
	return func(c *engine.Config) {
		step := func(name string, to ...string) fsm.StepDef[int, int] {
			return fsm.Step(name, func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(1), nil }).To(to...)
		}
		steps := []fsm.StepDef[int, int]{step("start", to...)}
		for _, name := range to {
			steps = append(steps, step(name))
		}
		c.Machines = []fsm.Definition{fsm.Declare[int, int]("m").Define(steps...)}
		c.Queues = map[string]engine.Queue{"default": {}}
	}
}

func TestDefinitionsAreStored(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	console, pool := client(t)
	list, err := console.Definitions(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = console.Drawing(ctx, "m", 0, engine.CountsOptions{})
	require.ErrorIs(t, err, engine.ErrNotFound)

	working(t, pool, declares("a"))
	list, err = console.Definitions(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	first := list[0]
	require.Equal(t, fsm.Diagram{Machine: "m", Version: 1, Initial: "start", Steps: []fsm.DiagramStep{{Name: "start", To: []string{"a"}}, {Name: "a"}}}, first.Graph)

	working(t, pool, declares("a"))
	list, err = console.Definitions(ctx)
	require.NoError(t, err)
	require.Equal(t, []engine.StoredDefinition{first}, list, "who declares the same writes nothing")

	working(t, pool, declares("b"))
	list, err = console.Definitions(ctx)
	require.NoError(t, err)
	require.Equal(t, "b", list[0].Graph.Steps[1].Name, "who starts last is right")
	require.Equal(t, first.DeclaredAt, list[0].DeclaredAt)
	require.True(t, list[0].UpdatedAt.After(first.UpdatedAt))

	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, eligible_at) VALUES
		('m', 1, 'a', now() + interval '1 day'), ('m', 1, 'b', now() + interval '1 day'), ('m', 7, 'x', now())`)
	require.NoError(t, err)
	d, err := console.Drawing(ctx, "m", 1, engine.CountsOptions{MaxAge: 1})
	require.NoError(t, err)
	require.True(t, d.Stored)
	require.Equal(t, []engine.StepCounts{{Step: "start", Defined: true, Counts: map[fsm.Status]int64{}},
		{Step: "b", Defined: true, Counts: map[fsm.Status]int64{fsm.StatusRunnable: 1}},
		{Step: "a", Counts: map[fsm.Status]int64{fsm.StatusRunnable: 1}}}, d.Steps)
	require.Equal(t, "not defined, 1 runnable", d.Graph.Steps[2].Note)
	d, err = console.Drawing(ctx, "m", 0, engine.CountsOptions{})
	require.NoError(t, err)
	require.Equal(t, 7, d.Version)
	require.False(t, d.Stored)
}

// Another session holds the row of a definition that has changed: Start waits for no lock, and goes
// on.
func TestStartPassesOverADefinitionThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	console, pool := client(t)
	working(t, pool, declares("a"))
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(ctx, `UPDATE gendurable.definitions SET graph = graph`)
	require.NoError(t, err)
	// A plain INSERT of another machine: its key cannot be passed over, its holder is waited for and
	// then left.
	_, err = tx.Exec(ctx, `INSERT INTO gendurable.definitions (definition, machine, version, graph) VALUES ('n/1', 'n', 1, '{}')`)
	require.NoError(t, err)
	working(t, pool, declares("b"))
	list, err := console.Definitions(ctx)
	require.NoError(t, err)
	require.Equal(t, "a", list[0].Graph.Steps[1].Name)

	var log bytes.Buffer
	working(t, pool, func(c *engine.Config) {
		c.Machines = []fsm.Definition{fsm.Declare[string, string]("n").Job(echo)}
		c.Queues = map[string]engine.Queue{"default": {}}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	require.Contains(t, log.String(), "cannot store definitions and schedules yet")
}

func TestNewWarnsOfOddDefinitions(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e, _ := client(t, func(c *engine.Config) {
		declares("a")(c)
		c.Queues = nil
		stop := fsm.Step("stop", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(1), nil }).To()
		c.Machines = append(c.Machines, fsm.Declare[int, int]("odd", fsm.Initial("stop")).Define(stop,
			fsm.Step("lost", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(1), nil }).To("lost")))
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	require.Equal(t, []fsm.Warning{{Machine: "odd", Version: 1, Step: "lost", Kind: fsm.WarningUnreachable},
		{Machine: "odd", Version: 1, Step: "lost", Kind: fsm.WarningDeadEnd}}, e.Warnings())
	require.Contains(t, log.String(), "no way leads to it")
	require.Contains(t, log.String(), "no way leads from it")
}

// An engine with queues names the machines whose instances it leaves to others.
func TestNewWarnsOfQueuesThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	machines := func(c *engine.Config) {
		c.Machines = []fsm.Definition{fsm.Declare[string, string]("here").Job(echo), fsm.Declare[string, string]("there", fsm.Queue("io")).Job(echo)}
		c.Queues = map[string]engine.Queue{"default": {}}
	}
	var log bytes.Buffer
	e, pool := client(t, machines, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	require.Equal(t, []fsm.Warning{{Machine: "there", Version: 1, Kind: fsm.WarningUnserved, Queue: "io"}}, e.Warnings())
	require.Contains(t, log.String(), `this engine does not serve its queue, \"io\"`)
	only := open(t, pool, machines, func(c *engine.Config) { c.Queues = nil })
	require.Empty(t, only.Warnings(), "a client serves nothing")
}

func TestDrawingOfBadInput(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	for field, ask := range map[string]func() error{
		"Machine": func() error { return second(e.Drawing(t.Context(), "", 0, engine.CountsOptions{})) },
		"Version": func() error { return second(e.Drawing(t.Context(), "m", -1, engine.CountsOptions{})) },
		"MaxAge": func() error {
			return second(e.Drawing(t.Context(), "m", 0, engine.CountsOptions{MaxAge: -time.Second}))
		},
	} {
		var bad *engine.QueryError
		require.ErrorAs(t, ask(), &bad)
		require.Equal(t, field, bad.Field)
	}
}
