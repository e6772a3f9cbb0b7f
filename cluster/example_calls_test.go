package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// twoPlaces is a cluster of two places, which are closed by the function that it returns.
func twoPlaces(config engine.Config) (c *cluster.Cluster, closing func()) {
	north, closeNorth := server()
	south, closeSouth := server()
	places := []cluster.Place{{Pool: north}, {Pool: south}}
	check(cluster.Init(context.Background(), places))
	config.Logger = slog.New(slog.DiscardHandler)
	c, err := cluster.New(cluster.Config{Places: places, Engine: config})
	check(err)
	return c, func() {
		check(c.Stop(context.Background()))
		closeSouth()
		closeNorth()
	}
}

// Each spec goes to the place of its key, and has its own result.
func ExampleCluster_InsertMany() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	inserted, err := c.InsertMany(context.Background(), []fsm.Spec{
		greet.New("ada").Key("greet-ada"), greet.New("bob").Key("greet-bob"), greet.New("ada").Key("greet-ada"),
	})
	for _, i := range inserted {
		fmt.Println("place", i.Place, "duplicate", i.Duplicate, i.Err)
	}
	fmt.Println(err)
	// Output:
	// place 0 duplicate false <nil>
	// place 1 duplicate false <nil>
	// place 0 duplicate true <nil>
	// <nil>
}

// Each letter goes to the place of its target.
func ExampleCluster_SignalMany() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	name := fsm.DeclareSignal[string]("name")
	for _, key := range []fsm.Key{"greet-ada", "greet-bob"} {
		_, err := c.Insert(ctx, greet.New("").Key(key).After(time.Hour))
		check(err)
	}
	done, err := c.SignalMany(ctx, []engine.Letter{
		{To: fsm.Key("greet-ada"), Message: name.With("Ada")}, {To: fsm.Key("greet-bob"), Message: name.With("Bob")},
		{To: fsm.Key("greet-eve"), Message: name.With("Eve")},
	})
	for _, one := range done {
		fmt.Println("place", cluster.PlaceOfID(one.To), errors.Is(one.Err, engine.ErrNoTarget))
	}
	fmt.Println(err)
	// Output:
	// place 0 false
	// place 1 false
	// place 0 true
	// <nil>
}

// A spec whose keys belong to different places is refused. A tag makes them belong to one.
func ExampleCluster_Insert() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	_, err := c.Insert(ctx, greet.New("bob").Key("greet-ada").PartitionKey("ada"))
	fmt.Println(errors.Is(err, cluster.ErrElsewhere))
	_, err = c.Insert(ctx, greet.New("bob").Key("greet-{ada}").PartitionKey("ada"))
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// The list of all places is one, and says at which place an instance is.
func ExampleCluster_All() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	for _, name := range []string{"ada", "bob"} {
		_, err := c.Insert(ctx, greet.New(name).Key(fsm.Key("greet-"+name)))
		check(err)
	}
	for i, err := range c.All(ctx, engine.Query{Filter: engine.Filter{Machine: "greet"}, OldestFirst: true}) {
		fmt.Println(i.Key, "at place", cluster.PlaceOfID(i.ID), err)
	}
	counts, err := c.Counts(ctx, engine.CountsOptions{})
	for _, n := range counts.Counts.Counts {
		fmt.Println(n.Machine, n.Status, n.Count)
	}
	fmt.Println(counts.Lacks, err)
	// Output:
	// greet-ada at place 0 <nil>
	// greet-bob at place 1 <nil>
	// greet runnable 2
	// [] <nil>
}

// Verbs for one instance go to its place, verbs for a queue to all places.
func ExampleCluster_Admin() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	_, err := c.Insert(ctx, greet.New("bob").Key("greet-bob"))
	check(err)
	fmt.Println(c.Admin().PauseQueue(ctx, "default"))
	_, err = c.Admin().Cancel(ctx, fsm.Key("greet-bob"))
	fmt.Println(err)
	// Output:
	// true <nil>
	// <nil>
}

// A gate that is set at all places bounds each of them.
func ExampleAdmin_SetGate() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	fmt.Println(c.Admin().SetGate(ctx, engine.Gate{Name: "bank", Queue: "default", Places: 3}))
	gates, err := c.Admin().Gates(ctx)
	for _, g := range gates {
		fmt.Println("place", g.Place, g.Name, g.Places)
	}
	fmt.Println(err)
	// Output:
	// true <nil>
	// place 0 bank 3
	// place 1 bank 3
	// <nil>
}

// A step inserts at any place by the cluster in its context.
func ExampleFromContext() {
	var (
		ask   = fsm.Declare[string, fsm.ID]("ask")
		asked = ask.Job(func(ctx context.Context, name string) (fsm.ID, error) {
			return cluster.FromContext(ctx).Insert(ctx, greet.New(name).Key(fsm.Key("greet-"+name)))
		})
	)
	c, closing := twoPlaces(engine.Config{Machines: []fsm.Definition{asked}, Queues: map[string]engine.Queue{"default": {}}})
	defer closing()
	ctx := context.Background()
	check(c.Start(ctx))
	id, err := c.Insert(ctx, ask.New("bob").Key("greet-ada"))
	check(err)
	made, err := ask.Wait(ctx, c, id)
	fmt.Println(cluster.PlaceOfID(id), cluster.PlaceOfID(made), err)
	// Output: 0 1 <nil>
}

// A place that is down fails what needs it, by name, and nothing else.
func ExamplePlaceErrors() {
	north, closeNorth := server()
	defer closeNorth()
	south, closeSouth := server()
	places := []cluster.Place{{Pool: north}, {Pool: south}}
	check(cluster.Init(context.Background(), places))
	closeSouth()
	c, err := cluster.New(cluster.Config{Places: places, Engine: engine.Config{Logger: slog.New(slog.DiscardHandler)}, Patience: 3 * time.Second})
	check(err)
	ctx := context.Background()
	_, err = c.Admin().PauseQueue(ctx, "default")
	for _, failed := range cluster.PlaceErrors(err) {
		fmt.Println("not paused at place", failed.Place, "with schema", failed.Schema)
	}
	// Output: not paused at place 1 with schema gendurable
}
