package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// beatSQL extends leases, counted from the moment of the beat. With SKIP LOCKED, a row that is
// being committed, or that a host's transaction has locked, is not lost: the next beat finds it
// (T17, T19). $1 ids $2 tokens $3 worker $4 lease, µs
var beatSQL = named("heartbeat", `UPDATE {s}.gen_durable g SET lease_expires_at = (SELECT clock_timestamp()) + $4::bigint * interval '1 microsecond'
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND `+claimFence("$3", "u.token")+`
RETURNING g.id, g.paused`)

// insistSQL is beatSQL for one row that was locked at every beat: it waits for its turn. If one
// transaction after the other locks a row (a target of many signals, sent in transactions of
// hosts), SKIP LOCKED never finds the moment in between, but the reaper might. A statement that
// waits for one row and holds nothing cannot deadlock. $1 id $2 token $3 worker $4 lease, µs
var insistSQL = named("heartbeat of one", `UPDATE {s}.gen_durable g SET lease_expires_at = (SELECT clock_timestamp()) + $4::bigint * interval '1 microsecond'
WHERE g.id = $1 AND `+claimFence("$3", "$2")+`
RETURNING g.id, g.paused`)

// lostSQL lists claims that are no longer current, and whether that is because an operator
// cancelled the instance. $1 ids $2 tokens $3 worker
var lostSQL = named("heartbeat lost", `SELECT u.id, coalesce(g.failure = 'cancelled' AND g.claim_token = u.token, false)
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token) u
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.failure FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE NOT coalesce(`+claimFence("$3", "u.token")+`, false)`)

// Line is a separate connection, dialled from the pool's configuration but outside of it: a pool
// that the host has exhausted, or that waits behind a slow statement, must not cost a lease (T17,
// T32). It connects when first used, and again after an error. With a company, it uses the trunk,
// and a separate connection only for statements that are not for the trunk. It is not safe for
// concurrent use.
type Line struct {
	s      *Store
	worker string // whose liveness lock the line holds; "": nobody's
	conn   *pgx.Conn
	dials  dialler

	// Of a line with a company:
	turn    time.Duration // of the trunk; 0: it does not use it
	held    int64         // the trunk's connection that has the liveness lock; 0: none
	outside absence
}

// Line returns a Line. The caller must Close it.
func (s *Store) Line() *Line { return &Line{s: s} }

// LineOf returns a Line that holds a worker's liveness lock while it is connected: see key_lost.go.
func (s *Store) LineOf(worker string) *Line { return &Line{s: s, worker: worker} }

// Share makes the line use the connection of its store's company, if it has one, by turns that take
// so long at most: see trunk.
func (l *Line) Share(turn time.Duration) *Line {
	if l.s.company != nil && turn >= turnLeast {
		l.turn = min(turn, turnMost)
	}
	return l
}

// A caller with less time than turnLeast for a turn goes by itself.
const (
	turnLeast = 50 * time.Millisecond
	turnMost  = time.Second
)

// trunk returns what the line shares with others; nil: nothing, at the moment.
func (l *Line) trunk() *trunk {
	if l.turn == 0 || !l.s.accompanied() || l.outside.lasts() {
		return nil
	}
	return &l.s.company.trunk
}

// transaction sends statements as one transaction, which are made anew for each try. A line that
// has no company sends them on its own connection.
func (l *Line) transaction(ctx context.Context, body func() []entpgx.Stmt) error {
	done, err := l.together(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return l.s.pipelineOn(ctx, conn, l.s.encloseWithin(millis(l.turn), millis(l.turn), body())...)
	})
	if done {
		return err
	}
	conn, err := l.open(ctx)
	if err == nil {
		err = l.s.pipelineOn(ctx, conn, l.s.enclose(fastLock, body())...)
	}
	return err
}

// together lets the line use the trunk. It reports whether that is all there is to do: otherwise
// the line goes on by itself.
func (l *Line) together(ctx context.Context, send func(ctx context.Context, conn *pgx.Conn) error) (done bool, err error) {
	t := l.trunk()
	if t == nil {
		return false, nil
	}
	if err = t.use(ctx, l, send); err == nil {
		_ = l.closeOwn(ctx) // the trunk has the liveness lock, too
		return true, nil
	}
	return ctx.Err() != nil, err
}

// open returns the line's own connection. It dials one if there is none, for longer than ctx if
// need be.
func (l *Line) open(ctx context.Context) (*pgx.Conn, error) {
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	conn, err := l.dials.open(ctx, l.dial)
	if err == nil {
		l.conn = conn
	}
	return conn, err
}

// dial connects, and takes the liveness lock of the line's worker.
func (l *Line) dial(ctx context.Context) (*pgx.Conn, error) {
	conn, err := l.s.db.Dial(ctx)
	if l.s.yields(err) {
		conn, err = l.s.db.Dial(ctx)
	}
	if err != nil || l.worker == "" {
		return conn, err
	}
	if err := l.s.pipelineOn(ctx, conn, l.s.stmt(aliveSQL, nil, l.s.schema, l.worker)); err != nil {
		return nil, errors.Join(fmt.Errorf("take the liveness lock of worker %s: %w", l.worker, err), conn.Close(ctx))
	}
	return conn, nil
}

// Connected reports whether the line had a connection when it was last used, and so the liveness
// lock of its worker.
func (l *Line) Connected() bool {
	return l.conn != nil && !l.conn.IsClosed() || l.held != 0 && l.s.company.trunk.alive.Load() == l.held
}

// Check sends a query, to notice a connection that has died silently.
func (l *Line) Check(ctx context.Context) error {
	done, err := l.together(ctx, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
	if !done {
		var conn *pgx.Conn
		if conn, err = l.open(ctx); err == nil {
			err = conn.Ping(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("check the connection of the heartbeats: %w", err)
	}
	return nil
}

// Close closes the connection, if there is one.
func (l *Line) Close(ctx context.Context) error {
	if l.turn > 0 {
		l.s.company.trunk.leave(ctx, l)
	}
	return l.closeOwn(ctx)
}

func (l *Line) closeOwn(ctx context.Context) error {
	l.dials.stop(ctx)
	if l.conn == nil {
		return nil
	}
	conn := l.conn
	l.conn = nil
	return conn.Close(ctx)
}

// Beaten is the result of a heartbeat.
type Beaten struct {
	Extended  []int64 // extended leases
	Paused    []int64 // those of Extended whose instance an operator has paused
	Lost      []int64 // claims that are no longer current; someone had locked the rows of claims that are in neither list: see Insist
	Cancelled []int64 // those of Lost whose instance an operator has cancelled
	Refused   []Refused
}

// Beat extends the leases of claims. A row that Postgres refuses to change does not cost the others
// their leases.
func (l *Line) Beat(ctx context.Context, worker string, claims []*step.Claim, lease time.Duration) (out Beaten, err error) {
	beat := func(claims []*step.Claim) error {
		var one Beaten
		ids, tokens := claimColumns(claims)
		err := l.transaction(ctx, func() []entpgx.Stmt {
			one = Beaten{}
			return []entpgx.Stmt{
				l.s.stmt(beatSQL, readMarked(&one.Extended, &one.Paused), ids, tokens, worker, micros(lease)),
				l.s.stmt(lostSQL, readMarked(&one.Lost, &one.Cancelled), ids, tokens, worker),
			}
		})
		if err != nil {
			return fmt.Errorf("extend %d leases: %w", len(claims), err)
		}
		out.Extended, out.Paused = append(out.Extended, one.Extended...), append(out.Paused, one.Paused...)
		out.Lost, out.Cancelled = append(out.Lost, one.Lost...), append(out.Cancelled, one.Cancelled...)
		return nil
	}
	if err = beat(claims); blames(err) {
		out.Refused, err = narrow(claims, beat, ofClaim)
	}
	return out, err
}

func ofClaim(c *step.Claim, err error) Refused { return Refused{ID: c.ID, Err: err} }

// Insist extends the lease of a claim whose row Beat found locked. It waits for the row, up to
// wait, which counts in milliseconds. The result is in Extended and Paused. If the row stays
// locked, or the claim is no longer current, Insist returns neither an error nor a result: the next
// Beat reports it.
func (l *Line) Insist(ctx context.Context, worker string, c *step.Claim, lease, wait time.Duration) (Beaten, error) {
	var out Beaten
	conn, err := l.open(ctx)
	if err == nil {
		err = l.s.pipelineOn(ctx, conn, l.s.enclose(millis(wait), []entpgx.Stmt{
			l.s.stmt(insistSQL, readMarked(&out.Extended, &out.Paused), c.ID, c.Token, worker, micros(lease)),
		})...)
	}
	switch {
	case err == nil:
		return out, nil
	case blames(err):
		return Beaten{Refused: []Refused{ofClaim(c, err)}}, nil
	case !IsLockTimeout(err):
		return Beaten{}, fmt.Errorf("extend the lease of instance %d: %w", c.ID, err)
	}
	return Beaten{}, nil
}

// readMarked reads ids into all, and the marked ones into marked.
func readMarked(all, marked *[]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		var mark bool
		_, err := pgx.ForEachRow(rows, []any{&id, &mark}, func() error {
			*all = append(*all, id)
			if mark {
				*marked = append(*marked, id)
			}
			return nil
		})
		return err
	}
}

// releaseForms gives claims back with attempt, crashes, visit, state and eligible_at unchanged, so
// that a deploy costs no attempt. It passes over locked rows: the others of a batch do not wait
// for them, and neither does the connection. SKIP LOCKED also makes the join by ctid right (a join
// by id was planned as a walk over the table). If it is noted, some of the runs had begun: see
// cutOffText, and begun for nodes. $1 ids $2 tokens $3 worker, and if it is noted $4 why each run
// was cut off $5 the nodes whose step was called; NULL: none
var releaseForms = map[bool]*statement{false: named("release", releaseText(false)), true: named("release", releaseText(true), "noted")}

func releaseText(noted bool) string {
	return `UPDATE {s}.gen_durable g SET status = 'runnable', pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,
  lease_expires_at = NULL` + when(noted, `,
  errors = CASE WHEN u.cut IS NULL THEN g.errors `+cutOffText+` END,
  commit_id = CASE WHEN g.id = ANY($5::bigint[]) THEN coalesce(g.commit_id, `+begunText+`) ELSE g.commit_id END`) + `
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token` + when(noted, `, unnest($4::text[]) AS cut`) + `) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND ` + claimFence("$3", "u.token") + `
RETURNING g.id`
}

// cutOffText notes with the errors of attempts that a run was cut off for the reason u.cut. Runs of
// one attempt that follow one another are one entry, which counts them. So a step that begins again
// for ever keeps its number, and the other errors stay.
const cutOffText = `WHEN coalesce(g.errors->-1->>'kind' = 'release' AND g.errors->-1->>'visit' = g.visit::text AND g.errors->-1->>'attempt' = g.attempt::text
    AND jsonb_typeof(g.errors->-1->'times') = 'number', false)
    THEN jsonb_set(g.errors, '{-1}', (g.errors->-1) || jsonb_build_object('at', (SELECT clock_timestamp()), 'worker', g.locked_by,
      'times', trunc(least((g.errors->-1->>'times')::numeric, 1000000000)) + 1, 'error', left(u.cut, 1024)))
    ELSE ` + remembered + `'at', (SELECT clock_timestamp()), 'kind', 'release', 'worker', g.locked_by, 'times', 1, 'error', left(u.cut, 1024))`

// stillClaimedSQL lists the claims that hold. $1 ids $2 tokens $3 worker
var stillClaimedSQL = named("still claimed", `SELECT g.id FROM unnest($1::bigint[], $2::bigint[]) AS u(id, token) JOIN {s}.gen_durable g ON g.id = u.id
WHERE `+claimFence("$3", "u.token"))

// Released reports what Release or SetAside did.
type Released struct {
	// Claims is how many claims have ended by it. Those that had ended before do not count.
	Claims int
	// Locked are the instances whose claims still hold, and whose rows are locked.
	Locked []int64
	// Rows that Postgres refuses to change are left to their leases, and listed in Refused.
	Promotion
}

func (r *Released) add(o Released) {
	r.Claims, r.Locked = r.Claims+o.Claims, append(r.Locked, o.Locked...)
	r.Promotion.add(o.Promotion)
}

// Release gives back claims whose step has not run, or was cancelled by the engine before it
// returned an outcome. It waits for no row that others hold.
func (s *Store) Release(ctx context.Context, worker string, claims []*step.Claim) (out Released, err error) {
	release := func(claims []*step.Claim, promote bool) error {
		one, err := s.giveBack(ctx, worker, claims, promote, func(ids, tokens []int64, read func(pgx.Rows) error) entpgx.Stmt {
			if cuts, nodes := cutsOff(claims), begunNodes(claims); cuts != nil || nodes != nil {
				return s.stmt(releaseForms[true], read, ids, tokens, worker, cuts, nodes)
			}
			return s.stmt(releaseForms[false], read, ids, tokens, worker)
		})
		out.add(one)
		return err
	}
	if err = release(claims, true); blames(err) {
		out.Refused, err = narrow(claims, func(claims []*step.Claim) error { return release(claims, false) }, ofClaim)
	}
	return out, err
}

// cutsOff returns why the runs of claims were cut off; nil: none had begun.
func cutsOff(claims []*step.Claim) (why []*string) {
	for i, c := range claims {
		if c.CutOff == "" {
			continue
		}
		if why == nil {
			why = make([]*string, len(claims))
		}
		why[i] = &c.CutOff
	}
	return why
}

// giveBack ends claims by a statement, and promotes their keys, in one transaction. promote has
// the same meaning as for reap. If some claims were not among those that have ended, a look
// afterwards tells locked rows from claims that had been taken away. A row that was unlocked
// between the two is tried again in vain, which does no harm.
func (s *Store) giveBack(ctx context.Context, worker string, claims []*step.Claim, promote bool,
	give func(ids, tokens []int64, read func(pgx.Rows) error) entpgx.Stmt,
) (out Released, err error) {
	ids, tokens := claimColumns(claims)
	var keys []string
	for _, c := range claims {
		if c.PartitionKey != "" {
			keys = append(keys, c.PartitionKey)
		}
	}
	stmts := []entpgx.Stmt{
		give(ids, tokens, func(rows pgx.Rows) error {
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { out.Claims++; return nil })
			return err
		}),
	}
	switch {
	case len(keys) > 0 && promote:
		stmts = append(stmts, s.stmt(promoteSQL, out.read, keys, nil, nil))
	default:
		out.Missed = keys
	}
	if err := s.transaction(ctx, fastLock, stmts...); err != nil {
		return Released{}, fmt.Errorf("release %d claims: %w", len(claims), err)
	}
	if out.Claims < len(claims) {
		if err := s.one(ctx, fastLock, stillClaimedSQL, readIDs(&out.Locked), ids, tokens, worker); err != nil {
			return out, fmt.Errorf("check which of %d claims were released: %w", len(claims), err)
		}
	}
	return out, nil
}

// heldSQL lists the claims of a worker in a queue. $1 worker $2 queue
var heldSQL = named("held", `SELECT g.id, g.claim_token, coalesce(g.partition_key, ''), coalesce(g.gate, '') FROM {s}.gen_durable g
WHERE g.status = 'executing' AND g.locked_by = $1 AND g.queue = $2`)

// Held lists the claims of a worker in a queue, with the fields that Release needs. It walks all
// executing rows, which is acceptable for the rare moment after a claim that got no answer.
func (s *Store) Held(ctx context.Context, worker, queue string) ([]*step.Claim, error) {
	var held []*step.Claim
	err := s.one(ctx, fastLock, heldSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			c := step.Claim{Queue: queue}
			if err := rows.Scan(&c.ID, &c.Token, &c.PartitionKey, &c.Gate); err != nil {
				return err
			}
			held = append(held, &c)
		}
		return rows.Err()
	}, worker, queue)
	if err != nil {
		return nil, fmt.Errorf("list the claims of worker %s in queue %q: %w", worker, queue, err)
	}
	return held, nil
}

func claimColumns(claims []*step.Claim) (ids, tokens []int64) {
	ids, tokens = make([]int64, len(claims)), make([]int64, len(claims))
	for i, c := range claims {
		ids[i], tokens[i] = c.ID, c.Token
	}
	return ids, tokens
}
