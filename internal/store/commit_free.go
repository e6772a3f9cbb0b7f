package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// endIsFreeSQL locks, for a moment, what the commit of a child's end locks beside its own row: its
// parent, and the rows that wait for a node. It reports whether it got all of them. It never
// waits, so it can be in no deadlock. A commit that passes by a row for it comes again some
// milliseconds later. $1 parent $2 the node; 0: it is none
var endIsFreeSQL = named("end is free", `WITH n AS MATERIALIZED (SELECT $1::bigint AS id UNION SELECT e.to_id FROM {s}.edges e WHERE e.from_id = $2::bigint),
l AS MATERIALIZED (SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY(ARRAY(SELECT n.id FROM n)) FOR NO KEY UPDATE SKIP LOCKED)
SELECT (SELECT count(*) FROM l) = (SELECT count(*) FROM {s}.gen_durable x WHERE x.id = ANY(ARRAY(SELECT n.id FROM n)))`)

// EndIsFree reports whether the rows are free that the end of a child would lock beside its own:
// its parent's, and the rows of nodes that wait for it.
func (s *Store) EndIsFree(ctx context.Context, c *step.Claim) (free bool, err error) {
	node := int64(0)
	if c.Node != "" {
		node = c.ID
	}
	if err = s.one(ctx, fastLock, endIsFreeSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&free}, func() error { return nil })
		return err
	}, c.Parent, node); err != nil {
		return false, fmt.Errorf("check whether the rows that the end of instance %d changes are locked: %w", c.ID, err)
	}
	return free, nil
}
