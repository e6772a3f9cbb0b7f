package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// KeyLocks are the session advisory locks of partition keys: the guard that keeps a stalled worker, whose lease ran out but whose step
// still runs, from overlapping with its successor (spec §6). All of a process's are on one Line. They are re-entrant in Postgres, so
// the caller must know for itself what it holds (T90). If the connection drops they are all gone.
type KeyLocks struct{ line *Line }

// KeyLocks makes KeyLocks without any lock; Close it.
func (s *Store) KeyLocks() *KeyLocks { return &KeyLocks{line: s.Line()} }

var errClosed = errors.New("not connected")

// KeyHash is what is locked for a partition key: 64 bits of schema and key, so that engines in other schemas of the database, and the
// host's own advisory locks, are not met but by chance.
func (s *Store) KeyHash(key string) int64 {
	sum := sha256.Sum256([]byte("gendurable\x00" + s.schema + "\x00" + key))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // the bits are what counts
}

// A dead peer must be noticed within a lease, not after the two hours of the kernel's default: the locks of a machine that is gone stay
// until the server notices (T57).
const keepaliveSQL = `SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('idle_session_timeout', '0', false)`

const tryLockSQL = `SELECT pg_try_advisory_lock(u.hash) FROM unnest($1::bigint[]) WITH ORDINALITY AS u(hash, n) ORDER BY u.n`

const unlockSQL = `SELECT pg_advisory_unlock(u.hash) FROM unnest($1::bigint[]) AS u(hash)`

// TryLock tries each hash and says, in order, which it got. It never waits for a holder. Hashes must not be held by this process, and
// must be distinct.
func (k *KeyLocks) TryLock(ctx context.Context, hashes []int64) (got []bool, err error) {
	fresh := k.line.conn == nil || k.line.conn.IsClosed()
	conn, err := k.line.open(ctx)
	if err == nil && fresh {
		err = entpgx.PipelineOn(ctx, conn, k.line.s.stmt("keepalive", keepaliveSQL, nil))
	}
	if err == nil {
		err = entpgx.PipelineOn(ctx, conn, k.line.s.stmt("lock partition keys", tryLockSQL, func(rows pgx.Rows) error {
			got, err = pgx.CollectRows(rows, pgx.RowTo[bool])
			return err
		}, hashes))
	}
	if err != nil {
		return nil, fmt.Errorf("lock %d partition keys: %w", len(hashes), err)
	}
	return got, nil
}

// Unlock gives locks back.
func (k *KeyLocks) Unlock(ctx context.Context, hashes []int64) error {
	if k.line.conn == nil || k.line.conn.IsClosed() {
		return nil // gone with their connection
	}
	if err := entpgx.PipelineOn(ctx, k.line.conn, k.line.s.stmt("unlock partition keys", unlockSQL, nil, hashes)); err != nil {
		return fmt.Errorf("unlock %d partition keys: %w", len(hashes), err)
	}
	return nil
}

// Alive asks the server, so that a connection that died unnoticed is noticed.
func (k *KeyLocks) Alive(ctx context.Context) error {
	if k.line.conn == nil || k.line.conn.IsClosed() {
		return fmt.Errorf("connection of the partition key locks: %w", errClosed)
	}
	return k.line.conn.Ping(ctx)
}

// Close gives up the connection, and with it all locks.
func (k *KeyLocks) Close(ctx context.Context) error { return k.line.Close(ctx) }
