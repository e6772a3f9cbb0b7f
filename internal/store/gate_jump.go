package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A key of a gate that cannot begin costs a claim a visit, and there may be a hundred thousand of
// them. So a process remembers which of them it has seen to be blocked, as runs of consecutive
// keys, and its claims jump over the runs: see work/jumps.go. A key in a run that may be able to
// begin by now is fresh. A claim visits it all the same.
//
// All of it is a hint. A claim that jumps over a key lets nothing begin there, and a claim that
// visits one decides anew. So a wrong hint delays a key, until the process looks at it again.
//
// A key that cannot begin has no turn, so the order is the one without jumps.

// Jumps are what a process knows of the keys of a queue.
type Jumps struct {
	Froms []string // the first keys of the runs, in the order of bytes. The runs are disjoint
	Tos   []string // what follows the last keys of the runs
	Fresh []string // keys in the runs at which a claim looks all the same, in the order of bytes
	// After is an id. The claim reports the keys of rows with greater ones that have got in line
	// since. 0: it does not look for them.
	After int64
}

// BlockedKey is a key that a claim has visited in vain: it has no free place, is closed, or is in
// debt.
type BlockedKey struct {
	Key  string
	Wait *int64 // in so many µs its time comes; nil: when a place is free
}

// Arrived are the rows that have got in line behind the place from which a claim looked for them.
type Arrived struct {
	IDs  []int64
	Keys []string // of IDs
	Last int64    // the last id at which it looked; 0: there is none
	More bool     // it has not looked at all of them
	New  int64    // the newest id
}

func (j Jumps) args() []any { return []any{notNil(j.Froms), notNil(j.Tos), notNil(j.Fresh)} }

// jumpText is where a walk goes on that has come to lo: at the first fresh key from there on, or at
// the end of the run, if it is in a run. Parameters from are Jumps. The comparisons are by bytes,
// as the index is. They do without a subquery if there are no runs.
func jumpText(lo string, from int) string {
	return fmt.Sprintf(`CASE WHEN cardinality($%[2]d::text[]) = 0 THEN %[1]s ELSE (
    SELECT CASE WHEN j.lo COLLATE "C" < j.hi THEN least(j.hi COLLATE "C", CASE WHEN j.fresh[j.i] = j.lo THEN j.lo ELSE j.fresh[j.i + 1] END) COLLATE "default" ELSE j.lo END
    FROM (SELECT x.lo, ($%[3]d::text[])[width_bucket(x.lo COLLATE "C", $%[2]d::text[])] AS hi, $%[4]d::text[] AS fresh,
      width_bucket(x.lo COLLATE "C", $%[4]d::text[]) AS i FROM (SELECT %[1]s AS lo OFFSET 0) x OFFSET 0) j) END`, lo, from, from+1, from+2)
}

// vainText are the keys that the walk has visited in vain, if there are runs. A key that waits for
// something that it shares with other keys is not among them, nor one at which another queue is in
// line: to that one the claim leaves places, or it takes those that are left to it.
func vainText(from int) string {
	return fmt.Sprintf(`SELECT array_agg(w.k ORDER BY w.n) AS keys, array_agg(w.wait ORDER BY w.n) AS waits FROM walk w
  WHERE cardinality($%d::text[]) > 0 AND w.free = 0 AND NOT w.over AND NOT w.rivals AND NOT w.yielded AND (w.crowded OR w.wait IS NOT NULL)`, from)
}

// arrivedMost bounds at how many new rows a claim looks.
const arrivedMost = 500

// arrivedSQL finds rows that were inserted in line. It reads the table by ids, so
// its cost is bounded by the rows that are new, in line or not. $1 queue $2 id $3 most rows
var arrivedSQL = named("arrived", `SELECT coalesce(max(x.id), 0), count(*), array_agg(x.id ORDER BY x.id) FILTER (WHERE x.lined), array_agg(x.gate ORDER BY x.id) FILTER (WHERE x.lined),
  (SELECT coalesce((SELECT n.id FROM {s}.gen_durable n ORDER BY n.id DESC LIMIT 1), 0))
FROM (SELECT z.* FROM (SELECT g.id, g.gate, g.queue = $1 AND `+inLine+` AS lined FROM {s}.gen_durable g WHERE g.id > $2::bigint ORDER BY g.id LIMIT 1000) z LIMIT $3) x`)

func (s *Store) arrived(p *ClaimParams, out *Claimed) entpgx.Stmt {
	return s.stmt(arrivedSQL, func(rows pgx.Rows) error {
		n, a := 0, &out.Arrived
		_, err := pgx.ForEachRow(rows, []any{&a.Last, &n, &a.IDs, &a.Keys, &a.New}, func() error { a.More = n >= arrivedMost; return nil })
		return err
	}, p.Queue, p.Jumps.After, arrivedMost)
}
