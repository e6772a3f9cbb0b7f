package store

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// openWindowsSQL opens windows, or finds that they are open. A window is a row that inserters of
// its key lock until they commit, so one of them decides after the other; no other statement locks
// it.
//
// The first part passes by windows that are committed and open, without a lock: inserts that a
// window keeps out do not wait for each other. The ON CONFLICT part waits for an inserter that has
// not committed yet, and looks at the clock afterwards. A fixed period is decided by the time at
// which the statement began: a wait does not carry an insert into the next period. A debounce is
// always locked, since its instance is to be replaced; opened_at changes when that is another one.
// The statement locks in the order of names.
//
// $1 names, distinct $2 uids $3 kinds $4 lengths, µs
var openWindowsSQL = named("open windows", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO {s}.windows AS w (name, uid, opened_at, until)
SELECT r.name, r.uid::uuid, c.now, CASE r.kind
    WHEN 'once' THEN date_bin(r.us * interval '1 microsecond', c.now, '2001-01-01 00:00+00') + r.us * interval '1 microsecond'
    ELSE c.now + r.us * interval '1 microsecond' END
FROM c, unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS r(name, uid, kind, us)
WHERE r.kind = 'debounce' OR NOT EXISTS (SELECT FROM {s}.windows o WHERE o.name = r.name AND o.until > clock_timestamp() OFFSET 0)
ORDER BY r.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET uid = excluded.uid,
  opened_at = CASE WHEN w.name LIKE 'debounce:%' THEN w.opened_at ELSE clock_timestamp() END,
  until = CASE WHEN w.name LIKE 'once:%' THEN excluded.until ELSE clock_timestamp() + (excluded.until - excluded.opened_at) END
WHERE w.name LIKE 'debounce:%' OR w.until <= CASE WHEN w.name LIKE 'once:%' THEN excluded.opened_at ELSE clock_timestamp() END`)

// windowsSQL reads windows after openWindowsSQL, in a separate statement, to see the rows that it
// waited for. A window is the caller's if it has the uid of his spec. $1 names
var windowsSQL = named("windows", `SELECT w.name, w.uid, w.instance, w.opened_at, w.until FROM {s}.windows w WHERE w.name = ANY($1::text[])`)

// settleWindowsSQL notes the instances of windows that this transaction has opened. A debounce
// counts from its first spec on. $1 names $2 instances
var settleWindowsSQL = named("settle windows", `UPDATE {s}.windows w SET instance = u.id,
  opened_at = CASE WHEN w.name LIKE 'debounce:%' THEN clock_timestamp() ELSE w.opened_at END
FROM unnest($1::text[], $2::bigint[]) AS u(name, id) WHERE w.name = u.name`)

// closeWindowsSQL closes windows that this transaction has opened in vain, since the key of the
// spec is occupied. $1 names
var closeWindowsSQL = named("close windows", `DELETE FROM {s}.windows w WHERE w.name = ANY($1::text[])`)

// window is a row of windows.
type window struct {
	uid      uuid.UUID
	instance int64 // 0: of a spec that is about to be inserted
	opened   time.Time
	until    time.Time
}

func readWindows(into map[string]window) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		var w window
		_, err := pgx.ForEachRow(rows, []any{&name, &w.uid, &w.instance, &w.opened, &w.until}, func() error { into[name] = w; return nil })
		return err
	}
}

// openWindows opens the windows of the round's specs, and finds other inserts' windows that keep
// them out, or that they debounce.
func (r *ruling) openWindows(round []int) (todo []int, err error) {
	var names, uids, kinds []string
	var us []int64
	for _, i := range round {
		if w := r.list[i].Window; w.Kind != "" {
			names, uids = append(names, w.Name()), append(uids, uuid.UUID(r.list[i].UID).String())
			kinds, us = append(kinds, string(w.Kind)), append(us, micros(w.For))
		}
	}
	if len(names) == 0 {
		return round, nil
	}
	found := map[string]window{}
	open := r.s.stmt(openWindowsSQL, nil, names, uids, kinds, us)
	if err := r.send(open, r.s.stmt(windowsSQL, readWindows(found), names)); err != nil {
		return nil, err
	}
	for _, i := range round {
		x := r.list[i]
		w, open := found[x.Window.Name()]
		switch {
		case x.Window.Kind == "":
		case !open: // it closed after the first part has passed it by, and the GC has deleted it
			return nil, errMoved
		case w.uid != x.UID:
			r.out[i] = Inserted{ID: w.instance, Duplicate: true, Throttled: true, Until: w.until}
			continue
		case x.Window.Kind == "debounce" && w.instance != 0:
			r.targets[i] = target{id: w.instance}
			if x.Window.Most > 0 {
				latest := w.opened.Add(x.Window.Most)
				r.targets[i] = target{id: w.instance, latest: &latest}
			}
		}
		todo = append(todo, i)
	}
	return todo, nil
}

// settleWindows notes what has become of the specs that opened windows.
func (r *ruling) settleWindows(round []int) error {
	var names, vain []string
	var ids []int64
	for _, i := range round {
		x, done := r.list[i], r.out[i]
		switch {
		case x.Window.Kind == "" || done.Throttled:
		case done.Duplicate:
			vain = append(vain, x.Window.Name())
		case x.Window.Kind == "debounce" && done.Replaced: // it has its instance
		default:
			names, ids = append(names, x.Window.Name()), append(ids, done.ID)
		}
	}
	var stmts []entpgx.Stmt
	if len(names) > 0 {
		stmts = append(stmts, r.s.stmt(settleWindowsSQL, nil, names, ids))
	}
	if len(vain) > 0 {
		stmts = append(stmts, r.s.stmt(closeWindowsSQL, nil, vain))
	}
	if len(stmts) == 0 {
		return nil
	}
	return r.send(stmts...)
}
