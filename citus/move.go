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
	// ErrCoordinator is returned by [Move] if its pool does not lead to the coordinator.
	ErrCoordinator = errors.New("gendurable: only the coordinator of Citus moves schemas: connect to it")
	// ErrNode is returned by [Move] if the address names no active worker that may have shards.
	ErrNode = errors.New("gendurable: Citus has no such worker")
	// ErrEpochs is returned by [Move] for a place of a cluster that has begun [MaxEpoch] epochs, as
	// many as its ids can carry.
	ErrEpochs = errors.New("gendurable: the place cannot move any more")
)

// MaxEpoch is the last epoch of a place of a cluster. Each move begins the next one.
const MaxEpoch = 1<<10 - 1

// MoveOptions say how [Move] copies a schema. The zero value copies it by logical replication,
// while engines write.
type MoveOptions struct {
	// BlockWrites blocks all writes during the copy. The copy is faster then, and engines stop
	// until it is over. Otherwise they stop only for the end of the copy, and all nodes need the
	// setting wal_level = logical.
	BlockWrites bool
	// Progress is called with how far the copy is, at the beginning and then every Every. Calls do
	// not overlap, and none comes after Move has returned. Nil: nothing is called.
	Progress func(Progress)
	// Every is the time between two calls of Progress: 1 s unless given, at least 10 ms.
	Every time.Duration
}

// Progress says how far a move is, as Citus estimates it.
type Progress struct {
	Copied, Total int64  // bytes
	Status        string // what Citus is doing, e.g. "Copying Data"; "": it has not begun, or does not say
}

// Move moves a schema to another worker while engines work whose pools [Follow] it. coordinator has
// to lead to the coordinator, as the owner of the schema. host and port are the address of the
// worker, as the nodes know each other. If the schema is there already, Move does nothing. Citus
// deletes the tables of an earlier move in the background, and refuses to move the schema to a
// worker that still has some. It also refuses while something else is done to the schema, e.g. an
// engine adds a day to its history. Move then repeats the attempt until ctx ends.
//
// The move happens as a whole or not at all. After an error of the connection, [Owner] says which
// of the two.
//
// Errors: ErrNotDistributed, ErrCoordinator, ErrNode, ErrEpochs, and Citus' errors.
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
		if err == nil || !passes(err) || !sleep(ctx, time.Second) {
			return failed(err)
		}
		if there, again := mayMove(ctx, coordinator, schema, host, port); again != nil || there { // another move was under way
			return failed(again)
		}
	}
}

// passes reports whether the same move may succeed soon. These errors of Citus have no specific
// code: that it could not delete tables of an earlier move, for which it has waited a second, and
// that it could not lock the tables.
func passes(err error) bool {
	return strings.Contains(err.Error(), "leftover from the previous move could not be cleaned up") ||
		strings.Contains(err.Error(), "could not acquire the lock required to move")
}

const (
	moveSQL = `SELECT pg_catalog.citus_schema_move($1::text::regnamespace, $2::text, $3::int, $4::text::citus.shard_transfer_mode)`

	// nodeSQL says whether this is the coordinator, and whether a node may have shards. Its $1 is a
	// host, $2 a port.
	nodeSQL = `SELECT (SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group), EXISTS (SELECT FROM pg_catalog.pg_dist_node
  WHERE nodename = $1::text AND nodeport = $2::int AND noderole = 'primary' AND isactive AND shouldhaveshards)`

	// epochSQL returns how many epochs a place of a cluster has begun, and 0 for a schema that is
	// no place. {s} is the schema.
	epochSQL = `SELECT CASE WHEN place IS NULL THEN 0 ELSE epoch END FROM {s}.gen_durable_home`

	// progressSQL returns how far the copy of a schema's shards is. Its $1 is the schema.
	progressSQL = `SELECT coalesce(sum(p.target_shard_size), 0)::bigint, coalesce(sum(p.source_shard_size), 0)::bigint, coalesce(min(p.status), '')
FROM pg_catalog.get_rebalance_progress() p JOIN pg_catalog.pg_dist_shard d USING (shardid) JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
WHERE c.relnamespace = $1::text::regnamespace`
)

// mayMove returns an error if the schema cannot move there, and reports whether it is there
// already.
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
		return false, fmt.Errorf("read how often the schema was moved: %w", err)
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

// tell calls Progress until ctx ends. It skips a call if its query fails.
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
