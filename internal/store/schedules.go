package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Schedule inserts an instance at each of its occurrences. The engine interprets its texts.
type Schedule struct {
	Name       string
	Spec       *step.Spec // without key and time
	Expression string
	TimeZone   string
	CatchUp    string
	Overlap    string
	Jitter     time.Duration
	Next       time.Time

	// The listing sets these fields.
	Last     time.Time // zero: none yet
	Instance int64     // the newest instance; 0: none yet
	Paused   time.Time // since when it is paused; zero: it is not
}

// ErrNoSchedule means that the schedule does not exist: it never did, or it was deleted.
var ErrNoSchedule = errors.New("gendurable: no such schedule")

// scheduled is the form of a step.Spec in the column spec.
type scheduled struct {
	Machine      string          `json:"machine"`
	Version      int             `json:"version"`
	Step         string          `json:"step"`
	Queue        string          `json:"queue"`
	Priority     int16           `json:"priority,omitempty"`
	State        json.RawMessage `json:"state"`
	PartitionKey string          `json:"partition_key,omitempty"`
	Deadline     int64           `json:"deadline,omitempty"` // µs
	Labels       json.RawMessage `json:"labels,omitempty"`
	Retain       *step.Retain    `json:"retain,omitempty"`
}

func encodeSpec(x *step.Spec) (string, error) {
	var retain *step.Retain
	if x.Retain != (step.Retain{}) {
		retain = &x.Retain
	}
	text, err := json.Marshal(scheduled{Retain: retain, Machine: x.Machine, Version: x.Version, Step: x.Step, Queue: x.Queue, Priority: x.Priority,
		State: x.State, PartitionKey: x.PartitionKey, Deadline: micros(x.Deadline), Labels: x.Labels})
	return string(text), err
}

// DecodeSpec decodes what a schedule inserts.
func DecodeSpec(text []byte) (*step.Spec, error) {
	var x scheduled
	if err := json.Unmarshal(text, &x); err != nil {
		return nil, fmt.Errorf("decode the stored spec: %w", err)
	}
	return &step.Spec{Retain: value(x.Retain), Machine: x.Machine, Version: x.Version, Step: x.Step, Queue: x.Queue, Priority: x.Priority, State: x.State,
		PartitionKey: x.PartitionKey, Deadline: duration(x.Deadline), Labels: x.Labels}, nil
}

var clockSQL = named("clock", `SELECT clock_timestamp()`)

// storeScheduleSQL stores the schedules that a program declares. A stored schedule keeps its next
// occurrence, so that occurrences that were missed while no process ran are not forgotten, unless
// its expression or its time zone has changed. The statement inserts rows in the order of their
// names, so that two processes that start at once do not deadlock. It neither writes nor locks a
// row that needs no change: it does not wait for locked ones, such as rows of a process that stands
// still while it fires. It returns the names of schedules that changed.
//
// A row that another process changes after the look at it decides as of that look: both processes
// declare at once, and either may be the last.
//
// $1 names $2 specs $3 expressions $4 time zones $5 catch-up $6 overlap $7 jitters, µs $8 next
// occurrences.
var storeScheduleSQL = named("store schedules", `INSERT INTO {s}.schedules AS s (name, spec, expression, time_zone, catch_up, overlap, jitter, next_at)
SELECT u.name, u.spec::jsonb, u.expression, u.zone, u.catch_up, u.overlap, u.jitter, u.next
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::timestamptz[])
  AS u(name, spec, expression, zone, catch_up, overlap, jitter, next)
WHERE NOT EXISTS (SELECT FROM {s}.schedules x WHERE x.name = u.name
  AND (x.spec, x.expression, x.time_zone, x.catch_up, x.overlap, x.jitter) = (u.spec::jsonb, u.expression, u.zone, u.catch_up, u.overlap, u.jitter))
ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, expression = excluded.expression, time_zone = excluded.time_zone,
  catch_up = excluded.catch_up, overlap = excluded.overlap, jitter = excluded.jitter, updated_at = clock_timestamp(),
  next_at = CASE WHEN (s.expression, s.time_zone) IS DISTINCT FROM (excluded.expression, excluded.time_zone) THEN excluded.next_at
    ELSE s.next_at END
WHERE (s.spec, s.expression, s.time_zone, s.catch_up, s.overlap, s.jitter)
  IS DISTINCT FROM (excluded.spec, excluded.expression, excluded.time_zone, excluded.catch_up, excluded.overlap, excluded.jitter)
RETURNING s.name`)

// StoreSchedules stores schedules, and returns the names of those that are new or have changed.
// next computes the next occurrence of list[i] after now, which is by the server's clock.
func (s *Store) StoreSchedules(ctx context.Context, list []Schedule, next func(i int, now time.Time) time.Time) (changed []string, err error) {
	var names, specs, expressions, zones, catchUps, overlaps []string
	var jitters []int64
	for _, x := range list {
		spec, err := encodeSpec(x.Spec)
		if err != nil {
			return nil, fmt.Errorf("store schedule %q: %w", x.Name, err)
		}
		names, specs, expressions, zones = append(names, x.Name), append(specs, spec), append(expressions, x.Expression), append(zones, x.TimeZone)
		catchUps, overlaps, jitters = append(catchUps, x.CatchUp), append(overlaps, x.Overlap), append(jitters, micros(x.Jitter))
	}
	err = s.interactive(ctx, slowLock, func(send send) error {
		var now time.Time
		if err := send(s.stmt(clockSQL, readOne(&now))); err != nil {
			return err
		}
		nexts := make([]time.Time, len(list))
		for i := range list {
			nexts[i] = next(i, now)
		}
		return send(s.stmt(storeScheduleSQL, readQueues(&changed), names, specs, expressions, zones, catchUps, overlaps, jitters, nexts))
	})
	if err != nil {
		return nil, fmt.Errorf("store %d schedules: %w", len(list), err)
	}
	return changed, nil
}

// readOne reads the columns of one row. Without a row it leaves the destinations unchanged.
func readOne(into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { return nil })
		return err
	}
}

// nextFireSQL returns in how many microseconds the next schedule is due. Every poll sends it.
var nextFireSQL = named("next schedule", `SELECT (extract(epoch FROM s.next_at - clock_timestamp()) * 1000000)::bigint
FROM {s}.schedules s WHERE s.paused_at IS NULL ORDER BY s.next_at LIMIT 1`)

func (s *Store) nextFire(into *Polled) entpgx.Stmt {
	return s.stmt(nextFireSQL, func(rows pgx.Rows) error {
		var us int64
		_, err := pgx.ForEachRow(rows, []any{&us}, func() error {
			into.Fires, into.Fire = true, duration(us)
			return nil
		})
		return err
	})
}

// dueSchedulesSQL walks the front of an index.
//
// $1 µs to look ahead $2 most $3 the time, or NULL: the server's
var dueSchedulesSQL = named("due schedules", `SELECT s.name, (extract(epoch FROM s.next_at - (SELECT coalesce($3::timestamptz, clock_timestamp()))) * 1000000)::bigint
FROM {s}.schedules s
WHERE s.paused_at IS NULL AND s.next_at <= (SELECT coalesce($3::timestamptz, clock_timestamp())) + $1::bigint * interval '1 microsecond'
ORDER BY s.next_at LIMIT $2`)

// DueSchedule is the name of a schedule, and the time until its next occurrence: zero or less is
// now.
type DueSchedule struct {
	Name string
	In   time.Duration
}

// DueSchedules returns, the most overdue first, the schedules that are not paused and are due by
// within after at. If at is zero, it takes the server's time. It locks nothing.
func (s *Store) DueSchedules(ctx context.Context, at time.Time, within time.Duration, most int) (due []DueSchedule, err error) {
	err = s.one(ctx, fastLock, dueSchedulesSQL, func(rows pgx.Rows) error {
		var name string
		var us int64
		_, err := pgx.ForEachRow(rows, []any{&name, &us}, func() error {
			due = append(due, DueSchedule{name, duration(us)})
			return nil
		})
		return err
	}, micros(within), most, optionalTime(at))
	if err != nil {
		return nil, fmt.Errorf("look for due schedules: %w", err)
	}
	return due, nil
}

const scheduleColumns = `s.name, s.spec::text, s.expression, s.time_zone, s.catch_up, s.overlap, s.jitter, s.next_at, s.last_at, s.last_instance,
  s.paused_at, clock_timestamp()`

var (
	// fireSQL locks a schedule that is still due. It skips one that another process is firing. $1
	// name $2 the time, or NULL: the server's
	fireSQL = named("fire schedule", `SELECT `+scheduleColumns+` FROM {s}.schedules s
WHERE s.name = $1 AND s.paused_at IS NULL AND s.next_at <= coalesce($2::timestamptz, clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED`)
	// lockScheduleSQL locks a schedule, due or not, and waits for its holder. $1 name
	lockScheduleSQL = named("lock schedule", `SELECT `+scheduleColumns+` FROM {s}.schedules s WHERE s.name = $1 FOR NO KEY UPDATE`)
)

// liveSQL reads a schedule's newest instance, if that has not ended. It is a separate statement
// after the lock, so that it sees the instance that the lock's previous holder inserted. $1 name
var liveSQL = named("live instance", `SELECT g.id, g.status::text FROM {s}.schedules s
CROSS JOIN LATERAL (SELECT x.id, x.status FROM {s}.gen_durable x WHERE x.id = s.last_instance OFFSET 0) g
WHERE s.name = $1 AND g.status NOT IN ('done', 'failed')`)

// advanceSQL ends a firing. $1 name $2 next occurrence $3 the newest that was fired, or NULL $4 its
// instance, or NULL.
var advanceSQL = named("advance schedule", `UPDATE {s}.schedules s SET next_at = coalesce($2::timestamptz, s.next_at), last_at = coalesce($3::timestamptz, s.last_at),
  last_instance = coalesce($4::bigint, s.last_instance), updated_at = clock_timestamp()
WHERE s.name = $1`)

// Due is a schedule whose row is locked.
type Due struct {
	Schedule
	Now   time.Time // the time at which it is fired
	Clock time.Time // the server's time, from which Now differs in tests only
	Live  Live      // its newest instance, if that has not ended
}

// Live is an instance that has not ended. The zero value means that there is none.
type Live struct {
	ID     int64
	Status string
}

// Firing is a decision about a Due: Fire inserts Specs, which must have keys, and stores the times.
// A zero time leaves the stored one unchanged.
type Firing struct {
	Specs      []*step.Spec
	Next, Last time.Time
}

// Fire fires a schedule that is due at a time, or now by the server's clock if at is zero. In one
// transaction, it locks the schedule's row against others, calls decide, inserts the specs that
// decide returns, and stores the next occurrence. If it returns neither an error nor an instance,
// and has not called decide, the schedule is no longer due, or another process is firing it. An
// occupied key means that the occurrence was fired before.
func (s *Store) Fire(ctx context.Context, name string, at time.Time, decide func(Due) (Firing, error)) (fired []Inserted, err error) {
	var locked []Due
	fired, err = s.fire(ctx, &locked, s.stmt(fireSQL, readSchedules(&locked), name, optionalTime(at)), nil, func(d Due) (Firing, error) {
		if !at.IsZero() {
			d.Now = at
		}
		return decide(d)
	})
	if err != nil {
		return nil, fmt.Errorf("fire schedule %q: %w", name, err)
	}
	return fired, nil
}

// RunSchedule is Fire for a schedule that need not be due and may be paused. Its errors are
// ErrNoSchedule, and ErrUnknown if the COMMIT got no answer.
func (s *Store) RunSchedule(ctx context.Context, name string, by By, decide func(Due) (Firing, error)) (fired []Inserted, err error) {
	var locked []Due
	fired, err = s.fire(ctx, &locked, s.stmt(lockScheduleSQL, readSchedules(&locked), name), &by, decide)
	switch {
	case err != nil && unknown(err):
		return nil, fmt.Errorf("run schedule %q: %w: %w", name, ErrUnknown, err)
	case err != nil:
		return nil, fmt.Errorf("run schedule %q: %w", name, err)
	case len(locked) == 0:
		return nil, fmt.Errorf("%w: %.80q", ErrNoSchedule, name)
	}
	return fired, nil
}

// fire locks a schedule by a statement that reads it into locked, and fires it if the statement
// found it. by is the actor who runs it by hand, or nil.
func (s *Store) fire(ctx context.Context, locked *[]Due, lock entpgx.Stmt, by *By, decide func(Due) (Firing, error)) (fired []Inserted, err error) {
	name := lock.Args[0]
	err = s.interactive(ctx, slowLock, func(send send) error {
		var live Live
		if err := send(lock, s.stmt(liveSQL, readOne(&live.ID, &live.Status), name)); err != nil {
			return err
		}
		if len(*locked) == 0 {
			return nil
		}
		(*locked)[0].Live = live
		firing, err := decide((*locked)[0])
		if err != nil {
			return err
		}
		var newest *int64
		if len(firing.Specs) > 0 {
			var cols specs
			for _, x := range firing.Specs {
				cols.add(x)
			}
			s.arrange(&cols)
			if fired, err = s.insertKeyed(send, &cols, firing.Specs); err != nil {
				return err
			}
			newest = &fired[len(fired)-1].ID
		}
		stmts := append(s.takeKept(firing.Specs, fired), s.stmt(advanceSQL, nil, name, optionalTime(firing.Next), optionalTime(firing.Last), newest))
		if by != nil {
			stmts = append(stmts, s.stmt(auditRunSQL, nil, name, by.Actor, optional(by.Reason), newest))
		}
		return send(stmts...)
	})
	return fired, err
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func readSchedules(into *[]Due) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var x Due
		var spec []byte
		var jitter int64
		var last, paused *time.Time
		var instance *int64
		_, err := pgx.ForEachRow(rows, []any{&x.Name, &spec, &x.Expression, &x.TimeZone, &x.CatchUp, &x.Overlap, &jitter, &x.Next, &last, &instance,
			&paused, &x.Now}, func() (err error) {
			x.Spec, err = DecodeSpec(spec)
			x.Clock = x.Now
			x.Jitter, x.Last, x.Paused, x.Instance = duration(jitter), orZero(last), orZero(paused), orZero(instance)
			*into = append(*into, x)
			return err
		})
		return err
	}
}

func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// A paused schedule keeps its next occurrence. When it resumes, it catches up with missed ones, or
// skips them, as after any downtime. Each statement returns whether the schedule exists, and
// whether anything changed. A deleted schedule is recorded without its spec, which has a state.
//
// $1 name $2 actor $3 reason
var (
	pauseScheduleSQL = named("pause schedule", `WITH p AS (UPDATE {s}.schedules s SET paused_at = clock_timestamp(), updated_at = clock_timestamp()
  WHERE s.name = $1 AND s.paused_at IS NULL RETURNING s.name, s.paused_at),
a AS (`+recordedText+`'admin.pause_schedule', 'schedule ' || p.name, $2::text, $3::text, NULL, jsonb_build_object('paused_at', p.paused_at) FROM p)
SELECT EXISTS (SELECT FROM {s}.schedules s WHERE s.name = $1), EXISTS (SELECT FROM p)`)
	resumeScheduleSQL = named("resume schedule", `WITH p AS (UPDATE {s}.schedules s SET paused_at = NULL, updated_at = clock_timestamp()
  WHERE s.name = $1 AND s.paused_at IS NOT NULL RETURNING s.name, s.next_at),
a AS (`+recordedText+`'admin.resume_schedule', 'schedule ' || p.name, $2::text, $3::text, NULL, jsonb_build_object('next_at', p.next_at) FROM p)
SELECT EXISTS (SELECT FROM {s}.schedules s WHERE s.name = $1), EXISTS (SELECT FROM p)`)
	deleteScheduleSQL = named("delete schedule", `WITH p AS (DELETE FROM {s}.schedules s WHERE s.name = $1 RETURNING s.*),
a AS (`+recordedText+`'admin.delete_schedule', 'schedule ' || p.name, $2::text, $3::text,
  jsonb_strip_nulls(to_jsonb(p) - '{spec,updated_at}'::text[]), NULL FROM p)
SELECT EXISTS (SELECT FROM p), EXISTS (SELECT FROM p)`)
)

// PauseSchedule pauses a schedule if on is true, and resumes it otherwise. Its errors are
// ErrNoSchedule, and ErrUnknown if the COMMIT got no answer.
func (s *Store) PauseSchedule(ctx context.Context, name string, on bool, by By) (changed bool, err error) {
	var found bool
	doing, change := "pause schedule", s.stmt(pauseScheduleSQL, readOne(&found, &changed), name, by.Actor, optional(by.Reason))
	if !on {
		doing, change = "resume schedule", s.stmt(resumeScheduleSQL, readOne(&found, &changed), name, by.Actor, optional(by.Reason))
	}
	err = s.transaction(ctx, slowLock, change)
	return changed, told(doing, name, found, err)
}

// DeleteSchedule removes a schedule. Its instances stay. It returns the errors of PauseSchedule.
func (s *Store) DeleteSchedule(ctx context.Context, name string, by By) error {
	var found bool
	err := s.one(ctx, slowLock, deleteScheduleSQL, readOne(&found, new(bool)), name, by.Actor, optional(by.Reason))
	return told("delete schedule", name, found, err)
}

func told(doing, name string, found bool, err error) error {
	switch {
	case err != nil && unknown(err):
		return fmt.Errorf("%s %q: %w: %w", doing, name, ErrUnknown, err)
	case err != nil:
		return fmt.Errorf("%s %q: %w", doing, name, err)
	case !found:
		return fmt.Errorf("%w: %.80q", ErrNoSchedule, name)
	}
	return nil
}
