package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A claim of a process that knows of gates has up to five statements where that of another process
// has claimSQL. All are in one transaction and one round trip:
//
//  1. lockGatesSQL locks the gates that may matter.
//  2. seatsSQL counts what the gate of the queue allows, if it has one.
//  3. gatedSQL claims from the front, and puts in line what is behind a gate there.
//  4. lineSQL claims from the lines. The two take turns at being the first.
//  5. paySQL pays for the claims at the gate of the queue, if that has a rate.
//
// They pass on what they found by settings of the session, as claimSQL does to look.

// lockGatesSQL locks the gates of a queue that allow something there: its own, and those at which
// rows are in line. It never waits. A gate that another claim has locked is left to that claim, and
// reported, so that the caller claims again soon.
//
// The lock is an advisory one, of the transaction. A stranger who has the row of a gate locked
// holds up no claim, and the row needs no update. It is no more than a wish to be alone: what would
// happen without it is a unique violation on gen_durable_place, and a rate that is exceeded, which
// nothing else prevents.
//
// $1 queue $2 this schema
var lockGatesSQL = named("lock gates", `SELECT length(set_config('gendurable.gates', coalesce(array_agg(x.name) FILTER (WHERE x.mine), '{}')::text, false) ||
    set_config('gendurable.claimed', '{}', false) || set_config('gendurable.awaiting', '{}', false) ||
    set_config('gendurable.fencing', '{}', false) || set_config('gendurable.unsettled', '{}', false) ||
    set_config('gendurable.lined', '{}', false) || set_config('gendurable.seats', '', false)), coalesce(bool_or(NOT x.mine), false)
FROM (SELECT l.name, pg_try_advisory_xact_lock(`+gateLock+`) AS mine FROM (
  SELECT r.name FROM {s}.gates r WHERE coalesce(r.queue = $1, true) AND (`+seatText+` OR (
    SELECT g.id FROM {s}.gen_durable g
    WHERE g.queue = $1 AND `+inLine+` AND g.gate ~>=~ r.name AND g.gate ~<~ (r.name || '0') `+lineOrder+` LIMIT 1) IS NOT NULL)
  ORDER BY r.name COLLATE "C" OFFSET 0) l) x`)

// gateLock is the advisory lock of gate l. '0' is what follows '/': all keys of a gate are between
// its name and its name with a 0.
const gateLock = `hashtextextended('gendurable gate ' || l.name || ' of ' || $2::text, 0)`

// gatedSQL is claimSQL for a process that knows of gates. Where claimSQL would claim a row that is
// behind a gate, gatedSQL puts it in line there (act 5, lane 3), once: a hundred thousand rows at a
// gate without places are then in nobody's way.
//
// Only a row that claimSQL would claim comes into a line, so of a partition key only the head. It
// is locked here, so the rows of the key that are moved to lane 1 behind it are promoted when its
// claim ends, as behind any anchor.
//
// A process that knows of no gate claims with claimSQL, which heeds none: see Poll for how soon it
// knows.
var gatedSQL = named("claim gated", gatedClaim(claimSQL.text))

// These are to claimOthersSQL and claimSomeSQL what gatedSQL is to claimSQL.
var gatedOthersSQL, gatedSomeSQL = named("claim others gated", gatedClaim(claimOthersSQL.text)), named("claim some gated", gatedClaim(claimSomeSQL.text))

func gatedClaim(claim string) string { return strings.NewReplacer(gatedChanges...).Replace(claim) }

// allowText is what a claim may still take: how many of the queue's seats, all if the queue has no
// gate, how many it has taken already, and how many it wants.
const allowText = `SELECT s.*, greatest(0, least(<limit>::bigint, coalesce(cardinality(s.seats), <limit>::bigint)) - s.had) AS want
  FROM (SELECT clock_timestamp() AS now, nullif(current_setting('gendurable.seats'), '')::int[] AS seats,
    cardinality(current_setting('gendurable.claimed')::bigint[]) AS had) s`

// gatedChanges turns claimSQL into gatedSQL: pairs of old and new text. TestGatedClaim holds them
// to claimSQL.
var gatedChanges = []string{
	`WITH RECURSIVE level(p, at, id)`, `WITH RECURSIVE allow AS MATERIALIZED (` + strings.ReplaceAll(allowText, "<limit>", "$5") + `),
o AS MATERIALIZED (` + onlyText + `),
level(p, at, id)`,
	`SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level`, `SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN o`,
	`SELECT r.* FROM aside`, `SELECT r.* FROM aside CROSS JOIN o`,
	`= ANY($4::text[]) AS known`, `= ANY($4::text[]) AS known` + gatedColumn,
	`true AS known`, `true AS known` + gatedColumn,
	`SELECT tid, id, partition_key, act, row_number()`, `SELECT tid, id, partition_key, act, gate, row_number()`,
	`SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at,`, `SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at, w.gate,`,
	`p.head = w.id THEN 0`, `p.head = w.id THEN CASE WHEN w.gate IS NULL THEN 0 ELSE 5 END`,
	`SELECT tid, id, NULL, 3, 1, priority`, `SELECT tid, id, NULL, 3, NULL, 1, priority`,
	`WHEN 4 THEN 1 ELSE 0 END,`, `WHEN 4 THEN 1 WHEN 5 THEN 3 ELSE 0 END, gate = CASE t.act WHEN 5 THEN t.gate END, place = NULL,
    seat = CASE WHEN t.act = 0 THEN (SELECT seats FROM allow)[(SELECT had FROM allow) + t.n] END,`,
	`t.n <= $5) AND (t.act < 4 OR $10::bool)`, `t.n <= (SELECT want FROM allow)) AND (t.act <> 4 OR $10::bool)`,
	`coalesce(sum.ids::text, '{}')`, `(current_setting('gendurable.claimed')::bigint[] || coalesce(sum.ids, '{}'))::text`,
	`coalesce(sum.awaiting::text, '{}')`, `(current_setting('gendurable.awaiting')::bigint[] || coalesce(sum.awaiting, '{}'))::text`,
	`coalesce(sum.fencing::text, '{}')`, `(current_setting('gendurable.fencing')::bigint[] || coalesce(sum.fencing, '{}'))::text`,
}

// gatedColumn is, of row g, the gate at which it has to get in line first.
var gatedColumn = `,
      ` + onlyGateText + ` AS gate`

// gatedSettingsSQL is claimSettingsSQL behind these statements. It also returns the ids of the rows
// that were claimed from lines.
var gatedSettingsSQL = named("gated settings", strings.Replace(claimSettingsSQL.text, `current_setting('gendurable.unsettled')::text[],`,
	`current_setting('gendurable.unsettled')::text[], current_setting('gendurable.lined')::bigint[],`, 1))

// atGates puts the statements of a claim at gates around front, which claims from the front.
func (s *Store) atGates(p *ClaimParams, out *Claimed, front entpgx.Stmt) []entpgx.Stmt {
	stmts := append(make([]entpgx.Stmt, 0, 5), s.stmt(lockGatesSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{nil, &out.Busy}, func() error { return nil })
		if out.Busy {
			s.busy.Store(true)
		}
		return err
	}, p.Queue, s.schema))
	if p.Seats {
		stmts = append(stmts, s.stmt(seatsSQL, out.readSeats, p.Queue, p.Limit))
	}
	switch {
	case p.off:
		stmts = append(stmts, front)
	case p.only != nil:
		stmts = append(stmts, s.line(p, out))
	case p.Lines.First:
		stmts = append(stmts, s.line(p, out), front)
	default:
		stmts = append(stmts, front, s.line(p, out))
	}
	if p.Seats {
		stmts = append(stmts, s.stmt(paySQL, nil, p.Queue))
	}
	return stmts
}

// visitMost bounds how many keys a claim visits beyond those of which it wants rows. A visit costs
// some 15 µs.
const visitMost = 500

func (s *Store) line(p *ClaimParams, out *Claimed) entpgx.Stmt {
	pass := p.pass
	if pass == nil {
		pass = []int64{}
	}
	args := []any{p.Queue, p.Worker, p.Machines, p.Limit, micros(p.Lease), p.Lines.After, p.Lines.Used, p.Limit + visitMost, pass}
	if p.only != nil {
		return s.stmt(lineSomeSQL, out.readLine, append(args, p.only)...)
	}
	return s.stmt(lineSQL, out.readLine, args...)
}

// lineSomeSQL is lineSQL for the rows with given ids. $10 their ids
var lineSomeSQL = named("claim some lined", strings.Replace(lineSQL.text, `AND g.id <> ALL($9::bigint[])`, `AND g.id <> ALL($9::bigint[]) AND g.id = ANY($10::bigint[])`, 1))

// lineWindowSQL lists the rows at which lineSQL looks, and locks none. $1 queue $2 most $3 $4 the
// turn $5 most keys $6 ids to pass over
var lineWindowSQL = named("line window", func() string {
	window, _, _ := strings.Cut(lineSQL.text, ",\npaid AS")
	return strings.NewReplacer(" FOR NO KEY UPDATE OF g SKIP LOCKED", "", " FOR NO KEY UPDATE OF b SKIP LOCKED", "",
		"(g.fsm || '/' || g.fsm_version) = ANY($3::text[])", "true", "$4::bigint", "$2::bigint", "$6::text", "$3::text", "$7::int", "$4::int",
		"$8::int", "$5::int", "$9::bigint[]", "$6::bigint[]").Replace(window) + "\nSELECT x.id FROM line x"
}())

// lineApart claims from lines what a claim could not, since Postgres refuses to change some row:
// see claimApart.
func (s *Store) lineApart(ctx context.Context, conn *pgx.Conn, p *ClaimParams, out *Claimed, began time.Time) error {
	var window []int64
	some := *p
	some.Limit = max(1, p.Limit-len(out.Claims))
	pass := append([]int64{}, p.pass...)
	err := s.pipelineOn(ctx, conn, s.enclose(fastLock, s.atGates(&ClaimParams{Queue: p.Queue, off: true}, &Claimed{},
		s.stmt(lineWindowSQL, readIDs(&window), p.Queue, some.Limit, p.Lines.After, p.Lines.Used, some.Limit+visitMost, pass)))...)
	if err != nil {
		return err
	}
	refused, err := narrow(window, func(ids []int64) error {
		if some.Limit = p.Limit - len(out.Claims); len(ids) == 0 || some.Limit <= 0 || time.Since(began) > p.Lease/4 {
			return nil
		}
		some.only = ids
		got, err := s.claimOnce(ctx, conn, &some, func(*Claimed) entpgx.Stmt { return entpgx.Stmt{} })
		if collided(err) {
			return nil
		}
		if err == nil {
			out.add(&got)
		}
		return err
	}, ofID)
	out.Refused = append(out.Refused, refused...)
	return err
}
