package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// publishSQL stores the progress of an instance while a claim holds. It changes no indexed column,
// so Postgres updates the row in place. It waits only briefly for a lock on the row, since it
// occupies a connection meanwhile, and each running step may publish: the worker tries again. It
// holds nothing else, so it cannot deadlock. A commit of the claim's own outcome cannot meet it:
// the step has not returned. If the step has, its claim is over or at another visit, and progress
// that comes late is as true as before. $1 id $2 token $3 worker $4 progress
var publishSQL = named("publish", `UPDATE {s}.gen_durable g SET progress = $4::text::jsonb WHERE g.id = $1 AND `+claimFence("$3", "$2")+` RETURNING g.id`)

// Publish stores the progress of an instance. held is false if the worker no longer has the claim.
// A quarter of the pool's connections may publish at a time, so that many steps whose rows are held
// leave the rest to others.
func (s *Store) Publish(ctx context.Context, worker string, id, token int64, progress []byte) (held bool, err error) {
	select {
	case s.publishing <- struct{}{}:
		defer func() { <-s.publishing }()
	case <-ctx.Done():
		return false, fmt.Errorf("publish the progress of instance %d: %w", id, ctx.Err())
	}
	err = s.one(ctx, briefLock, publishSQL, func(rows pgx.Rows) error {
		held = rows.Next()
		return rows.Err()
	}, id, token, worker, string(progress))
	if err != nil {
		return false, fmt.Errorf("publish the progress of instance %d: %w", id, err)
	}
	return held, nil
}
