package store

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// gateColumns are the columns of a gate r, in the order in which gateRow reads them.
const gateColumns = `r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run`

// gateRow is a row of gateColumns.
type gateRow struct {
	name, queue, machine, step, label *string
	places, rate, burst               *int
	per                               *int64
	total, totalRate, totalBurst      *int
	totalPer                          *int64
	cost                              *string
	adapt, run                        *bool
}

func (r *gateRow) into() []any {
	return []any{&r.name, &r.queue, &r.machine, &r.step, &r.label, &r.places, &r.rate, &r.per, &r.burst, &r.total, &r.totalRate,
		&r.totalPer, &r.totalBurst, &r.cost, &r.adapt, &r.run}
}

func (r *gateRow) gate() Gate {
	bound := func(n *int) int {
		if n == nil {
			return NoBound
		}
		return *n
	}
	return Gate{Name: value(r.name), Queue: value(r.queue), Machine: value(r.machine), Step: value(r.step), Label: value(r.label),
		Places: bound(r.places), Rate: Rate{value(r.rate), duration(value(r.per)), value(r.burst)},
		Total: bound(r.total), TotalRate: Rate{value(r.totalRate), duration(value(r.totalPer)), value(r.totalBurst)},
		CostLabel: value(r.cost), Adapt: value(r.adapt), Run: value(r.run)}
}

// ownPlacesMost bounds the keys whose own places a process remembers, for its batches. Claims heed
// the places of all keys. A batch of another key may wait in vain for more instances.
const ownPlacesMost = "1000"

// ordersSQL reads what operators and other processes want: the paused queues, the gates, and keys
// of gates with their own places, whose names have a slash. A row of nothing but NULL says that
// some process records a machine; one of nothing but a time, that signals are kept.
var ordersSQL = named("orders", `SELECT p.queue, p.paused_at, NULL::text AS name, NULL::text, NULL::text, NULL::text, NULL::text, NULL::int, NULL::int, NULL::bigint,
  NULL::int, NULL::int, NULL::int, NULL::bigint, NULL::int, NULL::text, NULL::bool, NULL::bool FROM {s}.paused_queues p
UNION ALL SELECT NULL, NULL, `+gateColumns+` FROM {s}.gates r
UNION ALL (SELECT NULL, NULL, b.key, NULL, NULL, NULL, NULL, b.places, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {s}.gate_keys b WHERE b.places IS NOT NULL ORDER BY b.key LIMIT `+ownPlacesMost+`)
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (SELECT FROM {s}.recorded_machines)
UNION ALL SELECT NULL, clock_timestamp(), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (SELECT FROM {s}.kept_signals)`)

// orders reads the paused queues and the gates into out. It notes whether some machine is recorded,
// and whether signals are kept, in this process or in another.
func (s *Store) orders(out *Polled) entpgx.Stmt {
	began := time.Now()
	return s.stmt(ordersSQL, func(rows pgx.Rows) error {
		var paused *string
		var since *time.Time
		var gate gateRow
		recording := false
		out.Own = map[string]int{}
		_, err := pgx.ForEachRow(rows, append([]any{&paused, &since}, gate.into()...), func() error {
			switch {
			case paused != nil:
				out.Paused = append(out.Paused, PausedQueue{*paused, value(since)})
			case strings.Contains(value(gate.name), "/"):
				out.Own[*gate.name] = value(gate.places)
			case gate.name != nil:
				out.Gates = append(out.Gates, gate.gate())
			case since != nil:
				out.Keeping = true
				s.keeping.Store(true)
			default:
				recording = true
			}
			return nil
		})
		// slices.SortFunc would be a copy of 30 to 60 kB in every host for each type, also below.
		sort.Slice(out.Paused, func(i, j int) bool { return out.Paused[i].Queue < out.Paused[j].Queue })
		sort.Slice(out.Gates, func(i, j int) bool { return out.Gates[i].Name < out.Gates[j].Name })
		if err == nil {
			s.known.Store(&knownGates{out.Gates, began})
			s.recording.Store(recording)
			s.looks.Store(true) // a worker's role may take signals
		}
		return err
	})
}

var (
	// setGateSQL stores a gate. It returns a row if that changes anything.
	setGateSQL = named("set gate", `INSERT INTO {s}.gates AS r (name, queue, machine, step, label, places, rate, rate_per, rate_burst, total, total_rate,
  total_rate_per, total_rate_burst, cost_label, adapt, run)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, machine = excluded.machine, step = excluded.step, label = excluded.label,
  places = excluded.places, rate = excluded.rate, rate_per = excluded.rate_per, rate_burst = excluded.rate_burst, total = excluded.total,
  total_rate = excluded.total_rate, total_rate_per = excluded.total_rate_per, total_rate_burst = excluded.total_rate_burst,
  cost_label = excluded.cost_label, adapt = excluded.adapt, run = excluded.run, updated_at = clock_timestamp()
WHERE (`+gateColumns+`)
  IS DISTINCT FROM (excluded.name, excluded.queue, excluded.machine, excluded.step, excluded.label, excluded.places, excluded.rate,
    excluded.rate_per, excluded.rate_burst, excluded.total, excluded.total_rate, excluded.total_rate_per, excluded.total_rate_burst,
    excluded.cost_label, excluded.adapt, excluded.run)
RETURNING r.name`)
	// awaitGateSQL waits for the lock of lockGatesSQL. $1 name $2 this schema
	awaitGateSQL = named("await gate", `SELECT pg_advisory_xact_lock(`+gateLock+`) FROM (SELECT $1::text AS name) l`)
	dropGateSQL  = named("drop gate", `DELETE FROM {s}.gates r WHERE r.name = $1 RETURNING r.name`)
)

// SetGate stores a gate, or changes the one of that name, and reports whether that changed
// anything.
func (s *Store) SetGate(ctx context.Context, g Gate, by By) (changed bool, err error) {
	bound := func(n int) *int {
		if n < 0 {
			return nil
		}
		return &n
	}
	rate := func(r Rate) []any {
		if r.N == 0 {
			return []any{nil, nil, nil}
		}
		return []any{r.N, micros(r.Per), r.Burst}
	}
	args := slices.Concat([]any{g.Name, optional(g.Queue), optional(g.Machine), optional(g.Step), optional(g.Label), bound(g.Places)},
		rate(g.Rate), []any{bound(g.Total)}, rate(g.TotalRate), []any{optional(g.CostLabel), g.Adapt, g.Run})
	return s.changeGate(ctx, g.Name, "set_gate", by, s.stmt(setGateSQL, readChanged(&changed), args...), &changed)
}

// DropGate deletes a gate, and reports whether there was one.
func (s *Store) DropGate(ctx context.Context, name string, by By) (changed bool, err error) {
	return s.changeGate(ctx, name, "drop_gate", by, s.stmt(dropGateSQL, readChanged(&changed), name), &changed)
}

// changeGate changes a gate under its lock: a claim that is under way ends before. So no claim by
// the old rule commits after the change. It locks the gate's row before: while it waits for another
// transaction that has that, claims go on.
func (s *Store) changeGate(ctx context.Context, name, verb string, by By, change entpgx.Stmt, changed *bool) (bool, error) {
	err := s.transaction(ctx, slowLock, s.stmt(seenGateSQL, nil, name), s.stmt(awaitGateSQL, nil, name, s.schema), change,
		s.stmt(auditGateSQL, nil, name, verb, by.Actor, optional(by.Reason)))
	if err != nil && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return false, fmt.Errorf("change gate %q: %w", name, err)
	}
	return *changed, nil
}

func readChanged(changed *bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		_, err := pgx.ForEachRow(rows, []any{&name}, func() error { *changed = true; return nil })
		return err
	}
}

// GateCount is a gate and what it does at the moment.
type GateCount struct {
	Gate
	Taken   int           // places that are taken, of all values of the label together; of the gate of a queue, its seats
	Waiting int           // instances in line; of the gate of a queue, those in front while it lets none begin. See gateCountMost
	Values  int           // values of the label of which places are taken
	Lag     time.Duration // for how long the oldest of those in line that were counted has been due
	Until   time.Time     // when the gate opens for all its keys; zero: it is not closed for a time

	ClosedKeys int // single keys that are closed; see gateKeysMost
}

// gateCountMost bounds how many waiting rows are counted. Each gate has an equal share of them in
// each queue, and 1,000 at least, so that a long line at one hides no row at another.
const gateCountMost = 100_000

// gateKeysMost bounds how many closed keys are counted, of all gates together.
const gateKeysMost = "10000"

// gatesSQL lists the gates. It reads the places that are taken, of all three kinds, and at most $1
// rows that wait.
//
//   - q: the queues with rows in line, by a loose index scan.
//   - w: which rows are in line at each gate. The keys of a gate are between its name with a slash
//     and with the character behind a slash in its place.
//   - z: how many keys of each gate are closed, along gate_keys_closed.
//   - h: which rows are in front in the queue of a gate that lets none begin there.
var gatesSQL = named("gates", `WITH RECURSIVE q(queue) AS (
  (SELECT g.queue FROM {s}.gen_durable g WHERE `+inLine+` `+lineOrder+` LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE `+inLine+` AND g.queue > q.queue `+lineOrder+` LIMIT 1) FROM q WHERE q.queue IS NOT NULL),
c AS MATERIALIZED (SELECT clock_timestamp() AS now,
  greatest(1000, $1::bigint / greatest(1, (SELECT count(q.queue) FROM q) * (SELECT count(*) FROM {s}.gates))) AS most),
p AS MATERIALIZED (
  SELECT x.name, count(*)::int AS taken, count(DISTINCT x.key)::int AS kinds FROM (
    SELECT split_part(g.gate, '/', 1) AS name, g.gate AS key FROM {s}.gen_durable g WHERE g.place IS NOT NULL
    UNION ALL SELECT split_part(g.run_gate, '/', 1), g.run_gate FROM {s}.gen_durable g WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL
    UNION ALL SELECT o.name, o.name FROM (
      SELECT DISTINCT ON (r.queue) r.queue, r.name FROM {s}.gates r WHERE `+seatText+` ORDER BY r.queue, r.name COLLATE "C") o
    JOIN {s}.gen_durable g ON g.queue = o.queue AND g.seat IS NOT NULL) x
  GROUP BY x.name),
w AS MATERIALIZED (
  SELECT r.name, count(*)::int AS waiting, min(l.eligible_at) AS oldest
  FROM {s}.gates r CROSS JOIN c CROSS JOIN q CROSS JOIN LATERAL (
    (SELECT g.eligible_at FROM {s}.gen_durable g WHERE g.queue = q.queue AND `+inLine+` AND g.gate = r.name `+lineOrder+` LIMIT c.most)
    UNION ALL
    (SELECT g.eligible_at FROM {s}.gen_durable g WHERE g.queue = q.queue AND `+inLine+` AND g.gate ~>=~ (r.name || '/') AND g.gate ~<~ (r.name || '0')
      `+lineOrder+` LIMIT c.most)) l
  GROUP BY r.name),
z AS MATERIALIZED (
  SELECT split_part(x.key, '/', 1) AS name, count(*)::int AS keys FROM (
    SELECT b.key FROM {s}.gate_keys b WHERE b.closed_until > (SELECT c.now FROM c) AND strpos(b.key, '/') > 0 LIMIT `+gateKeysMost+`) x
  GROUP BY 1),
h AS MATERIALIZED (
  SELECT r.name, count(*)::int AS waiting, min(l.eligible_at) AS oldest
  FROM {s}.gates r CROSS JOIN c LEFT JOIN p ON p.name = r.name LEFT JOIN {s}.gate_keys b ON b.key = r.name CROSS JOIN LATERAL (
    SELECT f.eligible_at FROM (
      SELECT g.eligible_at FROM {s}.gen_durable g WHERE g.queue = r.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front}
      ORDER BY g.priority, g.eligible_at, g.id LIMIT c.most) f
    WHERE f.eligible_at <= c.now) l
  WHERE `+seatText+` AND coalesce(coalesce(p.taken, 0) >= r.places OR b.closed_until > c.now
    OR `+debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at")+` + 1 > r.rate_burst, false)
  GROUP BY r.name)
SELECT `+gateColumns+`, coalesce(p.taken, 0), coalesce(w.waiting, h.waiting, 0), coalesce(p.kinds, 0),
  coalesce(greatest(extract(epoch FROM clock_timestamp() - coalesce(w.oldest, h.oldest)) * 1000000, 0), 0)::bigint,
  CASE WHEN k.closed_until > clock_timestamp() THEN k.closed_until END, coalesce(z.keys, 0)
FROM {s}.gates r LEFT JOIN p ON p.name = r.name LEFT JOIN z ON z.name = r.name LEFT JOIN w ON w.name = r.name LEFT JOIN h ON h.name = r.name LEFT JOIN {s}.gate_keys k ON k.key = r.name ORDER BY r.name COLLATE "C"`)

// Gates lists the gates by name.
func (s *Store) Gates(ctx context.Context) (gates []GateCount, err error) {
	err = s.one(ctx, fastLock, gatesSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var row gateRow
			var g GateCount
			var lag int64
			var until *time.Time
			if err := rows.Scan(append(row.into(), &g.Taken, &g.Waiting, &g.Values, &lag, &until, &g.ClosedKeys)...); err != nil {
				return err
			}
			g.Gate, g.Lag, g.Until = row.gate(), duration(lag), value(until)
			gates = append(gates, g)
		}
		return rows.Err()
	}, gateCountMost)
	if err != nil {
		return nil, fmt.Errorf("list gates: %w", err)
	}
	return gates, nil
}
