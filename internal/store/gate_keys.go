package store

import (
	"context"
	"fmt"
	"time"
)

// A row of gate_keys has what is known of one key of a gate, name/value, or of a gate, name. A
// claim reads and updates it under the lock of the gate, and verbs that close, open or weigh a key
// update other columns than the claim. A key without a row has the defaults. closeKeySQL and
// weighKeySQL return a row if they change anything.
var (
	// throttleSQL notes that a key was told of too many requests. With a time, or if the gate does
	// not adapt, the key is closed for $2 µs, never shorter than it is closed already; if the gate
	// adapts and no time is given, its pace halves instead, down to a hundredth. A key of which no
	// gate has a rule is not changed.
	//
	// Many processes may be told so in the same moment, of calls that they had under way together.
	// That is one piece of news: within half a second of the last time, by the times at which the
	// statements began, the pace does not halve again. They meet on the row, each looks at what the
	// one before has left. A clock that was set back does not keep the next one from it.
	//
	// $1 key $2 µs; 0: nobody has said
	throttleSQL = named("throttle", `INSERT INTO {s}.gate_keys AS b (key, closed_until, pace, slowed_at)
SELECT $1, CASE WHEN u.closes THEN u.until END, CASE WHEN u.closes THEN 1 ELSE 0.5 END, CASE WHEN NOT u.closes THEN u.now END
FROM (SELECT n.now, n.now + CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE 1000000 END * interval '1 microsecond' AS until,
  $2::bigint > 0 OR NOT r.adapt OR r.rate IS NULL AS closes
  FROM {s}.gates r CROSS JOIN (SELECT clock_timestamp() AS now) n WHERE r.name = split_part($1, '/', 1)) u
ON CONFLICT (key) DO UPDATE SET closed_until = greatest(b.closed_until, excluded.closed_until),
  pace = CASE WHEN excluded.slowed_at IS NULL THEN b.pace ELSE greatest(b.pace / 2, 0.01) END, slowed_at = coalesce(excluded.slowed_at, b.slowed_at)
WHERE excluded.slowed_at IS NULL OR b.slowed_at IS NULL OR abs(date_part('epoch', excluded.slowed_at - b.slowed_at)) >= 0.5 RETURNING b.key`)
)

// Throttle notes that a key of a gate was told of too many requests. The key closes for as long as
// after says. If after is zero, no time is known: the key of a gate that adapts then becomes half
// as fast, and recovers over the next ten periods of its rate each time to the double; another
// gate's closes for a second.
func (s *Store) Throttle(ctx context.Context, key string, after time.Duration) error {
	if err := s.one(ctx, fastLock, throttleSQL, nil, key, micros(after)); err != nil {
		return fmt.Errorf("close or slow down the gate key %q: %w", key, err)
	}
	return nil
}
