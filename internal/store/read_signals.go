package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

const (
	// pageBytes bounds how many bytes of signals or children one statement reads, by their stored
	// size. A larger one comes alone.
	pageBytes = 1 << 20
	// pageRows bounds how many rows one statement reads.
	pageRows = 1000
)

// signalSize is the size of a signal as Limits.AwaitedBytes counts it.
func signalSize(m *step.Signal) int { return len(m.Payload) + len(m.Trace) + 100 }

// signalPage renders a statement that reads the next signals of an inbox, in the order of their
// ids, up to the first that exceeds the page. A compressed signal counts four times its stored
// size, which is an estimate: it may be larger. The last column is the number of signals that
// follow, these included, at most pageRows. own is the statement's own condition.
//
// The statement sorts outside of the look into the inbox (OFFSET 0): otherwise the planner might
// walk the primary key in search of the target's rows. It sorts ids, and joins the rest.
//
// $1 target $2 the last id before $3 bytes of the page $4 rows of the page
func signalPage(own string) string {
	return `SELECT n.target_id, n.id, n.name, n.payload, coalesce(n.dedup_key, ''), n.inserted_at, n.trace, q.follow
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through, count(*) OVER () AS follow FROM (
    SELECT * FROM (SELECT m.id, 100 + coalesce(pg_column_size(m.trace), 0) +
        pg_column_size(m.payload) * CASE WHEN pg_column_compression(m.payload) IS NULL THEN 1 ELSE 4 END AS size
      FROM {s}.signals m WHERE m.target_id = $1::bigint AND m.id > $2::bigint AND m.consumed_at IS NULL AND ` + own + ` OFFSET 0) i
    ORDER BY i.id LIMIT $4::int) p) q
CROSS JOIN LATERAL (SELECT * FROM {s}.signals x WHERE x.id = q.id OFFSET 0) n
WHERE q.through - q.size < $3::bigint ORDER BY q.id`
}

// awaitedSQL reads the signals that a claim's instance awaits, while the claim holds. $5 worker $6
// token.
var awaitedSQL = named("claim awaited", signalPage(`m.name = ANY((SELECT g.awaits FROM {s}.gen_durable g
      WHERE g.id = $1::bigint AND `+claimFence("$5", "$6")+`)::text[])`))

// readInboxSQL reads a whole inbox. The inbox of an ended instance is empty, even if it still has
// rows (§3).
var readInboxSQL = named("read inbox", signalPage(`(SELECT g.status FROM {s}.gen_durable g WHERE g.id = $1::bigint) NOT IN ('done', 'failed')`))

// signals reads the page of a statement, and hands each signal to take until take returns false.
// more means that signals may follow; the next page may be empty.
func (s *Store) signals(ctx context.Context, of func(read func(pgx.Rows) error) entpgx.Stmt, take func(step.Signal) bool) (more bool, err error) {
	came, follow := 0, 0
	err = s.transaction(ctx, fastLock, of(func(rows pgx.Rows) error {
		for rows.Next() {
			var target int64
			signal, err := scanSignal(rows, &target, &follow)
			if err != nil {
				return err
			}
			if came++; !take(signal) {
				return nil
			}
		}
		return rows.Err()
	}))
	return came < follow || follow == pageRows, err
}

// Inbox reads a page of the unconsumed signals of an instance behind an id, oldest first. The page
// has at least one signal, if there are any. more means that others follow.
func (s *Store) Inbox(ctx context.Context, id, after int64) (page []step.Signal, more bool, err error) {
	more, err = s.signals(ctx, func(read func(pgx.Rows) error) entpgx.Stmt {
		return s.stmt(readInboxSQL, read, id, after, pageBytes, pageRows)
	}, func(m step.Signal) bool {
		page = append(page, m)
		return true
	})
	if err != nil {
		return nil, false, fmt.Errorf("read the inbox of instance %d: %w", id, err)
	}
	return page, more, nil
}

// restSQL reads the parts of a claimed row that were too large to come with the claim. $1 id $2
// worker $3 token
var restSQL = named("claim rest", `SELECT g.state::text, CASE WHEN g.round = g.visit OR g.join_round = g.visit THEN g.dropped::text END FROM {s}.gen_durable g
WHERE g.id = $1 AND `+claimFence("$2", "$3"))

// Complete reads the rest of a Partial claim: its state, the children that were dropped, and the
// awaited signals, up to most bytes together, or one signal that is larger. The others stay in the
// inbox, and the claim's Omitted is set. Each signal counts its payload, its trace and 100 bytes.
//
// held is false if the worker no longer has the claim. Complete reads nothing that a claim could
// not have brought: no other transaction may change a claimed row, and signals that arrive
// meanwhile count like signals that arrive between a claim and the look at its inbox.
func (s *Store) Complete(ctx context.Context, worker string, c *step.Claim, most int) (held bool, err error) {
	whole := *c
	whole.Awaited, whole.Omitted = nil, false
	err = s.one(ctx, fastLock, restSQL, func(rows pgx.Rows) error {
		var state, dropped []byte
		_, err := pgx.ForEachRow(rows, []any{&state, &dropped}, func() error {
			held, whole.State, whole.Dropped = true, json.RawMessage(slices.Clone(state)), own[[]step.Dropped](dropped)
			return nil
		})
		return err
	}, c.ID, worker, c.Token)
	size, after := 0, int64(0)
	for more := held; err == nil && more && !whole.Omitted; {
		more, err = s.signals(ctx, func(read func(pgx.Rows) error) entpgx.Stmt {
			return s.stmt(awaitedSQL, read, c.ID, after, pageBytes, pageRows, worker, c.Token)
		}, func(m step.Signal) bool {
			size += signalSize(&m)
			if whole.Omitted = size > most && len(whole.Awaited) > 0; whole.Omitted {
				return false
			}
			whole.Awaited, after = append(whole.Awaited, m), m.ID
			return true
		})
	}
	if err != nil {
		return false, fmt.Errorf("read the claim of instance %d: %w", c.ID, err)
	}
	if held {
		c.State, c.Dropped, c.Awaited, c.Omitted, c.Partial = whole.State, whole.Dropped, whole.Awaited, whole.Omitted, false
	}
	return held, nil
}
