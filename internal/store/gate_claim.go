package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A claim of a process that knows of gates has up to five statements in place of claimSQL. All are
// in one transaction and one round trip:
//
//  1. lockGatesSQL locks the gates that may matter.
//  2. seatsSQL counts what the gate of the queue allows, if it has one.
//  3. lineSQL claims from the lines, and leaves to the front what is its share: see Turn.
//  4. gatedSQL claims from the front, and puts in line what is behind a gate there: see claimForm.
//  5. paySQL pays for the claims at the gate of the queue, if that has a rate.
//
// They pass on what they found by settings of the session, as claimSQL does to look.

// lockGatesSQL locks the gates of a queue that allow something there: its own, and those at which
// rows are in line. It never waits. A gate that another claim has locked is left to that claim, and
// reported, so that the caller claims again soon.
//
// The lock is an advisory one, of the transaction. Another session that has the row of a gate
// locked holds up no claim, and the row needs no update. It is no more than a wish to be alone:
// what would happen without it is a unique violation on gen_durable_place, and a rate that is
// exceeded, which nothing else prevents.
//
// It passes on the keys that the claim leaves alone, see claimPaid.
//
// $1 queue $2 this schema $3 keys
var lockGatesSQL = named("lock gates", `SELECT length(set_config('gendurable.gates', coalesce(array_agg(x.name) FILTER (WHERE x.mine), '{}')::text, false) ||
    set_config('gendurable.claimed', '{}', false) || set_config('gendurable.awaiting', '{}', false) ||
    set_config('gendurable.fencing', '{}', false) || set_config('gendurable.unsettled', '{}', false) ||
    set_config('gendurable.lined', '{}', false) || set_config('gendurable.seats', '', false) || set_config('gendurable.unpaid', $3::text[]::text, false)), coalesce(bool_or(NOT x.mine), false)
FROM (SELECT l.name, pg_try_advisory_xact_lock(`+gateLock+`) AS mine FROM (
  SELECT r.name FROM {s}.gates r WHERE coalesce(r.queue = $1, true) AND (`+seatText+` OR (
    SELECT g.id FROM {s}.gen_durable g
    WHERE g.queue = $1 AND `+inLine+` AND g.gate ~>=~ r.name AND g.gate ~<~ (r.name || '0') `+lineOrder+` LIMIT 1) IS NOT NULL)
  ORDER BY r.name COLLATE "C" OFFSET 0) l) x`)

// gateLock is the advisory lock of gate l. '0' follows '/': all keys of a gate are between its name
// and its name with a 0.
const gateLock = `hashtextextended('gendurable gate ' || l.name || ' of ' || $2::text, 0)`

// allowText is what a claim may still take: how many of the queue's seats, all if the queue has no
// gate, how many it has taken already, and how many it wants. limit is the parameter of most rows.
func allowText(limit string) string {
	return `SELECT s.*, greatest(0, least(` + limit + `::bigint, coalesce(cardinality(s.seats), ` + limit + `::bigint)) - s.had) AS want
  FROM (SELECT clock_timestamp() AS now, nullif(current_setting('gendurable.seats'), '')::int[] AS seats,
    cardinality(current_setting('gendurable.claimed')::bigint[]) AS had) s`
}

// atGates puts the statements of a claim at gates around front, which claims from the front.
func (s *Store) atGates(p *ClaimParams, out *Claimed, front entpgx.Stmt) []entpgx.Stmt {
	unpaid := p.unpaid
	if unpaid == nil {
		unpaid = []string{}
	}
	stmts := append(make([]entpgx.Stmt, 0, 6), s.stmt(lockGatesSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{nil, &out.Busy}, func() error { return nil })
		if out.Busy {
			s.busy.Store(true)
		}
		return err
	}, p.Queue, s.schema, unpaid))
	if p.Seats {
		stmts = append(stmts, s.stmt(seatsSQL, s.noting(out, out.readSeats), p.Queue, p.Limit))
	}
	switch {
	case p.off:
		stmts = append(stmts, front)
	case p.only != nil:
		stmts = append(stmts, s.line(p, out))
	default:
		stmts = append(stmts, s.line(p, out), front)
	}
	if p.Seats {
		stmts = append(stmts, s.stmt(paySQL, nil, p.Queue))
	}
	if p.Jumps.After > 0 && !p.off && p.only == nil {
		stmts = append(stmts, s.arrived(p, out))
	}
	return stmts
}

// visitMost bounds how many keys a claim visits beyond the keys of which it wants rows. A visit
// costs some 15 µs.
const visitMost = 500

func (s *Store) line(p *ClaimParams, out *Claimed) entpgx.Stmt {
	pass := p.pass
	if pass == nil {
		pass = []int64{}
	}
	args := append([]any{p.Queue, p.Worker, p.Machines, p.Limit, p.Limit + visitMost, pass}, p.Lines.args()...)
	args = append(append(args, micros(p.Lease)), p.After.args()...)
	args = append(args, !p.Lines.Blind && p.only == nil, max(p.Lines.Front, p.Lines.Now), p.Lines.aged(p.Limit))
	if p.only != nil {
		return s.stmt(lineSomeSQL, s.noting(out, out.readLine), append(append(args, p.only), p.Jumps.args()...)...)
	}
	return s.stmt(lineSQL, s.noting(out, out.readLine), append(append(args, p.Lines.Yields), p.Jumps.args()...)...)
}

// noting reads an answer, and has the next poll see to it if the server's clock was set back.
func (s *Store) noting(out *Claimed, read func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		err := read(rows)
		if out.Ahead {
			s.ahead.Store(true)
		}
		return err
	}
}

// lineWindow lists the rows in line at which a claim looks.
func (s *Store) lineWindow(p *ClaimParams, most int, ids *[]int64) entpgx.Stmt {
	return s.stmt(lineWindowSQL, readIDs(ids), append([]any{p.Queue, most, most + visitMost, append([]int64{}, p.pass...)}, append(p.Lines.args(), p.Jumps.args()...)...)...)
}

// lineApart claims from lines what a claim could not, since Postgres refuses to change some row:
// see claimApart.
func (s *Store) lineApart(ctx context.Context, conn *pgx.Conn, p *ClaimParams, out *Claimed, began time.Time) error {
	var window []int64
	some := *p
	some.Limit = max(1, p.Limit-len(out.Claims))
	err := s.pipelineOn(ctx, conn, s.enclose(fastLock, s.atGates(&ClaimParams{Queue: p.Queue, off: true, unpaid: p.unpaid}, &Claimed{}, s.lineWindow(p, some.Limit, &window)))...)
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
