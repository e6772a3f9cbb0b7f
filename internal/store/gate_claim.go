package store

import "strings"

// gatedSQL is claimSQL for a process that knows of gates. Where claimSQL would claim a row that is
// behind a gate and has no place, gatedSQL puts it in line there (act 5, lane 3), once: a hundred
// thousand rows at a gate without places are then in nobody's way. It claims a row that has a
// place.
//
// Only a row that claimSQL would claim comes into a line, so of a partition key only the head. It
// is locked here, so the rows of the key that are moved to lane 1 behind it are promoted when its
// claim ends, as behind any anchor.
//
// A row that has a place and cannot be claimed (it is not the head of its key, or nobody here knows
// its machine) loses the place. Its gate goes to the caller, who has to Admit it, like the gates at
// which it has put rows in line.
//
// A process that knows of no gate claims with claimSQL. That leaves places as they are, and takes
// rows without one: see Poll for how soon it knows.
var gatedSQL = gatedClaim(claimSQL)

// These are to claimOthersSQL and claimSomeSQL what gatedSQL is to claimSQL.
var gatedOthersSQL, gatedSomeSQL = gatedClaim(claimOthersSQL), gatedClaim(claimSomeSQL)

func gatedClaim(claim string) string { return strings.NewReplacer(gatedChanges...).Replace(claim) }

// gatedChanges turns claimSQL into gatedSQL: pairs of old and new text. TestGatedClaim holds them
// to claimSQL.
var gatedChanges = []string{
	`= ANY($4::text[]) AS known`, `= ANY($4::text[]) AS known` + gatedColumns,
	`true AS known`, `true AS known` + gatedColumns,
	`SELECT tid, id, partition_key, act, row_number()`, `SELECT tid, id, partition_key, act, gate, had, row_number()`,
	`SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at,`, `SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at, w.gate, w.had,`,
	`p.head = w.id THEN 0`, `p.head = w.id THEN CASE WHEN w.gate IS NULL THEN 0 ELSE 5 END`,
	`SELECT tid, id, NULL, 3, 1 FROM held`, `SELECT tid, id, NULL, 3, NULL, NULL, 1 FROM held`,
	`WHEN 4 THEN 1 ELSE 0 END,`, `WHEN 4 THEN 1 WHEN 5 THEN 3 ELSE 0 END,
    gate = CASE t.act WHEN 0 THEN t.had WHEN 5 THEN t.gate END, place = CASE WHEN t.act = 0 THEN g.place END,`,
	`(t.act < 4 OR $10::bool)`, `(t.act <> 4 OR $10::bool)`,
	`RETURNING t.act, g.id,`, `RETURNING t.act, CASE WHEN t.act = 5 THEN t.gate WHEN t.act > 0 THEN t.had END AS line, g.id,`,
	` AS unsettled FROM moved)`, ` AS unsettled,
    array_agg(DISTINCT line) FILTER (WHERE line IS NOT NULL) AS lines FROM moved)`,
	`set_config('gendurable.unsettled', coalesce(sum.unsettled::text, '{}'), false))`,
	`set_config('gendurable.unsettled', coalesce(sum.unsettled::text, '{}'), false) ||
    set_config('gendurable.lines', coalesce(sum.lines::text, '{}'), false))`,
}

// gatedColumns are, of row g, the gate at which it has to get in line first, and the one of which
// it has a place.
const gatedColumns = `,
      CASE WHEN g.place IS NULL THEN ` + gateText + ` END AS gate, CASE WHEN g.place IS NOT NULL THEN g.gate END AS had`

// gatedSettingsSQL is claimSettingsSQL behind gatedSQL. It also returns the gates to Admit.
var gatedSettingsSQL = strings.Replace(claimSettingsSQL, `current_setting('gendurable.unsettled')::text[],`,
	`current_setting('gendurable.unsettled')::text[], current_setting('gendurable.lines')::text[],`, 1)
