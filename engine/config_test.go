package engine_test

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// nowhere is a pool that nothing connects: New does not touch the database.
func nowhere(t *testing.T, conns int32) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/nothing")
	require.NoError(t, err)
	c.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func configFaults(t *testing.T, err error) (fields []string) {
	t.Helper()
	require.Error(t, err)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, err)
	for _, fault := range joined.Unwrap() {
		wrong, ok := errors.AsType[*engine.ConfigError](fault)
		require.True(t, ok, fault)
		require.ErrorContains(t, fault, wrong.Field)
		fields = append(fields, wrong.Field)
	}
	return fields
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c := engine.Config{Queues: map[string]engine.Queue{"q": {}}}.WithDefaults()
	require.Equal(t, engine.Config{
		Schema: "gendurable",
		Queues: map[string]engine.Queue{"q": {
			Concurrency: 10 * runtime.GOMAXPROCS(0), PollMin: 250 * time.Millisecond, PollMax: time.Second,
		}},
		Lease: time.Minute, Heartbeat: 20 * time.Second, Reap: 30 * time.Second, RetainDone: 24 * time.Hour, RetainFailed: 24 * time.Hour, RetainCancelled: 24 * time.Hour,
		History: fsm.KeepNothing, RetainHistory: 90 * 24 * time.Hour,
		DrainTimeout: 30 * time.Second, DrainGrace: 5 * time.Second, RunAheadSteps: 100, RunAheadFor: time.Second,
		PartitionLock: engine.LockAdvisory,
		Limits: engine.Limits{PayloadBytes: 1 << 20, OutcomeBytes: 256 << 20, AwaitNames: 1000, Inbox: 10_000, AwaitedBytes: 16 << 20,
			Children: 20_000, ChildrenBytes: 256 << 20, Depth: 100},
		Codec: fsm.JSON{}, Logger: slog.Default(),
	}, c)

	c = engine.Config{Lease: 6 * time.Second}.WithDefaults()
	require.Equal(t, 2*time.Second, c.Heartbeat)
	require.Equal(t, 3*time.Second, c.Reap)
	require.Equal(t, time.Minute, engine.Config{Queues: map[string]engine.Queue{"q": {PollMin: time.Minute}}}.WithDefaults().Queues["q"].PollMax)
}

func TestConfigDefaultsAreACopy(t *testing.T) {
	t.Parallel()
	given := engine.Config{Queues: map[string]engine.Queue{"q": {}}}
	given.WithDefaults()
	require.Equal(t, engine.Config{Queues: map[string]engine.Queue{"q": {}}}, given)
}

// A field that was not set is not blamed: each field alone, too small and too large.
func TestConfigFaultsNameWhatWasSet(t *testing.T) {
	t.Parallel()
	pool := nowhere(t, 2)
	for field, set := range map[string]func(c *engine.Config, d time.Duration){
		"Lease":           func(c *engine.Config, d time.Duration) { c.Lease = d },
		"RetainFailed":    func(c *engine.Config, d time.Duration) { c.RetainFailed = d },
		"RetainDone":      func(c *engine.Config, d time.Duration) { c.RetainDone = d },
		"RetainCancelled": func(c *engine.Config, d time.Duration) { c.RetainCancelled = d },
		"Reap":            func(c *engine.Config, d time.Duration) { c.Reap = d },
		"Queues[q].PollMin": func(c *engine.Config, d time.Duration) {
			c.Queues = map[string]engine.Queue{"q": {PollMin: d}}
		},
		"Queues[q].PollMax": func(c *engine.Config, d time.Duration) {
			c.Queues = map[string]engine.Queue{"q": {PollMax: d}}
		},
	} {
		for _, d := range []time.Duration{-time.Hour, -1, 1, time.Millisecond, 2 * time.Millisecond, time.Second, 24 * time.Hour, 1<<63 - 1} {
			c := engine.Config{Pool: pool, Machines: []fsm.Definition{jobs("ping")}, Queues: map[string]engine.Queue{"q": {}}}
			set(&c, d)
			_, err := engine.New(c)
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, one := range joined.Unwrap() {
					var bad *engine.ConfigError
					require.ErrorAs(t, one, &bad)
					require.Equal(t, field, bad.Field, "%v: %v", d, one)
				}
			} else {
				require.NoError(t, err)
			}
		}
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	ping := jobs("ping")
	for name, c := range map[string]struct {
		change func(c *engine.Config)
		field  string
		text   string
	}{
		"no pool":              {func(c *engine.Config) { c.Pool = nil }, "Pool", "nil"},
		"small pool":           {func(c *engine.Config) { c.Pool = nowhere(t, 1) }, "Pool", "MaxConns is 1, at least 2"},
		"long schema":          {func(c *engine.Config) { c.Schema = strings.Repeat("s", 64) }, "Schema", "at most 63"},
		"schema with NUL":      {func(c *engine.Config) { c.Schema = "s\x00" }, "Schema", "text"},
		"Postgres' schema":     {func(c *engine.Config) { c.Schema = "pg_mine" }, "Schema", "pg_"},
		"negative lease":       {func(c *engine.Config) { c.Lease, c.Heartbeat, c.Reap = -1, 1e6, 1e6 }, "Lease", "negative"},
		"tiny lease":           {func(c *engine.Config) { c.Lease, c.Heartbeat, c.Reap = 1, 1e6, 1e6 }, "Lease", "at least 1ms"},
		"endless lease":        {func(c *engine.Config) { c.Lease = 1<<63 - 1 }, "Lease", "100 years"},
		"negative heartbeat":   {func(c *engine.Config) { c.Heartbeat = -1 }, "Heartbeat", "negative"},
		"slow heartbeat":       {func(c *engine.Config) { c.Heartbeat = 20*time.Second + 1 }, "Heartbeat", "a third of Lease (1m0s)"},
		"negative reap":        {func(c *engine.Config) { c.Reap = -1 }, "Reap", "negative"},
		"negative done":        {func(c *engine.Config) { c.RetainDone = -1 }, "RetainDone", "negative"},
		"negative cancelled":   {func(c *engine.Config) { c.RetainCancelled = -1 }, "RetainCancelled", "negative"},
		"negative failed":      {func(c *engine.Config) { c.RetainFailed = -1 }, "RetainFailed", "negative"},
		"negative drain":       {func(c *engine.Config) { c.DrainTimeout = -1 }, "DrainTimeout", "negative"},
		"negative grace":       {func(c *engine.Config) { c.DrainGrace = -1 }, "DrainGrace", "negative"},
		"negative run-ahead":   {func(c *engine.Config) { c.RunAheadFor = -1 }, "RunAheadFor", "negative"},
		"negative steps":       {func(c *engine.Config) { c.RunAheadSteps = -1 }, "RunAheadSteps", "negative; 1 is off"},
		"unknown lock":         {func(c *engine.Config) { c.PartitionLock = "none" }, "PartitionLock", `"none", want "advisory" or "lease"`},
		"negative payload":     {func(c *engine.Config) { c.Limits.PayloadBytes = -1 }, "Limits.PayloadBytes", "negative"},
		"huge payload":         {func(c *engine.Config) { c.Limits.PayloadBytes = 1 << 28 }, "Limits.PayloadBytes", "at most 268435455"},
		"huge outcome":         {func(c *engine.Config) { c.Limits.OutcomeBytes = 1<<29 + 1 }, "Limits.OutcomeBytes", "at most 536870912"},
		"too many names":       {func(c *engine.Config) { c.Limits.AwaitNames = 100_001 }, "Limits.AwaitNames", "at most 100000"},
		"negative names":       {func(c *engine.Config) { c.Limits.AwaitNames = -1 }, "Limits.AwaitNames", "negative"},
		"negative inbox":       {func(c *engine.Config) { c.Limits.Inbox = -1 }, "Limits.Inbox", "negative"},
		"negative children":    {func(c *engine.Config) { c.Limits.Children = -1 }, "Limits.Children", "negative"},
		"negative depth":       {func(c *engine.Config) { c.Limits.Depth = -1 }, "Limits.Depth", "negative"},
		"too deep":             {func(c *engine.Config) { c.Limits.Depth = 101 }, "Limits.Depth", "at most 100"},
		"empty queue":          {queue("", engine.Queue{}), "Queues[]", "empty"},
		"long queue":           {queue(strings.Repeat("q", 513), engine.Queue{}), "Queues[" + strings.Repeat("q", 80) + "]", "at most 512"},
		"queue of bad text":    {queue("\xff", engine.Queue{}), "Queues[\xff]", "text"},
		"negative concurrency": {queue("q", engine.Queue{Concurrency: -1}), "Queues[q].Concurrency", "negative"},
		"negative buffer":      {queue("q", engine.Queue{Buffer: -1}), "Queues[q].Buffer", "negative; 0 is adaptive"},
		"negative poll min":    {queue("q", engine.Queue{PollMin: -1}), "Queues[q].PollMin", "negative"},
		"negative poll max":    {queue("q", engine.Queue{PollMax: -1}), "Queues[q].PollMax", "negative"},
		"tiny poll":            {queue("q", engine.Queue{PollMin: 1}), "Queues[q].PollMin", "at least 1ms"},
		"poll upside down":     {queue("q", engine.Queue{PollMin: 2e9, PollMax: 1e9}), "Queues[q].PollMin", "at most PollMax (1s)"},
		"queues, no machines":  {func(c *engine.Config) { c.Machines = nil }, "Machines", "none, but Queues are set"},
		"nil machine":          {func(c *engine.Config) { c.Machines = append(c.Machines, nil) }, "Machines[1]", "nil"},
		"machine twice":        {func(c *engine.Config) { c.Machines = append(c.Machines, jobs("m"), ping, ping) }, "Machines[3]", `"ping" version 1 is Machines[2] already`},
		"faulty machine":       {func(c *engine.Config) { c.Machines = append(c.Machines, jobs("")) }, "Machines[1].name", "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := engine.Config{
				Pool: nowhere(t, 2), Machines: []fsm.Definition{jobs("m0")}, Queues: map[string]engine.Queue{"default": {}},
			}
			_, err := engine.New(config)
			require.NoError(t, err)
			c.change(&config)
			e, err := engine.New(config)
			require.Nil(t, e)
			require.Equal(t, []string{c.field}, configFaults(t, err))
			require.ErrorContains(t, err, c.text)
		})
	}
}

func queue(name string, q engine.Queue) func(*engine.Config) {
	return func(c *engine.Config) { c.Queues[name] = q }
}

func jobs(name string) fsm.Definition {
	return fsm.Declare[string, string](name).Job(echo)
}

func TestConfigFaultsAreJoined(t *testing.T) {
	t.Parallel()
	_, err := engine.New(engine.Config{
		Lease: -1, Machines: []fsm.Definition{nil, jobs("")},
		Queues: map[string]engine.Queue{"a": {Buffer: -1}, "b": {Concurrency: -1}},
	})
	require.Subset(t, configFaults(t, err), []string{"Pool", "Lease", "Machines[0]", "Machines[1].name", "Queues[a].Buffer", "Queues[b].Concurrency"})
	_, ok := errors.AsType[*fsm.DefinitionError](err)
	require.True(t, ok)
}

func TestConfigOfAClient(t *testing.T) {
	t.Parallel()
	_, err := engine.New(engine.Config{Pool: nowhere(t, 1)})
	require.NoError(t, err)
}
