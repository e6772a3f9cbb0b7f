package pairs

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/steady"
)

// mostDays bounds the partitions of the history: the days that are made ahead, those that are kept,
// today and the rest.
const mostDays = 7 + 2 + 4

// roll makes and drops the history's days. A row that is locked just now goes with a later call.
func (m *month) roll() {
	steady.Happens(m.t, 10*time.Second, func() (days int, fewer bool) {
		done, err := m.store.RollHistory(m.ctx, keepHistory)
		require.NoError(m.t, err)
		m.sum.parts[0] += done.Made
		m.sum.parts[1] += done.Dropped
		if done.Refused > 0 {
			m.violate("the history refuses rows", "%s", done.Because)
		}
		require.NoError(m.t, m.pool.QueryRow(m.ctx, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'gendurable.history'::regclass`).Scan(&days))
		return days, days <= mostDays && done.Made == 0
	})
}

// look asks the invariants of the pairs, and of time, while nothing can run. An engine may have
// begun a sweep just now: the invariants of time hold as soon as it is over.
func (m *month) look() {
	m.collect.Lock()
	defer m.collect.Unlock()
	require.NoError(m.t, m.rig.look())
	for _, name := range []string{"intx", "oncreate"} { // whose checks hold at any time
		require.NoError(m.t, registry[name].check(m.rig))
	}
	before := m.size()
	require.NoError(m.t, m.rig.sweep())
	m.sum.swept += before - m.size()
	var late []violation
	steady.Happens(m.t, 10*time.Second, func() (swept int, none bool) {
		m.prune()
		m.roll()
		m.now = m.read()
		late = m.untimely()
		return m.sum.swept, len(late) == 0
	})
	for _, v := range late {
		m.violate(v.kind, "%s", v.detail)
	}
	m.occurred()
	m.ended()
}

// prune sweeps until nothing is left to sweep, or until an engine sweeps: only one at a time does.
func (m *month) prune() {
	for range 20 { // parents go after their children
		done, err := m.store.Prune(m.ctx, pruned)
		require.NoError(m.t, err)
		m.sum.swept += done.Instances
		m.sum.expired += done.Expired
		if done.Instances == 0 {
			return
		}
	}
}

// untimely returns the invariants of time that do not hold now.
func (m *month) untimely() (all []violation) {
	for kind, query := range timely {
		rows, _ := m.pool.Query(m.ctx, query)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(m.t, err, kind)
		for _, f := range found {
			all = append(all, violation{kind, f})
		}
	}
	return all
}

// size is how many instances there are.
func (m *month) size() (n int) {
	require.NoError(m.t, m.pool.QueryRow(m.ctx, `SELECT count(*) FROM gendurable.gen_durable`).Scan(&n))
	return n
}

// timely are invariants of time: rows past their time are gone, and the others are there.
var timely = map[string]string{
	// A done root keeps its children, and they it, for as long as one of them is kept.
	"it is past its retention, and is there": `WITH RECURSIVE f AS (
			SELECT id AS root, id, finished_at, status, failure, retain FROM gendurable.gen_durable WHERE parent_id IS NULL
			UNION ALL SELECT f.root, k.id, k.finished_at, k.status, k.failure, k.retain FROM f JOIN gendurable.gen_durable k ON k.parent_id = f.id)
		SELECT format('%s and %s others', root, count(*) - 1) FROM f GROUP BY root
		HAVING bool_and(coalesce(finished_at < clock_timestamp() - interval '1 day 1 minute' AND (status = 'done' OR coalesce(retain[2], -1) < 0), false))`,
	"it is past its deadline, and lives": `SELECT format('%s %s', id, deadline) FROM gendurable.gen_durable WHERE finished_at IS NULL AND deadline < clock_timestamp()`,
	"signals are left":                   `SELECT format('%s', target_id) FROM gendurable.signals s WHERE NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.id = s.target_id)`,
	"edges are left":                     `SELECT format('%s', from_id) FROM gendurable.edges e WHERE NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.id = e.from_id)`,
	"kept signals are past their time":   `SELECT format('%s', key) FROM gendurable.kept_signals WHERE expires_at < clock_timestamp() - interval '1 minute'`,
	"windows are past their time":        `SELECT format('%s', name) FROM gendurable.windows WHERE until < clock_timestamp() - interval '1 minute'`,
	"claims are lost for ever":           `SELECT format('%s', partition_key) FROM gendurable.lost_claims`,
	"keys of gates are left":             `SELECT format('%s keys', count(*)) FROM gendurable.gate_keys HAVING count(*) > 10`,
	"workers are left":                   `SELECT format('%s workers', count(*)) FROM gendurable.workers HAVING count(*) > 2`,
	"the history has no day for what happens": `SELECT format('%s rows, from %s', count(*), min(at)) FROM gendurable.history_rest HAVING count(*) > 0
		UNION ALL SELECT to_char(day, 'YYYY-MM-DD') FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(0, 7) n) d
			WHERE to_regclass('gendurable.history_' || to_char(day, 'YYYYMMDD')) IS NULL`,
	"the history keeps days for ever": `SELECT format('%s partitions', count(*)) FROM pg_inherits WHERE inhparent = 'gendurable.history'::regclass HAVING count(*) > ` + fmt.Sprint(mostDays) + `
		UNION ALL SELECT format('from %s', min(at)) FROM gendurable.history HAVING min(at) < clock_timestamp() - interval '4 days'`,
}

// occurred finds out which occurrences have fired. Only one between from and declared may or may
// not.
func (m *month) occurred() {
	m.m.Lock()
	defer m.m.Unlock()
	want, until := map[fsm.Key]bool{}, m.now
	if !m.over.IsZero() {
		until = m.over
	}
	for name, every := range schedules {
		for at := m.from.Truncate(every).Add(every); !at.After(until); at = at.Add(every) {
			key := fsm.Key("schedule:" + name + ":" + at.Format(time.RFC3339))
			want[key] = true
			if _, ok := m.ticks[key]; !ok && at.After(m.declared) {
				m.violations = append(m.violations, violation{"an occurrence never fires", string(key)})
			}
		}
	}
	for key := range m.ticks {
		if !want[key] {
			m.violations = append(m.violations, violation{"an occurrence fires that there is not", string(key)})
		}
	}
}

// ended finds out whether deadlines have failed what they are to, and nothing else.
func (m *month) ended() {
	for id, at := range m.due {
		i, err := m.eng.Get(m.ctx, id)
		switch over := m.now.Sub(at); {
		case errors.Is(err, engine.ErrNotFound):
			if over < retention {
				m.violate("an instance is gone before its time", "%d, due %s", id, at)
			}
			delete(m.due, id)
		case err != nil:
			require.NoError(m.t, err)
		case i.Status == fsm.StatusFailed && i.Failure == fsm.FailureDeadline:
			if over < -time.Minute {
				m.violate("a deadline comes early", "%d, due %s", id, at)
			}
		case i.Status != fsm.StatusAwaitingSignal || over > time.Minute:
			m.violate("a deadline is missed", "%d is %s, %s, due %s", id, i.Status, i.Failure, at)
		}
	}
}
