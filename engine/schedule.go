package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/cron"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Schedule inserts an instance of a spec at each of its occurrences, whichever process is there to
// do it. [Cron] and [Every] make one, for Config.Schedules. Its methods return changed copies, so a
// dropped result changes nothing. [New] reports what is wrong with it, as a *[ConfigError].
type Schedule struct {
	name       string
	expression string
	zone       string
	spec       fsm.Spec
	catchUp    CatchUp
	overlap    Overlap
	jitter     time.Duration
}

// CronError says what is wrong with a cron expression, or with the interval of [Every], and at
// which position. A *[ConfigError] wraps it.
type CronError = cron.Error

// CatchUp says what becomes of missed occurrences: no process was there to fire them, or the
// schedule was paused. An occurrence that is late by up to a minute is not missed, and fires under
// each policy.
type CatchUp string

// The policies; the zero value is CatchUpLatest.
const (
	CatchUpLatest CatchUp = "latest" // the most recent one, unless a later one is on time
	CatchUpNone   CatchUp = "none"   // they are dropped
	CatchUpAll    CatchUp = "all"    // each, in order; of more than MaxCatchUp the most recent
)

// Overlap says what becomes of an occurrence that comes while the schedule's newest instance has
// not ended.
type Overlap string

// The policies; the zero value is OverlapAllow.
const (
	OverlapAllow Overlap = "allow" // it fires all the same
	OverlapSkip  Overlap = "skip"  // it is dropped
)

const (
	// MaxScheduleNameBytes bounds the name of a schedule: it is part of its instances' correlation
	// keys.
	MaxScheduleNameBytes = 256
	// MaxJitter bounds [Schedule.Jitter].
	MaxJitter = 24 * time.Hour
	// MaxCatchUp bounds [CatchUpAll].
	MaxCatchUp = 1000
)

// Cron returns a schedule that is due by a cron expression, in UTC unless [Schedule.In] says
// otherwise. The expression has five fields (minute, hour, day of the month, month, weekday), or
// six with the second before them, or is one of @yearly, @monthly, @weekly, @daily and @hourly. The
// name is durable and has at most MaxScheduleNameBytes.
//
// Each instance has a separate correlation key, made of the name and the occurrence, in
// fsm.ScopeAll. So the spec must have neither Key nor After nor At, and its machine must not
// declare its keys by fsm.KeyFromState or fsm.KeyBy.
func Cron(name, expression string, spec fsm.Spec) Schedule {
	return Schedule{name: name, expression: expression, zone: "UTC", spec: spec}
}

// Name returns the durable name that the schedule was made with.
func (s Schedule) Name() string { return s.name }

// Spec returns the spec that the schedule was made with.
func (s Schedule) Spec() fsm.Spec { return s.spec }

// Every returns a schedule that is due at an interval: whole seconds, from 1 s to 100 years,
// counted from 1970-01-01 00:00 UTC, so that neither a restart nor another process shifts it. In
// all else it is like [Cron].
func Every(name string, interval time.Duration, spec fsm.Spec) Schedule {
	return Cron(name, cron.Every(interval), spec)
}

// In sets the time zone of the expression, by its IANA name, e.g. "Europe/Berlin".
//
// Where the zone's clocks change, an occurrence at a time that is skipped fires at the end of the
// skip, and one at a time that comes twice fires the first time. An expression whose hour begins
// with * counts elapsed time instead: it makes up for nothing, and both repeated hours count.
func (s Schedule) In(zone string) Schedule {
	s.zone = zone
	return s
}

// CatchUp sets what becomes of missed occurrences; CatchUpLatest unless given.
func (s Schedule) CatchUp(c CatchUp) Schedule {
	s.catchUp = c
	return s
}

// Overlap sets what becomes of occurrences that come while the newest instance has not ended;
// OverlapAllow unless given.
func (s Schedule) Overlap(o Overlap) Schedule {
	s.overlap = o
	return s
}

// Jitter delays each instance by up to this much, at most MaxJitter. A hash of the instance's key
// decides the delay, so it is the same in every process and on every attempt.
func (s Schedule) Jitter(most time.Duration) Schedule {
	s.jitter = most
	return s
}

// schedules returns the schedules of the Config, as they are stored, and when each is due.
func (c Config) schedules(f *faults, machines []*step.Machine) []declared {
	env := &step.Env{Codec: c.Codec, Limits: c.Limits, Logger: c.Logger, Machine: registered(machines)}
	list := make([]declared, 0, len(c.Schedules))
	first := map[string]int{}
	for i, s := range c.Schedules {
		field := fmt.Sprintf("Schedules[%.80s]", cmp.Or(s.name, strconv.Itoa(i)))
		if s.name == "" && s.expression == "" && s.zone == "" {
			f.add(field, "the zero Schedule: make it by Cron or Every")
			continue
		}
		if j, taken := first[s.name]; taken {
			f.add(field, "Schedules[%d] and Schedules[%d] have this name: give one another name", j, i)
			continue
		}
		first[s.name] = i
		if err := checkName(s.name, MaxScheduleNameBytes); err != nil {
			f.add(field, "the name: %w", err)
		}
		list = append(list, s.validate(f, field, env))
	}
	return list
}

// declared is a schedule of the Config.
type declared struct {
	store.Schedule
	when timing
}

func (s Schedule) validate(f *faults, field string, env *step.Env) declared {
	d := declared{Schedule: store.Schedule{Name: s.name, Expression: s.expression, TimeZone: s.zone, Jitter: s.jitter,
		CatchUp: string(cmp.Or(s.catchUp, CatchUpLatest)), Overlap: string(cmp.Or(s.overlap, OverlapAllow))}}
	var err error
	if d.when.expression, err = cron.Parse(s.expression); err != nil {
		f.add(field+".Expression", "%w", err)
	}
	if d.when.zone, err = loadZone(s.zone); err != nil {
		f.add(field+".In", "%w", err)
	}
	switch CatchUp(d.CatchUp) {
	case CatchUpNone, CatchUpLatest, CatchUpAll:
	default:
		f.add(field+".CatchUp", "%.80q, want %q, %q or %q", d.CatchUp, CatchUpNone, CatchUpLatest, CatchUpAll)
	}
	if o := Overlap(d.Overlap); o != OverlapAllow && o != OverlapSkip {
		f.add(field+".Overlap", "%.80q, want %q or %q", d.Overlap, OverlapAllow, OverlapSkip)
	}
	if s.jitter < 0 || s.jitter > MaxJitter {
		f.add(field+".Jitter", "%v, want 0 to %v", s.jitter, MaxJitter)
	}
	o := s.spec.Options()
	switch {
	case o.Key != "":
		f.add(field+".Spec", "it has a key: each occurrence has its own; if the machine %.80q declares its keys, schedule another machine that spawns it as a child", o.Machine)
	case o.Delay != 0 || !o.At.IsZero():
		f.add(field+".Spec", "it has a delay or a time: the occurrence is its time")
	case o.Conflict != fsm.ConflictRefuse || o.Window.Kind != "":
		f.add(field+".Spec", "it has a policy or a window: Overlap says what becomes of an occurrence while the one before is live")
	}
	if d.Spec, err = hidden.Spec(s.spec, env); err != nil {
		f.add(field+".Spec", "%w", err)
	}
	return d
}

// loadZone loads a time zone. It refuses "Local", which is another zone in another process.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("%q: want the IANA name of a time zone, or UTC", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%.80q: no such time zone here (a program without the system's can import time/tzdata): %w", name, err)
	}
	return zone, nil
}

// timing is when a schedule is due.
type timing struct {
	expression cron.Expression
	zone       *time.Location
}

// timed is the timing of a schedule that is stored, maybe by another program.
func timed(s *store.Schedule) (t timing, err error) {
	var wrong error
	t.expression, err = cron.Parse(s.Expression)
	t.zone, wrong = loadZone(s.TimeZone)
	return t, errors.Join(err, wrong)
}

func (t timing) next(after time.Time) time.Time { return t.expression.Next(after, t.zone) }
