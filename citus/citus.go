// Package citus prepares and moves schemas that Citus distributes, and connects engines to them:
//
//	_, err = (migrate.Migrator{Pool: coordinator}).Up(ctx)
//	err = citus.Distribute(ctx, coordinator, engine.DefaultSchema) // once
//	citus.Follow(config, coordinator, engine.DefaultSchema)        // config of the engine's pool
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//	eng, err := engine.New(engine.Config{Pool: pool, Machines: machines, Queues: queues})
//
// [Distribute] distributes a migrated schema, once. From then on one worker, the schema's owner,
// has its tables; [Move] moves them to another worker while engines work. The pool of an engine has
// to lead to the owner: [Follow] sees to that, also after a move or a failover. The engine does the
// rest when it starts. docs/citus.md says what works there and which parts of Citus it relies on.
//
// The package imports pgx, and nothing of the project.
package citus

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotDistributed is returned for a schema that Citus does not distribute, and on a server
// without Citus.
var ErrNotDistributed = errors.New("gendurable: Citus does not distribute the schema")

// ownerSQL finds the node that owns a schema. $1 the table of instances, quoted
const ownerSQL = `SELECT n.nodename, n.nodeport FROM pg_catalog.pg_dist_shard s
JOIN pg_catalog.pg_dist_placement p USING (shardid) JOIN pg_catalog.pg_dist_node n USING (groupid)
WHERE s.logicalrelid = to_regclass($1::text) AND n.noderole = 'primary' AND n.isactive`

// Querier runs the statements of this package: a pool, a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Owner returns the address of the node that has a schema's tables, as the nodes of the cluster
// know each other. meta may lead to any node, since each has the metadata.
//
// Errors: ErrNotDistributed.
func Owner(ctx context.Context, meta Querier, schema string) (host string, port uint16, err error) {
	err = meta.QueryRow(ctx, ownerSQL, pgx.Identifier{schema, "gen_durable"}.Sanitize()).Scan(&host, &port)
	if errors.Is(err, pgx.ErrNoRows) || hasCode(err, codeUndefinedTable) { // no shard, or no table of shards
		err = ErrNotDistributed
	}
	if err != nil {
		return "", 0, fmt.Errorf("look for the node that has schema %q: %w", schema, err)
	}
	return host, port, nil
}

// Follow makes each new connection of a pool lead to the node that owns the schema at that time.
// It looks the owner up by meta, another pool, which may lead to any node; prefer the coordinator,
// which learns of a failover first. Each schema needs its own pool. When the engine finds that the
// schema has moved, it closes the pool's connections. Of the address in config only user, password
// and database are used.
func Follow(config *pgxpool.Config, meta *pgxpool.Pool, schema string) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		host, port, err := Owner(ctx, meta, schema)
		if err != nil {
			return err
		}
		c.Host, c.Port, c.Fallbacks = host, port, nil
		if c.TLSConfig != nil {
			c.TLSConfig = c.TLSConfig.Clone()
			c.TLSConfig.ServerName = host
		}
		return nil
	}
}

// codeUndefinedTable is the SQLSTATE of a table that is not there.
const codeUndefinedTable = "42P01"

func hasCode(err error, code string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == code
}
