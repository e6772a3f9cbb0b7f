package model_test

// changeMutants break what changes instances from outside of their steps.
var changeMutants = []mutant{
	{"edit of another visit", "operate_edit.go", "AND g.visit = u.visit AND g.state", "AND g.state"},
	{"edit of another state", "operate_edit.go", " AND g.state = u.old::jsonb", ""},
	{"edit of another version", "operate_edit.go", " AND g.fsm_version = u.version", ""},
	{"new keys keep the visit", "operate_edit.go", "CASE WHEN $11::boolean THEN 1 ELSE 0 END", "CASE WHEN $11::boolean THEN 0 ELSE 0 END"},
	{"new keys where children join", "operate.go", "case o.NewKeys && r.joins:", "case o.NewKeys && r.joins && r == nil:"},
	{"rewind awaits on", "operate_edit.go", "awaits = NULL, timed_out", "timed_out"},
	{"rewind keeps the await's deadline", "operate_edit.go", "await_deadline = NULL, children_pending", "children_pending"},
	{"rewind keeps the barrier", "operate_edit.go", "children_pending = 0,", "children_pending = g.children_pending,"},
	{"rewind keeps attempts", "operate_edit.go", "attempt = 0, crashes = 0,", "crashes = 0,"},
	{"rewind stays aside", "operate_edit.go", "finished_at = NULL, pick_lane = {lane front},", "finished_at = NULL,"},
	{"rewind keeps a deadline that is past", "operate_edit.go", "deadline = CASE WHEN g.status <> 'failed' OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END",
		"deadline = g.deadline"},
	{"rewind without a promotion", "operate.go", "|| o.Verb == Reschedule || o.Verb == Rewind) {", "|| o.Verb == Reschedule) {"},
	{"migration stays aside", "operate_migrate.go", "pick_lane = CASE WHEN g.pick_lane = {lane key} AND NOT `+unconverted+` THEN {lane key} ELSE `+frontAgain+` END", "pick_lane = g.pick_lane"},
	{"set aside costs an attempt", "claim_stray.go", "aside_step = g.step, paused", "aside_step = g.step, attempt = g.attempt + 1, paused"},
	{"what cannot be converted runs on", "claim_stray.go", "paused = g.paused OR u.fault IS NOT NULL,", "paused = g.paused,"},
	{"recall of any step", "claim_stray.go", "k.f = a.f AND k.v = a.v AND k.s = a.s", "k.f = a.f AND k.v = a.v"},
}
