// Package cluster makes one engine of several places:
//
//	places := []cluster.Place{{Pool: north}, {Pool: south}}
//	err := cluster.Init(ctx, places) // once, after the migrations
//	c, err := cluster.New(cluster.Config{
//		Places: places,
//		Engine: engine.Config{Machines: machines, Queues: queues},
//	})
//	id, err := c.Insert(ctx, Invoice.New(bill).Key("invoice:7")) // at the place of the key
//	err = c.Start(ctx)
//
// A place is a Postgres schema with an engine
// on it; the places are on one server or on many. [New] takes the places and one Config.
//
// Each place is a whole engine, and keeps all promises for its own instances. No promise spans two
// places: an instance, its children, its inbox and its keys are at one place. [PlaceOf] computes
// the place of a spec from its correlation key; without one, from its partition key; without
// either, from the key of its window. Specs without any key go to the places in turn. A child is
// at the place of its parent. The id of an instance carries its place.
//
// [Init] fixes the number of places, before the first insert: choose at least four times as many as
// there will ever be servers. To use a further server, move schemas to it.
//
// A place that is down fails only the calls that need it. Their errors name the place: see
// [PlaceError].
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
)

// DefaultPatience is the default of Config.Patience.
const DefaultPatience = 5 * time.Second

// Place is the schema of one engine. Give one Pool to all places on the same server: the places
// then share its connections, poll in one round trip, and send their heartbeats on one connection,
// as engines with one [engine.Company] do. A place that Citus distributes has a separate Pool
// (citus.Follow). Such places poll in one round trip for each node.
type Place struct {
	// Pool is like the Pool of engine.Config.
	Pool *pgxpool.Pool
	// Driver is like the Driver of engine.Config: a driver on Pool, or given instead of Pool.
	Driver *entpgx.Driver
	// Schema is the Postgres schema with the place's tables: "gendurable" unless given.
	Schema string
}

func (p Place) pool() *pgxpool.Pool {
	return engine.Config{Pool: p.Pool, Driver: p.Driver}.WithDefaults().Pool
}

// together makes a company for each pool of several places, and one for all others: Citus may have
// several of them on one node.
func together(places []Place) map[*pgxpool.Pool]*engine.Company {
	of, others := map[*pgxpool.Pool]*engine.Company{}, engine.NewCompany(nil)
	for _, p := range places {
		pool := p.pool()
		switch of[pool] {
		case nil:
			of[pool] = others
		case others:
			of[pool] = engine.NewCompany(pool)
		}
	}
	return of
}

// Config configures a cluster. Places is required.
type Config struct {
	// Places lists the places, 1 to MaxPlaces, in the order in which [Init] has recorded them.
	Places []Place
	// Engine is the Config of every place, without Pool, Driver, Schema and Company. Its bounds
	// hold at each place by itself: with a Concurrency of 10 and 4 places, up to 40 steps of a
	// queue run at once. Each of its Schedules runs at the place of its name.
	Engine engine.Config
	// Each may change the Config of one place before its engine is made, e.g. to give a larger server
	// more Concurrency, or a place its own hooks. It must leave Codec, Machines and Schedules alike
	// at all places, and must not change Pool, Driver, Schema and Company. Nil: every place has
	// Engine as it is.
	Each func(place int, c *engine.Config)
	// Patience is how long Start, and calls that ask all places, wait for a place that does not
	// answer. An insert without a key goes on to another place after this time. Zero means 5 s.
	Patience time.Duration
}

// Cluster is one engine made of several. It is safe for concurrent use.
type Cluster struct {
	places   []*place
	codec    fsm.Codec
	logger   *slog.Logger
	patience time.Duration
	drain    time.Duration // what Run gives Stop
	turn     atomic.Uint64 // the next place without a key

	mu      sync.Mutex
	life    engine.State
	pending map[int]error // why Start has not started a place yet, by place
	cancel  context.CancelFunc
	late    sync.WaitGroup // the goroutines that start the pending places
}

// place is one of the places.
type place struct {
	index, of int
	schema    string
	db        *entpgx.Driver
	engine    *engine.Engine
	origin    *origin // shared by all places of the cluster

	checking  chan struct{} // held by whoever reads the record
	recorded  atomic.Bool   // the record has been read, and is right
	passUntil atomic.Int64  // until when inserts without a key skip the place, in Unix nanoseconds
}

// New makes a cluster. It validates everything without the databases, as [engine.New] does.
//
// Errors: *[engine.ConfigError], joined; of a place's engine, within a *[PlaceError].
func New(config Config) (*Cluster, error) {
	patience := cmp.Or(config.Patience, DefaultPatience)
	if patience < time.Millisecond {
		return nil, wrong("Patience", "%v, at least %v", patience, time.Millisecond)
	}
	shared := config.Engine
	if shared.Pool != nil || shared.Driver != nil || shared.Schema != "" || shared.Company != nil {
		return nil, wrong("Engine", "it has a Pool, Driver, Schema or Company: set them in Places")
	}
	if err := checkPlaces(config.Places); err != nil {
		return nil, err
	}
	schedules, err := share(shared.Schedules, len(config.Places))
	if err != nil {
		return nil, err
	}
	defaults := shared.WithDefaults()
	c := &Cluster{codec: defaults.Codec, logger: defaults.Logger, patience: patience,
		drain: defaults.DrainTimeout + defaults.DrainGrace + flushTime, life: engine.StateCreated, pending: map[int]error{}}
	first := &origin{}
	companies := together(config.Places)
	for i, at := range config.Places {
		own := shared
		own.Pool, own.Driver, own.Schema = at.Pool, at.Driver, at.Schema
		own.Company = companies[at.pool()]
		own.Schedules = schedules[i]
		own.Logger = defaults.Logger.With(slog.Int("place", i))
		if err := change(config.Each, i, &own); err != nil {
			return nil, err
		}
		own.Middleware = append(slices.Clone(own.Middleware), guard(i, len(config.Places)))
		own.Context = c.inSteps(own.Context)
		e, err := engine.New(own)
		own = own.WithDefaults()
		p := &place{index: i, of: len(config.Places), schema: own.Schema, db: own.Driver, engine: e, origin: first, checking: make(chan struct{}, 1)}
		if err != nil {
			return nil, p.at(err)
		}
		c.places = append(c.places, p)
	}
	c.turn.Store(startOfTurns(len(c.places)))
	return c, nil
}

// change lets a host change the Config of one place without changing the others.
func change(each func(int, *engine.Config), place int, own *engine.Config) error {
	if each == nil {
		return nil
	}
	own.Hooks, own.Middleware, own.Queues = slices.Clone(own.Hooks), slices.Clone(own.Middleware), maps.Clone(own.Queues)
	was := *own
	each(place, own)
	if own.Pool != was.Pool || own.Driver != was.Driver || own.Schema != was.Schema || own.Company != was.Company {
		return wrong("Each", "it has changed the Pool, Driver, Schema or Company of place %d: set them in Places", place)
	}
	return nil
}

func wrong(field, format string, a ...any) error {
	return &engine.ConfigError{Field: field, Err: fmt.Errorf(format, a...)}
}

// checkPlaces checks the places against each other, which no single engine can do.
func checkPlaces(places []Place) error {
	if len(places) == 0 || len(places) > MaxPlaces {
		return wrong("Places", "%d places, want 1 to %d", len(places), MaxPlaces)
	}
	type home struct {
		pool   *pgxpool.Pool
		schema string
	}
	seen := map[home]int{}
	var errs []error
	for i, p := range places {
		c := engine.Config{Pool: p.Pool, Driver: p.Driver, Schema: p.Schema}.WithDefaults()
		at := home{c.Pool, c.Schema}
		if c.Pool == nil {
			errs = append(errs, wrong(fmt.Sprintf("Places[%d].Pool", i), "nil, want a *pgxpool.Pool"))
		} else if j, taken := seen[at]; taken {
			errs = append(errs, wrong(fmt.Sprintf("Places[%d]", i), "schema %q of the same pool is Places[%d] already", c.Schema, j))
		}
		seen[at] = i
	}
	return errors.Join(errs...)
}

// share gives each schedule to the place of its name.
func share(all []engine.Schedule, places int) ([][]engine.Schedule, error) {
	out := make([][]engine.Schedule, places)
	var errs []error
	for _, s := range all {
		at := PlaceOf(s.Name(), places)
		if key := s.Spec().Options().PartitionKey; key != "" && PlaceOf(key, places) != at {
			errs = append(errs, wrong(fmt.Sprintf("Engine.Schedules[%.80s].Spec", s.Name()), "%w: the schedule is at place %d, its partition key %.80q at %d; "+
				"give both one tag, as in %q", ErrElsewhere, at, key, PlaceOf(key, places), s.Name()+"{"+tagOf(key)+"}"))
		}
		out[at] = append(out[at], s)
	}
	return out, errors.Join(errs...)
}

// Places returns how many places there are.
func (c *Cluster) Places() int { return len(c.places) }

// PlaceOf returns the place of a key in this cluster: see the function [PlaceOf].
func (c *Cluster) PlaceOf(key string) int { return PlaceOf(key, len(c.places)) }

// Engine returns the engine of a place, 0 to Places()-1, and nil for any other: for a host's own
// transaction, for the children of that place by their keys, and for whatever Cluster has no method
// for. Its inserts refuse keys of other places with [ErrElsewhere]; it does not check the record
// that [Init] made, which Start does, and every method of Cluster before it uses a place.
func (c *Cluster) Engine(place int) *engine.Engine {
	if place < 0 || place >= len(c.places) {
		return nil
	}
	return c.places[place].engine
}

// Codec returns the codec that decodes what Get, Wait and List return.
func (c *Cluster) Codec() fsm.Codec { return c.codec }

// Definition is [engine.Engine.Definition].
func (c *Cluster) Definition(machine string, version int) fsm.Definition {
	return c.places[0].engine.Definition(machine, version)
}

type clusterKey struct{}

// inSteps returns the function that puts the cluster into the contexts of steps.
func (c *Cluster) inSteps(host func(context.Context) context.Context) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context {
		ctx = context.WithValue(ctx, clusterKey{}, c)
		if host == nil {
			return ctx
		}
		return host(ctx)
	}
}

// FromContext returns the cluster in which a step runs, and nil outside of the steps of a cluster.
// A step uses it to insert and signal at any place. [engine.FromContext] returns the engine of the
// step's own place.
func FromContext(ctx context.Context) *Cluster {
	c, _ := ctx.Value(clusterKey{}).(*Cluster)
	return c
}

var (
	_ fsm.ParkedReader = (*Cluster)(nil)
	_ fsm.Lister       = (*Cluster)(nil)
	_ fsm.Definer      = (*Cluster)(nil)
)
