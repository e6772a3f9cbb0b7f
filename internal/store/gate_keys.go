package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/entpgx"
)

// A row of gate_keys has what is known of one key of a gate, name/value, or of a gate, name. A
// claim reads and updates it under the lock of the gate, and whoever closes, opens or weighs a key
// updates other columns than the claim. A key without a row has the defaults. closeKeySQL and
// weighKeySQL return a row if they change anything.
const (
	// closeKeySQL closes a key until a time, or opens it with NULL. $1 key $2 time
	closeKeySQL = `INSERT INTO {s}.gate_keys AS b (key, closed_until) SELECT $1, $2::timestamptz
WHERE $2::timestamptz IS NOT NULL OR EXISTS (SELECT FROM {s}.gate_keys k WHERE k.key = $1)
ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until
WHERE b.closed_until IS DISTINCT FROM excluded.closed_until RETURNING b.key`
	// weighKeySQL sets the weight of a key. $1 key $2 weight
	weighKeySQL = `INSERT INTO {s}.gate_keys AS b (key, weight) SELECT $1, $2::int
WHERE $2::int <> 1 OR EXISTS (SELECT FROM {s}.gate_keys k WHERE k.key = $1)
ON CONFLICT (key) DO UPDATE SET weight = excluded.weight WHERE b.weight <> excluded.weight RETURNING b.key`
	// throttleSQL notes that a key was told of too many requests. With a time, or where the gate does
	// not adapt, the key is closed for $2 µs, never shorter than it is closed already; where the gate
	// adapts and nobody has said for how long, its pace halves instead, down to a hundredth. A key of
	// which no gate has a rule is not changed. $1 key $2 µs; 0: nobody has said
	throttleSQL = `INSERT INTO {s}.gate_keys AS b (key, closed_until, pace)
SELECT $1, CASE WHEN u.closes THEN u.until END, CASE WHEN u.closes THEN 1 ELSE 0.5 END
FROM (SELECT clock_timestamp() + CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE 1000000 END * interval '1 microsecond' AS until,
  $2::bigint > 0 OR NOT r.adapt OR r.rate IS NULL AS closes FROM {s}.gates r WHERE r.name = split_part($1, '/', 1)) u
ON CONFLICT (key) DO UPDATE SET closed_until = greatest(b.closed_until, excluded.closed_until),
  pace = CASE WHEN excluded.closed_until IS NULL THEN greatest(b.pace / 2, 0.01) ELSE b.pace END RETURNING b.key`
)

// MaxGateWeight bounds the weight of a key.
const MaxGateWeight = 100

// CloseGateKey closes a key of a gate, or a gate with all its keys, until a time, and reports
// whether that changed anything: no claim there begins before. What executes goes on. The zero time
// opens it.
func (s *Store) CloseGateKey(ctx context.Context, key string, until time.Time) (changed bool, err error) {
	var at *time.Time
	if !until.IsZero() {
		at = &until
	}
	return s.changeKey(ctx, key, s.stmt("close gate", closeKeySQL, readChanged(&changed), key, at), &changed)
}

// WeighGateKey sets the share of a key beside other keys in line, and reports whether that changed
// anything. The weight is from 1 to MaxGateWeight, and 1 unless it is set.
func (s *Store) WeighGateKey(ctx context.Context, key string, weight int) (changed bool, err error) {
	return s.changeKey(ctx, key, s.stmt("weigh gate", weighKeySQL, readChanged(&changed), key, weight), &changed)
}

// Throttle notes that a key of a gate was told of too many requests. The key closes for as long as
// after says. If after is zero, nobody has said how long: the key of a gate that adapts then
// becomes half as fast, and recovers over the next ten periods of its rate each time to the double;
// that of another gate closes for a second.
func (s *Store) Throttle(ctx context.Context, key string, after time.Duration) error {
	var changed bool
	_, err := s.changeKey(ctx, key, s.stmt("throttle", throttleSQL, readChanged(&changed), key, micros(after)), &changed)
	return err
}

func (s *Store) changeKey(ctx context.Context, key string, change entpgx.Stmt, changed *bool) (bool, error) {
	err := s.transaction(ctx, slowLock, change)
	if err != nil && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return false, fmt.Errorf("change key %q of a gate: %w", key, err)
	}
	return *changed, nil
}
