// Package environments runs one scenario of all primitives in every environment that the engine
// supports: pgx's modes, a pooler of transactions, roles with their own settings, each of Postgres'
// versions ("make environments").
package environments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// environment is the surroundings of an engine.
type environment struct {
	url       string // what its pool connects to
	direct    string // the same database, as superuser
	schema    string // "": the default
	configure func(*pgxpool.Config)
	change    func(*engine.Config)
	expected  []string // words of complaints that are normal there
}

// scene is a run of the scenario.
type scene struct {
	t      *testing.T
	eng    *engine.Engine
	store  *store.Store  // on the engine's pool
	admin  *pgxpool.Pool // beside the environment
	schema string

	expected []string // see environment

	running atomic.Bool  // an instance of serial
	turn    atomic.Int64 // and which is next
}

// scenario runs every primitive in an environment: all outcomes, both addresses of signals, every
// sweep, every verb. A warning in the engine's log fails it, too: the engine does not support an
// environment that makes it repeat its work.
func scenario(t *testing.T, e environment) {
	t.Helper()
	if e.schema == "" {
		e.schema = engine.DefaultSchema
	}
	configure := e.configure
	if configure == nil {
		configure = func(*pgxpool.Config) {}
	}
	pool := pgtest.Pool(t, e.url, configure)
	watchdog := steady.Watch(t)
	s := &scene{t: t, admin: pgtest.Pool(t, e.direct), schema: e.schema, store: store.New(entpgx.New(pool), e.schema), expected: e.expected}
	log := &complaints{}
	c := engine.Config{
		Pool: pool, Schema: e.schema, Machines: s.definitions(),
		Queues: map[string]engine.Queue{"default": {Concurrency: 20, PollMin: 20 * time.Millisecond, PollMax: 100 * time.Millisecond}},
		Lease:  3 * time.Second, Heartbeat: 300 * time.Millisecond, Reap: 300 * time.Millisecond,
		Logger: slog.New(log),
	}
	if e.change != nil {
		e.change(&c)
	}
	var err error
	s.eng, err = engine.New(c)
	require.NoError(t, err)
	left := s.leftBehind()
	require.NoError(t, s.eng.Start(t.Context()))
	running := true
	t.Cleanup(func() {
		if running {
			_ = s.eng.Stop(context.Background())
		}
	})

	results := s.insert()
	s.signals()
	for id, want := range results {
		require.Equal(t, want, s.ended(id), "instance %d", id)
	}
	s.failures()
	s.keys()
	s.partition()
	s.untouched()
	s.reads()
	require.Equal(t, `""`, s.ended(left), "what the reaper found")
	running = false
	require.NoError(t, s.eng.Stop(context.Background()))
	s.collect()
	unexpected := log.unexpected(e.expected)
	if len(unexpected) > 0 {
		watchdog.SkipIfStood(c.Lease / 3)
	}
	require.Empty(t, unexpected, "the engine complained")
}

func (s *scene) table(name string) string { return pgx.Identifier{s.schema, name}.Sanitize() }

func quoted(text string) string { return fmt.Sprintf("%q", text) }

// leftBehind returns an instance whose worker is gone.
func (s *scene) leftBehind() (id fsm.ID) {
	s.t.Helper()
	require.NoError(s.t, s.admin.QueryRow(s.t.Context(), `INSERT INTO `+s.table("gen_durable")+`
		(fsm, step, state, status, locked_by, lease_expires_at)
		VALUES ('slow', 'start', '{}', 'executing', 'gone', now() - interval '1 hour') RETURNING id`).Scan(&id))
	return id
}

// insert inserts instances that end by themselves, and returns their expected results.
func (s *scene) insert() map[fsm.ID]string {
	s.t.Helper()
	results := map[fsm.ID]string{}
	for n := range tier.Pick(6, 20) {
		results[s.one(double.New(order{n, text}))] = quoted(fmt.Sprint(2*n, text))
	}
	results[s.one(stubborn.New(order{}))] = `"2"`
	results[s.one(counter.New(order{N: 30}))] = quoted(fmt.Sprint(31, text))
	results[s.one(family.New(order{N: 30}))] = `"31 1 1"`
	results[s.one(family.New(order{}).After(50*time.Millisecond).Priority(-3))] = `"1 1 1"`
	results[s.one(slow.New(order{}))] = `""`
	return results
}

func (s *scene) one(spec fsm.Spec) fsm.ID {
	s.t.Helper()
	id, err := s.eng.Insert(s.t.Context(), spec)
	require.NoError(s.t, err)
	return id
}

// signals sends signals by key and by id, to parked instances and others, once each.
func (s *scene) signals() {
	s.t.Helper()
	const key = fsm.Key("order: " + text)
	parked := s.one(patient.New(order{}).Key(key))
	s.until(parked, fsm.StatusAwaitingSignal)
	s.signal(key, piece.With(1)) // nobody awaits this one
	require.False(s.t, s.signal(key, paid.With(order{7, text}).DedupKey(text)).Duplicate)
	require.Equal(s.t, quoted(fmt.Sprint("true 0 1", text)), s.ended(parked))
	_, err := s.eng.Signal(s.t.Context(), key, paid.With(order{}))
	require.ErrorIs(s.t, err, engine.ErrNoTarget)

	const pieces = 10
	set := s.one(puzzle.New(order{N: pieces}))
	for n := range pieces {
		m := piece.With(n).DedupKey(fmt.Sprint("piece ", n))
		require.False(s.t, s.signal(set, m).Duplicate)
		if n < pieces-1 { // the last one ends it
			require.True(s.t, s.signal(set, m).Duplicate)
		}
	}
	require.Equal(s.t, quoted(fmt.Sprint(pieces, pieces*(pieces-1)/2)), s.ended(set))
}

func (s *scene) signal(to fsm.Target, m fsm.Message) engine.Delivery {
	s.t.Helper()
	d, err := s.eng.Signal(s.t.Context(), to, m)
	require.NoError(s.t, err)
	return d
}

// failures checks that failed instances show their reason.
func (s *scene) failures() {
	s.t.Helper()
	_, err := hopeless.Wait(s.t.Context(), s.eng, s.one(hopeless.New(order{})))
	var failed *fsm.FailedError
	require.ErrorAs(s.t, err, &failed)
	require.Equal(s.t, "hopeless: "+text, failed.Message)
}

// keys checks that occupied keys are reported, with their occupants.
func (s *scene) keys() {
	s.t.Helper()
	const key = fsm.Key("kept: " + text)
	first := s.one(double.New(order{}).Key(key).Scope(fsm.ScopeAll))
	again, err := s.eng.GetOrInsert(s.t.Context(), double.New(order{}).Key(key))
	require.NoError(s.t, err)
	require.Equal(s.t, engine.Inserted{ID: first, Duplicate: true}, again)
	many, err := s.eng.InsertMany(s.t.Context(), []fsm.Spec{
		double.New(order{}), double.New(order{}).Key(key), double.New(order{}).Key("fresh"), double.New(order{}).Key("fresh"),
	})
	require.NoError(s.t, err)
	require.Equal(s.t, []bool{false, true, false, true},
		[]bool{many[0].Duplicate, many[1].Duplicate, many[2].Duplicate, many[3].Duplicate})
	require.Equal(s.t, many[2].ID, many[3].ID)
	_, err = s.eng.Insert(s.t.Context(), double.New(order{}).Key(key))
	require.ErrorIs(s.t, err, engine.ErrDuplicate)
}

// partition checks that the instances of a key run one at a time, in order.
func (s *scene) partition() {
	s.t.Helper()
	specs := make([]fsm.Spec, tier.Pick(6, 20))
	for n := range specs {
		specs[n] = serial.New(order{N: n}).PartitionKey(text)
	}
	inserted, err := s.eng.InsertMany(s.t.Context(), specs)
	require.NoError(s.t, err)
	for _, i := range inserted {
		s.ended(i.ID)
	}
}

// untouched checks that an instance of a machine that no engine has waits.
func (s *scene) untouched() {
	s.t.Helper()
	aside := s.one(foreign.New(order{}).Priority(-9))
	steady.Eventually(s.t, func() bool {
		var lane int
		return s.admin.QueryRow(s.t.Context(), `SELECT pick_lane FROM `+s.table("gen_durable")+` WHERE id = $1`, aside).Scan(&lane) == nil && lane == 2
	})
	i, err := s.eng.Get(s.t.Context(), aside)
	require.NoError(s.t, err)
	require.Equal(s.t, fsm.StatusRunnable, i.Status)
	require.Zero(s.t, i.Attempt)
}

// patiently repeats calls that set no timeout, and that no engine repeats: one of 50 ms may pass on
// a busy machine.
func (s *scene) patiently(do func() error) {
	s.t.Helper()
	var err error
	steady.Eventually(s.t, func() bool {
		err = do()
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "57014" {
			return false
		}
		return err == nil || !slices.ContainsFunc(s.expected, func(words string) bool { return strings.Contains(err.Error(), words) })
	})
	require.NoError(s.t, err)
}

// reads reads through ent.
func (s *scene) reads() {
	s.t.Helper()
	var all []*ent.Instance
	s.patiently(func() (err error) {
		all, err = s.eng.Ent().Instance.Query().All(s.t.Context())
		return err
	})
	failed := 0
	for _, i := range all {
		require.NotZero(s.t, i.InsertedAt)
		if i.Status == fsm.StatusFailed {
			failed++
		}
	}
	require.Equal(s.t, 3, failed, "the hopeless, alone and as two children")
	s.patiently(func() error {
		_, err := s.eng.Ent().Signal.Query().All(s.t.Context())
		return err
	})
}

// collect checks that GC leaves live instances alone.
func (s *scene) collect() {
	s.t.Helper()
	var gone store.Pruned
	s.patiently(func() (err error) {
		gone, err = s.store.Prune(s.t.Context(), store.PruneParams{Done: time.Microsecond, Failed: time.Microsecond, Tombstones: 1, Limit: 7})
		return err
	})
	require.Empty(s.t, gone.Refused)
	var rows, signals int
	require.NoError(s.t, s.admin.QueryRow(s.t.Context(), `SELECT (SELECT count(*) FROM `+s.table("gen_durable")+`),
		(SELECT count(*) FROM `+s.table("signals")+`)`).Scan(&rows, &signals))
	require.Equal(s.t, []int{1, 0}, []int{rows, signals}, "the foreign one")
}

// ended waits until an instance is done, and returns its result.
func (s *scene) ended(id fsm.ID) string {
	s.t.Helper()
	ctx, cancel := steady.Context(s.t)
	defer cancel()
	i, err := s.eng.Wait(ctx, id)
	require.NoError(s.t, err, "instance %d", id)
	require.Equal(s.t, fsm.StatusDone, i.Status, "instance %d: %s", id, i.LastError)
	return string(i.Result)
}

func (s *scene) until(id fsm.ID, want fsm.Status) {
	s.t.Helper()
	steady.Eventually(s.t, func() bool {
		i, err := s.eng.Get(s.t.Context(), id)
		return err == nil && i.Status == want
	}, "instance %d never became %s", id, want)
}
