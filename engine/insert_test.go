package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestInsertWithEveryOption(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	machine := fsm.Declare[map[string]int, string]("elsewhere", fsm.Version(3), fsm.Initial("first"))
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	id, err := e.Insert(t.Context(), machine.New(map[string]int{"n": 1}).Step("second").Queue("q").Priority(-5).Key("k").
		Scope(fsm.ScopeAll).PartitionKey("p").At(at).Deadline(time.Hour).Label("customer", "7"))
	require.NoError(t, err, "though the machine is not registered here")
	i, err := machine.Get(t.Context(), e, fsm.Key("k"))
	require.NoError(t, err)
	require.True(t, i.EligibleAt.Equal(at))
	require.WithinDuration(t, time.Now(), i.InsertedAt, time.Minute)
	require.WithinDuration(t, i.InsertedAt.Add(time.Hour), i.Deadline, time.Minute)
	i.EligibleAt, i.InsertedAt, i.Deadline = time.Time{}, time.Time{}, time.Time{}
	require.Equal(t, fsm.Instance[map[string]int, string]{
		ID: id, Machine: "elsewhere", Version: 3, Step: "second", Queue: "q", Priority: -5, Status: fsm.StatusRunnable,
		State: map[string]int{"n": 1}, Key: "k", PartitionKey: "p", Labels: map[string]string{"customer": "7"},
	}, i)
}

func TestInsertOnAnOccupiedKey(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	id, err := e.Insert(t.Context(), echoes.New("a").Key("k"))
	require.NoError(t, err)
	_, err = e.Insert(t.Context(), echoes.New("b").Key("k"))
	require.ErrorIs(t, err, engine.ErrDuplicate)
	duplicate, ok := errors.AsType[*engine.DuplicateError](err)
	require.True(t, ok)
	require.Equal(t, engine.DuplicateError{Key: "k", Occupant: id}, *duplicate)
	require.ErrorContains(t, err, `holds "k"`)

	_, err = e.Insert(t.Context(), echoes.New("c").Key("k").Scope(fsm.ScopeNone))
	require.NoError(t, err, "a mark is no key")
}

func TestGetOrInsert(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	first, err := e.GetOrInsert(t.Context(), echoes.New("same").KeyFromState())
	require.NoError(t, err)
	require.False(t, first.Duplicate)
	again, err := e.GetOrInsert(t.Context(), echoes.New("same").KeyFromState())
	require.NoError(t, err)
	require.Equal(t, engine.Inserted{ID: first.ID, Duplicate: true}, again)
	other, err := e.GetOrInsert(t.Context(), echoes.New("other").KeyFromState())
	require.NoError(t, err)
	require.False(t, other.Duplicate)

	for field, spec := range map[string]fsm.Spec{"key": echoes.New("a"), "scope": echoes.New("a").Key("k").Scope(fsm.ScopeNone)} {
		_, err := e.GetOrInsert(t.Context(), spec)
		wrong, ok := errors.AsType[*engine.InsertError](err)
		require.True(t, ok, err)
		require.Equal(t, field, wrong.Field)
	}
}

func TestInsertManyInInputOrder(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	const n = 3000
	taken, err := e.Insert(t.Context(), echoes.New("").Key("key-7"))
	require.NoError(t, err)
	specs := make([]fsm.Spec, n)
	for i := range specs { // keys come in no order at all, some twice
		specs[i] = echoes.New(fmt.Sprint(i))
		if i%3 > 0 {
			specs[i] = specs[i].Key(fsm.Key(fmt.Sprintf("key-%d", i*7919%1500)))
		}
	}
	done, err := e.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	require.Len(t, done, n)
	holder := map[fsm.Key]fsm.ID{"key-7": taken}
	var last fsm.ID
	for i, d := range done {
		key := specs[i].Options().Key
		if occupant, occupied := holder[key]; occupied && key != "" {
			require.Equal(t, engine.Inserted{ID: occupant, Duplicate: true}, d, i)
			continue
		}
		holder[key] = d.ID
		require.False(t, d.Duplicate, i)
		require.Greater(t, d.ID, last, "ids in input order decide ties of the pick")
		last = d.ID
		if i%500 == 0 {
			got, err := echoes.Get(t.Context(), e, d.ID)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), got.State)
		}
	}

	none, err := e.InsertMany(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// Together they would be more than Postgres takes at once.
func TestInsertOfTooMuch(t *testing.T) {
	t.Parallel()
	e, pool := client(t, func(c *engine.Config) { c.Limits.OutcomeBytes = 1000 })
	spec := echoes.New(strings.Repeat("x", 400))
	_, err := e.InsertMany(t.Context(), []fsm.Spec{spec, spec})
	require.NoError(t, err)
	_, err = e.InsertMany(t.Context(), []fsm.Spec{spec, spec, spec})
	var wrong *engine.InsertError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, 2, wrong.Index)
	require.ErrorIs(t, err, engine.ErrTooLarge)
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable`).Scan(&rows))
	require.Equal(t, 2, rows)
}

func TestInsertOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	refusal := errors.New("no")
	e, pool := client(t, func(c *engine.Config) {
		c.Limits.PayloadBytes = 100
		c.Middleware = []engine.Middleware{{Insert: func(_ context.Context, s fsm.Spec) (fsm.Spec, error) {
			if s.State() == "refused" {
				return s, refusal
			}
			return s, nil
		}}}
	})
	good := echoes.New("good")
	numbers := fsm.Declare[float64, string]("numbers")
	for name, c := range map[string]struct {
		spec  fsm.Spec
		field string
		is    error
	}{
		"zero":               {fsm.Spec{}, "machine", nil},
		"bad machine":        {fsm.Declare[string, string]("").New(""), "machine", nil},
		"empty queue":        {good.Queue(""), "queue", nil},
		"empty key":          {good.Key(""), "key", nil},
		"long partition key": {good.PartitionKey(strings.Repeat("p", 513)), "partition_key", nil},
		"priority":           {good.Priority(40_000), "priority", nil},
		"negative delay":     {good.After(-1), "delay", nil},
		"far future":         {good.At(time.Now().AddDate(101, 0, 0)), "at", nil},
		"deadline":           {good.Deadline(-1), "deadline", nil},
		"label":              {good.Label("", ""), "labels", nil},
		"delay and time":     {good.After(time.Hour).At(time.Now()), "at", nil},
		"NaN":                {numbers.New(math.NaN()), "state", nil},
		"NUL":                {echoes.New("\x00"), "state", nil},
		"too large":          {echoes.New(strings.Repeat("x", 99)), "state", engine.ErrTooLarge},
		"middleware":         {echoes.New("refused"), "middleware", refusal},
	} {
		_, one := e.Insert(t.Context(), c.spec)
		_, many := e.InsertMany(t.Context(), []fsm.Spec{good, good, c.spec, good})
		_, found := e.GetOrInsert(t.Context(), c.spec)
		for index, err := range map[int]error{0: one, 2: many, -1: found} {
			wrong, ok := errors.AsType[*engine.InsertError](err)
			require.True(t, ok, "%s: %v", name, err)
			require.Equal(t, c.field, wrong.Field, name)
			require.Equal(t, max(index, 0), wrong.Index, name)
			require.ErrorContains(t, err, c.field)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		}
	}
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable`).Scan(&rows))
	require.Zero(t, rows)
}

func TestInsertMiddlewareInOrder(t *testing.T) {
	t.Parallel()
	prefix := func(p string) engine.Middleware {
		return engine.Middleware{Insert: func(_ context.Context, s fsm.Spec) (fsm.Spec, error) {
			return s.Queue(p + s.Options().Queue), nil
		}}
	}
	e, _ := client(t, func(c *engine.Config) { c.Middleware = []engine.Middleware{prefix("b."), {}, prefix("a.")} })
	id, err := e.Insert(t.Context(), echoes.New("x").Queue("q"))
	require.NoError(t, err)
	i, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "a.b.q", i.Queue)
}

// An inserted instance runs in the process of its insert at once, though its queues poll once an
// hour: by a nudge, and by the timer that a nudge sets.
func TestInsertNudges(t *testing.T) {
	t.Parallel()
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely)
	for _, spec := range []fsm.Spec{echoes.New("x"), echoes.New("x"), echoes.New("x").After(50 * time.Millisecond),
		echoes.New("x").At(time.Now().Add(50 * time.Millisecond))} {
		id, err := e.Insert(t.Context(), spec)
		require.NoError(t, err)
		_, err = echoes.Wait(within(t), e, id)
		require.NoError(t, err)
	}
}

// T92: with any search_path, and any objects in it.
func TestVerbsUnderAForeignSearchPath(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	_, err := pgtest.Pool(t, url).Exec(t.Context(), `CREATE TABLE gen_durable (id bigint); CREATE TABLE signals (id bigint)`)
	require.NoError(t, err)
	for _, path := range []string{"", "public", "pg_temp"} {
		pool := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
		e := working(t, pool, rarely)
		id, err := e.Insert(t.Context(), ticket.New("x").Key("k"))
		require.NoError(t, err)
		_, err = e.Signal(t.Context(), fsm.Key("k"), paid.With(1))
		require.NoError(t, err)
		_, err = ticket.Wait(within(t), e, id)
		require.NoError(t, err)
		n, err := e.Ent().Instance.Query().Count(t.Context())
		require.NoError(t, err)
		require.Positive(t, n)
		require.NoError(t, e.Stop(t.Context()))
	}
}

func TestAStepThatTheMachineLacksIsRefusedWhereItIsKnown(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	parents := fsm.Declare[string, string]("parents")
	nowhere := "nowhere" // no constant, which gendurable vet would know
	e := working(t, pool, func(c *engine.Config) {
		c.Queues = map[string]engine.Queue{"default": {}}
		c.Machines = []fsm.Definition{tickets(), parents.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.ScheduleChildren("start", v.State, ticket.New("a").Step(nowhere)), nil
			}))}
	})
	_, one := e.Insert(t.Context(), ticket.New("a").Step(nowhere))
	_, many := e.InsertMany(t.Context(), []fsm.Spec{ticket.New("a").Step("issue"), ticket.New("a").Step(nowhere)})
	for index, err := range []error{one, many} {
		wrong, ok := errors.AsType[*engine.InsertError](err)
		require.True(t, ok, err)
		require.Equal(t, "step", wrong.Field)
		require.Equal(t, index, wrong.Index)
		require.ErrorContains(t, err, `no step "nowhere", only ["issue" "start"]`)
	}
	id, err := e.Insert(t.Context(), parents.New(""))
	require.NoError(t, err)
	ended, err := e.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, fsm.FailureError, ended.Failure, "the handler gets an outcome that spawns into nowhere")
	require.Contains(t, ended.LastError, `no step "nowhere"`)

	_, err = e.Insert(t.Context(), fsm.Declare[string, string]("ticket", fsm.Version(2)).New("a").Step(nowhere))
	require.NoError(t, err, "another process may know that version")
	clerk := open(t, pool)
	_, err = clerk.Insert(t.Context(), ticket.New("a").Step(nowhere))
	require.NoError(t, err, "a client knows no steps")

	_, err = engine.New(engine.Config{Pool: pool, Machines: []fsm.Definition{tickets()},
		Schedules: []engine.Schedule{engine.Every("daily", 24*time.Hour, ticket.New("a").Step(nowhere))}})
	wrong, ok := errors.AsType[*engine.ConfigError](err)
	require.True(t, ok, err)
	require.Equal(t, "Schedules[daily].Spec", wrong.Field)
}
