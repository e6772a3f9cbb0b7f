package soak

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// holdSQL locks some instances that have not ended. It waits for no lock. $1 how many
const holdSQL = `SELECT id FROM gendurable.gen_durable WHERE id = ANY(ARRAY(
	SELECT id FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed') ORDER BY random() LIMIT $1))
	ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`

// holdLineSQL locks some instances that are the next in line at gates. $1 how many
const holdLineSQL = `SELECT id FROM gendurable.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 3
	ORDER BY priority, eligible_at, id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED`

// holdGatesSQL locks the rows of gates, and the rows of one key in two.
const holdGatesSQL = `WITH k AS (SELECT FROM gendurable.gate_keys WHERE random() < 0.5 FOR NO KEY UPDATE SKIP LOCKED),
r AS (SELECT FROM gendurable.gates FOR NO KEY UPDATE SKIP LOCKED) SELECT (SELECT count(*) FROM k) + (SELECT count(*) FROM r)`

// wentOnSQL reports whether an instance that is newer than others, and needs nothing of them, has
// ended. $1 the newest of the others
const wentOnSQL = `SELECT EXISTS (SELECT FROM gendurable.gen_durable
	WHERE id > $1 AND status = 'done' AND partition_key IS NULL AND parent_id IS NULL)`

// goOnWithin bounds how long this session waits for others to go on. It is far more than they need
// beside any other fault.
const goOnWithin = time.Minute

// hold locks instances in a transaction that stays open for seconds, like a host's that has
// signalled to them. Instances that need none of these go on: it lets go only when an instance has
// ended that was inserted after it took the locks.
func (c *chaos) hold(ctx context.Context, r *rand.Rand) error {
	tx, err := c.admin.Begin(ctx)
	if err != nil {
		return nil //nolint:nilerr // the server is down, by another fault
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has changed nothing
	var newest int64
	ids, err := lockSome(ctx, tx, holdSQL, 1+r.IntN(30))
	if err == nil && r.IntN(3) == 0 { // whoever is first in a line, the rule that it waits for, and what a key of it owes
		var first []int64
		if first, err = lockSome(ctx, tx, holdLineSQL, 1+r.IntN(5)); err == nil {
			ids = append(ids, first...)
			_, err = tx.Exec(ctx, holdGatesSQL)
		}
	}
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT max(id) FROM gendurable.gen_durable`).Scan(&newest)
	}
	if err != nil || len(ids) == 0 {
		return nil //nolint:nilerr // as above
	}
	c.counts[strange].Add(1)
	c.log.write(event{Kind: evFault, Detail: strange, Children: ids})
	defer c.log.write(event{Kind: evHealed, Detail: strange})
	began := time.Now()
	pause(ctx, time.Duration(1000+r.IntN(3000))*time.Millisecond)
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		if _, err := tx.Exec(ctx, `SELECT`); err != nil {
			return nil //nolint:nilerr // a restart of the server has released the locks
		}
		var on bool
		if err := c.admin.QueryRow(ctx, wentOnSQL, newest).Scan(&on); err == nil && on {
			c.effects[strange].Add(1)
			return nil
		}
		if time.Since(began) > goOnWithin {
			return late("while somebody holds the %d instances %d, none that came after them has ended in %v", len(ids), ids, goOnWithin)
		}
	}
	return nil
}

func lockSome(ctx context.Context, tx pgx.Tx, sql string, most int) ([]int64, error) {
	rows, err := tx.Query(ctx, sql, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// freeze stops a worker wherever it is, ends all its sessions, and lets it go on when its leases
// have run out. The server releases its liveness lock, while its steps have not ended.
func (c *chaos) freeze(ctx context.Context, r *rand.Rand) error {
	p, err := c.victim(ctx, r)
	if p == nil {
		return err
	}
	defer c.fleet.giveBack(p)
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer c.note(frozen, p.name)()
	ending, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var ended int64
	// An error means that the server is down, by another fault.
	if err := c.admin.QueryRow(ending, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = $1`, p.name).Scan(&ended); err == nil {
		c.effects[frozen].Add(ended)
	}
	pause(ctx, lease+reap+time.Duration(r.IntN(1000))*time.Millisecond)
	return p.signal(syscall.SIGCONT)
}
