package store_test

import (
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

var operators = group{"An operator's verbs", "", []transition{
	{name: "cancel of a runnable one", from: "runnable", happens: verb(store.Cancel), makes: all(cancelled, claimEnds)},
	{name: "cancel of an executing one", from: "executing", happens: verb(store.Cancel), makes: all(cancelled, claimEnds)},
	{name: "cancel of one that awaits a signal", from: "awaiting_signal", happens: verb(store.Cancel),
		makes: all(cancelled, rules{"await_deadline": null})},
	{name: "cancel of one that awaits children", from: "awaiting_children", happens: verb(store.Cancel), makes: cancelled},
	{name: "retry", from: "failed", with: columns{"paused": `true`}, happens: verb(store.Retry),
		makes: all(awake, rules{"failure": null, "finished_at": null, "attempt": is("0"), "crashes": is("0"), "updated_at": now,
			"run_gate": null, "run_place": null,
			"paused": is("false"), "pick_lane": is("0"), "correlation_guard": of("the key", func(s *scene) string { return s.key() })})},
	{name: "retry, its deadline past", from: "failed", with: past, happens: verb(store.Retry),
		makes: all(awake, rules{"failure": null, "finished_at": null, "attempt": is("0"), "crashes": is("0"), "updated_at": now,
			"run_gate": null, "run_place": null,
			"deadline": null, "pick_lane": is("0"), "correlation_guard": of("the key", func(s *scene) string { return s.key() })})},
	{name: "run now", from: "runnable", with: columns{"eligible_at": `now() + interval '1 hour'`, "pick_lane": `2`}, happens: verb(store.RunNow),
		makes: rules{"eligible_at": now, "pick_lane": is("0"), "gate": null, "place": null, "seat": null, "updated_at": now}},
	{name: "reschedule", from: "runnable", with: columns{"pick_lane": `1`}, happens: verb(store.Reschedule),
		makes: rules{"eligible_at": at("that time, or now", tomorrow), "pick_lane": is("0"), "gate": null, "place": null, "seat": null, "updated_at": now, itsNext: promoted}},
	{name: "pause", from: "runnable", happens: verb(store.Pause),
		makes: rules{"paused": is("true"), "gate": null, "place": null, "seat": null, itsNext: promoted}},
	{name: "pause of an executing one", from: "executing", with: columns{"paused": `false`}, happens: verb(store.Pause),
		makes: rules{"paused": is("true")}},
	{name: "resume", from: "runnable", with: columns{"paused": `true`, "pick_lane": `1`}, happens: verb(store.Resume),
		makes: rules{"paused": is("false"), "pick_lane": is("0")}},
	{name: "edit of one that awaits a signal", from: "awaiting_signal", happens: edited(store.Edits), makes: rules{"state": given(`{"state": "new"}`)}},
	{name: "edit with new keys", from: "failed", happens: edited(store.Edits, func(o *store.Order) { o.NewKeys = true }),
		makes: rules{"state": given(`{"state": "new"}`), "visit": plusOne}},
	{name: "rewind of a runnable one", from: "runnable", with: columns{"pick_lane": `1`}, happens: edited(store.Rewind), makes: rewound},
	{name: "rewind of one that awaits children", from: "awaiting_children", with: columns{"round": `7`, "losers": `'{5,7}'`}, happens: edited(store.Rewind),
		makes: all(rewound, rules{"losers": shown("without the round", "[5]")})},
	{name: "rewind of a failed one", from: "failed", with: past.with(columns{"paused": `true`}), happens: edited(store.Rewind),
		makes: all(rewound, rules{"paused": is("false"), "deadline": null, "failure": null, "finished_at": null, "run_gate": null, "run_place": null,
			"correlation_guard": of("the key", func(s *scene) string { return s.key() })})},
}}

var cancelled = all(ended, rules{"status": is("failed"), "failure": is("cancelled"),
	"last_error": is("cancelled: wrong order").as("the reason"), "errors": remembers("cancel", "cancelled: wrong order")})

var rewound = all(progress, awake, rules{"commit_id": unchanged, "await_deadline": null, "children_pending": is("0"), "pick_lane": is("0"),
	"gate": null, "place": null, "seat": null})

// edited returns a function that edits or rewinds the scene's row, by a copy of it as it is.
func edited(v store.Verb, change ...func(*store.Order)) func(s *scene) {
	return func(s *scene) {
		s.t.Helper()
		o := s.copied(v, s.id)
		e := o.Edits[s.id]
		e.New, e.To = []byte(`{"state": "new"}`), "there"
		o.Edits[s.id] = e
		for _, f := range change {
			f(&o)
		}
		require.Len(s.t, s.operate(o, s.id).Changed, 1)
	}
}

// verb returns a function that applies an operator's verb to the scene's row.
func verb(v store.Verb) func(s *scene) {
	return func(s *scene) {
		s.t.Helper()
		o := store.Order{Verb: v, Mark: s.mark, At: tomorrow}
		if v == store.Cancel {
			o.Reason = "wrong order"
		}
		got, err := s.Operate(s.t.Context(), []int64{s.id}, &o)
		require.NoError(s.t, err)
		require.Len(s.t, got.Changed, 1)
		require.Empty(s.t, got.Refused)
		require.Empty(s.t, got.Missed)
	}
}
