package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// PruneParams defines which rows are old. All values but the retentions and the timeout must be
// positive.
type PruneParams struct {
	Done, Failed time.Duration // how long an instance is kept after its end; 0: not at all
	Cancelled    time.Duration // how long one is kept that was cancelled; 0: as Failed
	Tombstones   int           // how many are kept per instance
	Limit        int           // most rows of one transaction
	Gates        bool          // also forget keys of gates of which nothing is special any more
	// Archive, if it is not nil, is called with instances of one queue before they are deleted. If it
	// returns an error, they stay, and the instances of that queue are left for the next sweep.
	Archive func(ctx context.Context, queue string, ids []int64) error
	// Slice, if it is not nil, runs each transaction, when it is its turn, and bounds it on the
	// client's side: the server's own limit does not reach a client behind a network that swallows its
	// answer.
	Slice func(ctx context.Context, do func(ctx context.Context) error) error
}

// Pruned reports what a sweep removed.
type Pruned struct {
	Instances  int
	Tombstones int
	Unread     int // unconsumed signals of the deleted instances
	Windows    int
	Expired    int // kept signals that nobody took in time
	GateKeys   int
	Kept       map[string]error // queues whose instances were not archived, and why
	// Refused are due instances that Postgres would not delete, probably since a table of the host
	// refers to them, and those whose tombstones it would not delete.
	Refused []int64
}

// Prune is one sweep of the GC. It deletes terminal instances that are older than their retention,
// and the oldest tombstones of instances that have too many (§4, §8), in transactions of Limit
// rows. It visits each due row once, oldest first, so that a row that has to stay does not block
// the others. Every process may call it: only one at a time deletes, and the others return early.
//
// An instance goes after its last child. A terminal child of the current round does not go before
// its parent may go, since the parent's joining step may still be retried, or redriven (T88). So
// what is kept for its parent keeps all below it; so does what has failed and is kept for one of
// its children, since a Restart runs all of it again. A node does not go before those behind it
// have begun, also when its root has left the round: their first visit reads its result.
func (s *Store) Prune(ctx context.Context, p PruneParams) (Pruned, error) {
	var sum Pruned
	for _, text := range []*statement{pruneDueSQL, pruneRetainedSQL} {
		var last lastDue // of each of the two, in the order of its index
		for more := true; more; {
			var page []int64
			var err error
			if page, more, err = s.due(ctx, p, text, &last); err != nil {
				return sum, fmt.Errorf("look for instances past their retention: %w", err)
			}
			alone, err := s.deletePage(ctx, p, page, &sum)
			if err != nil {
				return sum, fmt.Errorf("delete %d instances past their retention: %w", len(page), err)
			}
			if !alone {
				return sum, nil
			}
		}
	}
	var errs []error // one table that Postgres refuses to change keeps no other from being swept
	for _, more := range []struct {
		doing string
		prune func(context.Context, PruneParams, *Pruned) error
		too   bool
	}{
		{"delete kept signals that have expired", s.expireKept, true}, {"delete the dedup keys of old signals", s.pruneTombstones, true},
		{"delete windows that are over", s.pruneWindows, true}, {"delete unused gate keys", s.pruneGateKeys, p.Gates},
	} {
		if !more.too {
			continue
		}
		if err := more.prune(ctx, p, &sum); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", more.doing, err))
		}
	}
	return sum, errors.Join(errs...)
}

func (p *PruneParams) cancelled() time.Duration { return cmp.Or(p.Cancelled, p.Failed) }

// prunable is the condition that an instance is due, and not spared for another's sake. That is the
// case while any row above it is not due, as far up as each is a child of its parent's current
// round, and while a node behind it is at its first visit. OFFSET 0 keeps the subqueries from
// becoming joins over the whole table.
//
// $1, $2, $3 retention of done, failed and cancelled, µs
var prunable = `
  g.finished_at < (SELECT now FROM c) - ` + retainedFor("g") + ` * interval '1 microsecond'
  AND (g.parent_id IS NULL OR NOT EXISTS (WITH RECURSIVE up AS (
    SELECT p.parent_id, p.parent_round, p.finished_at, p.status, p.failure, p.retain
    FROM {s}.gen_durable p WHERE p.id = g.parent_id AND p.round = g.parent_round
    UNION ALL SELECT q.* FROM up CROSS JOIN LATERAL (SELECT p.parent_id, p.parent_round, p.finished_at, p.status, p.failure, p.retain
      FROM {s}.gen_durable p WHERE p.id = up.parent_id AND p.round = up.parent_round OFFSET 0) q)
    SELECT FROM up WHERE NOT coalesce(up.finished_at < (SELECT now FROM c) - ` + retainedFor("up") + ` * interval '1 microsecond', false)))
  AND (g.node IS NULL OR NOT EXISTS (SELECT FROM {s}.edges e
    CROSS JOIN LATERAL (SELECT x.id FROM {s}.gen_durable x WHERE x.id = e.to_id AND x.visit = 0 AND x.finished_at IS NULL OFFSET 0) x
    WHERE e.from_id = g.id))`

// sparedText goes on with a list of CTEs, and returns the condition that a row of the CTE page (id,
// parent_id, parent_round) is spared although it is prunable: above it, as far up as each is a
// child of its parent's current round, one has failed that is kept for another below. It looks at
// the uppermost such one of each row of the page, and once at all below that, so a page costs no
// more than the families of its rows. Of an instance that is done and is kept for a child, the
// other children may go: no verb runs it again.
func sparedText() (ctes, spared string) {
	return `,
up AS (SELECT page.id, p.id AS top, p.parent_id, p.parent_round, p.failed, 1 AS level FROM page
    CROSS JOIN LATERAL (SELECT p.id, p.parent_id, p.parent_round, p.status = 'failed' AS failed FROM {s}.gen_durable p
      WHERE p.id = page.parent_id AND p.round = page.parent_round OFFSET 0) p
  UNION ALL SELECT up.id, p.id, p.parent_id, p.parent_round, p.failed, up.level + 1 FROM up
    CROSS JOIN LATERAL (SELECT p.id, p.parent_id, p.parent_round, p.status = 'failed' AS failed FROM {s}.gen_durable p
      WHERE p.id = up.parent_id AND p.round = up.parent_round OFFSET 0) p),
tops AS MATERIALIZED (SELECT DISTINCT ON (up.id) up.id, up.top FROM up WHERE up.failed ORDER BY up.id, up.level DESC),
spared AS MATERIALIZED (SELECT t.top FROM (SELECT DISTINCT tops.top FROM tops) t WHERE EXISTS (WITH RECURSIVE down AS (
    SELECT k.id, k.finished_at, k.status, k.failure, k.retain FROM {s}.gen_durable k WHERE k.parent_id = t.top
    UNION ALL SELECT k.* FROM down CROSS JOIN LATERAL (SELECT k.id, k.finished_at, k.status, k.failure, k.retain
      FROM {s}.gen_durable k WHERE k.parent_id = down.id OFFSET 0) k)
  SELECT FROM down WHERE NOT coalesce(down.finished_at < (SELECT now FROM c) - ` + retainedFor("down") + ` * interval '1 microsecond', false)))`,
		`EXISTS (SELECT FROM tops JOIN spared ON spared.top = tops.top WHERE tops.id = page.id)`
}

// pageText is a statement that reads a page of due rows: when each was due, its id, and whether it
// may go. rows selects them as at, id, parent_id, parent_round.
func pageText(rows string) string {
	ctes, spared := sparedText()
	return `WITH RECURSIVE c AS MATERIALIZED (SELECT clock_timestamp() AS now),
page AS MATERIALIZED (` + rows + `)` + ctes + `
SELECT page.at, page.id, NOT ` + spared + ` FROM page ORDER BY page.at, page.id`
}

// pruneDueSQL is the first of two steps. It reads a page of ids from the index of finished rows, in
// the index's order, after the last row of the page before. least() lets it use that index; the
// statement passes over rows with the longer retention. $4, $5 end and id of the last page's last
// row $6 limit
var pruneDueSQL = named("prune due", pageText(`
SELECT g.finished_at AS at, g.id, g.parent_id, g.parent_round FROM {s}.gen_durable g
WHERE g.finished_at < (SELECT now FROM c) - least($1::bigint, $2::bigint, $3::bigint) * interval '1 microsecond'
  AND (g.finished_at, g.id) > ($4::timestamptz, $5::bigint) AND coalesce(`+ownRetention("g")+`, -1) < 0 AND `+prunable+`
ORDER BY g.finished_at, g.id LIMIT $6::bigint`))

// pruneRetainedSQL is pruneDueSQL for rows with their own retention. It reads them from an index of
// when that ends, so it visits only rows that are due, however many others are kept, and for
// however long. $4 is when the retention of the last page's last row ended, $5 its id, $6 limit
var pruneRetainedSQL = named("prune due", pageText(`
SELECT `+untilText+` AT TIME ZONE 'UTC' AS at, g.id, g.parent_id, g.parent_round FROM {s}.gen_durable g
WHERE g.finished_at IS NOT NULL AND `+ownRetention("g")+` >= 0 AND `+untilText+` < timezone('UTC', (SELECT now FROM c))
  AND (`+untilText+`, g.id) > (timezone('UTC', $4::timestamptz), $5::bigint) AND `+prunable+`
ORDER BY `+untilText+`, g.id LIMIT $6::bigint`), "retained")

// lastDue is the last row of a page.
type lastDue struct {
	at time.Time
	id int64
}

// due reads a page behind last, and returns the ids that may go, and whether the page was full.
func (s *Store) due(ctx context.Context, p PruneParams, text *statement, last *lastDue) (ids []int64, full bool, err error) {
	rows := 0
	read := func(r pgx.Rows) error {
		var may bool
		_, err := pgx.ForEachRow(r, []any{&last.at, &last.id, &may}, func() error {
			if rows++; may {
				ids = append(ids, last.id)
			}
			return nil
		})
		return err
	}
	err = s.sweep(ctx, p, s.stmt(text, read, micros(p.Done), micros(p.Failed), micros(p.cancelled()),
		last.at, last.id, p.Limit))
	return ids, rows == p.Limit, err
}

// pruneSQL is the second step. It repeats the condition under the lock, since a row may have
// changed meanwhile by an operator's Retry (T80), and leaves locked rows for the next sweep (T6).
// It deletes leaves only: children have no foreign key to their parent, and would be left without
// it. A later call deletes the parents. The signals go with their targets, by the foreign key; the
// statement counts those that were not consumed. The edges that lead away from a node go with it.
// $4 ids $5 the sweepers' lock
var pruneSQL = named("prune", pruneText())

func pruneText() string {
	ctes, spared := sparedText()
	return `WITH RECURSIVE c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($5::bigint) AS alone),
page AS MATERIALIZED (SELECT g.id, g.parent_id, g.parent_round FROM {s}.gen_durable g
  WHERE g.id = ANY($4::bigint[]) AND g.parent_id IS NOT NULL AND (SELECT alone FROM c))` + ctes + `,
l AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g WHERE g.id = ANY($4::bigint[]) AND (SELECT alone FROM c) AND ` + prunable + `
    AND NOT EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = g.id OFFSET 0)
    AND g.id <> ALL(ARRAY(SELECT page.id FROM page WHERE ` + spared + `))
  ORDER BY g.id FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM {s}.gen_durable g WHERE g.id = ANY(ARRAY(SELECT l.id FROM l)) RETURNING g.id, g.node),
e AS (DELETE FROM {s}.edges e WHERE e.from_id = ANY(ARRAY(SELECT d.id FROM d WHERE d.node IS NOT NULL)))
SELECT c.alone, (SELECT count(*) FROM d),
  (SELECT count(*) FROM {s}.signals s WHERE s.target_id = ANY(ARRAY(SELECT l.id FROM l)) AND s.consumed_at IS NULL) FROM c`
}

// deleteDue deletes leaves, then the rows that thereby became leaves, until it finds none. It
// narrows a failure down to the rows that cannot be deleted, so that these do not keep all the
// others (T22). alone is false if another process is sweeping.
func (s *Store) deleteDue(ctx context.Context, p PruneParams, ids []int64, sum *Pruned) (alone bool, err error) {
	alone = true
	for left := len(ids); left > 0 && alone; {
		var gone, unread int
		err := s.sweep(ctx, p, s.stmt(pruneSQL, readSwept(&alone, &gone, &unread), micros(p.Done), micros(p.Failed),
			micros(p.cancelled()), ids, s.sweepers()))
		if err != nil {
			return s.narrowDown(ctx, p, ids, sum, err)
		}
		if gone == 0 {
			break
		}
		left -= gone
		sum.Instances, sum.Unread = sum.Instances+gone, sum.Unread+unread
	}
	return alone, nil
}

func (s *Store) narrowDown(ctx context.Context, p PruneParams, ids []int64, sum *Pruned, cause error) (alone bool, err error) {
	if !holdsUp(cause) {
		return false, cause
	}
	if len(ids) == 1 {
		if !IsLockTimeout(cause) { // that is a lock on a host's row that refers to ours
			sum.Refused = append(sum.Refused, ids[0])
		}
		return true, nil
	}
	half := len(ids) / 2
	if alone, err = s.deleteDue(ctx, p, ids[:half], sum); err != nil || !alone {
		return alone, err
	}
	return s.deleteDue(ctx, p, ids[half:], sum)
}

// overgrownSQL walks the index of tombstones. $1 cap $2 limit
var overgrownSQL = named("overgrown inboxes", `SELECT s.target_id FROM {s}.signals s WHERE s.consumed_at IS NOT NULL
GROUP BY s.target_id HAVING count(*) > $1::bigint ORDER BY s.target_id LIMIT $2::bigint`)

// pruneTombstonesSQL locks the target first, like every write to its inbox, so that no transaction
// waits for it. $1 target $2 cap $3 limit $4 the sweepers' lock
var pruneTombstonesSQL = named("prune tombstones", `WITH c AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4::bigint) AS alone),
t AS MATERIALIZED (SELECT g.id FROM {s}.gen_durable g WHERE g.id = $1::bigint AND (SELECT alone FROM c) FOR NO KEY UPDATE SKIP LOCKED),
d AS (
  DELETE FROM {s}.signals s WHERE s.id = ANY(ARRAY(
    SELECT x.id FROM {s}.signals x WHERE x.target_id = (SELECT id FROM t) AND x.consumed_at IS NOT NULL
    ORDER BY x.consumed_at DESC, x.id DESC OFFSET $2::bigint LIMIT $3::bigint))
  RETURNING s.id)
SELECT c.alone, (SELECT count(*) FROM d) FROM c`)

func (s *Store) pruneTombstones(ctx context.Context, p PruneParams, sum *Pruned) error {
	var targets []int64
	if err := s.sweep(ctx, p, s.stmt(overgrownSQL, readIDs(&targets), p.Tombstones, p.Limit)); err != nil {
		return err
	}
	for _, target := range targets {
		for more := true; more; {
			var alone bool
			var gone int
			err := s.sweep(ctx, p, s.stmt(pruneTombstonesSQL, readSwept(&alone, &gone),
				target, p.Tombstones, p.Limit, s.sweepers()))
			switch {
			case holdsUp(err):
				sum.Refused = append(sum.Refused, target)
			case err != nil:
				return fmt.Errorf("of instance %d: %w", target, err)
			case !alone:
				return nil
			}
			sum.Tombstones += gone
			more = gone == p.Limit
		}
	}
	return nil
}

// sweep sends one statement of a sweep.
func (s *Store) sweep(ctx context.Context, p PruneParams, stmt entpgx.Stmt) error {
	send := func(ctx context.Context) error { return s.transaction(ctx, fastLock, stmt) }
	if p.Slice != nil {
		return p.Slice(ctx, send)
	}
	return send(ctx)
}

func readSwept(alone *bool, numbers ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, append([]any{alone}, numbers...), func() error { return nil })
		return err
	}
}

// sweepers returns the advisory lock of this schema's GC. Two sweepers at once would wait for each
// other's rows, and for the signals that go with these by their foreign key (T45).
func (s *Store) sweepers() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("gendurable prune " + s.schema))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits do
}
