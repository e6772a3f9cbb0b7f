package interleave

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// windowed is the world of inserts with rules: the subject waits and has the key x; another
// instance, of a debounce, waits and is not due. A window has closed long ago. The numbers in the
// states tell the specs apart.
func windowed() world {
	numbered := []string{"state", `'{"n": 0}'`}
	live := []string{"correlation_key", "'x'", "correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'"}
	setup := []string{
		row(subjectID, with(with(numbered, live...), "eligible_at", "now() - interval '10 s'")...),
		row(abroadID, with(numbered, "labels", `'{"w": "d"}'`, "eligible_at", "now() + interval '1 h'")...),
		fmt.Sprintf(`INSERT INTO gendurable.windows (name, uid, instance, opened_at, until) VALUES
			('debounce:d', gen_random_uuid(), %d, now(), now() + interval '1 h'),
			('throttle:old', gen_random_uuid(), 77, now() - interval '2 h', now() - interval '1 h')`, abroadID),
	}
	byRule := func(v verb) bool { return v.family == "insert by rule" }
	taken := window(9, step.WindowThrottle, "taken")
	taken.Key = "x"
	return world{name: "windowed", setup: setup, only: byRule, verbs: []verb{
		ruled("replace", onConflict(1, step.ConflictReplace)), ruled("replace again", onConflict(2, step.ConflictReplace)),
		ruled("newest", onConflict(3, step.ConflictNewest)), ruled("newest again", onConflict(4, step.ConflictNewest)),
		ruled("throttle", window(5, step.WindowThrottle, "t")), ruled("throttle again", window(6, step.WindowThrottle, "t")),
		ruled("throttle anew", window(7, step.WindowThrottle, "old")), ruled("once", window(8, step.WindowOnce, "t")),
		ruled("throttle, key taken", taken),
		ruled("debounce", window(10, step.WindowDebounce, "d")), ruled("debounce again", window(11, step.WindowDebounce, "d")),
		inserts("insert", spec("x", "")), claims("claim", "default", owner, 10), cancels("cancel", subjectID),
		operates("pause", store.Pause, subjectID), holds("hold", subject, subjectID), holds("hold debounced", key, abroadID), prunes(),
		inTurn("run now, claim", operates("", store.RunNow, abroadID), claims("", "default", "w2", 10)),
	}}
}

// onConflict returns a spec that contends for the subject's key.
func onConflict(n int, c step.Conflict) step.Spec {
	x := spec("x", "")
	x.State, x.Conflict = fmt.Appendf(nil, `{"n": %d}`, n), c
	return x
}

// window returns a spec with a window of hours.
func window(n int, kind step.WindowKind, key string) step.Spec {
	x := spec("", "")
	x.State, x.Window = fmt.Appendf(nil, `{"n": %d}`, n), step.Window{Kind: kind, Key: key, For: 10_000 * 24 * time.Hour}
	if kind == step.WindowDebounce {
		x.Delay, x.Labels = x.Window.For, json.RawMessage(`{"w": "d"}`)
	}
	return x
}

// ruled inserts a spec with a policy or a window.
func ruled(name string, x step.Spec) verb {
	return verb{name: name, family: "insert by rule", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		x := x
		x.UID = uuid.New()
		once := func(ctx context.Context) error {
			in, err := s.db.Insert(ctx, []*step.Spec{&x})
			if err != nil {
				return err
			}
			s.facts.ruling(s.name, &x, in[0])
			if !in[0].Replaced && !in[0].Throttled {
				s.facts.insertion(s.name, x.Key, in[0])
			}
			return nil
		}
		s.insist("insert", once(ctx), once)
	}}
}

// newestCancels notes the marks of the cancels that an insert of the newest has made: it does not
// tell them.
const newestCancels = `outcome SELECT DISTINCT (m.n).commit_id, $1::text, 0, '', 0, 0, 'cancel', '{}'::bigint[], '{}'::bigint[], 0, false, '{}'::text[]
	FROM interleave.move m WHERE m.actor = $1 AND (m.n).failure = 'cancelled' AND (m.o).failure IS NULL`

// ruling notes what an insert by rule was told.
func (f *facts) ruling(actor string, x *step.Spec, i store.Inserted) {
	var state struct{ N int }
	_ = json.Unmarshal(x.State, &state) // the world has written it
	if x.Conflict == step.ConflictNewest {
		f.newest = append(f.newest, []any{actor})
	}
	window := ""
	if x.Window.Kind != "" {
		window = x.Window.Name()
	}
	f.rulings = append(f.rulings, []any{actor, i.ID, state.N, []string{"refuse", "replace", "newest"}[x.Conflict], window, i.Duplicate, i.Replaced, i.Throttled})
}
