package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A claim that is the first at a key with a rate inserts the row of gate_keys. If another
// transaction has inserted it and has not committed, the claim waits for that transaction, which
// may last, and fails with all that it would have claimed. No statement can pass over a row that
// it does not see. So the process finds the key by trial, and its claims leave the key alone until
// the other transaction is over. If it is the row of a whole gate, the keys of that gate wait. If
// it is the row of a queue's gate, that queue waits, and no other: a claim that waits for the row
// would meanwhile keep the locks of the gates that other queues share.

const (
	// unpaidAgain is how often a claim tries whether a key is free again. A try takes briefLock.
	unpaidAgain = time.Second
	// unpaidTries bounds the keys that one claim tries again.
	unpaidTries = 4
	// unpaidFor bounds the search for keys whose rows are held. The next claim goes on with it.
	unpaidFor = 300 * time.Millisecond
)

var (
	// unpaidSQL lists, for rows of lines and for the gate of a queue, the keys at which a claim would
	// insert the row. $1 ids $2 queue
	unpaidSQL = named("unpaid keys", `SELECT DISTINCT v.key FROM (
  SELECT l.key, l.rate FROM {s}.gen_durable g JOIN {s}.gates r ON r.name = split_part(g.gate, '/', 1)
  CROSS JOIN LATERAL (VALUES (g.gate, r.rate), (r.name, r.total_rate)) l(key, rate) WHERE g.id = ANY($1::bigint[])
  UNION ALL SELECT q.name, q.rate FROM (
    SELECT r.name, r.rate FROM {s}.gates r WHERE r.queue = $2 AND `+seatText+` ORDER BY r.name COLLATE "C" LIMIT 1) q) v
WHERE v.rate IS NOT NULL AND NOT EXISTS (SELECT FROM {s}.gate_keys e WHERE e.key = v.key) ORDER BY 1`)

	// openKeysSQL inserts rows of keys, which say no more than no row does. $1 keys
	openKeysSQL = named("open keys", `INSERT INTO {s}.gate_keys (key) SELECT k FROM unnest($1::text[]) k ORDER BY k ON CONFLICT (key) DO NOTHING`)
)

// unpaidKeys are the keys whose rows another transaction has inserted and not committed, and when
// to try each again.
type unpaidKeys struct {
	mu sync.Mutex
	at map[string]time.Time
}

// all returns the keys, never nil.
func (u *unpaidKeys) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.AppendSeq([]string{}, maps.Keys(u.at))
}

// due returns some keys to try again. Until they are due again, no other claim tries them.
func (u *unpaidKeys) due() (keys []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for key, at := range u.at {
		if len(keys) < unpaidTries && !now.Before(at) {
			keys, u.at[key] = append(keys, key), now.Add(unpaidAgain)
		}
	}
	return keys
}

func (u *unpaidKeys) set(key string, held bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !held {
		delete(u.at, key)
		return
	}
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	u.at[key] = time.Now().Add(unpaidAgain)
}

// openKeys makes the rows of keys, unless another transaction makes one of them, for which it
// waits a moment.
func (s *Store) openKeys(ctx context.Context, conn *pgx.Conn, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return s.pipelineOn(ctx, conn, s.enclose(briefLock, []entpgx.Stmt{s.stmt(openKeysSQL, nil, keys)})...)
}

// claimPaid is claimOnce at gates, without the keys whose rows another transaction is about to
// insert.
func (s *Store) claimPaid(ctx context.Context, conn *pgx.Conn, p *ClaimParams, pick func(*Claimed) entpgx.Stmt) (Claimed, error) {
	for _, key := range s.unpaid.due() {
		if err := s.openKeys(ctx, conn, []string{key}); err == nil {
			s.unpaid.set(key, false)
		} else if !IsLockTimeout(err) {
			return Claimed{}, err
		}
	}
	p.unpaid = s.unpaid.all()
	out, err := s.claimOnce(ctx, conn, p, pick)
	if !IsLockTimeout(err) || unknown(err) {
		return out, err
	}
	held, search := s.findUnpaid(ctx, conn, p)
	if search != nil || len(held) == 0 {
		return out, err
	}
	p.unpaid = s.unpaid.all()
	out, err = s.claimOnce(ctx, conn, p, pick)
	out.Refused = append(out.Refused, held...)
	return out, err
}

// findUnpaid finds keys that have kept a claim from its rows.
func (s *Store) findUnpaid(ctx context.Context, conn *pgx.Conn, p *ClaimParams) (held []Refused, err error) {
	var window []int64
	var keys []string
	began := time.Now()
	err = s.pipelineOn(ctx, conn, s.enclose(fastLock, s.atGates(&ClaimParams{Queue: p.Queue, off: true, unpaid: p.unpaid}, &Claimed{}, s.lineWindow(p, p.Limit, &window)))...)
	if err == nil {
		err = s.pipelineOn(ctx, conn, s.enclose(fastLock, []entpgx.Stmt{s.stmt(unpaidSQL, readQueues(&keys), append([]int64{}, window...), p.Queue)})...)
	}
	if err != nil {
		return nil, err
	}
	return narrow(keys, func(keys []string) error {
		if time.Since(began) > unpaidFor {
			return nil
		}
		return s.openKeys(ctx, conn, keys)
	}, func(key string, err error) Refused {
		s.unpaid.set(key, true)
		return Refused{Key: key, Err: err}
	})
}
