package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// These statements change what is known of a key of a gate: a row of gate_keys. A key without a row
// is open and has the weight 1. They lock that row as a claim does that pays its debt, and nothing
// else. So who waits for one of them waits for one claim, or for another verb.
//
// Each records what it has changed in the history. It returns no row if there is no such gate, else
// whether the gate has a label, and whether anything has changed. A gate without a label has one
// key, which is its name.
//
// $1 key $2 actor $3 reason
var (
	keyOf = `WITH r AS (SELECT r.name, r.label, CASE WHEN x.all THEN r.total_rate ELSE r.rate END AS n, CASE WHEN x.all THEN r.total_rate_per ELSE r.rate_per END AS per,
    CASE WHEN x.all THEN r.total_rate_burst ELSE r.rate_burst END AS burst, r.updated_at
  FROM {s}.gates r CROSS JOIN LATERAL (SELECT r.label IS NOT NULL AND r.name = $1 AS all) x WHERE r.name = split_part($1::text, '/', 1)),
o AS (SELECT FROM r WHERE r.label IS NOT NULL OR r.name = $1),
b AS (SELECT jsonb_strip_nulls(jsonb_build_object('closed_until', x.closed_until, 'weight', x.weight, 'places', x.places, 'debt', nullif(x.debt, 0), 'pace', nullif(x.pace, 1))) AS seen FROM {s}.gate_keys x WHERE x.key = $1),
w AS (`
	keyKind    = ` RETURNING k.key, jsonb_strip_nulls(jsonb_build_object('closed_until', k.closed_until, 'weight', k.weight, 'places', k.places, 'debt', nullif(k.debt, 0), 'pace', nullif(k.pace, 1))) AS now), h AS (` + recordedText
	keyChanged = `, 'gate ' || w.key, $2::text, $3::text, b.seen, w.now FROM w LEFT JOIN b ON true)
SELECT r.label IS NOT NULL, EXISTS (SELECT FROM w) FROM r`

	// closeKeySQL closes a key until a time, or opens it with NULL. To open it means that it is to go
	// on: what it owes, and how slow a provider has made it, is forgotten. $4 time
	closeKeySQL = named("close gate", keyOf+`
INSERT INTO {s}.gate_keys AS k (key, closed_until) SELECT $1, $4::timestamptz FROM o
WHERE $4::timestamptz IS NOT NULL OR EXISTS (SELECT FROM {s}.gate_keys x WHERE x.key = $1)
ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until,
  debt = CASE WHEN excluded.closed_until IS NULL THEN 0 ELSE k.debt END, pace = CASE WHEN excluded.closed_until IS NULL THEN 1 ELSE k.pace END,
  at = CASE WHEN excluded.closed_until IS NULL THEN clock_timestamp() ELSE k.at END
WHERE CASE WHEN excluded.closed_until IS NULL THEN coalesce(k.closed_until > clock_timestamp(), false) OR (
    SELECT `+debtOf("r.n", "r.per", "r.burst", "r.updated_at")+` > 0 OR `+paceOf("r.per")+` < 1
    FROM (SELECT k.debt, k.at, k.pace) b CROSS JOIN r CROSS JOIN (SELECT clock_timestamp() AS now) c WHERE r.n IS NOT NULL) ELSE k.closed_until IS DISTINCT FROM excluded.closed_until END`+
		keyKind+`CASE WHEN $4::timestamptz IS NULL THEN 'admin.open_gate' ELSE 'admin.close_gate' END`+keyChanged)

	// weighKeySQL sets the weight of a key. It makes no row for the weight that a key has without one.
	// $4 weight
	weighKeySQL = named("weigh gate", keyOf+`
INSERT INTO {s}.gate_keys AS k (key, weight) SELECT $1, $4::int FROM o
WHERE $4::int <> 1 OR EXISTS (SELECT FROM {s}.gate_keys x WHERE x.key = $1)
ON CONFLICT (key) DO UPDATE SET weight = excluded.weight WHERE k.weight <> excluded.weight`+
		keyKind+`'admin.set_gate_weight'`+keyChanged)

	// placeKeySQL gives a key its own places, or with NULL its gate's again. Only a key of a gate with
	// a label has some. $4 places
	placeKeySQL = named("place gate", keyOf+`
INSERT INTO {s}.gate_keys AS k (key, places) SELECT $1, $4::int FROM r
WHERE r.label IS NOT NULL AND r.name <> $1 AND ($4::int IS NOT NULL OR EXISTS (SELECT FROM {s}.gate_keys x WHERE x.key = $1))
ON CONFLICT (key) DO UPDATE SET places = excluded.places WHERE k.places IS DISTINCT FROM excluded.places`+
		keyKind+`'admin.set_gate_places'`+keyChanged)
)

// MaxGateWeight bounds the weight of a key.
const MaxGateWeight = 100

// ErrNoGate means that there is no gate of a name. ErrNoKey means that a gate has no label, and so
// no keys.
var (
	ErrNoGate = errors.New("no such gate")
	ErrNoKey  = errors.New("the gate has no label, so its one key is its name: leave out the slash and the value behind it")
)

// CloseGateKey closes a key of a gate, or a gate with all its keys, until a time, and reports
// whether that changed anything: no claim there begins before. Executing steps go on. The zero
// time opens it.
func (s *Store) CloseGateKey(ctx context.Context, key string, until time.Time, by By) (changed bool, err error) {
	var at *time.Time
	if !until.IsZero() {
		at = &until
	}
	return s.changeKey(ctx, key, func(read func(pgx.Rows) error) entpgx.Stmt {
		return s.stmt(closeKeySQL, read, key, by.Actor, optional(by.Reason), at)
	})
}

// WeighGateKey sets the share of a key beside other keys in line, and reports whether that changed
// anything. The weight is from 1 to MaxGateWeight, and 1 unless it is set.
func (s *Store) WeighGateKey(ctx context.Context, key string, weight int, by By) (changed bool, err error) {
	return s.changeKey(ctx, key, func(read func(pgx.Rows) error) entpgx.Stmt {
		return s.stmt(weighKeySQL, read, key, by.Actor, optional(by.Reason), weight)
	})
}

// PlaceGateKey sets how many instances of a key execute at a time, in place of the gate's places,
// and reports whether that changed anything. 0: as many as the gate says.
func (s *Store) PlaceGateKey(ctx context.Context, key string, places int, by By) (changed bool, err error) {
	var own *int
	if places > 0 {
		own = &places
	}
	return s.changeKey(ctx, key, func(read func(pgx.Rows) error) entpgx.Stmt {
		return s.stmt(placeKeySQL, read, key, by.Actor, optional(by.Reason), own)
	})
}

func (s *Store) changeKey(ctx context.Context, key string, change func(read func(pgx.Rows) error) entpgx.Stmt) (changed bool, err error) {
	found, labelled := false, false
	err = s.transaction(ctx, slowLock, change(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&labelled, &changed}, func() error { found = true; return nil })
		return err
	}))
	switch {
	case err != nil && unknown(err):
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
	case !found:
		err = ErrNoGate
	case !labelled && strings.Contains(key, "/"):
		err = ErrNoKey
	}
	if err != nil {
		return false, fmt.Errorf("change the gate key %q: %w", key, err)
	}
	return changed, nil
}
