package durabletest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// To a kit, time passes only by Advance. The clock of Postgres goes on, so hold moves all future
// times away by the time that has passed since it did so last. However busy the machine is, an
// event that is due in five seconds then is still due in five seconds. A time that was set
// meanwhile moves by the time since it was set.

// holdEvery is for how long the real clock may run on while a method works. So two things that are
// due less than that apart may become due together.
const holdEvery = 50 * time.Millisecond

// holdSQL moves all future times by the time since $1, when it last did. now() is one moment for
// all statements of the transaction.
//
// A row of instances has its times since updated_at, with two exceptions. One that was only
// inserted has them since a moment that is not known, soon after its transaction began, and so has
// a round of children with a timeout; and a deadline is as old as the instance, or as the spec
// that has replaced it before it began. A time that is newer than the last hold, and of unknown
// age, stays as it is: it must never become due late, or an Advance by just that time would miss
// it. So does a row that another transaction has locked. Statements that wake a row write an
// updated_at no earlier than its eligible_at.
//
// $2 keys of gates $3 until when the last hold has seen them closed
func (k *Kit) holdSQL() string {
	return `WITH i AS (UPDATE ` + k.instances() + ` g SET
  eligible_at = CASE WHEN x.waits THEN g.eligible_at + x.passed ELSE g.eligible_at END,
  await_deadline = CASE WHEN x.awaits THEN g.await_deadline + x.passed ELSE g.await_deadline END,
  deadline = CASE WHEN x.ends THEN g.deadline + (now() - $1::timestamptz) ELSE g.deadline END
  FROM (SELECT y.id, now() - y.since AS passed, y.status = 'runnable' AND y.eligible_at > y.since AS waits,
      y.await_deadline > y.since AS awaits,
      y.deadline > $1::timestamptz AND CASE WHEN y.visit = 0 THEN y.updated_at ELSE y.inserted_at END <= $1::timestamptz AS ends
    FROM (SELECT z.*, CASE WHEN z.updated_at > $1::timestamptz AND (z.updated_at = z.inserted_at OR z.status = 'awaiting_children')
        THEN now() ELSE greatest($1::timestamptz, z.updated_at) END AS since
      FROM ` + k.instances() + ` z WHERE z.finished_at IS NULL AND (z.status = 'runnable' AND z.eligible_at > $1::timestamptz
        OR z.await_deadline > $1::timestamptz OR z.deadline > $1::timestamptz) FOR NO KEY UPDATE SKIP LOCKED) y) x
  WHERE g.id = x.id AND (x.waits OR x.awaits OR x.ends)),
w AS (UPDATE ` + k.windows() + ` SET opened_at = opened_at + (now() - greatest($1::timestamptz, opened_at)),
  until = until + (now() - greatest($1::timestamptz, opened_at))
  WHERE name IN (SELECT o.name FROM ` + k.windows() + ` o WHERE o.until > greatest($1::timestamptz, o.opened_at) FOR NO KEY UPDATE SKIP LOCKED)),
s AS (UPDATE ` + k.kept() + ` SET expires_at = expires_at + (now() - $1::timestamptz)
  WHERE id IN (SELECT o.id FROM ` + k.kept() + ` o WHERE o.inserted_at <= $1::timestamptz FOR NO KEY UPDATE SKIP LOCKED)),
y AS (UPDATE ` + k.gateKeys() + ` g SET at = g.at + (now() - greatest($1::timestamptz, g.at)),
  slowed_at = g.slowed_at + (now() - greatest($1::timestamptz, g.slowed_at)),
  closed_until = CASE WHEN g.closed_until = c.until AND c.until > $1::timestamptz THEN g.closed_until + (now() - $1::timestamptz) ELSE g.closed_until END
  FROM (SELECT o.key FROM ` + k.gateKeys() + ` o FOR NO KEY UPDATE SKIP LOCKED) o
    LEFT JOIN unnest($2::text[], $3::timestamptz[]) AS c(key, until) ON c.key = o.key WHERE o.key = g.key),
r AS (UPDATE ` + k.gates() + ` SET updated_at = updated_at + (now() - greatest($1::timestamptz, updated_at))
  WHERE name IN (SELECT o.name FROM ` + k.gates() + ` o FOR NO KEY UPDATE SKIP LOCKED))
SELECT now()`
}

// closedSQL reads which keys of gates are closed for a time.
func (k *Kit) closedSQL() string {
	return `SELECT key, closed_until FROM ` + k.gateKeys() + ` WHERE closed_until < '9999-01-01'`
}

// hold keeps time from passing, unless it did so a moment ago.
func (k *Kit) hold(ctx context.Context) error {
	if time.Since(k.heldFor) < holdEvery {
		return nil
	}
	return k.holdNow(ctx)
}

// holdNow keeps time from passing. What ask adds to the batch sees the times as they are now.
func (k *Kit) holdNow(ctx context.Context, ask ...func(*pgx.Batch)) error {
	began := time.Now()
	keys := slices.Collect(maps.Keys(k.closed))
	until := make([]time.Time, len(keys))
	for i, key := range keys {
		until[i] = k.closed[key]
	}
	batch := &pgx.Batch{}
	var now time.Time
	closed := map[string]time.Time{}
	batch.Queue(k.holdSQL(), k.held, keys, until).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	batch.Queue(k.closedSQL()).Query(func(rows pgx.Rows) error {
		var key string
		var until time.Time
		_, err := pgx.ForEachRow(rows, []any{&key, &until}, func() error { closed[key] = until; return nil })
		return err
	})
	for _, more := range ask {
		more(batch)
	}
	if err := k.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("hold the clock: %w", err)
	}
	k.held, k.heldFor, k.closed = now, began, closed
	return nil
}
