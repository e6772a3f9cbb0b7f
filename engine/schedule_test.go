package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestScheduleFaults(t *testing.T) {
	t.Parallel()
	spec := echoes.New("hello")
	for name, c := range map[string]struct {
		schedule engine.Schedule
		field    string
		text     string
	}{
		"zero":               {engine.Schedule{}, "Schedules[0]", "the zero Schedule: make it by Cron or Every"},
		"long name":          {engine.Cron(strings.Repeat("n", 257), "@daily", spec), "Schedules[nnnn", "257 bytes, at most 256"},
		"name with NUL":      {engine.Cron("a\x00", "@daily", spec), "Schedules[a\x00]", "not a text"},
		"bad cron":           {engine.Cron("x", "0 24 * * *", spec), "Schedules[x].Expression", "hour, at position 3: 24, want 0 to 23"},
		"never":              {engine.Cron("x", "0 0 31 2 *", spec), "Schedules[x].Expression", "never comes"},
		"short interval":     {engine.Every("x", 999*time.Millisecond, spec), "Schedules[x].Expression", "999ms, at least 1s"},
		"no interval":        {engine.Every("x", 0, spec), "Schedules[x].Expression", "0s, at least 1s"},
		"negative interval":  {engine.Every("x", -time.Minute, spec), "Schedules[x].Expression", "at least 1s"},
		"broken interval":    {engine.Every("x", 1500*time.Millisecond, spec), "Schedules[x].Expression", "whole seconds"},
		"long interval":      {engine.Every("x", 1<<63-1, spec), "Schedules[x].Expression", "at most 100 years"},
		"unknown zone":       {engine.Cron("x", "@daily", spec).In("Mars/Olympus"), "Schedules[x].In", `"Mars/Olympus": no such time zone`},
		"local zone":         {engine.Cron("x", "@daily", spec).In("Local"), "Schedules[x].In", "IANA"},
		"no zone":            {engine.Cron("x", "@daily", spec).In(""), "Schedules[x].In", "IANA"},
		"catch-up":           {engine.Cron("x", "@daily", spec).CatchUp("some"), "Schedules[x].CatchUp", `"some", want "none", "latest" or "all"`},
		"overlap":            {engine.Cron("x", "@daily", spec).Overlap("some"), "Schedules[x].Overlap", `want "allow" or "skip"`},
		"negative jitter":    {engine.Cron("x", "@daily", spec).Jitter(-1), "Schedules[x].Jitter", "want 0 to 24h"},
		"long jitter":        {engine.Cron("x", "@daily", spec).Jitter(25 * time.Hour), "Schedules[x].Jitter", "25h0m0s"},
		"key":                {engine.Cron("x", "@daily", spec.Key("k")), "Schedules[x].Spec", "key"},
		"delay":              {engine.Cron("x", "@daily", spec.After(time.Second)), "Schedules[x].Spec", "delay"},
		"policy":             {engine.Cron("x", "@daily", spec.OnConflict(fsm.ConflictNewest)), "Schedules[x].Spec", "Overlap"},
		"window":             {engine.Cron("x", "@daily", spec.Throttle("w", time.Hour)), "Schedules[x].Spec", "Overlap"},
		"time":               {engine.Cron("x", "@daily", spec.At(time.Now())), "Schedules[x].Spec", "time"},
		"no machine":         {engine.Cron("x", "@daily", fsm.Spec{}), "Schedules[x].Spec", "machine"},
		"bad priority":       {engine.Cron("x", "@daily", spec.Priority(1<<20)), "Schedules[x].Spec", "1048576"},
		"state not encoded":  {engine.Cron("x", "@daily", fsm.Declare[chan int, int]("m").New(nil)), "Schedules[x].Spec", "chan int"}, //gendurable:ignore stored the fault is what this tests
		"state is too large": {engine.Cron("x", "@daily", echoes.New(strings.Repeat("x", 2<<20))), "Schedules[x].Spec", "at most 1048576"},
	} {
		_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Schedules: []engine.Schedule{c.schedule}})
		require.Error(t, err, name)
		fields := configFaults(t, err)
		require.Conditionf(t, func() bool {
			for _, f := range fields {
				if strings.HasPrefix(f, c.field) {
					return true
				}
			}
			return false
		}, "%s: %v", name, fields)
		require.ErrorContains(t, err, c.text, name)
	}
	_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Schedules: []engine.Schedule{engine.Cron("x", "@daily", spec), engine.Every("x", time.Hour, spec)}})
	require.Equal(t, []string{"Schedules[x]"}, configFaults(t, err))

	_, err = engine.New(engine.Config{Pool: nowhere(t, 2), Schedules: []engine.Schedule{engine.Cron("x", "0 3 * * tuesday", spec)}})
	wrong, ok := errors.AsType[*engine.CronError](err)
	require.True(t, ok)
	require.Equal(t, 9, wrong.Position)
	require.Equal(t, "weekday", wrong.Field)
}

func TestScheduleMethodsCopy(t *testing.T) {
	t.Parallel()
	s := engine.Cron("x", "@daily", echoes.New("hello"))
	s.In("Mars/Olympus").CatchUp("?").Overlap("?").Jitter(-1)
	_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Schedules: []engine.Schedule{s}})
	require.NoError(t, err)
}

// Nobody calls anything: it is due, fires and runs.
func TestASchedulesInstancesRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	var ran = make(chan string, 100)
	e := working(t, pool, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(func(_ context.Context, text string) (string, error) {
			ran <- text
			return text, nil
		})}
		c.Queues = map[string]engine.Queue{"default": {}}
		c.Schedules = []engine.Schedule{engine.Every("pulse", time.Second, echoes.New("hello"))}
	})
	for range 3 {
		select {
		case text := <-ran:
			require.Equal(t, "hello", text)
		case <-time.After(20 * time.Second):
			t.Fatal("it does not run")
		}
	}
	page, err := e.Admin().Schedules(t.Context(), engine.ScheduleQuery{})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), page.Schedules[0].Last, 10*time.Second)
}

// A process that stands still while it fires holds its schedule. Others start beside it: at once if
// they declare the stored schedules, and else they store the changed ones as soon as they can.
func TestStartWhileSomebodyHoldsASchedule(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	every := func(d time.Duration) func(*engine.Config) {
		return func(c *engine.Config) {
			c.Machines = []fsm.Definition{echoes.Job(func(_ context.Context, text string) (string, error) { return text, nil })}
			c.Queues = map[string]engine.Queue{"default": {}}
			c.Schedules = []engine.Schedule{engine.Every("pulse", d, echoes.New("hello"))}
		}
	}
	first := working(t, pool, every(time.Hour))
	stored := func() string {
		page, err := first.Admin().Schedules(t.Context(), engine.ScheduleQuery{})
		require.NoError(t, err)
		return page.Schedules[0].Expression
	}
	stranger, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = stranger.Exec(t.Context(), `SELECT FROM gendurable.schedules WHERE name = 'pulse' FOR UPDATE`)
	require.NoError(t, err)

	working(t, pool, every(time.Hour))
	changed := working(t, pool, every(time.Minute))
	id, err := changed.Insert(within(t), echoes.New("it works"))
	require.NoError(t, err)
	got, err := echoes.Wait(within(t), changed, id)
	require.NoError(t, err)
	require.Equal(t, "it works", got)
	require.Equal(t, "@every 1h0m0s", stored())
	require.NoError(t, stranger.Commit(t.Context()))
	require.Eventually(t, func() bool { return stored() == "@every 1m0s" }, time.Minute, 50*time.Millisecond)
}

// Ten engines that know nothing of the machine, whose connections break all the time, and the next
// occurrence is set back again and again: each occurrence from the first to the last is there,
// once.
func TestTenEnginesFireEachOccurrenceOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url)
	schedules := []engine.Schedule{
		engine.Every("pulse", time.Second, echoes.New("hello").Queue("elsewhere")).CatchUp(engine.CatchUpAll),
		engine.Cron("second", "* * * * * *", echoes.New("hello").Queue("elsewhere")).CatchUp(engine.CatchUpAll).Jitter(time.Minute),
	}
	for range 10 {
		own := pgtest.Pool(t, url, func(c *pgxpool.Config) {
			c.MaxConns = 3
			c.ConnConfig.RuntimeParams["application_name"] = "firing"
		})
		working(t, own, func(c *engine.Config) {
			c.Machines, c.Schedules = []fsm.Definition{tickets()}, schedules
			c.Queues = map[string]engine.Queue{"default": {}}
		})
	}
	ctx := within(t)
	var begin time.Time
	require.NoError(t, pool.QueryRow(ctx, `UPDATE gendurable.schedules SET next_at = date_trunc('second', clock_timestamp()) - interval '400 s'
		RETURNING next_at`).Scan(&begin))
	for n := range 40 {
		_, err := pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'firing' AND datname = current_database() AND (state <> 'idle' OR pid % 5 = $1)`, n%5)
		require.NoError(t, err)
		if n%10 == 5 {
			_, err := pool.Exec(ctx, `UPDATE gendurable.schedules SET next_at = next_at - interval '100 s'`)
			require.NoError(t, err)
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, name := range []string{"pulse", "second"} {
		var last time.Time
		require.Eventually(t, func() bool {
			return pool.QueryRow(ctx, `SELECT last_at FROM gendurable.schedules WHERE name = $1 AND next_at > clock_timestamp()`, name).Scan(&last) == nil
		}, 20*time.Second, 20*time.Millisecond)
		rows, err := pool.Query(ctx, `SELECT correlation_key FROM gendurable.gen_durable WHERE starts_with(correlation_key, $1)`, "schedule:"+name+":")
		require.NoError(t, err)
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		found := map[string]int{}
		for _, k := range keys {
			found[k]++
		}
		for at := begin.UTC(); !at.After(last); at = at.Add(time.Second) {
			require.Equal(t, 1, found["schedule:"+name+":"+at.Format(time.RFC3339)], at)
		}
		require.Greater(t, len(keys), 400)
	}
}

// Pages follow one another by name, also if some are deleted meanwhile, and the last one says so.
func TestSchedulesInPages(t *testing.T) {
	t.Parallel()
	var declared []engine.Schedule
	for n := range 7 {
		declared = append(declared, engine.Cron(fmt.Sprint("s", n), "@daily", echoes.New("hello")))
	}
	e, err := engine.New(engine.Config{Pool: pgtest.Pool(t, pgtest.Migrated(t)), Schedules: declared})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	a := e.Admin()
	page := func(q engine.ScheduleQuery) (names []string, next string) {
		p, err := a.Schedules(t.Context(), q)
		require.NoError(t, err)
		for _, s := range p.Schedules {
			names = append(names, s.Name)
		}
		return names, p.Next
	}
	names, next := page(engine.ScheduleQuery{Limit: 3})
	require.Equal(t, []string{"s0", "s1", "s2"}, names)
	require.NoError(t, a.DeleteSchedule(t.Context(), next))
	names, next = page(engine.ScheduleQuery{Limit: 3, After: next})
	require.Equal(t, []string{"s3", "s4", "s5"}, names)
	names, next = page(engine.ScheduleQuery{Limit: 1, After: next})
	require.Equal(t, []string{"s6"}, names)
	require.Empty(t, next, "there is no more")
	for _, limit := range []int{0, 1, 4} {
		names = nil
		for s, err := range a.AllSchedules(t.Context(), engine.ScheduleQuery{Limit: limit}) {
			require.NoError(t, err)
			names = append(names, s.Name)
		}
		require.Equal(t, []string{"s0", "s1", "s3", "s4", "s5", "s6"}, names)
	}
	for field, q := range map[string]engine.ScheduleQuery{"Limit": {Limit: 1001}, "After": {After: "a\x00"}} {
		for _, err := range a.AllSchedules(t.Context(), q) {
			wrong, ok := errors.AsType[*engine.QueryError](err)
			require.True(t, ok)
			require.Equal(t, field, wrong.Field)
		}
	}
	for s, err := range a.AllSchedules(t.Context(), engine.ScheduleQuery{}) {
		require.NoError(t, err)
		require.Equal(t, "s0", s.Name)
		break
	}
}
