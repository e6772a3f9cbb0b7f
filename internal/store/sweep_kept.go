package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// keptKeysSQL reads a page of the keys for which signals are kept. $1 the last key of the page
// before $2 limit
const keptKeysSQL = `SELECT DISTINCT k.key FROM {s}.kept_signals k WHERE k.key > $1::text ORDER BY k.key LIMIT $2::bigint`

// expireKeptSQL deletes kept signals that nobody took in time. $1 limit
const expireKeptSQL = `WITH d AS (DELETE FROM {s}.kept_signals k WHERE k.id = ANY(ARRAY(
    SELECT x.id FROM {s}.kept_signals x WHERE x.expires_at <= (SELECT clock_timestamp()) ORDER BY x.expires_at LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED))
  RETURNING k.id)
SELECT count(*) FROM d`

// sweepKept gives kept signals to instances that occupy their keys and have not taken them: of
// processes that did not know of any, of programs that know nothing of them, and those that an
// operator's Retry has made occupants again. Then it deletes what has expired.
func (s *Store) sweepKept(ctx context.Context, p PruneParams, sum *Pruned) error {
	after := ""
	for {
		var keys []string
		if err := s.sweep(ctx, p, s.stmt("kept keys", keptKeysSQL, readQueues(&keys), after, p.Limit)); err != nil {
			return err
		}
		if len(keys) > 0 {
			s.keeping.Store(true)
			after = keys[len(keys)-1]
			if err := s.sweep(ctx, p, s.stmt("take kept", takeKeptSQL, readQueues(&sum.Queues), keys)); err != nil {
				return err
			}
		}
		if len(keys) == 0 && after == "" {
			return nil
		}
		if len(keys) < p.Limit {
			break
		}
	}
	for gone := p.Limit; gone == p.Limit; sum.Expired += gone {
		read := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&gone}, func() error { return nil })
			return err
		}
		if err := s.sweep(ctx, p, s.stmt("expire kept", expireKeptSQL, read, p.Limit)); err != nil {
			return err
		}
	}
	return nil
}
