package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter selects what verbs have changed. All criteria must hold; a zero one always holds.
type AuditFilter struct {
	Instance      int64
	Verb          string
	Actor         string
	Subject       string
	Since, Before time.Time // from Since on, earlier than Before
	Limit         int
}

// Audited is what a verb has changed.
type Audited struct {
	At       time.Time
	Verb     string
	Actor    string
	Reason   string
	Instance int64 // 0: none
	Machine  string
	Version  int
	Subject  string // "": none
	Before   []byte // JSON, or nil
	After    []byte
}

// verbsSQL lists what verbs have changed, newest first, along history_verbs. Rows of the same
// moment stay together (WITH TIES), so that the moment of the last one is where the next page goes
// on.
//
// $1 verb $2 actor $3 subject $4 since $5 before $6 limit
const verbsSQL = `SELECT h.at, substr(h.kind, 7), h.actor, coalesce(h.reason, ''), coalesce(h.instance, 0), coalesce(h.fsm, ''),
  coalesce(h.fsm_version, 0), coalesce(h.subject, ''), h.before::text, h.after::text
FROM {s}.history h
WHERE h.actor IS NOT NULL AND ($1::text IS NULL OR h.kind = $1) AND ($2::text IS NULL OR h.actor = $2) AND ($3::text IS NULL OR h.subject = $3)
  AND h.at >= coalesce($4::timestamptz, '-infinity') AND h.at < coalesce($5::timestamptz, 'infinity')`

const (
	verbsOrder = `
ORDER BY h.at DESC FETCH FIRST ($6::bigint) ROWS WITH TIES`
	// verbsOfSQL is verbsSQL of one instance, $7. It goes by history_instance.
	verbsOfSQL = verbsSQL + ` AND h.instance = $7::bigint` + verbsOrder
)

// Verbs lists what verbs have changed, newest first.
func (s *Store) Verbs(ctx context.Context, f AuditFilter) (list []Audited, err error) {
	text := verbsSQL + verbsOrder
	kind := f.Verb
	if kind != "" {
		kind = "admin." + kind
	}
	args := []any{optional(kind), optional(f.Actor), optional(f.Subject), timeOf(f.Since), timeOf(f.Before), f.Limit}
	if f.Instance != 0 {
		text, args = verbsOfSQL, append(args, f.Instance)
	}
	err = s.one(ctx, fastLock, "verbs", text, func(rows pgx.Rows) error {
		for rows.Next() {
			var a Audited
			if err := rows.Scan(&a.At, &a.Verb, &a.Actor, &a.Reason, &a.Instance, &a.Machine, &a.Version, &a.Subject, &a.Before, &a.After); err != nil {
				return err
			}
			list = append(list, a)
		}
		return rows.Err()
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("list operators' verbs: %w", err)
	}
	return list, nil
}
