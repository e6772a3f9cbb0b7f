// Package durabletest tests machines without sleeping. It uses a real Postgres and production's
// claim, executor and commit, but runs one step at a time, and only when the test says so.
//
//	machines := []fsm.Definition{checkout{shop}.Definition()}
//	kit := durabletest.New(t, durabletest.Config{Machines: machines})
//	id, err := kit.Engine.Insert(t.Context(), Checkout.New(Order{ID: 42}))
//	…
//	durabletest.RequireDrain(t, kit)                 // everything that can run, runs
//	durabletest.RequireParked(t, kit, id, "paid")
//	durabletest.RequireAdvance(t, kit, 24*time.Hour) // and so does all that becomes due in a day
//	durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "not paid")
//
// [New] gives each test its own migrated database, within milliseconds, so tests may be parallel.
// [RunStep] runs one step without any database.
//
// The package imports package testing, so only tests should import it.
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
	"github.com/gendurable/gendurable/internal/byhand"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/work"
)

// Config configures a Kit. With the zero value, the kit has no machines, and uses the server that
// the environment names, or else one of the process's own.
type Config struct {
	// Machines are the definitions that the kit can run. As in production, it leaves instances of
	// other machines alone; [Drained.Unknown] names those machines.
	Machines []fsm.Definition
	// DatabaseURL names the server, by any database on it that the role may connect to. If it is "",
	// the server comes from Pool; without Pool, the one that GENDURABLE_TEST_URL names, or else
	// DATABASE_URL, or else a throwaway server that the first kit of a process starts for all of them
	// (see [StartServer]). The role needs the right to create databases, or else to create schemas.
	DatabaseURL string
	// Pool names the server by a pool of the host. The kit copies its configuration and uses none of
	// its connections.
	Pool *pgxpool.Pool
	// Schema is the Postgres schema of the engine's tables; "": "gendurable". In InSchema mode the kit
	// chooses the name.
	Schema string
	// InSchema makes a schema per test, in the database that DatabaseURL or Pool names, instead of a
	// database per test. It is slower, since each schema is migrated anew, and all tests share the
	// host's own tables. It is the default where the role may not create databases.
	InSchema bool
	// MaxConns bounds the connections of the kit's pool; 0: [DefaultMaxConns] (4). A step that runs in
	// engine.InTx takes one, and each open transaction of the test another.
	MaxConns int32
	// Setup prepares the host's own tables in the new database, e.g. by its migrations. The kit closes
	// the pool afterwards. Nil does nothing.
	Setup func(ctx context.Context, pool *pgxpool.Pool) error
	// Calendar is the time at which the calendar of the schedules begins; see [Kit.Advance]. Zero:
	// now.
	Calendar time.Time
	// Options changes the engine's Config, e.g. its codec, limits or middleware. If it sets Queues,
	// the kit drains only these, else all. The kit itself sets Pool, Driver, Schema and Machines, and
	// never runs ahead: one claim is one step. Nil changes nothing.
	Options func(c *engine.Config)
}

// DefaultMaxConns is the default of Config.MaxConns.
const DefaultMaxConns = 4

// Kit is an engine on its own database that runs only when its methods are called. The methods may
// be called from several goroutines, and run one after the other. A step must not call them.
type Kit struct {
	// Engine is for the code under test: it inserts, signals and reads, and counts as started. Its
	// Wait returns only for an instance that has ended, or that another goroutine drains.
	Engine *engine.Engine
	// Pool connects to the kit's database. The end of the test closes it.
	Pool *pgxpool.Pool

	hand   *work.Hand
	schema string
	queues map[string]bool // nil: all

	mu    sync.Mutex // each method holds it while it works
	today time.Time  // the calendar of the schedules: only Advance moves it

	held    time.Time            // when the clock was held last, by the server's clock
	heldFor time.Time            // the same by this process's clock
	closed  map[string]time.Time // the keys of gates that were closed then, and until when

	noteM sync.Mutex
	notes []Ran // of the step that is running; the engine's hook writes them
}

// cleanupTimeout bounds the work after a test, whose own context has ended by then.
const cleanupTimeout = 30 * time.Second

// New makes a kit. If it cannot, it ends the test. The end of the test drops the database.
//
// The first test that needs it migrates a template database, whose name is gendurable_template_
// and a hash of the migrations; it stays on the server for later runs. All other databases are
// copies of it. The first New of a process also drops databases that killed tests have left
// behind, if they are an hour old. New is safe in parallel tests and packages.
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
	pools.Store(pool, true)
	t.Cleanup(func() {
		pools.Delete(pool)
		pool.Close()
	})
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
		// With a single process, a session for the keys' locks is not worth its connection.
		PartitionLock: engine.LockLease,
		Logger:        slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if c.Options != nil {
		c.Options(&config)
	}
	config.Pool, config.Driver, config.Schema, config.Machines = k.Pool, nil, k.schema, c.Machines
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
	k.today = k.today.UTC().Truncate(time.Microsecond) // the resolution of Postgres
	if k.Engine, k.hand, err = byhand.New(t.Context(), config, k.today); err != nil {
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

// note is the engine's hook: it records each step.
func (k *Kit) note(_ context.Context, e engine.StepEvent) {
	k.noteM.Lock()
	defer k.noteM.Unlock()
	k.notes = append(k.notes, Ran{Info: e.Instance, Outcome: e.Outcome, Took: e.Took, Err: e.Err})
}

// noted returns the recorded steps, and forgets them.
func (k *Kit) noted() []Ran {
	k.noteM.Lock()
	defer k.noteM.Unlock()
	notes := k.notes
	k.notes = nil
	return notes
}

// schedules returns the name of the engine's table in SQL.
func (k *Kit) schedules() string { return quoted(k.schema) + ".schedules" }

// windows returns the name of the table of windows in SQL.
func (k *Kit) windows() string { return quoted(k.schema) + ".windows" }

func (k *Kit) gates() string    { return quoted(k.schema) + ".gates" }
func (k *Kit) gateKeys() string { return quoted(k.schema) + ".gate_keys" }

// kept returns the name of the table of kept signals in SQL.
func (k *Kit) kept() string { return quoted(k.schema) + ".kept_signals" }

// instances returns the name of the engine's table in SQL.
func (k *Kit) instances() string { return quoted(k.schema) + ".gen_durable" }
