package cluster_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var greet = fsm.Declare[string, string]("greet")

// Two servers, each with one place.
func Example() {
	ctx := context.Background()
	north, closeNorth := server()
	defer closeNorth()
	south, closeSouth := server()
	defer closeSouth()

	places := []cluster.Place{{Pool: north}, {Pool: south}}
	check(cluster.Init(ctx, places)) // once, after the migrations
	c, err := cluster.New(cluster.Config{Places: places, Engine: engine.Config{
		Machines: []fsm.Definition{greet.Job(func(_ context.Context, name string) (string, error) { return "hello " + name, nil })},
		Queues:   map[string]engine.Queue{"default": {Concurrency: 10}},
		Logger:   slog.New(slog.DiscardHandler),
	}})
	check(err)
	check(c.Start(ctx))
	for _, name := range []string{"ada", "bob"} {
		id, err := c.Insert(ctx, greet.New(name).Key(fsm.Key("greet-"+name)))
		check(err)
		text, err := greet.Wait(ctx, c, id)
		check(err)
		fmt.Println(text, "at place", cluster.PlaceOfID(id))
	}
	check(c.Stop(ctx))
	// Output:
	// hello ada at place 0
	// hello bob at place 1
}

// The faults across the places, as gendurable cluster check finds them.
func ExampleCluster_Check() {
	ctx := context.Background()
	north, closeNorth := server()
	defer closeNorth()
	south, closeSouth := server()
	defer closeSouth()
	check(cluster.Init(ctx, []cluster.Place{{Pool: north}, {Pool: south}}))

	c, err := cluster.New(cluster.Config{Places: []cluster.Place{{Pool: south}, {Pool: north}}}) // in the wrong order
	check(err)
	for _, fault := range c.Check(ctx) {
		if !fault.Warning {
			fmt.Println(fault.Places, fault.Kind, fault.Do)
		}
	}
	// Output:
	// [0] record name the places in their order, each with its own schema
	// [1] record name the places in their order, each with its own schema
}

// How the places stand, also those that are down.
func ExampleCluster_Status() {
	ctx := context.Background()
	north, closeNorth := server()
	defer closeNorth()
	south, closeSouth := server()
	closeSouth()
	c, err := cluster.New(cluster.Config{Places: []cluster.Place{{Pool: north}, {Pool: south}}})
	check(err)
	all, err := c.Status(ctx, cluster.StatusOptions{NoCounts: true})
	check(err)
	for _, s := range all {
		fmt.Println("place", s.Place, "answers:", s.Reached, "initialised:", s.Record != nil)
	}
	// Output:
	// place 0 answers: true initialised: false
	// place 1 answers: false initialised: false
}

// A host's own transaction is in the database of the key's place.
func ExampleCluster_Engine() {
	ctx := context.Background()
	north, closeNorth := server()
	defer closeNorth()
	south, closeSouth := server()
	defer closeSouth()
	places := []cluster.Place{{Pool: north}, {Pool: south}}
	check(cluster.Init(ctx, places))
	c, err := cluster.New(cluster.Config{Places: places})
	check(err)

	key := "greet-bob"
	home := c.PlaceOf(key)
	check(pgx.BeginFunc(ctx, places[home].Pool, func(tx pgx.Tx) error {
		_, err := c.Engine(home).WithPgx(tx).Insert(ctx, greet.New("bob").Key(fsm.Key(key)))
		return err
	}))
	found, err := c.Get(ctx, fsm.Key(key))
	check(err)
	fmt.Println(found.Key, "at place", cluster.PlaceOfID(found.ID))
	// Output: greet-bob at place 1
}

// The part between braces decides alone.
func ExamplePlaceOf() {
	fmt.Println(cluster.PlaceOf("order-17", 8), cluster.PlaceOf("item-3{order-17}", 8), cluster.PlaceOf("item-3", 8))
	// Output: 5 5 2
}

func server() (pool *pgxpool.Pool, closing func()) {
	url, drop, err := pgtest.Example()
	check(err)
	pool, err = pgxpool.New(context.Background(), url)
	check(err)
	return pool, func() {
		pool.Close()
		check(drop())
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
