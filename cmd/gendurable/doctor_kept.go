package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// keptSQL looks at kept signals, those that expire first, as far as $2. It returns how many these
// are, and for how many keys; how many a live instance has not been given for longer than $1,
// whose key it occupied in time; how many have expired for longer than $1, and are still there;
// how many expire within an hour, for keys that no instance has; and a key of each of these kinds.
const keptSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, $1::float8 * interval '1 second' AS patience),
k AS (SELECT k.key, k.inserted_at, k.expires_at, g.born FROM (SELECT * FROM {s}.kept_signals k ORDER BY k.expires_at LIMIT $2) k
  LEFT JOIN LATERAL (SELECT greatest(g.inserted_at, k.inserted_at) AS born FROM {s}.gen_durable g WHERE g.correlation_guard = k.key
    AND g.status NOT IN ('done', 'failed') AND g.inserted_at < k.expires_at OFFSET 0) g ON true),
s AS (SELECT k.key, CASE WHEN k.born < c.now - c.patience THEN 'late' WHEN k.born IS NOT NULL THEN ''
  WHEN k.expires_at < c.now - c.patience THEN 'expired' WHEN k.expires_at BETWEEN c.now AND c.now + interval '1 hour' THEN 'soon' ELSE '' END AS kind FROM k, c)
SELECT kind, count(*), count(DISTINCT key), min(key) FROM s GROUP BY kind`

// keptSignals looks for signals that are kept for keys, and that no instance takes.
func (p *patient) keptSignals(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, within(p.schema, keptSQL), p.Patience.Seconds(), p.limits.walk)
	if err != nil {
		return finding{}, err
	}
	all, seen, do, worst := int64(0), []string{}, []string{}, gradeOK
	var kind, key string
	var count, keys int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &count, &keys, &key}, func() error {
		all += count
		number := fmt.Sprintf("%d for %d keys, one of which is %q,", count, keys, key)
		switch kind {
		case "late":
			worst = gradeFail
			seen, do = append(seen, number+" have a live instance that was not given them"), append(do, "start an engine with queues: its polls hand them over")
		case "expired":
			worst = gradeFail
			seen, do = append(seen, number+" have expired, and are still there"), append(do, "no engine deletes them: start one with queues")
		case "soon":
			if worst == gradeOK {
				worst = gradeWarn
			}
			seen, do = append(seen, number+" expire within an hour"), append(do, "insert the instances that they are for, or let them go")
		}
		return nil
	})
	switch {
	case err != nil || all == 0:
		return ok("none is kept"), err
	case len(seen) == 0:
		return ok("%d are kept for keys that nobody has yet", all), nil
	}
	return ok("%s", strings.Join(seen, "; ")).or(worst, strings.Join(do, "; ")), nil
}

// kept describes the signals that are kept for a key that no instance has; "" if there are none.
func (d *database) kept(ctx context.Context, key string) string {
	var text *string
	if err := d.pool.QueryRow(ctx, within(d.schema, `SELECT count(*) || ' signals are kept for the key (' || string_agg(DISTINCT name, ', ')
		|| '), the first until ' || to_char(min(expires_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
		FROM {s}.kept_signals WHERE key = $1 AND expires_at > clock_timestamp() HAVING count(*) > 0`), key).Scan(&text); err != nil || text == nil {
		return "" // it is only an advice
	}
	return *text
}
