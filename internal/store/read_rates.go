package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// RateFilter says of which time rates are, and how much is read for them.
type RateFilter struct {
	Past time.Duration // up to now
	Bin  time.Duration // of which each count is
	Most int           // of the newest rows: so many inserted and so many ended ones are read
}

// RateBin counts what happened in a queue in one bin.
type RateBin struct {
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"` // its begin
	Inserted int64     `json:"inserted"`
	Ended    int64     `json:"ended"` // failed ones included
	Failed   int64     `json:"failed"`
}

// Rates are the counts of a time, and from when on they are complete.
type Rates struct {
	At            time.Time // the server's clock
	InsertedSince time.Time // what was inserted before was not read
	EndedSince    time.Time // what ended before was not read
	Bins          []RateBin
}

// ratesSQL counts recent inserts and ends, in bins. It goes along the primary key and
// gen_durable_finished from their ends, and reads no more than $3 rows of each, however large the
// table is. Ids ascend as rows are inserted, but for transactions that are open long.
//
// $1 past and $2 bin in µs $3 most
var ratesSQL = named("rates", `WITH t AS (SELECT now() AS now, now() - $1::bigint * interval '1 microsecond' AS since),
inserted AS MATERIALIZED (
  SELECT g.queue, g.inserted_at AS at FROM {s}.gen_durable g ORDER BY g.id DESC LIMIT $3::int),
ended AS MATERIALIZED (
  SELECT g.queue, g.finished_at AS at, g.status = 'failed' AS failed FROM {s}.gen_durable g
  WHERE g.finished_at IS NOT NULL AND g.finished_at >= now() - $1::bigint * interval '1 microsecond' ORDER BY g.finished_at DESC LIMIT $3::int),
bins AS (
  SELECT x.queue, date_bin($2::bigint * interval '1 microsecond', x.at, 'epoch'::timestamptz) AS at, sum(x.inserted)::bigint AS inserted,
    sum(x.ended)::bigint AS ended, sum(x.failed)::bigint AS failed
  FROM (
    SELECT i.queue, i.at, 1 AS inserted, 0 AS ended, 0 AS failed FROM inserted i, t WHERE i.at >= t.since AND i.at <= t.now
    UNION ALL SELECT e.queue, e.at, 0, 1, CASE WHEN e.failed THEN 1 ELSE 0 END FROM ended e, t WHERE e.at <= t.now) x
  GROUP BY 1, 2)
SELECT t.now,
  CASE WHEN (SELECT count(*) FROM inserted) < $3::int THEN t.since ELSE greatest(t.since, (SELECT min(at) FROM inserted)) END,
  CASE WHEN (SELECT count(*) FROM ended) < $3::int THEN t.since ELSE greatest(t.since, (SELECT min(at) FROM ended)) END,
  (SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]')::text FROM bins b)
FROM t`)

// Rates counts recent inserts and ends. Rows that are deleted at their end are not among them.
func (s *Store) Rates(ctx context.Context, f *RateFilter) (out Rates, err error) {
	var bins string
	err = s.one(ctx, fastLock, ratesSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&out.At, &out.InsertedSince, &out.EndedSince, &bins}, func() error { return nil })
		return err
	}, f.Past.Microseconds(), f.Bin.Microseconds(), f.Most)
	if err == nil {
		err = json.Unmarshal([]byte(bins), &out.Bins)
	}
	if err != nil {
		return Rates{}, fmt.Errorf("count inserted and ended instances: %w", err)
	}
	return out, nil
}
