// Package cluster makes one engine of several: K places, each a Postgres schema with an engine on
// it, on one server or many. [New] takes the places and one Config.
//
// Each place is a whole engine. It keeps all promises for its instances, and none reach beyond it:
// an instance, its children, its inbox and its keys are in one place. What [PlaceOf] says of a key
// decides which: of the correlation key, else of the partition key, else of the window's; a spec
// without any goes to the places in turn. Children are where their parent is. An id carries its
// place.
//
// The number of places is fixed by [Init], before the first insert: choose at least four times as
// many as there will ever be servers. To use a server more, move schemas to it.
//
// A place that is down holds up only what concerns it: errors name it, see [PlaceError].
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

// Place is where one of the engines is. Give one Pool to all places on the same server: they share
// its connections, their looks for work and the connection of their heartbeats, as engines with one
// [engine.Company] do.
type Place struct {
	// Pool is as that of engine.Config.
	Pool *pgxpool.Pool
	// Driver is as that of engine.Config: a driver on Pool, or instead of it.
	Driver *entpgx.Driver
	// Schema holds the place's tables: "gendurable".
	Schema string
}

func (p Place) pool() *pgxpool.Pool {
	return engine.Config{Pool: p.Pool, Driver: p.Driver}.WithDefaults().Pool
}

// together makes a company for each pool of several places.
func together(places []Place) map[*pgxpool.Pool]*engine.Company {
	count, of := map[*pgxpool.Pool]int{}, map[*pgxpool.Pool]*engine.Company{}
	for _, p := range places {
		pool := p.pool()
		if count[pool]++; count[pool] == 2 {
			of[pool] = engine.NewCompany(pool)
		}
	}
	return of
}

// Config configures a cluster. Places is required.
type Config struct {
	// Places are the places, 1 to MaxPlaces, in the order in which [Init] has recorded them.
	Places []Place
	// Engine is the Config of all places, without Pool, Driver and Schema. What it bounds it bounds at
	// each place: with a Concurrency of 10 and 4 places, up to 40 steps of a queue run at once. Of its
	// Schedules each is at the place of its name.
	Engine engine.Config
	// Each may change the Config of one place, before its engine is made: to give a larger server more
	// Concurrency, or a place hooks of its own. Codec, Machines and Schedules are to be the same at
	// all places; Pool, Driver and Schema are those of Places. Nil: all places have Engine as it is.
	Each func(place int, c *engine.Config)
	// Patience is how long Start and calls that ask all places wait for a place that does not answer,
	// and how long an insert without a key does before it goes to another place: 5 s.
	Patience time.Duration
}

// Cluster is one engine made of several. It is safe for concurrent use.
type Cluster struct {
	places   []*place
	codec    fsm.Codec
	logger   *slog.Logger
	patience time.Duration
	drain    time.Duration // that Run allows Stop
	turn     atomic.Uint64 // the next place without a key

	mu      sync.Mutex
	life    engine.State
	pending map[int]error // of places that Start has not started yet, why
	cancel  context.CancelFunc
	late    sync.WaitGroup // what starts them
}

// place is one of the places.
type place struct {
	index, of int
	schema    string
	db        *entpgx.Driver
	engine    *engine.Engine
	origin    *origin // of all places of the cluster

	checking  chan struct{} // held by whoever reads the record
	recorded  atomic.Bool   // the record is that of this place
	passUntil atomic.Int64  // inserts without a key pass it over until then, in Unix nanoseconds
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
		return nil, wrong("Engine", "it has a Pool, Driver, Schema or Company: those are of Places")
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

// change lets a host change the Config of a place, without a trace in those of others.
func change(each func(int, *engine.Config), place int, own *engine.Config) error {
	if each == nil {
		return nil
	}
	own.Hooks, own.Middleware, own.Queues = slices.Clone(own.Hooks), slices.Clone(own.Middleware), maps.Clone(own.Queues)
	was := *own
	each(place, own)
	if own.Pool != was.Pool || own.Driver != was.Driver || own.Schema != was.Schema || own.Company != was.Company {
		return wrong("Each", "it has changed the Pool, Driver, Schema or Company of place %d: those are of Places", place)
	}
	return nil
}

func wrong(field, format string, a ...any) error {
	return &engine.ConfigError{Field: field, Err: fmt.Errorf(format, a...)}
}

// checkPlaces checks what no engine can see: the places beside each other.
func checkPlaces(places []Place) error {
	if len(places) == 0 || len(places) > MaxPlaces {
		return wrong("Places", "%d of them, want 1 to %d", len(places), MaxPlaces)
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
			errs = append(errs, wrong(fmt.Sprintf("Places[%d].Pool", i), "nil"))
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

// Definition is as that of [engine.Engine].
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

// FromContext returns the cluster in which this step runs, nil outside of a step of a cluster. By
// it a step inserts and signals at any place; [engine.FromContext] returns the engine of the step's
// own place.
func FromContext(ctx context.Context) *Cluster {
	c, _ := ctx.Value(clusterKey{}).(*Cluster)
	return c
}

var (
	_ fsm.ParkedReader = (*Cluster)(nil)
	_ fsm.Lister       = (*Cluster)(nil)
	_ fsm.Definer      = (*Cluster)(nil)
)
