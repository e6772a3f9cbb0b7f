package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A claim with a partition key may be taken away from its worker while the step still runs there.
// Two statements do that: the reaper's, when the lease is over since the process stalled, and an
// operator's cancel. From then on neither the row's status nor the unique index of executing keys
// keeps the next row of the key from being claimed. So both note the claim in lost_claims, in the
// same transaction. A worker that claims the next row of the key learns of the note with the row
// (takenSQL), and does not begin the step before no worker but itself has lost a claim of the key:
//
//   - A worker that lives deletes its note when its step has ended, by the claim's token (Landed).
//   - A worker that is gone runs nothing: the worker that waits deletes the note (Lingering), or a
//     sweep does (forgetSQL).
//   - A worker that lives may never have had the step, since the answer to its claim was lost: its
//     own sweep deletes the note, see forgetSQL.
//
// A worker is gone when its liveness lock is free. That is one advisory lock per process, held by
// the session of its heartbeats, which the server releases when the connection ends. It is a shared
// lock, so that a process whose connection broke can take it on a new one while the server still
// has the old. Other workers try to take it exclusively, for the moment of their transaction.

// livenessKey is what a worker locks for as long as it lives: 64 bits of a hash of schema and
// worker, so that engines in other schemas of the database, and the host's own advisory locks, are
// not met but by chance. Both sides ask the server for the hash. schema and worker are SQL.
func livenessKey(schema, worker string) string {
	return `hashtextextended('gendurable ' || ` + schema + ` || ' ' || ` + worker + `, 0)`
}

// aliveSQL takes a worker's liveness lock for the session. Whoever has it exclusively gives it up
// at once.
//
// The server notices a peer that has died without a word within a lease, not after the two hours of
// the kernel's default: until then its locks stay (T57). And it must not end a session that is
// idle. $1 schema $2 worker
var aliveSQL = `SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('idle_session_timeout', '0', false),
  pg_advisory_lock_shared(` + livenessKey("$1::text", "$2::text") + `)`

// lostClaimsSQL notes claims that are taken away from their workers. $1 keys $2 workers $3 tokens
const lostClaimsSQL = `INSERT INTO {s}.lost_claims (partition_key, worker, claim_token)
SELECT u.k, u.w, u.t FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(k, w, t)`

// lostClaims are claims that a transaction takes away from their workers.
type lostClaims struct {
	keys, workers []string
	tokens        []int64
}

func (l *lostClaims) add(key, worker string, token int64) {
	l.keys, l.workers, l.tokens = append(l.keys, key), append(l.workers, worker), append(l.tokens, token)
}

// noted are the statements that note them: none if there are none.
func (s *Store) noted(l *lostClaims) []entpgx.Stmt {
	if len(l.keys) == 0 {
		return nil
	}
	return []entpgx.Stmt{s.stmt("lost claims", lostClaimsSQL, nil, l.keys, l.workers, l.tokens)}
}

// lingeringSQL says which of some keys are still to be waited for, and deletes what is noted of
// workers that are gone. Notes are not changed, only deleted, so their ctid is theirs until this
// statement has ended. What another transaction is deleting, it has found out itself. $1 keys $2
// worker $3 schema
var lingeringSQL = `WITH l AS MATERIALIZED (
  SELECT x.ctid AS tid, x.partition_key, x.worker FROM {s}.lost_claims x WHERE x.partition_key = ANY($1::text[]) AND x.worker <> $2),
w AS MATERIALIZED (
  SELECT d.worker, pg_try_advisory_xact_lock(` + livenessKey("$3::text", "d.worker") + `) AS gone FROM (SELECT DISTINCT worker FROM l) d),
d AS (DELETE FROM {s}.lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM {s}.lost_claims y WHERE y.ctid = ANY(ARRAY(SELECT l.tid FROM l JOIN w USING (worker) WHERE w.gone)) FOR UPDATE SKIP LOCKED)))
SELECT DISTINCT l.partition_key FROM l JOIN w USING (worker) WHERE NOT w.gone`

// Lingering says of which partition keys a step of another worker may still run though its claim
// was taken away. It never waits.
func (s *Store) Lingering(ctx context.Context, worker string, keys []string) (lingering []string, err error) {
	err = s.one(ctx, fastLock, "lingering", lingeringSQL, func(rows pgx.Rows) error {
		lingering, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, keys, worker, s.schema)
	if err != nil {
		return nil, fmt.Errorf("ask who still runs under %d partition keys: %w", len(keys), err)
	}
	return lingering, nil
}

// landedSQL deletes notes of claims whose steps have ended. $1 worker $2 tokens
const landedSQL = `DELETE FROM {s}.lost_claims x WHERE x.worker = $1 AND x.claim_token = ANY($2::bigint[])`

// Landed tells that the steps of a worker's claims, by their tokens, have ended after the claims
// were taken away.
func (s *Store) Landed(ctx context.Context, worker string, tokens []int64) error {
	if err := s.one(ctx, fastLock, "landed", landedSQL, nil, worker, tokens); err != nil {
		return fmt.Errorf("tell that the steps of %d lost claims have ended: %w", len(tokens), err)
	}
	return nil
}

// forgetSQL deletes notes that nobody waits for, or would wait for in vain: of workers that are
// gone; and this worker's own of claims that never became a flight, as their answer was lost. It
// cannot tell these from claims whose answer is still on its way: but such an answer is of no use
// any more once the lease of the claim, which began before it was lost, is over. So it waits for so
// long before it forgets. $1 worker $2 tokens of its flights $3 its lease, µs $4 schema
var forgetSQL = `WITH w AS MATERIALIZED (
  SELECT d.worker, CASE WHEN d.worker <> $1 THEN pg_try_advisory_xact_lock(` + livenessKey("$4::text", "d.worker") + `) ELSE false END AS gone
  FROM (SELECT DISTINCT worker FROM {s}.lost_claims) d)
DELETE FROM {s}.lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM {s}.lost_claims y JOIN w USING (worker)
  WHERE w.gone OR y.worker = $1 AND y.claim_token <> ALL(coalesce($2::bigint[], '{}'))
    AND y.lost_at < (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond'
  FOR UPDATE OF y SKIP LOCKED))`

// InFlight is what a worker has in flight.
type InFlight struct {
	Worker string
	Tokens []int64       // of all its claims
	Lease  time.Duration // from when a claim is sent until nothing of it is begun any more
}

func (s *Store) forget(f *InFlight) entpgx.Stmt {
	return s.stmt("forget lost claims", forgetSQL, nil, f.Worker, f.Tokens, micros(f.Lease), s.schema)
}
