package interleave

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
)

// moved makes a row of the history from JSON objects of columns. {} stands for no row.
func moved(o, n string) string {
	return fmt.Sprintf(`INSERT INTO interleave.change (actor, o, n) VALUES ('A', jsonb_populate_record(NULL::gendurable.gen_durable, '%s'),
		jsonb_populate_record(NULL::gendurable.gen_durable, '%s'))`, o, n)
}

// movedBy is moved by a separate transaction.
func movedBy(xid int, o, n string) string {
	return strings.NewReplacer("(actor,", "(xid, actor,", "VALUES (", fmt.Sprintf("VALUES ('%d'::xid8, ", xid)).Replace(moved(o, n))
}

func posted(o, n string) string {
	return fmt.Sprintf(`INSERT INTO interleave.letter (actor, o, n) VALUES ('A', jsonb_populate_record(NULL::gendurable.signals, '%s'),
		jsonb_populate_record(NULL::gendurable.signals, '%s'))`, o, n)
}

func planned(o, n string) string {
	return fmt.Sprintf(`INSERT INTO interleave.plan (actor, o, n) VALUES ('A', jsonb_populate_record(NULL::gendurable.schedules, '%s'),
		jsonb_populate_record(NULL::gendurable.schedules, '%s'))`, o, n)
}

// noted makes a row of the history of lost claims.
func noted(o, n string) string {
	return fmt.Sprintf(`INSERT INTO interleave.taken (actor, o, n) SELECT 'A', jsonb_populate_record(NULL::gendurable.lost_claims, %s),
		jsonb_populate_record(NULL::gendurable.lost_claims, %s)`, o, n)
}

const (
	note   = `'{"id":"00000000-0000-0000-0000-00000000000a","partition_key":"k","worker":"w","claim_token":11}'`
	nobody = `{}`
	aMark  = "00000000-0000-0000-0000-00000000000a"
)

func intended(kind step.Kind, presented string, children int, applied bool) string {
	return fmt.Sprintf(`INSERT INTO interleave.outcome VALUES ('%s', 'A', 2, 'w', 11, 3, '%s', '%s', '{}', %d, %t)`, aMark, kind, presented, children, applied)
}

const rated1 = `INSERT INTO gendurable.gates (name, rate, rate_per, rate_burst) VALUES ('g', 1, 1000000, 1)`

var begins1 = moved(`{"id":2,"fsm":"m","status":"runnable"}`, `{"id":2,"fsm":"m","gate":"g","status":"executing"}`)

// told makes a row of what an insert by rule was told.
func told(id int64, conflict, window, told string) string {
	return fmt.Sprintf(`INSERT INTO interleave.ruling VALUES ('A', %d, 1, '%s', '%s', %s)`, id, conflict, window, told)
}

// violations break each invariant once.
var violations = map[string][]string{
	"unfenced outcome": {intended(step.Next, "{}", 0, true), moved(`{"id":2,"status":"executing","locked_by":"w","claim_token":13,"visit":3}`,
		`{"id":2,"status":"runnable","commit_id":"`+aMark+`"}`)},
	"outcome applied twice": {moved(`{"id":2,"status":"executing","claim_token":11,"visit":3}`, `{"id":2,"commit_id":"`+aMark+`"}`),
		moved(`{"id":2,"status":"executing","claim_token":11,"visit":3}`, `{"id":2,"visit":9,"commit_id":"`+aMark+`"}`)},
	"untold":                    {intended(step.Next, "{}", 0, true)},
	"write without its outcome": {`INSERT INTO interleave.booked VALUES ('` + aMark + `')`},
	"outcome without its write": {`INSERT INTO interleave.owned VALUES ('` + aMark + `')`,
		moved(`{"id":2,"status":"executing"}`, `{"id":2,"commit_id":"`+aMark+`"}`)},
	"given up":   {row(subjectID, with(executing, "claim_token", "11", "visit", "3")...), `INSERT INTO interleave.stale VALUES ('A', '` + owner + `', 2, 11, 3)`},
	"unfinished": {intended(step.Next, "{}", 0, false)},

	"claim ended by a stranger": {moved(`{"id":2,"status":"executing","locked_by":"w","claim_token":11}`, `{"id":2,"status":"runnable"}`)},
	"lease extended by a stranger": {moved(`{"id":2,"status":"executing","lease_expires_at":"2026-01-01"}`,
		`{"id":2,"status":"executing","lease_expires_at":"2026-01-02"}`)},
	"terminal row changed":  {moved(`{"id":2,"status":"failed"}`, `{"id":2,"status":"runnable"}`)},
	"retried as another":    {moved(`{"id":2,"status":"failed","visit":3}`, `{"id":2,"status":"runnable","visit":4}`)},
	"claimed though paused": {moved(`{"id":2,"status":"runnable","paused":true}`, `{"id":2,"status":"executing"}`)},
	"strange move":          {moved(`{"id":2,"status":"runnable"}`, `{"id":2,"status":"done"}`)},
	"live row deleted":      {moved(`{"id":2,"status":"runnable"}`, nobody)},
	"row out of shape":      {row(subjectID, "locked_by", "'w'")},

	"lost wake":            {row(subjectID, "status", "'awaiting_signal'", "awaits", "'{go}'"), signal(21, subjectID, "go", "")},
	"woken by nothing":     {moved(`{"id":2,"status":"awaiting_signal","awaits":["go"]}`, `{"id":2,"status":"runnable"}`)},
	"signal of the dead":   {row(subjectID, "status", "'done'", "finished_at", "now()"), signal(21, subjectID, "go", "")},
	"accepted by the dead": {moved(`{"id":2,"status":"executing"}`, `{"id":2,"status":"failed"}`), posted(nobody, `{"id":21,"target_id":2}`)},
	"signal lost":          {posted(`{"id":21,"target_id":2}`, nobody)},
	"signal not consumed": {row(subjectID), signal(21, subjectID, "go", ""), intended(step.Next, "{21}", 0, true),
		moved(`{"id":2,"status":"executing"}`, `{"id":2,"commit_id":"`+aMark+`"}`)},
	"ended beside a signal": {
		fmt.Sprintf(`INSERT INTO interleave.outcome VALUES ('%s', 'A', 2, 'w', 11, 3, 'done', '{}', '{}', 0, true, '{go}')`, aMark),
		moved(`{"id":2,"status":"executing"}`, `{"id":2,"status":"done","commit_id":"`+aMark+`"}`), row(subjectID), signal(21, subjectID, "go", "")},
	"told duplicate":         {`INSERT INTO interleave.sent VALUES ('A', 999, '', 'go', 999, false, true, true)`},
	"told delivered":         {`INSERT INTO interleave.sent VALUES ('A', 2, '', 'go', 2, true, false, true)`},
	"told undelivered":       {`INSERT INTO interleave.sent VALUES ('A', 2, '', 'go', 2, true, false, false)`, posted(nobody, `{"id":21,"target_id":2}`)},
	"no target though alive": {row(subjectID), `INSERT INTO interleave.sent VALUES ('A', 2, '', 'go', 0, false, false, false)`},
	"duplicate inserted":     {posted(`{"id":21,"target_id":2,"dedup_key":"d"}`, nobody), posted(nobody, `{"id":22,"target_id":2,"dedup_key":"d"}`)},
	"inbox paired with another claim": {posted(nobody, `{"id":21,"target_id":2,"name":"go"}`),
		moved(`{"id":2,"status":"runnable"}`, `{"id":2,"status":"executing","claim_token":11,"awaits":["go"]}`),
		`INSERT INTO interleave.claimed VALUES ('A', 'w', 2, 11, '{}')`},

	"barrier": {row(parentID, "status", "'awaiting_children'", "round", "1", "children_pending", "1")},
	"woke early": {row(parentID, "round", "1"), row(subjectID, ofParent...),
		moved(`{"id":1,"status":"awaiting_children","round":1}`, `{"id":1,"status":"runnable","round":1}`)},
	"overslept": {moved(`{"id":1,"status":"awaiting_children"}`, `{"id":1,"status":"awaiting_children","round":1,"children_pending":2,
		"join_round":1,"join_size":3,"join_done":1,"join_failed":0,"wake_done":1}`)},
	"policy miscounted": {row(parentID, "status", "'awaiting_children'", "round", "1", "children_pending", "1", "join_round", "1", "join_size", "3",
		"join_done", "0", "join_failed", "1")},
	"woke twice": {moved(`{"id":1,"status":"awaiting_children"}`, `{"id":1,"status":"runnable","round":1}`),
		moved(`{"id":1,"status":"awaiting_children"}`, `{"id":1,"status":"runnable","round":1}`)},
	"node miscounted": {row(followerID, "status", "'awaiting_children'", "node", "'c'", "children_pending", "1")},
	"node overslept": {row(followerID, "status", "'awaiting_children'", "node", "'c'", "children_pending", "1"),
		row(subjectID, "status", "'failed'", "failure", "'error'", "finished_at", "now()", "joined", "gen_random_uuid()"),
		`INSERT INTO gendurable.edges VALUES (2, 4, 0)`},
	"node woke early": {`INSERT INTO gendurable.edges VALUES (2, 4, 0)`,
		moved(`{"id":4,"status":"awaiting_children","node":"c","visit":0}`, `{"id":4,"status":"runnable","node":"c","visit":0}`)},
	"node begun early": {`INSERT INTO gendurable.edges VALUES (2, 4, 0)`, row(parentID), row(subjectID, ofParent...),
		row(followerID, with(ofParent, "node", "'c'")...)},
	"skipped for nothing": {row(parentID, "status", "'awaiting_children'", "round", "1", "children_pending", "1"),
		row(followerID, with(ofParent, "node", "'c'", "join_failed", "1")...)},
	"addition lost": {`INSERT INTO interleave.added VALUES ('` + aMark + `', 1, NULL, 'x')`, moved(`{"id":2}`, `{"id":2,"commit_id":"`+aMark+`"}`)},
	"added edge lost": {`INSERT INTO interleave.added VALUES ('` + aMark + `', 1, 'a', 'x')`, moved(`{"id":2}`, `{"id":2,"commit_id":"`+aMark+`"}`),
		row(parentID), row(subjectID, with(ofParent, "node", "'a'")...), row(followerID, with(ofParent, "node", "'x'", "status", "'awaiting_children'")...)},
	"added to what is over": {moved(nobody, `{"id":4,"parent_id":1,"node":"x"}`), row(parentID, "status", "'done'", "finished_at", "now()")},
	"decided for what is over": {`INSERT INTO interleave.added VALUES ('` + aMark + `', 1, NULL, 'x')`,
		moved(`{"id":2}`, `{"id":2,"commit_id":"`+aMark+`"}`), row(parentID, "status", "'done'", "finished_at", "now()")},
	"cancelled for what lives": {`INSERT INTO interleave.outcome VALUES ('` + aMark + `', 'A', 0, '', 0, 0, 'over', '{}', '{}', 0, false, '{}')`, row(parentID),
		moved(`{"id":2,"parent_id":1,"status":"executing"}`, `{"id":2,"parent_id":1,"status":"failed","failure":"cancelled","commit_id":"`+aMark+`"}`)},
	"waits for itself": {`INSERT INTO gendurable.edges VALUES (2, 4, 0), (4, 2, 0)`},
	"joined twice":     {moved(`{"id":2,"joined":"`+aMark+`"}`, `{"id":2}`)},
	"not joined":       {row(parentID), row(subjectID, with(ofParent, "status", "'done'", "finished_at", "now()")...)},
	"miscounted":       {moved(`{"id":1,"status":"awaiting_children","children_pending":2}`, `{"id":1,"status":"awaiting_children","children_pending":1}`)},
	"orphan child":     {moved(nobody, `{"id":2,"parent_id":1}`)},
	"children missing": {intended(step.Children, "{}", 2, true), moved(`{"id":2,"status":"executing"}`, `{"id":2,"commit_id":"`+aMark+`"}`),
		moved(nobody, `{"id":3,"parent_id":2}`)},
	"descendant left": {row(parentID, "status", "'failed'", "failure", "'cancelled'", "finished_at", "now()"), row(subjectID, ofParent...),
		`INSERT INTO interleave.outcome VALUES ('` + aMark + `', 'A', 1, '', 0, 0, 'cancel family', '{}', '{}', 0, true)`},
	"cancelled before its child": {moved(`{"id":1,"status":"executing"}`, `{"id":1,"status":"failed","failure":"cancelled"}`),
		moved(`{"id":2,"parent_id":1,"status":"executing"}`, `{"id":2,"parent_id":1,"status":"failed","failure":"cancelled"}`)},
	"cancelled though waited for": {rested, row(parentID, "status", "'awaiting_children'", "round", "1"), moved(`{"id":2,"parent_id":1,"parent_round":1,"status":"executing"}`,
		`{"id":2,"parent_id":1,"parent_round":1,"status":"failed","commit_id":"`+aMark+`"}`)},
	"cancelled though its root lives": {rested, row(parentID, "round", "1", "graphs", "'{1}'"),
		moved(`{"id":2,"parent_id":1,"parent_round":1,"node":"a","status":"executing"}`, `{"id":2,"parent_id":1,"parent_round":1,"node":"a","status":"failed","commit_id":"`+aMark+`"}`)},
	"outlives its root":     {rested, row(parentID, "status", "'done'", "finished_at", "now()"), row(subjectID, with(ofParent, "node", "'a'")...)},
	"loser left":            {rested, row(parentID, "losers", "'{1}'"), row(subjectID, ofParent...)},
	"round not forgotten":   {rested, row(parentID, "losers", "'{1}'")},
	"child lost its parent": {row(subjectID, "depth", "1")},

	"end without a number": {row(parentID), row(subjectID, with(ofParent, "status", "'done'", "finished_at", "now()")...), moved(`{"id":2}`, `{"id":2,"parent_round":-1,"joined":"`+aMark+`"}`)},
	"stream out of order": {row(parentID), row(subjectID, with(ofParent, "stream_nth", "2")...), row(nephewID, with(ofParent, "stream_nth", "1")...),
		movedBy(1, `{"id":2}`, `{"id":2,"parent_id":1,"parent_round":-1,"joined":"`+aMark+`"}`), movedBy(2, `{"id":7}`, `{"id":7,"parent_id":1,"parent_round":-1,"joined":"`+aMark+`"}`)},
	"shown before its end": {row(subjectID, "stream_visit", "1")},
	"shown twice":          {moved(`{"id":2,"stream_visit":1}`, `{"id":2,"stream_visit":2}`)},
	"portion grew":         {movedBy(1, `{"id":2}`, `{"id":2,"parent_id":1,"stream_visit":1}`), movedBy(2, `{"id":3}`, `{"id":3,"parent_id":1,"stream_visit":1}`)},
	"overslept a stream": {row(parentID, "status", "'awaiting_children'", "round", "-1", "stream_most", "2", "children_pending", "1"),
		row(subjectID, "parent_id", "1", "parent_round", "-1", "status", "'done'", "finished_at", "now()", "joined", "'"+aMark+"'")},

	"lost claim not noted":  {moved(`{"id":2,"status":"executing","partition_key":"k","crashes":0}`, `{"id":2,"status":"runnable","partition_key":"k","crashes":1}`)},
	"noted though not lost": {noted(`NULL`, note)},
	"not told who lingers": {lostClaim, moved(`{"id":2,"status":"runnable"}`, `{"id":2,"status":"executing","claim_token":12,"partition_key":"k"}`),
		`INSERT INTO interleave.claimed VALUES ('A', 'w2', 2, 12, '{}', 12, false)`},
	"begun beside a lost claim": {lostClaim, `INSERT INTO interleave.asked VALUES ('w2', 'k', false)`},
	"lost claim forgotten":      {`INSERT INTO interleave.alive VALUES ('w')`, noted(note, `NULL`)},
	"lost claim kept":           {lostClaim, `INSERT INTO interleave.landed VALUES ('` + owner + `', 11)`},
	"fencing token fell": {moved(`{"id":2,"status":"runnable"}`, `{"id":2,"status":"executing","claim_token":11,"partition_key":"k"}`),
		moved(`{"id":4,"status":"runnable"}`, `{"id":4,"status":"executing","claim_token":13,"partition_key":"k"}`),
		`INSERT INTO interleave.claimed VALUES ('A', 'w', 2, 11, '{}', 14, false), ('A', 'w', 4, 13, '{}', 13, false)`},

	"fired from elsewhere": {planned(`{"name":"s","expression":"x","next_at":"2026-01-01"}`, `{"name":"s","expression":"x","next_at":"2026-01-02"}`)},
	"fired though paused": {planned(`{"name":"s","expression":"x","next_at":"2026-01-01","paused_at":"2026-01-01"}`,
		`{"name":"s","expression":"x","next_at":"2026-01-02"}`)},
	"occurrence of no schedule": {moved(nobody, `{"id":2,"correlation_key":"schedule:s:1"}`)},
	"occurrence lost":           {`INSERT INTO interleave.firing VALUES ('A', 's', now(), now(), '{schedule:s:1}', true)`},
	"occurrence twice": {`DROP INDEX gendurable.gen_durable_correlation`, row(subjectID, "correlation_key", "'schedule:s:1'"),
		row(followerID, "correlation_key", "'schedule:s:1'")},
	"overlap": {row(subjectID, "correlation_key", "'schedule:lone:1'"), row(followerID, "correlation_key", "'schedule:lone:2'")},
	"left due": {`INSERT INTO gendurable.schedules (name, spec, expression, next_at) VALUES ('s', '{}', 'x', now())`,
		`INSERT INTO interleave.tried VALUES ('s', now())`},

	"kept beside its occupant": {row(subjectID, addressed...), keptFor(31, "x", "go", "", "1 h"), `INSERT INTO interleave.looked VALUES ('A')`},
	"kept signal lost": {`INSERT INTO interleave.shelf (actor, o) VALUES ('A', jsonb_populate_record(NULL::gendurable.kept_signals,
		'{"id":31,"key":"x","name":"go","expires_at":"2126-01-01"}'))`},
	"told kept": {`INSERT INTO interleave.shelved VALUES ('A', 'x', 'go', false)`},

	"gate exceeded": {`INSERT INTO gendurable.gates (name, places) VALUES ('g', 0)`, moved(`{"id":2}`, `{"id":2,"gate":"g","place":1}`),
		row(subjectID, "gate", "'g'", "place", "1")},
	"total exceeded": {`INSERT INTO gendurable.gates (name, label, total) VALUES ('g', 'c', 0)`, moved(`{"id":2}`, `{"id":2,"gate":"g/a","place":1}`),
		row(subjectID, "gate", "'g/a'", "place", "1")},
	"rate exceeded":         {rated1, `INSERT INTO interleave.owed VALUES ('g', 1)`, begins1},
	"rate not paid":         {rated1, begins1},
	"closed in word only":   {`INSERT INTO interleave.closed VALUES ('g')`},
	"weighed in word only":  {`INSERT INTO interleave.weighed VALUES ('g')`},
	"granted in word only":  {`INSERT INTO interleave.granted VALUES ('g/a', 2)`},
	"in line elsewhere":     {`INSERT INTO interleave.refiled VALUES ('A')`, row(subjectID, "gate", "'g'", "pick_lane", "3")},
	"result lost":           {row(parentID, "status", "'awaiting_children'", "round", "1", "children_pending", "1"), moved(`{"id":2,"status":"done","parent_id":1,"parent_round":1}`, nobody)},
	"told ended":            {row(subjectID), `INSERT INTO interleave.waited VALUES ('A', 2)`},
	"throttled for nothing": {`INSERT INTO interleave.throttled VALUES ('g/a')`},
	"claim without a place": {`INSERT INTO gendurable.gates (name, machine, places) VALUES ('g', 'm', 1)`, begins1},
	"place kept":            {row(subjectID, "gate", "'g'", "place", "1", "status", "'done'", "finished_at", "now()")},
	"line stands still":     {row(subjectID, "gate", "'g'", "pick_lane", "3")},
	"key stands still":      {row(subjectID, "partition_key", "'k'", "pick_lane", "1")},
	"overtook":              {moved(`{"id":4,"status":"runnable"}`, `{"id":4,"status":"executing"}`), `UPDATE interleave.change SET overtook = 2`},
	"two of a key": {`DROP INDEX gendurable.gen_durable_busy`, row(subjectID, with(executing, "partition_key", "'k'")...),
		row(followerID, with(executing, "partition_key", "'k'")...)},
	"written over":               {moved(`{"id":2,"status":"runnable","state":{"a":1}}`, `{"id":2,"status":"runnable","state":{"a":2}}`)},
	"edit untold":                {`INSERT INTO interleave.edited VALUES ('A', 2, 'edit', 1, 3, 's', '{}', '{"a":1}', 1, 's', true)`},
	"edit not recorded":          {`INSERT INTO interleave.edited VALUES ('A', 2, 'edit', 1, 3, 's', '{}', '{"a":1}', 1, 's', true)`},
	"stray out of shape":         {row(subjectID, "pick_lane", "4", "aside_step", "'t'")},
	"claimed from aside":         {moved(`{"id":2,"status":"runnable","pick_lane":4}`, `{"id":2,"status":"executing","claim_token":11}`)},
	"two guards":                 {`DROP INDEX gendurable.gen_durable_correlation`, row(subjectID, addressed...), row(followerID, addressed...)},
	"claim untold":               {moved(`{"id":2,"status":"runnable"}`, `{"id":2,"status":"executing","claim_token":11}`)},
	"claim that is none":         {`INSERT INTO interleave.claimed VALUES ('A', 'w', 2, 11, '{}')`},
	"token fell":                 {moved(`{"id":2,"claim_token":13}`, `{"id":2,"claim_token":11}`)},
	"insert untold":              {`INSERT INTO interleave.inserted VALUES ('A', 2, false, '')`},
	"duplicate of nobody":        {`INSERT INTO interleave.inserted VALUES ('A', 2, true, 'x')`},
	"window exceeded":            {told(3, "refuse", "once:t", "false, false, false"), told(4, "refuse", "once:t", "false, false, false")},
	"window lost":                {told(3, "refuse", "once:t", "false, false, false")},
	"window without an instance": {`INSERT INTO gendurable.windows (name, uid, opened_at, until) VALUES ('once:t', gen_random_uuid(), now(), now() + interval '1 h')`},
	"kept out by nobody":         {told(3, "refuse", "once:t", "true, false, true")},
	"debounced beside":           {row(subjectID, "labels", `'{"w": "d"}'`), row(followerID, "labels", `'{"w": "d"}'`)},
	"replaced what had begun": {told(2, "replace", "", "false, true, false"),
		moved(`{"id":2,"status":"runnable","claim_token":11}`, `{"id":2,"status":"runnable","claim_token":11,"state":{"n":1}}`)},
	"replaced in word only":        {told(2, "replace", "", "false, true, false")},
	"refused beside what waits":    {told(2, "replace", "", "true, false, false")},
	"newest refused":               {told(2, "newest", "", "true, false, false")},
	"transition not recorded once": {recording, intended(step.Next, "{}", 0, true), transition},
	"recorded otherwise": {recording, intended(step.Next, "{}", 0, true), transition,
		`INSERT INTO gendurable.history (instance, visit, kind, step, to_step) VALUES (2, 3, 'next', 's', 'elsewhere')`},
	"recorded though it was none": {recording, `INSERT INTO gendurable.history (instance, visit, kind, step) VALUES (2, 3, 'done', 's')`},
	"verb not recorded once":      {moved(`{"id":2,"status":"failed"}`, `{"id":2,"status":"runnable"}`)},
	"verb that changed nothing":   {`INSERT INTO gendurable.history (instance, kind, actor) VALUES (2, 'admin.cancel', 'ada')`},
}

const rested = `INSERT INTO interleave.outcome VALUES ('` + aMark + `', 'A', 0, '', 0, 0, 'rest', '{}', '{}', 0, true)`

// Every invariant fires on a violation, and none on an empty database.
func TestEveryInvariantFires(t *testing.T) {
	t.Parallel()
	pgtest.PlainOnly(t, "it drops indexes by name, and those of shards have other names")
	r := newRig(t)
	for _, match := range regexp.MustCompile(`(?m)SELECT '([^']+)'(?: AS name)?, `).FindAllStringSubmatch(invariantsSQL, -1) {
		require.Contains(t, violations, match[1], "an invariant that nothing is known to break")
	}
	broken := func(tx pgx.Tx) []string {
		rows, err := tx.Query(t.Context(), `SELECT DISTINCT name FROM interleave.broken`)
		require.NoError(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return found
	}
	for name, statements := range violations {
		t.Run(name, func(t *testing.T) {
			tx, err := r.monitor.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			require.Empty(t, broken(tx))
			for _, sql := range statements {
				_, err := tx.Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
			require.Contains(t, broken(tx), name)
		})
	}
}
