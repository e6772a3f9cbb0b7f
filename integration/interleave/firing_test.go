package interleave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// The two stored schedules of the world "scheduled" are due every second, and were last looked at
// three seconds before noon. Instances of lone must not overlap.
const (
	pulse = "pulse"
	lone  = "lone"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// every maps the expressions of this world to their intervals.
var every = map[string]time.Duration{"@every 1s": time.Second, "@every 1h0m0s": time.Hour}

var errOverlap = errors.New("an instance is live")

// stored returns the SQL that inserts a schedule as it is declared.
func stored(name string) string {
	return fmt.Sprintf(`INSERT INTO gendurable.schedules (name, spec, expression, next_at)
		VALUES ('%s', '{"machine": "m", "version": 1, "step": "s", "queue": "default", "state": {}}', '@every 1s', '%s')`, name,
		noon.Add(-2*time.Second).Format(time.RFC3339))
}

func scheduled() world {
	return world{name: "scheduled", setup: []string{stored(pulse), stored(lone)}, verbs: []verb{
		fires("fire", pulse, noon), fires("fire, later", pulse, noon.Add(time.Second)), runs("run", pulse),
		pauses("pause", pulse, true), inTurn("pause, resume", pauses("", pulse, true), pauses("", pulse, false)),
		stores("store, other spec", "@every 1s", 2), stores("store, other times", "@every 1h0m0s", 1),
		deletes("delete"), inTurn("delete, store", deletes(""), stores("", "@every 1s", 1)),
		fires("fire lone", lone, noon), runs("run lone", lone),
	}}
}

// fired is about the newest instance of a schedule that allows none beside it. A firing reads in
// one snapshot whether that instance lives, and its end is committed before the snapshot or after
// it.
func fired() world {
	claim := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default"}
	instance := []string{"correlation_key", "'schedule:lone:2026-11-21T11:59:57Z'", "correlation_scope",
		"'{runnable,executing,awaiting_signal,awaiting_children,done,failed}'", "visit", "3", "claim_token", "11"}
	lone := stored(lone) + fmt.Sprintf(`; UPDATE gendurable.schedules SET last_instance = %d`, subjectID)
	fireable := func(v verb) bool { return v.family == "fire" }
	return world{name: "fired", setup: append([]string{row(subjectID, with(expired, instance...)...)}, strings.Split(lone, "; ")...), only: fireable, verbs: []verb{
		beside(fires("fire", "lone", noon)), beside(fires("fire, later", "lone", noon.Add(time.Second))), beside(runs("run", "lone")),
		beside(pauses("pause schedule", "lone", true)),
		commits("done", false, done(claim)), commits("next", false, next(claim)), commits("next, kept", false, kept(claim)),
		commits("spawn", false, spawns(claim, spec("", ""))), transacts("own: done", done(claim)),
		delivers("signal", byID(subjectID), "go", ""), beats("beat", claim), releases("release", claim), reaps("reap", 0), reaps("reap to the limit", 1),
		cancels("cancel", subjectID), operates("pause", store.Pause, subjectID), holds("hold", subject, subjectID), refers(subject, subjectID),
		claims("claim", "default", owner, 10), inserts("insert", spec("y", "")), arrives("start", "y", "go", ""),
		inTurn("done, prune", commits("", false, done(claim)), prunes()),
	}}
}

// beside makes a verb on a schedule meet the verbs that act on its instance.
func beside(v verb) verb {
	v.touches |= subject | guard
	return v
}

func rowOf(name string) things { return map[string]things{pulse: pulses, lone: loner}[name] }

// fires does what each process does when it finds the schedule due at a time, and again while it
// is due.
func fires(name, schedule string, at time.Time) verb {
	return verb{name: name, family: "fire", touches: rowOf(schedule), quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			var was, next time.Time
			keys := []string{}
			fired, err := s.db.Fire(ctx, schedule, at, func(due store.Due) (store.Firing, error) {
				f := store.Firing{}
				was, keys = due.Next, keys[:0]
				for next = due.Next; !next.After(at); next = next.Add(every[due.Expression]) {
					if schedule == lone && (due.Live.ID != 0 || len(f.Specs) > 0) {
						continue
					}
					x := occurrence(schedule, next.UTC().Format(time.RFC3339))
					f.Specs, f.Last, keys = append(f.Specs, x), next, append(keys, x.Key)
				}
				f.Next = next
				return f, nil
			})
			if err == nil && !was.IsZero() {
				s.facts.firing(s.name, schedule, was, next, keys, len(fired) == len(keys))
			}
			return err
		}
		s.facts.tries(schedule, at)
		s.insist("fire", once(ctx), once)
		s.later(once) // a process that skipped the locked schedule tries again
	}}
}

func occurrence(schedule, mark string) *step.Spec {
	x := spec("schedule:"+schedule+":"+mark, "")
	x.Scope = step.ScopeAll
	return &x
}

// runs inserts an instance in addition to the occurrences.
func runs(name, schedule string) verb {
	return verb{name: name, family: "fire", touches: rowOf(schedule), run: func(ctx context.Context, s *session) {
		x := occurrence(schedule, "run:"+uuid.NewString())
		once := func(ctx context.Context) error {
			fired, err := s.db.RunSchedule(ctx, schedule, store.By{Actor: "A"}, func(due store.Due) (store.Firing, error) {
				if schedule == lone && due.Live.ID != 0 {
					return store.Firing{}, errOverlap
				}
				return store.Firing{Specs: []*step.Spec{x}}, nil
			})
			if err == nil {
				s.facts.insertion(s.name, x.Key, fired[0])
			}
			return unlessGone(err)
		}
		s.insist("run", once(ctx), once)
	}}
}

// unlessGone ignores that the schedule was deleted, or that an instance is live: both are valid
// results.
func unlessGone(err error) error {
	if errors.Is(err, store.ErrNoSchedule) || errors.Is(err, errOverlap) {
		return nil
	}
	return err
}

func pauses(name, schedule string, on bool) verb {
	return verb{name: name, family: "operator of schedules", touches: rowOf(schedule), run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.PauseSchedule(ctx, schedule, on, store.By{Actor: "A"})
			return unlessGone(err)
		}
		s.insist("pause", once(ctx), once)
	}}
}

func deletes(name string) verb {
	return verb{name: name, family: "operator of schedules", touches: pulses, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			return unlessGone(s.db.DeleteSchedule(ctx, pulse, store.By{Actor: "A"}))
		}
		s.insist("delete", once(ctx), once)
	}}
}

// stores stores a schedule, like a process that starts.
func stores(name, expression string, priority int16) verb {
	return verb{name: name, family: "store schedules", touches: pulses, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			x := step.Spec{Machine: "m", Version: 1, Step: "s", Queue: "default", State: json.RawMessage(`{}`), Priority: priority}
			_, err := s.db.StoreSchedules(ctx, []store.Schedule{{Name: pulse, Spec: &x, Expression: expression, TimeZone: "UTC",
				CatchUp: "all", Overlap: "allow"}}, func(int, time.Time) time.Time { return noon.Add(every[expression]) })
			return err
		}
		s.insist("store", once(ctx), once)
	}}
}
