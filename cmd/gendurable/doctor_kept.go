package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/keptsignal"
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
	var found []struct {
		Name  string
		Count int
		Until time.Time
	}
	err := d.all.Ent().KeptSignal.Query().
		Where(keptsignal.Key(key), func(s *sql.Selector) { s.Where(sql.ExprP(s.C(keptsignal.FieldExpiresAt) + " > clock_timestamp()")) }).
		Order(keptsignal.ByName()).
		GroupBy(keptsignal.FieldName).
		Aggregate(ent.Count(), ent.As(ent.Min(keptsignal.FieldExpiresAt), "until")).
		Scan(ctx, &found)
	if err != nil || len(found) == 0 {
		return "" // it is only an advice
	}
	count, names, until := 0, make([]string, len(found)), found[0].Until
	for i, of := range found {
		count, names[i] = count+of.Count, of.Name
		if of.Until.Before(until) {
			until = of.Until
		}
	}
	return fmt.Sprintf("%d signals are kept for the key (%s), the first until %s UTC", count, strings.Join(names, ", "), until.UTC().Format(time.DateTime))
}
