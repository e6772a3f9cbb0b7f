package citus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrCoordinator is returned by [Move] for a pool that does not lead to the coordinator.
	ErrCoordinator = errors.New("gendurable: only the coordinator of Citus moves schemas")
	// ErrNode is returned by [Move] for an address that is no active worker's which may have shards.
	ErrNode = errors.New("gendurable: Citus has no such worker")
	// ErrEpochs is returned by [Move] for a place of a cluster that has moved as often as its ids can
	// say: [MaxEpoch] times.
	ErrEpochs = errors.New("gendurable: the place cannot move any more")
)

// MaxEpoch is the last epoch of a place of a cluster. Each move begins the next one.
const MaxEpoch = 1<<10 - 1

// MoveOptions say how [Move] moves a schema. The zero value copies it while engines write, by
// logical replication.
type MoveOptions struct {
	// BlockWrites copies it while nobody writes. It is faster, and stops engines for as long as it
	// takes. Without it they stop for the end of the copy only, and all nodes need the setting
	// wal_level = logical.
	BlockWrites bool
	// Progress is told how far the copy is, at the beginning and then once in each Every, by one
	// goroutine at a time, and not any more once Move has returned. Nil: nobody is told.
	Progress func(Progress)
	// Every is how often Progress is told: 1 s, and at least 10 ms.
	Every time.Duration
}

// Progress is how far a move is, as Citus estimates it.
type Progress struct {
	Copied, Total int64  // bytes
	Status        string // what Citus does, e.g. "Copying Data"; "": it has not begun, or says nothing
}

// Move moves a schema to another worker, while engines work, whose pools [Follow] it. coordinator
// leads to the coordinator, as the owner of the schema, and host and port are the worker's, as the
// nodes know each other. Where the schema is there already, nothing is done. Citus refuses to move
// it to where tables are still left of an earlier move, which it deletes in the background; Move
// tries that again until ctx ends.
//
// The move is done as a whole or not at all. After an error of the connection, [Owner] says which.
//
// Errors: ErrNotDistributed, ErrCoordinator, ErrNode, ErrEpochs, and those of Citus.
func Move(ctx context.Context, coordinator *pgxpool.Pool, schema, host string, port uint16, o MoveOptions) error {
	failed := func(err error) error {
		if err != nil {
			err = fmt.Errorf("move schema %q to %s: %w", schema, net.JoinHostPort(host, strconv.Itoa(int(port))), err)
		}
		return err
	}
	there, err := mayMove(ctx, coordinator, schema, host, port)
	if err != nil || there {
		return failed(err)
	}
	telling, stop := context.WithCancel(ctx)
	var told sync.WaitGroup
	defer told.Wait()
	defer stop()
	if o.Progress != nil {
		told.Go(func() { o.tell(telling, coordinator, schema) })
	}
	mode := "force_logical" // that moves tables without a primary key, into which rows are only inserted
	if o.BlockWrites {
		mode = "block_writes"
	}
	for {
		_, err = coordinator.Exec(ctx, moveSQL, pgx.Identifier{schema}.Sanitize(), host, int(port), mode)
		if err == nil || !strings.Contains(err.Error(), leftover) || !sleep(ctx, time.Second) {
			return failed(err)
		}
	}
}

// leftover is what Citus says of tables of an earlier move that it could not delete. It has
// waited for a second.
const leftover = "leftover from the previous move could not be cleaned up"

const (
	moveSQL = `SELECT pg_catalog.citus_schema_move($1::text::regnamespace, $2::text, $3::int, $4::text::citus.shard_transfer_mode)`

	// nodeSQL says whether this is the coordinator, and whether a node may have shards. Its $1 is a
	// host, $2 a port.
	nodeSQL = `SELECT (SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group), EXISTS (SELECT FROM pg_catalog.pg_dist_node
  WHERE nodename = $1::text AND nodeport = $2::int AND noderole = 'primary' AND isactive AND shouldhaveshards)`

	// epochSQL says how many epochs a place of a cluster has begun; 0 for what is none.
	// {s} is the schema.
	epochSQL = `SELECT CASE WHEN place IS NULL THEN 0 ELSE epoch END FROM {s}.gen_durable_home`

	// progressSQL says how far the shards of a schema are. Its $1 is the schema.
	progressSQL = `SELECT coalesce(sum(p.target_shard_size), 0)::bigint, coalesce(sum(p.source_shard_size), 0)::bigint, coalesce(min(p.status), '')
FROM pg_catalog.get_rebalance_progress() p JOIN pg_catalog.pg_dist_shard d USING (shardid) JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
WHERE c.relnamespace = $1::text::regnamespace`
)

// mayMove returns why a schema cannot move, or whether it is there already.
func mayMove(ctx context.Context, coordinator Querier, schema, host string, port uint16) (there bool, err error) {
	from, at, err := Owner(ctx, coordinator, schema)
	if err != nil {
		return false, err
	}
	var leads, known bool
	if err := coordinator.QueryRow(ctx, nodeSQL, host, int(port)).Scan(&leads, &known); err != nil {
		return false, fmt.Errorf("look for the worker: %w", err)
	}
	var epoch int64
	if err := coordinator.QueryRow(ctx, strings.ReplaceAll(epochSQL, "{s}", pgx.Identifier{schema}.Sanitize())).Scan(&epoch); err != nil {
		return false, fmt.Errorf("look how often it has moved: %w", err)
	}
	switch {
	case !leads:
		return false, ErrCoordinator
	case !known:
		return false, ErrNode
	case from == host && at == port:
		return true, nil
	case epoch >= MaxEpoch:
		return false, fmt.Errorf("%w: it is in epoch %d of %d", ErrEpochs, epoch, MaxEpoch)
	}
	return false, nil
}

// tell tells how far the copy is, until ctx ends. A look that fails is left out.
func (o MoveOptions) tell(ctx context.Context, coordinator Querier, schema string) {
	for {
		var p Progress
		if coordinator.QueryRow(ctx, progressSQL, pgx.Identifier{schema}.Sanitize()).Scan(&p.Copied, &p.Total, &p.Status) == nil {
			o.Progress(p)
		}
		if !sleep(ctx, max(cmp.Or(o.Every, time.Second), 10*time.Millisecond)) {
			return
		}
	}
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
