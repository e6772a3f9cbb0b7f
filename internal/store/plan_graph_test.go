package store_test

import (
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// graphMeasures are those beside one large graph: see largeGraph.
var graphMeasures = []measured{
	{"claim of nodes of a large graph", planRows, 60, "gen_durable_ready gen_durable_pkey", claimMeasured("nodes"), nil},
	{"commit of ends of nodes of a large graph", planRows, 140, "gen_durable_pkey edges_pkey", commitMeasured, func(e explained) any {
		var entries []store.Entry
		claims := e.claim(queue("nodes"), most(planRows), window(planRows)).Claims
		if len(claims) == 0 { // planned before there is a graph
			return e.endsOfNodes(planRows)
		}
		for i, c := range claims {
			entries = append(entries, endOf(c, i%2 == 0))
		}
		return entries
	}},
	{"what nodes of a large graph have waited for", planRows, 30, "gen_durable_pkey edges_to", func(e explained, claims any) int {
		require.NoError(e.t, e.Feed(e.t.Context(), claims.([]*step.Claim), 8<<20))
		return planRows
	}, func(e explained) any {
		rows, err := e.pool.Query(e.t.Context(), byHand(`SELECT id FROM gendurable.gen_durable WHERE node LIKE 'second %' ORDER BY id DESC LIMIT $1`), planRows)
		require.NoError(e.t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(e.t, err)
		claims := make([]*step.Claim, len(found))
		for i, id := range found {
			claims[i] = &step.Claim{ID: id, Node: "second"}
		}
		return claims
	}},
}

// skipMeasures are the measures of skips.
var skipMeasures = []measured{
	{"skip nodes of a large graph", planRows, 140, "gen_durable_skip gen_durable_pkey edges_to", func(e explained, _ any) int {
		got, err := e.Skip(e.t.Context(), newMark(), 0, planRows)
		require.NoError(e.t, err)
		return len(got.Failed)
	}, func(e explained) any { return e.toSkip(planRows) }},
	{"skip none", 0, 40, "gen_durable_skip", func(e explained, _ any) int {
		got, err := e.Skip(e.t.Context(), newMark(), 0, planRows)
		require.NoError(e.t, err)
		return len(got.Failed)
	}, nil},
}

// largeGraph makes a graph of n nodes in two layers. The nodes of the first are runnable, in the
// queue "nodes"; each of the second waits for two of the first.
func (b bench) largeGraph(n int) {
	b.t.Helper()
	b.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'nodes'`)
	b.exec(`WITH r AS (INSERT INTO gendurable.gen_durable (fsm, step, queue, status, visit, round, children_pending)
			VALUES ('m', 's', 'nodes', 'awaiting_children', 1, 1, $1::int) RETURNING id),
		first AS (INSERT INTO gendurable.gen_durable (fsm, step, queue, parent_id, parent_round, node)
			SELECT 'm', 's', 'nodes', r.id, 1, 'first ' || n FROM r, generate_series(1, $1::int / 2) n RETURNING id),
		second AS (INSERT INTO gendurable.gen_durable (fsm, step, queue, status, children_pending, parent_id, parent_round, node)
			SELECT 'm', 's', 'nodes', 'awaiting_children', 2, r.id, 1, 'second ' || n FROM r, generate_series(1, $1::int / 2) n RETURNING id),
		f AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM first),
		s AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM second)
		INSERT INTO gendurable.edges (from_id, to_id, needs)
		SELECT f.id, s.id, 1 FROM f JOIN s ON s.n IN (f.n, 1 + f.n % ($1::int / 2))`, n)
}
