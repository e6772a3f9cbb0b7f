package cluster_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// One plan covers the instances of all places. It changes nothing until it is applied.
func ExampleAdmin_Bulk() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	for _, name := range []string{"ada", "bob"} {
		_, err := c.Insert(ctx, greet.New(name).Key(fsm.Key("greet-"+name)))
		check(err)
	}
	plan, err := c.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "greet"})
	check(err)
	fmt.Println("would cancel", plan.Matched)
	applied, err := plan.Apply(ctx, engine.Reason("nobody is to be greeted"))
	fmt.Println("cancelled", applied.Changed, err)
	// Output:
	// would cancel 2
	// cancelled 2 <nil>
}

// A page has instances of several places; the next one begins behind it at each of them.
func ExampleCluster_List() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	for _, name := range []string{"ada", "bob", "cleo"} {
		_, err := c.Insert(ctx, greet.New(name).Key(fsm.Key("greet-"+name)))
		check(err)
	}
	query := engine.Query{OldestFirst: true, Limit: 2}
	for {
		page, err := c.List(ctx, query)
		check(err)
		var keys []fsm.Key
		for _, i := range page.Instances {
			keys = append(keys, i.Key)
		}
		fmt.Println(keys)
		if page.Next == "" {
			break
		}
		query.After = page.Next
	}
	// Output:
	// [greet-ada greet-bob]
	// [greet-cleo]
}

// Each schedule is at the place of its name, and its verbs go there.
func ExampleAdmin_AllSchedules() {
	c, closing := twoPlaces(engine.Config{
		Machines: []fsm.Definition{greet.Job(func(_ context.Context, name string) (string, error) { return "hello " + name, nil })},
		Schedules: []engine.Schedule{
			engine.Cron("at-noon", "0 12 * * *", greet.New("ada")),
			engine.Cron("at-nine", "0 9 * * *", greet.New("bob")),
		},
	})
	defer closing()
	ctx := context.Background()
	check(c.Start(ctx))
	_, err := c.Admin().PauseSchedule(ctx, "at-noon")
	check(err)
	for s, err := range c.Admin().AllSchedules(ctx) {
		fmt.Println(s.Name, s.Expression, "paused:", !s.Paused.IsZero(), err)
	}
	// Output:
	// at-nine 0 9 * * * paused: false <nil>
	// at-noon 0 12 * * * paused: true <nil>
}

// While the bank is down, no place lets anything begin behind its gate.
func ExampleAdmin_CloseGate() {
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	_, err := c.Admin().SetGate(ctx, engine.Gate{Name: "bank", Queue: "default", Places: 3})
	check(err)
	fmt.Println(c.Admin().CloseGate(ctx, "bank", time.Now().Add(time.Hour)))
	fmt.Println(c.Admin().OpenGate(ctx, "bank"))
	// Output:
	// true <nil>
	// true <nil>
}

// The first message to a key inserts the instance, at the key's place; later ones find it there.
func ExampleCluster_SignalOrInsert() {
	name := fsm.DeclareSignal[string]("name")
	c, closing := twoPlaces(engine.Config{})
	defer closing()
	ctx := context.Background()
	for _, call := range []string{"first", "second"} {
		in, err := c.SignalOrInsert(ctx, greet.New("").Key("greet-bob"), name.With("bob").DedupKey(call))
		fmt.Println("at place", cluster.PlaceOfID(in.ID), "known before:", in.Duplicate, err)
	}
	// Output:
	// at place 1 known before: false <nil>
	// at place 1 known before: true <nil>
}
