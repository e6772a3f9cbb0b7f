package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
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

// verbsText lists what verbs have changed, newest first. Rows of the same moment stay together
// (WITH TIES), so that the moment of the last one is where the next page goes on.
//
// A condition that may be absent ("$2 IS NULL OR …") leads into no index, since a plan has to hold
// for any arguments. So one condition more stands for the criterion that is given and finds the
// fewest rows: it is the index that is read, and the other criteria filter. An equality would
// leave the order to any index by time: statistics that know one actor only make history_verbs
// look as good as history_actor, and it is read to its end for an actor who came later. A range
// does not, and the order by the criterion, too, comes from one index alone: without a sort, it is
// the only plan.
//
// $1 kind $2 actor $3 subject $4 since $5 before $6 limit $7 instance. verbs is the condition that
// a row records a verb.
func verbsText(verbs string) string {
	return `SELECT h.at, substr(h.kind, 7), h.actor, coalesce(h.reason, ''), coalesce(h.instance, 0), coalesce(h.fsm, ''),
  coalesce(h.fsm_version, 0), coalesce(h.subject, ''), h.before::text, h.after::text
FROM {s}.history h
WHERE ` + verbs + ` AND ($1::text IS NULL OR h.kind = $1) AND ($2::text IS NULL OR h.actor = $2) AND ($3::text IS NULL OR h.subject = $3)
  AND h.at >= coalesce($4::timestamptz, '-infinity') AND h.at < coalesce($5::timestamptz, 'infinity')
  AND ($7::bigint IS NULL OR h.instance = $7)`
}

const (
	actedText  = `h.actor IS NOT NULL`
	verbsOrder = `h.at DESC FETCH FIRST ($6::bigint) ROWS WITH TIES`
)

var (
	verbsSQL        = named("verbs", verbsText(actedText)+` ORDER BY `+verbsOrder)                                                                         // along history_verbs
	verbsOnSQL      = named("verbs", verbsText(actedText)+` AND h.subject >= $3 AND h.subject <= $3 ORDER BY h.subject DESC, `+verbsOrder, "on a subject") // along history_subject
	verbsBySQL      = named("verbs", verbsText(actedText)+` AND h.actor >= $2 AND h.actor <= $2 ORDER BY h.actor DESC, `+verbsOrder, "by an actor")        // along history_actor
	verbsOfAKindSQL = named("verbs", verbsText(actedText)+` AND h.kind >= $1 AND h.kind <= $1 ORDER BY h.kind DESC, `+verbsOrder, "of a kind")             // along history_kind

	// verbsOfSQL sorts the rows of history_instance. It tells verbs by their kind, since a plan made
	// on an empty table would else read history_verbs, all of it.
	verbsOfSQL = named("verbs", verbsText(`strpos(h.kind, 'admin.') = 1`)+` AND h.instance = $7 ORDER BY `+verbsOrder, "of an instance")
)

// text returns the statement that reads the fewest rows.
func (f *AuditFilter) text() *statement {
	switch {
	case f.Instance != 0:
		return verbsOfSQL
	case f.Subject != "":
		return verbsOnSQL
	case f.Actor != "":
		return verbsBySQL
	case f.Verb != "":
		return verbsOfAKindSQL
	}
	return verbsSQL
}

// Verbs lists what verbs have changed, newest first.
func (s *Store) Verbs(ctx context.Context, f AuditFilter) (list []Audited, err error) {
	kind := f.Verb
	if kind != "" {
		kind = "admin." + kind
	}
	var instance *int64
	if f.Instance != 0 {
		instance = &f.Instance
	}
	args := []any{optional(kind), optional(f.Actor), optional(f.Subject), timeOf(f.Since), timeOf(f.Before), f.Limit, instance}
	var stmts []entpgx.Stmt
	if f.Instance == 0 {
		stmts = append(stmts, s.stmt(unsortedSQL, nil))
	}
	err = s.transaction(ctx, fastLock, append(stmts, s.stmt(f.text(), func(rows pgx.Rows) error {
		for rows.Next() {
			var a Audited
			if err := rows.Scan(&a.At, &a.Verb, &a.Actor, &a.Reason, &a.Instance, &a.Machine, &a.Version, &a.Subject, &a.Before, &a.After); err != nil {
				return err
			}
			list = append(list, a)
		}
		return rows.Err()
	}, args...))...)
	if err != nil {
		return nil, fmt.Errorf("list operators' verbs: %w", err)
	}
	return list, nil
}
