package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A gate bounds how many instances execute at a time, in all processes together. It is a row of the
// table gates. Its places have the numbers from 1 to gates.places; a gate with a label has so many
// for each value of the label. The text gate of an instance is the gate's name, or name/value.
//
// An instance behind a gate runs like this:
//
//   - Whatever makes it runnable puts it in front (lane 0), like any other, and knows of no gate.
//   - A claim of a process that knows of gates meets it there, and puts it in line at its gate
//     (lane 3) instead of claiming it: see gatedSQL. Rows in line are out of everybody's way.
//   - Admit gives it a place, the lowest number that is free, and puts it in front again: admitSQL.
//   - A claim meets it in front with a place, and claims it like any other.
//   - Whatever ends the claim deletes the place, in the same update.
//
// So the place is a column of the row that has it, and ends with the row's claim, however that
// ends: no counter has to be kept in step. The unique index gen_durable_place keeps anyone from
// giving one number twice, whatever the others did meanwhile.
//
// A row in line needs somebody to look at its gate after a place has become free. The process whose
// claim ended does so, and the process that put the row in line, both in a later transaction than
// the one that ended or filed. Whichever of the two looks last sees the free place and the row: the
// later one begins after both have committed. If one of them dies before it looks, or was none of
// the engine's, the sweep of lines looks: see Lines.

// gateText is the gate of row g, or NULL. Of several gates the narrowest counts: that of the step,
// then of the machine, of a label, of the queue. Gates.Of decides the same for a worker that goes
// on to another step.
const gateText = `(SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM {s}.gates r
      WHERE coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true) AND coalesce(r.step = g.step, true)
        AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1)`

// inLine selects the rows that stand in line at a gate. lineOrder is the order of gen_durable_line:
// with it, a plan made on an empty table takes that index, too.
const (
	inLine    = `g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3`
	lineOrder = `ORDER BY g.gate, g.queue, g.priority, g.eligible_at, g.id`
)

// Gate bounds how many instances execute at a time. It concerns those that match all of Queue,
// Machine, Step and Label that are not empty.
type Gate struct {
	Name    string
	Queue   string
	Machine string
	Step    string
	Label   string // so many places for each value of this label; an instance without it is not concerned
	Places  int
}

// Gates are all gates, in any order.
type Gates []Gate

// Of returns the gate of an instance at a step, as gateText does; "" if there is none.
func (gs Gates) Of(queue, machine, step string, labels map[string]string) string {
	matches := func(want, is string) bool { return want == "" || want == is }
	var found *Gate
	for i := range gs {
		g := &gs[i]
		_, labelled := labels[g.Label]
		if matches(g.Queue, queue) && matches(g.Machine, machine) && matches(g.Step, step) && (g.Label == "" || labelled) &&
			(found == nil || g.narrower(found) < 0) {
			found = g
		}
	}
	switch {
	case found == nil:
		return ""
	case found.Label == "":
		return found.Name
	}
	value := []rune(labels[found.Label])
	return found.Name + "/" + string(value[:min(len(value), 256)])
}

// narrower compares gates in the order in which they count.
func (g *Gate) narrower(o *Gate) int {
	none := func(a, b string) int { return cmp.Compare(btoi(a == ""), btoi(b == "")) }
	return cmp.Or(none(g.Step, o.Step), none(g.Machine, o.Machine), none(g.Label, o.Label), none(g.Queue, o.Queue), strings.Compare(g.Name, o.Name))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ordersSQL reads what operators have ordered: the paused queues, and the gates.
const ordersSQL = `SELECT p.queue, p.paused_at, NULL::text, NULL::text, NULL::text, NULL::text, NULL::int FROM {s}.paused_queues p
UNION ALL SELECT r.queue, NULL, r.name, r.machine, r.step, r.label, r.places FROM {s}.gates r`

// orders reads the paused queues and the gates into out.
func (s *Store) orders(out *Polled) entpgx.Stmt {
	return s.stmt("orders", ordersSQL, func(rows pgx.Rows) error {
		var queue, name, machine, step, label *string
		var since *time.Time
		var places *int
		_, err := pgx.ForEachRow(rows, []any{&queue, &since, &name, &machine, &step, &label, &places}, func() error {
			if name == nil {
				out.Paused = append(out.Paused, PausedQueue{value(queue), value(since)})
			} else {
				out.Gates = append(out.Gates, Gate{*name, value(queue), value(machine), value(step), value(label), value(places)})
			}
			return nil
		})
		slices.SortFunc(out.Paused, func(a, b PausedQueue) int { return strings.Compare(a.Queue, b.Queue) })
		slices.SortFunc(out.Gates, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
		return err
	})
}

const (
	// setGateSQL stores a gate. It returns a row if that changes anything.
	setGateSQL = `INSERT INTO {s}.gates AS r (name, queue, machine, step, label, places)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, machine = excluded.machine, step = excluded.step, label = excluded.label,
  places = excluded.places, updated_at = clock_timestamp()
WHERE (r.queue, r.machine, r.step, r.label, r.places)
  IS DISTINCT FROM (excluded.queue, excluded.machine, excluded.step, excluded.label, excluded.places)
RETURNING r.name`
	dropGateSQL = `DELETE FROM {s}.gates r WHERE r.name = $1 RETURNING r.name`
)

// SetGate stores a gate, or changes the one of that name, and reports whether that changed
// anything.
func (s *Store) SetGate(ctx context.Context, g Gate) (changed bool, err error) {
	return s.changeGate(ctx, g.Name, s.stmt("set gate", setGateSQL, readChanged(&changed), g.Name, optional(g.Queue), optional(g.Machine),
		optional(g.Step), optional(g.Label), g.Places), &changed)
}

// DropGate deletes a gate, and reports whether there was one.
func (s *Store) DropGate(ctx context.Context, name string) (changed bool, err error) {
	return s.changeGate(ctx, name, s.stmt("drop gate", dropGateSQL, readChanged(&changed), name), &changed)
}

func (s *Store) changeGate(ctx context.Context, name string, change entpgx.Stmt, changed *bool) (bool, error) {
	err := s.transaction(ctx, slowLock, change)
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
	Taken   int // places that are taken, of all values of the label together
	Waiting int // instances in line, of at most gateCountMost that are counted in all
	Values  int // values of the label of which places are taken
}

// gateCountMost bounds how many rows in line are counted.
const gateCountMost = 100_000

// gatesSQL lists the gates. It reads the places that are taken, and at most $1 rows in line.
const gatesSQL = `WITH p AS MATERIALIZED (
  SELECT split_part(g.gate, '/', 1) AS name, count(*)::int AS taken, count(DISTINCT g.gate)::int AS kinds
  FROM {s}.gen_durable g WHERE g.place IS NOT NULL GROUP BY 1),
w AS MATERIALIZED (
  SELECT split_part(l.gate, '/', 1) AS name, count(*)::int AS waiting
  FROM (SELECT g.gate FROM {s}.gen_durable g WHERE ` + inLine + ` ` + lineOrder + ` LIMIT $1) l GROUP BY 1)
SELECT r.name, r.queue, r.machine, r.step, r.label, r.places, coalesce(p.taken, 0), coalesce(w.waiting, 0), coalesce(p.kinds, 0)
FROM {s}.gates r LEFT JOIN p ON p.name = r.name LEFT JOIN w ON w.name = r.name ORDER BY r.name COLLATE "C"`

// Gates lists the gates by name.
func (s *Store) Gates(ctx context.Context) (gates []GateCount, err error) {
	err = s.one(ctx, fastLock, "gates", gatesSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var queue, machine, step, label *string
			var g GateCount
			if err := rows.Scan(&g.Name, &queue, &machine, &step, &label, &g.Places, &g.Taken, &g.Waiting, &g.Values); err != nil {
				return err
			}
			g.Queue, g.Machine, g.Step, g.Label = value(queue), value(machine), value(step), value(label)
			gates = append(gates, g)
		}
		return rows.Err()
	}, gateCountMost)
	if err != nil {
		return nil, fmt.Errorf("list gates: %w", err)
	}
	return gates, nil
}
