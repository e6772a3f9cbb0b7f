package cluster

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

// Where Citus distributes the schema, its record is in the row of gen_durable_home. Package citus
// makes this table, and every transaction enters the schema by it. From there the transaction takes
// the place and the epoch of the ids that it draws; the epoch counts the moves of the schema. The
// row moves and fails over together with the schema.

const (
	// distributedSQL says whether Citus distributes the schema.
	// $1 a table that only distributed schemas have
	distributedSQL = `SELECT pg_catalog.to_regclass($1::text) IS NOT NULL`

	// lockSQL waits until all transactions that engines have begun are over, since they may not
	// know the place. It takes the lock that a move takes, at the schema's owner.
	// $1 the table of instances
	lockSQL = `SELECT pg_catalog.lock_shard_metadata(7, pg_catalog.array_agg(shardid)) FROM pg_catalog.pg_dist_shard
WHERE logicalrelid = $1::text::regclass`

	foundDistributedSQL = `SELECT coalesce(h.place, -1), coalesce(h.record, ''), h.epoch, coalesce(i.least, 0), coalesce(i.greatest, 0)
FROM {s}.gen_durable_home h, (SELECT min(id) AS least, max(id) AS greatest FROM {s}.gen_durable) i`

	// recordDistributedSQL writes the record. The next statements enter the schema again. $1 place,
	// $2 the record
	recordDistributedSQL = `UPDATE {s}.gen_durable_home SET place = $1::integer, record = $2::text`
)

func (p *place) distributed(ctx context.Context, db querier) (is bool, err error) {
	if err = db.QueryRow(ctx, distributedSQL, p.quoted("gen_durable_home")).Scan(&is); err != nil {
		return false, fmt.Errorf("look whether Citus distributes the schema: %w", err)
	}
	return is, nil
}

// enter enters the schema, and keeps everyone else out of it until the transaction ends.
func (p *place) enter(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, lockSQL, p.quoted("gen_durable")); err != nil {
		return fmt.Errorf("lock the distributed schema: %w", err)
	}
	if _, err := tx.Exec(ctx, p.sql(`SELECT {s}.gen_durable_enter()`)); err != nil {
		return fmt.Errorf("enter the distributed schema, by a pool that has to lead to its owner: %w", err)
	}
	return nil
}

// findDistributed reads what a distributed schema says about its place. Any node can answer it.
func (p *place) findDistributed(ctx context.Context, db querier) (found, error) {
	f := found{distributed: true, bounds: [2]int64{1, math.MaxInt64}}
	var place int
	err := db.QueryRow(ctx, p.sql(foundDistributedSQL)).Scan(&place, &f.comment, &f.epoch, &f.ids[0], &f.ids[1])
	if place >= 0 {
		f.bounds = [2]int64{firstID(place), lastID(place)}
	}
	return f, unread(err)
}

// recordDistributed writes the record of a distributed schema.
func (p *place) recordDistributed(ctx context.Context, tx pgx.Tx, _ found, r record) error {
	if _, err := tx.Exec(ctx, p.sql(recordDistributedSQL), r.place, r.String()); err != nil {
		return fmt.Errorf("record the place: %w", err)
	}
	return nil
}
