package store_test

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

var allMeasures = slices.Concat(measures, gateMeasures)

// gateMeasures are those of claims at gates. Beside each of them 20,000 instances stand in line at
// a gate of which all places are taken, in the queue "default", in front of all others.
var gateMeasures = []measured{
	{"gated claim beside a long line", planRows, 45, "gen_durable_ready", func(e explained, _ any) int {
		return len(e.claim(gated, most(planRows), window(planRows)).Claims)
	}, lineUp},
	{"gated claim that puts in line", planRows, 45, "gen_durable_ready", func(e explained, _ any) int {
		got := e.claim(gated, queue("to gates"), most(planRows), window(planRows))
		require.Len(e.t, got.Lines, planRows)
		return got.Moved
	}, func(e explained) any {
		lineUp(e)
		e.gateRows(`gate, place, pick_lane`, `NULL, NULL, 0`)
		return nil
	}},
	{"admit at a hundred gates", planRows, 60, "gen_durable_line gen_durable_place", func(e explained, gates any) int {
		p, err := e.Admit(e.t.Context(), gates.([]string), make([]bool, planRows), []string{"default", "to gates"})
		require.NoError(e.t, err)
		require.Empty(e.t, p.Missed)
		return e.bench.number(`SELECT count(*) FROM gendurable.gen_durable WHERE queue = 'to gates' AND place = 1`)
	}, func(e explained) any {
		lineUp(e)
		e.gateRows(`gate, place, pick_lane`, `'each/' || n, NULL, 3`)
		gates := make([]string, planRows)
		for i := range gates {
			gates[i] = fmt.Sprint("each/", i+1)
		}
		return gates
	}},
	{"admit where nothing is free", 0, 300, "gen_durable_place", func(e explained, _ any) int {
		p, err := e.Admit(e.t.Context(), []string{"full/x"}, []bool{false}, []string{"default"})
		require.NoError(e.t, err)
		require.Empty(e.t, p)
		return 0
	}, lineUp},
	{"look at a hundred lines", planRows, 110, "gen_durable_line gen_durable_place", func(e explained, _ any) int {
		_, free, err := e.Lines(e.t.Context(), "", 1000, lease)
		require.NoError(e.t, err)
		return len(free)
	}, func(e explained) any {
		lineUp(e)
		e.gateRows(`gate, place, pick_lane`, `'each/' || n, NULL, 3`)
		return nil
	}},
}

// lineUp makes the gates, and the long line.
func lineUp(e explained) any {
	e.exec(`TRUNCATE gendurable.gates`)
	e.exec(`DELETE FROM gendurable.gen_durable WHERE gate IS NOT NULL OR queue = 'to gates'`)
	e.gate(store.Gate{Name: "full", Label: "line", Places: 100, Total: store.NoBound})
	e.gate(store.Gate{Name: "each", Label: "gate", Places: 2, Total: store.NoBound})
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority, eligible_at, labels, gate, pick_lane)
		SELECT 'm', 's', -1, now() - interval '1 day', '{"line": "x"}', 'full/x', 3 FROM generate_series(1, 20000)`)
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, place, status, locked_by, lease_expires_at)
		SELECT 'm', 's', 'elsewhere', 'full/x', n, 'executing', 'w', now() + interval '1 h' FROM generate_series(1, 100) n`)
	return nil
}

// gateRows inserts planRows instances, each with a gate of its own.
func (e explained) gateRows(names, values string) {
	e.t.Helper()
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, labels, `+names+`)
		SELECT 'm', 's', 'to gates', jsonb_build_object('gate', n::text), `+values+` FROM generate_series(1, $1::int) n`, planRows)
}
