// Package durabletest tests machines without sleeping: on a real Postgres, by the claim, the executor and the commit of production, but one
// step at a time and only when the test says so.
//
//	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{checkout{shop}.Definition()}})
//	id, err := kit.Engine.Insert(t.Context(), Checkout.New(Order{ID: 42}))
//	…
//	durabletest.RequireDrain(t, kit)                     // everything that can run, runs
//	durabletest.RequireParked(t, kit, id, "paid")
//	durabletest.RequireAdvance(t, kit, 24*time.Hour)     // and so does what is due within a day, in order
//	durabletest.RequireFailed(t, kit, id, fsm.FailureStopped, "not paid")
//
// [New] gives each test a migrated database of its own, within milliseconds, so tests may be parallel. [RunStep] runs one step without any
// database.
//
// It imports package testing, so only tests should import it.
package durabletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/worker"
)

// Config of a Kit. The zero value is a kit without machines, on the server that the environment names
// or else on one of the process's own.
type Config struct {
	// Machines that the kit can run. Instances of others are left alone, as in production, and named in [Drained.Unknown].
	Machines []fsm.Definition
	// DatabaseURL is the server, by any database on it that the role may connect to. Empty: that of
	// Pool; without Pool, what GENDURABLE_TEST_URL says, or else DATABASE_URL, or else a throwaway
	// server that the first kit of a process starts for all of them (see [StartServer]). The role has
	// to own CREATEDB, or else the right to create schemas.
	DatabaseURL string
	// Pool is the server by a pool of the host: its configuration is taken, none of its connections is.
	Pool *pgxpool.Pool
	// Schema of Postgres for the engine's tables: "gendurable". In InSchema mode the kit names it.
	Schema string
	// InSchema makes a schema per test, in the database that DatabaseURL or Pool names, instead of a database per test. It is slower, since
	// each is migrated anew, and the host's own tables are then shared by all tests. Where the role may not create databases it is the
	// default.
	InSchema bool
	// MaxConns of the kit's pool: 4. A step that runs in engine.InTx takes one, each open transaction of the test another.
	MaxConns int32
	// Setup prepares the host's own tables in the new database, e.g. by its migrations, on a pool that is closed afterwards. Nil: nothing.
	Setup func(ctx context.Context, pool *pgxpool.Pool) error
	// Calendar is the time at which the calendar begins that schedules go by; see [Kit.Advance]. Zero: now.
	Calendar time.Time
	// Options change the engine's Config, e.g. its codec, limits or middleware. With Queues, nothing but these is drained; else all are.
	// Pool, Schema and Machines are the kit's, and there is no run-ahead: one claim is one step. Nil: nothing.
	Options func(c *engine.Config)
}

// DefaultMaxConns is Config.MaxConns unless given.
const DefaultMaxConns = 4

// Kit is an engine on a database of its own that does nothing by itself. Its methods may be called from several goroutines, and run one
// after the other; not from a step.
type Kit struct {
	// Engine is for whatever production code is given one: it inserts, signals, reads, and counts as started. Its Wait returns only for what
	// has ended, or what another goroutine drains.
	Engine *engine.Engine
	// Pool is on the kit's database, and closed at the end of the test.
	Pool *pgxpool.Pool

	hand   *worker.Hand
	schema string
	queues map[string]bool // nil: all

	mu    sync.Mutex // held by whoever works
	today time.Time  // by the calendar that schedules go by: only Advance moves it
	noteM sync.Mutex
	notes []Ran // of the step under way: the engine's hook writes them
}

// cleanupTimeout bounds what is done after a test, whose own context has ended by then.
const cleanupTimeout = 30 * time.Second

// New makes a kit, and ends the test where it cannot. The database is dropped when the test ends.
//
// The first test that needs one migrates a template, gendurable_template_ and a hash of the migrations; it stays on the server for later
// runs. All others are copies of it. It drops databases that killed tests have left behind, once they are an hour old. New is safe in
// parallel tests and packages.
func New(t testing.TB, c Config) *Kit {
	t.Helper()
	kit, err := open(t, c)
	if err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	return kit
}

func open(t testing.TB, c Config) (*Kit, error) {
	t.Helper()
	place, err := settle(t, c)
	if err != nil {
		return nil, err
	}
	if c.Setup != nil {
		if err := setup(t.Context(), place.config, c.Setup); err != nil {
			return nil, err
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), place.config)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	t.Cleanup(pool.Close)
	kit := &Kit{Pool: pool, schema: place.schema}
	if err := kit.start(t, c); err != nil {
		return nil, err
	}
	return kit, nil
}

func setup(ctx context.Context, at *pgxpool.Config, f func(ctx context.Context, pool *pgxpool.Pool) error) error {
	pool, err := pgclone.Plain(ctx, at)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := f(ctx, pool); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

func (k *Kit) start(t testing.TB, c Config) error {
	t.Helper()
	config := engine.Config{
		// No session is worth its connection where there is one process.
		PartitionLock: engine.LockLease,
		Logger:        slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if c.Options != nil {
		c.Options(&config)
	}
	config.Pool, config.Schema, config.Machines = k.Pool, k.schema, c.Machines
	config.Hooks = append(slices.Clip(config.Hooks), engine.Hooks{Step: k.note})
	if len(config.Queues) > 0 {
		k.queues = map[string]bool{}
		for name := range config.Queues {
			k.queues[name] = true
		}
	}
	var err error
	if k.today = c.Calendar; k.today.IsZero() {
		k.today = time.Now()
	}
	k.today = k.today.UTC().Truncate(time.Microsecond) // what Postgres resolves
	if k.Engine, k.hand, err = engine.ByHand(t.Context(), config, k.today); err != nil {
		return err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := k.Engine.Stop(ctx); err != nil {
			t.Errorf("durabletest: %v", err)
		}
	})
	return nil
}

// note is the engine's hook.
func (k *Kit) note(_ context.Context, e engine.StepEvent) {
	k.noteM.Lock()
	defer k.noteM.Unlock()
	k.notes = append(k.notes, Ran{Info: e.Instance, Outcome: e.Outcome, Took: e.Took, Err: e.Err})
}

// noted takes the notes.
func (k *Kit) noted() []Ran {
	k.noteM.Lock()
	defer k.noteM.Unlock()
	notes := k.notes
	k.notes = nil
	return notes
}

// schedules is the engine's table.
func (k *Kit) schedules() string { return quoted(k.schema) + ".schedules" }

// instances is the engine's table.
func (k *Kit) instances() string { return quoted(k.schema) + ".gen_durable" }
