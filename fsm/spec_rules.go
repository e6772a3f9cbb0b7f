package fsm

import (
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Conflict says what an insert does when another instance occupies its correlation key.
type Conflict uint8

// The policies. ConflictRefuse is the zero value.
const (
	// ConflictRefuse inserts nothing: the occupant stays as it is.
	ConflictRefuse = Conflict(step.ConflictRefuse)
	// ConflictReplace makes an occupant that still waits what the spec says: state, step, time and all
	// else; its id stays. An instance waits until it is first claimed. Later nothing is inserted.
	ConflictReplace = Conflict(step.ConflictReplace)
	// ConflictNewest cancels an occupant that has not ended, also while it executes, and inserts.
	// Where the scope keeps the key of an ended instance, nothing is inserted.
	ConflictNewest = Conflict(step.ConflictNewest)
)

// OnConflict says what the insert does when another instance occupies the correlation key;
// ConflictRefuse unless given. The others need a key, in any scope but ScopeNone. Children and
// schedules take ConflictRefuse only.
func (s Spec) OnConflict(c Conflict) Spec {
	s.o.Conflict = c
	return s
}

// WindowKind says what a window makes of the inserts that come while it is open.
type WindowKind = step.WindowKind

// The kinds of windows; [Spec.Throttle], [Spec.OncePer] and [Spec.Debounce] describe them.
const (
	WindowThrottle = step.WindowThrottle
	WindowOnce     = step.WindowOnce
	WindowDebounce = step.WindowDebounce
)

// Window bounds how often specs with its key are inserted, by Postgres' clock.
type Window struct {
	Kind WindowKind    `json:"kind"`
	Key  Key           `json:"key"`
	For  time.Duration `json:"for_ns"`
	Most time.Duration `json:"most_ns,omitempty"` // of a debounce, from its first spec on; 0: no bound
}

// Windows are at least a millisecond long: Postgres counts microseconds, and a shorter one would
// have closed before its insert commits.
const minWindow = time.Millisecond

// Throttle makes the insert the first and only one with this window key for d. Until then, inserts
// that throttle by the same key insert nothing, and report which instance was first. d is from 1 ms
// to 100 years.
//
// The key has 1 to 512 bytes. It is none of the correlation keys: the spec may have such a key as
// well, and where that is occupied the window stays closed. A spec has one window. Children and
// schedules take none.
func (s Spec) Throttle(key Key, d time.Duration) Spec {
	return s.window(Window{Kind: WindowThrottle, Key: key, For: d})
}

// OncePer is like [Spec.Throttle] with windows that begin at fixed times: at multiples of period,
// counted from Monday 2001-01-01 00:00 UTC. So 24h means once per day, and 7*24h once per week, in
// UTC.
func (s Spec) OncePer(key Key, period time.Duration) Spec {
	return s.window(Window{Kind: WindowOnce, Key: key, For: period})
}

// Debounce delays the instance by quiet, and lets later inserts replace it while it waits. An
// insert that debounces by the same window key makes the waiting instance what its own spec says,
// and delays it by quiet again, but no longer than most after the first. With a most of 0 there is
// no such bound. An instance waits until it is first claimed; one that has begun is left alone, and
// the next insert is a first again. So whatever was inserted last does run.
//
// quiet is from 1 ms to 100 years, and most is not less. Debounce excludes After, At and a
// correlation key that is occupied: use [Spec.PartitionKey] to run one instance at a time. For the
// window key see [Spec.Throttle].
func (s Spec) Debounce(key Key, quiet, most time.Duration) Spec {
	return s.window(Window{Kind: WindowDebounce, Key: key, For: quiet, Most: most})
}

func (s Spec) window(w Window) Spec {
	s.windows = s.windows || s.o.Window.Kind != "" && s.o.Window.Kind != w.Kind
	s.o.Window = w
	return s
}

func (s Spec) checkConflict() error {
	switch {
	case s.o.Conflict > ConflictNewest:
		return fmt.Errorf("%d is no policy: use ConflictRefuse, or another constant of its type", s.o.Conflict)
	case s.o.Conflict == ConflictRefuse:
	case s.o.Key == "":
		return errors.New("set without a correlation key, whose conflict it decides: give the spec a Key")
	case s.o.Scope == ScopeNone:
		return errors.New("set with ScopeNone, with which no conflict arises: use another scope")
	}
	return nil
}

func (s Spec) checkWindow() error {
	w := s.o.Window
	if w.Kind == "" {
		return nil
	}
	if err := checkName(string(w.Key)); err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	switch {
	case s.windows:
		return errors.New("several of Throttle, OncePer and Debounce: a spec has one window")
	case w.For < minWindow || w.For > MaxDelay:
		return fmt.Errorf("%s for %v, want %v to 100 years", w.Kind, w.For, minWindow)
	case w.Kind != WindowDebounce:
		return nil
	case w.Most != 0 && (w.Most < w.For || w.Most > MaxDelay):
		return fmt.Errorf("debounce for at most %v, want 0 or %v to 100 years", w.Most, w.For)
	case s.after || s.when:
		return errors.New("debounce with After or At: its quiet time is the delay")
	case s.o.Key != "" && s.o.Scope != ScopeNone:
		return errors.New("debounce with a correlation key that is occupied, which would keep out the next instance: " +
			"use ScopeNone, or a partition key")
	}
	return nil
}

// checkUnruled refuses, for inserts in a transaction that decides something else, a spec whose
// insert would change other instances or be refused by a window.
func checkUnruled(spec *step.Spec, whose string) error {
	switch {
	case spec.Conflict != step.ConflictRefuse:
		return specFault("conflict", fmt.Errorf("not of %s: only verbs take a policy but ConflictRefuse", whose))
	case spec.Window.Kind != "":
		return specFault("window", fmt.Errorf("not of %s: only verbs take a window", whose))
	}
	return nil
}
