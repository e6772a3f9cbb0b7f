package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A claim with a partition key may be taken away from its worker while the step still runs there.
// The reaper takes it when the lease has expired, since the process stalled, or an operator cancels
// its instance. No other statement does. Then the row's status and the unique index of executing
// keys no longer keep the next row of the key out. So the statement that takes such a claim away
// notes it in lost_claims, in the same transaction. The next claim of the key learns that from
// takenSQL, and its worker waits until no note of the key is left:
//
//   - The worker that lost the claim lives, and notices it by the time its step has ended. It
//     deletes the note by the claim's token (Landed).
//   - That worker is gone, and cannot run anything. A waiting worker deletes the note (Lingering),
//     or a sweep does (forgetSQL).
//   - That worker lives, and never had the step, since the claim's answer was lost. Its sweep
//     deletes the note (forgetSQL).
//
// A worker's liveness lock shows whether it is gone. It is an advisory lock of its session, one per
// process, which the server releases when the connection ends. It is a shared lock, so that a
// process whose connection broke can take it again on a new one while the server still has the old.
// A transaction that asks whether a worker lives tries to lock it exclusively, until its own end.

// livenessKey renders the key of the lock that a worker holds while it lives: 64 bits of a hash of
// schema and worker. So engines in other schemas of the database, and the host's own advisory
// locks, collide with it by chance only. Both sides ask the server for the hash. schema and worker
// are SQL.
func livenessKey(schema, worker string) string {
	return `hashtextextended('gendurable ' || ` + schema + ` || ' ' || ` + worker + `, 0)`
}

// aliveSQL takes a worker's liveness lock for the session. A process that has it exclusively
// releases it at once.
//
// The settings make the server notice a peer that died silently within a lease, and not after the
// two hours of the kernel's default, since its locks stay until then (T57). They also keep the
// server from ending an idle session. $1 schema $2 worker
var aliveSQL = named("alive", `SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('idle_session_timeout', '0', false),
  pg_advisory_lock_shared(`+livenessKey("$1::text", "$2::text")+`)`)

// lostClaimsSQL notes claims that the transaction takes away from their workers. $1 keys $2 workers
// $3 tokens
var lostClaimsSQL = named("lost claims", `INSERT INTO {s}.lost_claims (partition_key, worker, claim_token)
SELECT u.k, u.w, u.t FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(k, w, t)`)

// lostClaims holds the claims that a transaction takes away from their workers.
type lostClaims struct {
	keys, workers []string
	tokens        []int64
}

func (l *lostClaims) add(key, worker string, token int64) {
	l.keys, l.workers, l.tokens = append(l.keys, key), append(l.workers, worker), append(l.tokens, token)
}

// noted returns the statements that note lost claims, or none if there are no such claims.
func (s *Store) noted(l *lostClaims) []entpgx.Stmt {
	if len(l.keys) == 0 {
		return nil
	}
	return []entpgx.Stmt{s.stmt(lostClaimsSQL, nil, l.keys, l.workers, l.tokens)}
}

// lingeringSQL returns, of some keys, those for which a claim must still wait, and deletes the
// notes of workers that are gone. Notes are never updated, only deleted, so a note's ctid stays
// valid until this statement has ended. If another transaction is deleting a note, then that has
// found out by itself that the worker is gone. $1 keys $2 worker $3 schema
var lingeringSQL = named("lingering", `WITH l AS MATERIALIZED (
  SELECT x.ctid AS tid, x.partition_key, x.worker FROM {s}.lost_claims x WHERE x.partition_key = ANY($1::text[]) AND x.worker <> $2),
w AS MATERIALIZED (
  SELECT d.worker, {settled}pg_try_advisory_xact_lock(`+livenessKey("$3::text", "d.worker")+`) AS gone FROM (SELECT DISTINCT worker FROM l) d),
d AS (DELETE FROM {s}.lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM {s}.lost_claims y WHERE y.ctid = ANY(ARRAY(SELECT l.tid FROM l JOIN w USING (worker) WHERE w.gone)) FOR UPDATE SKIP LOCKED)))
SELECT DISTINCT l.partition_key FROM l JOIN w USING (worker) WHERE NOT w.gone`)

// Lingering returns those partition keys under which a step of another worker may still run
// although its claim was taken away. It never waits.
func (s *Store) Lingering(ctx context.Context, worker string, keys []string) (lingering []string, err error) {
	err = s.one(ctx, fastLock, lingeringSQL, func(rows pgx.Rows) error {
		lingering, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, keys, worker, s.schema)
	if err != nil {
		return nil, fmt.Errorf("look for steps of lost claims that still run under %d partition keys: %w", len(keys), err)
	}
	return lingering, nil
}

// landedSQL deletes notes of claims whose steps have ended. $1 worker $2 tokens
var landedSQL = named("landed", `DELETE FROM {s}.lost_claims x WHERE x.worker = $1 AND x.claim_token = ANY($2::bigint[])`)

// Landed reports that the steps of a worker's claims, by their tokens, have ended after the claims
// were taken away.
func (s *Store) Landed(ctx context.Context, worker string, tokens []int64) error {
	if err := s.one(ctx, fastLock, landedSQL, nil, worker, tokens); err != nil {
		return fmt.Errorf("record that the steps of %d lost claims have ended: %w", len(tokens), err)
	}
	return nil
}

// forgetSQL deletes notes for which no process waits, or would wait in vain: the notes of workers
// that are gone, and this worker's own notes of claims that never became a flight, since their
// answer was lost. It cannot tell the latter from claims whose answer is still on its way. But
// such an answer is useless once the lease of the claim, which began before the claim was lost,
// has expired. So it deletes a note only after that time.
//
// $1 worker $2 tokens of its flights $3 its lease, µs $4 schema
var forgetSQL = named("forget lost claims", `WITH w AS MATERIALIZED (
  SELECT d.worker, CASE WHEN d.worker <> $1 THEN {settled}pg_try_advisory_xact_lock(`+livenessKey("$4::text", "d.worker")+`) ELSE false END AS gone
  FROM (SELECT DISTINCT worker FROM {s}.lost_claims) d)
DELETE FROM {s}.lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM {s}.lost_claims y JOIN w USING (worker)
  WHERE w.gone OR y.worker = $1 AND y.claim_token <> ALL(coalesce($2::bigint[], '{}'))
    AND y.lost_at < (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond'
  FOR UPDATE OF y SKIP LOCKED))`)

// InFlight describes the claims that a worker has in flight.
type InFlight struct {
	Worker string
	Tokens []int64       // of all its claims
	Lease  time.Duration // time from when a claim is sent until nothing of it may begin any more
}

func (s *Store) forget(f *InFlight) entpgx.Stmt {
	return s.stmt(forgetSQL, nil, f.Worker, f.Tokens, micros(f.Lease), s.schema)
}
