package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

var report = fsm.Declare[map[string]int, fsm.None]("report", fsm.Version(2), fsm.Queue("reports"))

// stage is an engine with schedules that fire when the test says so.
type stage struct {
	*Engine
	t    *testing.T
	pool *pgxpool.Pool
	log  *bytes.Buffer
	told struct {
		inserted, missed, skipped int // all together
		late                      time.Duration
	}
}

func (s *stage) note(e FireEvent) {
	s.told.inserted += e.Inserted
	s.told.missed += e.Missed
	s.told.skipped += e.Skipped
	s.told.late = e.Late
}

func newStage(t *testing.T, schedules []Schedule, change ...func(*Config)) *stage {
	t.Helper()
	return onStage(t, pgtest.Pool(t, pgtest.Migrated(t)), schedules, change...)
}

func onStage(t *testing.T, pool *pgxpool.Pool, schedules []Schedule, change ...func(*Config)) *stage {
	t.Helper()
	s := &stage{t: t, pool: pool, log: &bytes.Buffer{}}
	c := Config{Pool: pool, Schedules: schedules, Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(&c)
	}
	var err error
	s.Engine, err = New(c)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	return s
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// late makes the occurrences of so long ago and since due, and returns the second of then.
func (s *stage) late(d time.Duration) (now time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `UPDATE gendurable.schedules SET next_at = date_trunc('second', clock_timestamp()) - $1 * interval '1 microsecond'
		RETURNING next_at + $1 * interval '1 microsecond'`, d.Microseconds()).Scan(&now))
	return now
}

func (s *stage) fireAll() {
	s.t.Helper()
	for {
		wait, err := s.fireDue(s.t.Context(), time.Time{}, s.note)
		require.NoError(s.t, err)
		if wait > aside {
			return
		}
		if wait > 0 && s.one().Next.After(time.Now()) {
			return
		}
	}
}

func (s *stage) one() StoredSchedule {
	s.t.Helper()
	page, err := s.Admin().Schedules(s.t.Context(), ScheduleQuery{})
	require.NoError(s.t, err)
	require.Len(s.t, page.Schedules, 1)
	return page.Schedules[0]
}

// keys of the inserted instances.
func (s *stage) keys() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT correlation_key FROM gendurable.gen_durable ORDER BY id`)
	require.NoError(s.t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return keys
}

func (s *stage) end() {
	s.t.Helper()
	s.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE finished_at IS NULL`)
}

func key(name string, at time.Time) string {
	return "schedule:" + name + ":" + at.UTC().Format("2006-01-02T15:04:05Z")
}

func TestAnOccurrenceIsTheSpecWithAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t, []Schedule{Every("hourly", time.Hour, report.New(map[string]int{"n": 1}).Step("second").Priority(-3).PartitionKey("p").
		Deadline(time.Hour).Label("customer", "7")).Jitter(time.Minute)})
	before := s.one()
	require.Equal(t, StoredSchedule{Name: "hourly", Expression: "@every 1h0m0s", Zone: "UTC", CatchUp: CatchUpLatest, Overlap: OverlapAllow,
		Jitter: time.Minute, Machine: "report", Version: 2, Queue: "reports", Next: before.Next}, before)
	require.Equal(t, before.Next, before.Next.Truncate(time.Hour))
	require.True(t, before.Next.After(time.Now()))
	s.fireAll()
	require.Empty(t, s.keys(), "not yet")

	s.late(time.Hour)
	at := time.Now().Truncate(time.Hour).UTC()
	s.fireAll()
	require.Equal(t, []string{key("hourly", at)}, s.keys())
	i, err := report.Get(t.Context(), s, fsm.Key(key("hourly", at)))
	require.NoError(t, err)
	require.WithinDuration(t, i.InsertedAt.Add(time.Hour), i.Deadline, time.Minute)
	require.Equal(t, fsm.Instance[map[string]int, fsm.None]{
		ID: i.ID, Machine: "report", Version: 2, Step: "second", Queue: "reports", Priority: -3, Status: fsm.StatusRunnable,
		State: map[string]int{"n": 1}, Key: fsm.Key(key("hourly", at)), PartitionKey: "p", Labels: map[string]string{"customer": "7"},
		InsertedAt: i.InsertedAt, EligibleAt: i.EligibleAt, Deadline: i.Deadline,
	}, i)
	after := s.one()
	require.True(t, after.Last.Equal(at))
	require.Equal(t, i.ID, after.Instance)
	require.True(t, after.Next.Equal(at.Add(time.Hour)))
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	for policy, fired := range map[CatchUp]func(seconds int) (first, last int){
		CatchUpNone:   func(n int) (int, int) { return 0, min(n, 60) },
		CatchUpLatest: func(n int) (int, int) { return 0, min(n, 60) },
		CatchUpAll:    func(n int) (int, int) { return 0, min(n, 999) },
	} {
		for _, n := range []int{0, 5, 30, 150, 3000} {
			t.Run(fmt.Sprintf("%s, %d seconds", policy, n), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, []Schedule{Every("pulse", time.Second, report.New(nil)).CatchUp(policy)})
				now := s.late(time.Duration(n) * time.Second).Truncate(time.Second)
				s.fireAll()
				_, oldest := fired(n)
				keys := s.keys()
				// Time goes on meanwhile: the times between are exact, the ends may move by the time that it
				// took.
				took := len(keys) - oldest - 1
				require.GreaterOrEqual(t, took, -3)
				require.Less(t, took, 30)
				require.Contains(t, keys, key("pulse", now))
				require.Equal(t, len(keys), s.told.inserted)
				require.Equal(t, n > 1000 || policy != CatchUpAll && n > 60, s.told.missed > 0)
				if n < 50 || policy == CatchUpAll && n < 900 {
					require.Equal(t, key("pulse", now.Add(-time.Duration(n)*time.Second)), keys[0], "none is lost")
				}
				seen := map[string]bool{}
				for _, k := range keys {
					require.False(t, seen[k], k)
					seen[k] = true
				}
				if n > 1000 || policy != CatchUpAll && n > 60 {
					require.Contains(t, s.log.String(), "not caught up with")
				}
			})
		}
	}
}

// Seldom ones, of which none is on time.
func TestCatchUpOfWhatIsLate(t *testing.T) {
	t.Parallel()
	for policy, want := range map[CatchUp]int{CatchUpNone: 0, CatchUpLatest: 1, CatchUpAll: 3} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			// Twelve hours away from now, on whichever day.
			hour := time.Now().UTC().Add(12 * time.Hour).Hour()
			s := newStage(t, []Schedule{Cron("nightly", fmt.Sprintf("0 %d * * *", hour), report.New(nil)).CatchUp(policy)})
			next := s.one().Next
			s.late(72 * time.Hour)
			s.fireAll()
			var keys []string
			for i := want; i > 0; i-- {
				keys = append(keys, key("nightly", next.AddDate(0, 0, -i)))
			}
			require.ElementsMatch(t, keys, s.keys())
			require.True(t, s.one().Next.Equal(next))
			require.Equal(t, want == 0, s.one().Last.IsZero())
			require.Equal(t, []int{want, 3 - want, 0}, []int{s.told.inserted, s.told.missed, s.told.skipped})
			require.Equal(t, want > 0, s.told.late > 11*time.Hour)
		})
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	s := newStage(t, []Schedule{Every("pulse", time.Second, report.New(nil)).CatchUp(CatchUpAll).Overlap(OverlapSkip)})
	s.late(5 * time.Second)
	s.fireAll()
	require.Len(t, s.keys(), 1, "the others came while the first one was live")
	require.Equal(t, 1, s.told.inserted)
	require.GreaterOrEqual(t, s.told.skipped, 5)
	require.Contains(t, s.log.String(), "skipped occurrences")
	s.late(5 * time.Second)
	s.fireAll()
	require.Len(t, s.keys(), 1)
	first := s.one().Instance
	_, err := s.Admin().RunSchedule(t.Context(), "pulse")
	require.ErrorIs(t, err, ErrConflict)
	conflict, ok := errors.AsType[*ConflictError](err)
	require.True(t, ok)
	require.Equal(t, first, conflict.ID)
	require.Equal(t, fsm.StatusRunnable, conflict.Status)

	s.end()
	s.late(0)
	s.fireAll()
	require.Len(t, s.keys(), 2)
	s.end()
	id, err := s.Admin().RunSchedule(t.Context(), "pulse")
	require.NoError(t, err)
	require.Equal(t, id, s.one().Instance)
	s.late(2 * time.Second)
	s.fireAll()
	require.Len(t, s.keys(), 3, "what was run by hand counts, too")
}

func TestPausedSchedules(t *testing.T) {
	t.Parallel()
	s := newStage(t, []Schedule{Every("pulse", time.Second, report.New(nil)).CatchUp(CatchUpAll)})
	a := s.Admin()
	changed, err := a.PauseSchedule(t.Context(), "pulse")
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = a.PauseSchedule(t.Context(), "pulse")
	require.NoError(t, err)
	require.False(t, changed)
	require.WithinDuration(t, time.Now(), s.one().Paused, time.Minute)
	s.late(10 * time.Second)
	_, err = s.fireDue(t.Context(), time.Time{}, s.note)
	require.NoError(t, err)
	require.Empty(t, s.keys())
	id, err := a.RunSchedule(t.Context(), "pulse")
	require.NoError(t, err, "by hand all the same")
	i, err := report.Get(t.Context(), s, id)
	require.NoError(t, err)
	require.Regexp(t, `^schedule:pulse:run:[0-9a-f-]{36}$`, string(i.Key))
	require.True(t, s.one().Last.IsZero(), "it is no occurrence")

	onStage(t, s.pool, []Schedule{Every("pulse", time.Second, report.New(nil)).CatchUp(CatchUpAll)})
	require.False(t, s.one().Paused.IsZero(), "a restart does not resume it")
	changed, err = a.ResumeSchedule(t.Context(), "pulse")
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = a.ResumeSchedule(t.Context(), "pulse")
	require.NoError(t, err)
	require.False(t, changed)
	s.fireAll()
	require.GreaterOrEqual(t, len(s.keys()), 1+11)
}

func TestADeclarationThatChanges(t *testing.T) {
	t.Parallel()
	nightly := Cron("nightly", "0 3 * * *", report.New(map[string]int{"n": 1}))
	s := newStage(t, []Schedule{nightly})
	s.late(time.Hour)
	missed := s.one().Next
	onStage(t, s.pool, []Schedule{nightly, Every("other", time.Second, report.New(nil))})
	require.NoError(t, s.Admin().DeleteSchedule(t.Context(), "other"))
	require.Equal(t, missed, s.one().Next, "what was missed is not forgotten by a restart")
	onStage(t, s.pool, []Schedule{Cron("nightly", "0 3 * * *", report.New(map[string]int{"n": 2})).Overlap(OverlapSkip)})
	require.Equal(t, missed, s.one().Next)
	require.Equal(t, OverlapSkip, s.one().Overlap)
	onStage(t, s.pool, []Schedule{nightly.In("Asia/Tokyo")})
	require.True(t, s.one().Next.After(time.Now()), "other times")
	require.Equal(t, 18, s.one().Next.UTC().Hour())
	onStage(t, s.pool, []Schedule{Every("nightly", time.Hour, report.New(map[string]int{"n": 3}))})
	require.Equal(t, "@every 1h0m0s", s.one().Expression)
	onStage(t, s.pool, nil)
	require.Equal(t, "nightly", s.one().Name, "it stays where nobody declares it")

	id, err := s.Admin().RunSchedule(t.Context(), "nightly")
	require.NoError(t, err)
	i, err := report.Get(t.Context(), s, id)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"n": 3}, i.State, "by whatever engine")
	require.NoError(t, s.Admin().DeleteSchedule(t.Context(), "nightly"))
	for _, err := range []error{
		s.Admin().DeleteSchedule(t.Context(), "nightly"),
		second(s.Admin().PauseSchedule(t.Context(), "nightly")),
		second(s.Admin().ResumeSchedule(t.Context(), "nightly")),
		second(s.Admin().RunSchedule(t.Context(), "nightly")),
	} {
		require.ErrorIs(t, err, ErrNoSchedule)
		require.ErrorContains(t, err, `"nightly"`)
	}
	for _, name := range []string{"", "a\x00", string(make([]byte, 257))} {
		wrong, ok := errors.AsType[*VerbError](s.Admin().DeleteSchedule(t.Context(), name))
		require.True(t, ok)
		require.Equal(t, "name", wrong.Field)
	}
}

func second[T any](_ T, err error) error { return err }

func TestNextSetBackFiresNothingTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t, []Schedule{Every("pulse", time.Second, report.New(nil)).CatchUp(CatchUpAll)})
	s.late(20 * time.Second)
	s.fireAll()
	before := s.keys()
	s.late(20 * time.Second)
	s.fireAll()
	require.Equal(t, before, s.keys()[:len(before)])
	require.Equal(t, len(s.keys()), s.told.inserted, "once each")
	seen := map[string]bool{}
	for _, k := range s.keys() {
		require.False(t, seen[k])
		seen[k] = true
	}
}

// cruel is an error that panics when it is looked at.
type cruel struct{}

func (cruel) Error() string { return "cruel" }
func (cruel) Unwrap() error { panic("alarm") }

func TestFiringPassesMiddleware(t *testing.T) {
	t.Parallel()
	type saw struct {
		key   fsm.Key
		state string
	}
	var seen []saw
	broken := errors.New("not now")
	var fault func() error
	s := newStage(t, []Schedule{Every("pulse", time.Hour, report.New(map[string]int{"n": 1}))}, func(c *Config) {
		c.Middleware = []Middleware{{Insert: func(ctx context.Context, spec fsm.Spec) (fsm.Spec, error) {
			seen = append(seen, saw{spec.Options().Key, fmt.Sprintf("%s", spec.State())})
			if FromContext(ctx) == nil {
				return spec, errors.New("no engine in the context")
			}
			if fault != nil {
				return spec, fault()
			}
			return spec.Label("seen", "yes").Key("mine").Scope(fsm.ScopeNone), nil
		}}}
		c.Inject = func(ctx context.Context) map[string]string {
			return map[string]string{"fired": fmt.Sprint(FromContext(ctx) != nil)}
		}
	})
	at := time.Now().Truncate(time.Hour)
	for name, f := range map[string]func() error{
		"not now": func() error { return broken },
		"boom":    func() error { panic("boom") },
		"cruel":   func() error { return cruel{} },
	} {
		fault = f
		s.late(time.Hour)
		_, err := s.fireDue(t.Context(), time.Time{}, s.note)
		require.ErrorContains(t, err, name)
		require.Equal(t, store.FaultTransient, store.Classify(err), "what the engine's loop does with it")
		require.Empty(t, s.keys())
	}
	fault = nil
	s.fireAll()
	require.Equal(t, []string{key("pulse", at)}, s.keys(), "what makes it happen once is not the middleware's")
	require.Equal(t, saw{fsm.Key(key("pulse", at)), `{"n": 1}`}, seen[len(seen)-1])
	i, err := report.Get(t.Context(), s, fsm.Key(key("pulse", at)))
	require.NoError(t, err)
	require.Equal(t, "yes", i.Labels["seen"])
	row, err := s.Ent().Instance.Query().Only(t.Context())
	require.NoError(t, err)
	require.Equal(t, fsm.Texts{"fired": "true"}, row.Trace)
}

// What a middleware does wrong in RunSchedule is its caller's error, whatever it is.
func TestRunScheduleOfABrokenMiddleware(t *testing.T) {
	t.Parallel()
	broken := errors.New("not now")
	var fault func() error
	s := newStage(t, []Schedule{Every("pulse", time.Hour, report.New(nil))}, func(c *Config) {
		c.Middleware = []Middleware{{Insert: func(_ context.Context, spec fsm.Spec) (fsm.Spec, error) { return spec, fault() }}}
	})
	for name, f := range map[string]func() error{
		"not now": func() error { return broken },
		"boom":    func() error { panic("boom") },
		"alarm":   func() error { return cruel{} },
		"Goexit":  func() error { runtime.Goexit(); return nil },
	} {
		fault = f
		_, err := s.Admin().RunSchedule(t.Context(), "pulse")
		require.ErrorContains(t, err, name)
		require.Equal(t, name == "not now", errors.Is(err, broken))
	}
	require.Empty(t, s.keys())
}

func TestAScheduleThatCannotFireHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, []Schedule{Every("a", time.Hour, report.New(nil)), Every("b", time.Hour, report.New(nil)), Every("c", time.Hour, report.New(nil))})
	s.late(time.Hour)
	s.exec(`UPDATE gendurable.schedules SET time_zone = 'Mars/Olympus', next_at = next_at - interval '1 min' WHERE name = 'a'`)
	s.exec(`UPDATE gendurable.schedules SET expression = 'soon', next_at = next_at - interval '1 min' WHERE name = 'b'`)
	_, err := s.fireDue(t.Context(), time.Time{}, s.note)
	require.ErrorContains(t, err, "Mars/Olympus")
	require.ErrorContains(t, err, `"soon"`)
	require.Len(t, s.keys(), 1)
}

// The same in each process that fires it, and spread.
func TestJitter(t *testing.T) {
	t.Parallel()
	require.Zero(t, jitter("k", 0))
	var least, most time.Duration = time.Hour, 0
	for i := range 1000 {
		k := fmt.Sprint("schedule:x:", i)
		d := jitter(k, time.Minute)
		require.Equal(t, d, jitter(k, time.Minute))
		require.LessOrEqual(t, d, time.Minute)
		least, most = min(least, d), max(most, d)
	}
	require.Less(t, least, time.Second)
	require.Greater(t, most, 59*time.Second)

	s := newStage(t, []Schedule{Cron("always", "* * * * * *", report.New(nil)).Jitter(time.Hour)})
	now := s.late(0).Truncate(time.Second)
	s.fireAll()
	i, err := report.Get(t.Context(), s, fsm.Key(key("always", now)))
	require.NoError(t, err)
	require.True(t, i.EligibleAt.Equal(now.Add(jitter(string(i.Key), time.Hour))))
}

// As proxies need it.
func TestSchedulesInEachOfPgxsModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		s := onStage(t, pool, []Schedule{Every("pulse", time.Hour, report.New(map[string]int{"n": 1})).Overlap(OverlapSkip)})
		_, err := pool.Exec(t.Context(), `UPDATE gendurable.schedules SET next_at = next_at - interval '1 hour'`)
		require.NoError(t, err, mode)
		s.fireAll()
		require.Len(t, s.keys(), 1, mode)
		_, err = s.Admin().RunSchedule(t.Context(), "pulse")
		require.ErrorIs(t, err, ErrConflict, mode)
		changed, err := s.Admin().PauseSchedule(t.Context(), "pulse")
		require.NoError(t, err, mode)
		require.True(t, changed, mode)
	}
}
