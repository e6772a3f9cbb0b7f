package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Node is a node of a graph, as it is.
type Node struct {
	ID      int64
	Name    string
	Machine string
	Version int
	Status  string
	Failure string
	Waits   int // for so many more nodes
	Quorum  int // so many of its edges with step.NeedsAny are to be met; 0 if it has none
}

// NodeEdge is an edge of a graph. Needs is a step.Need.
type NodeEdge struct {
	From, To int64
	Needs    int16
}

// graphNodesSQL reads the nodes of a root's newest round, in spawn order. $1 root
var graphNodesSQL = named("graph nodes", `SELECT k.id, k.node, k.fsm, k.fsm_version, k.status::text, coalesce(k.failure, ''),
  CASE WHEN k.status = 'awaiting_children' AND k.visit = 0
    THEN k.children_pending + coalesce(greatest(k.wake_done - k.join_done, 0) - (k.join_done < k.wake_done)::int, 0) ELSE 0 END,
  CASE WHEN k.round = 0 THEN coalesce(k.wake_done, 0) ELSE 0 END
FROM (SELECT g.id, g.round FROM {s}.gen_durable g WHERE g.id = $1::bigint OFFSET 0) r
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.parent_id = r.id AND x.parent_round = r.round AND x.node IS NOT NULL OFFSET 0) k
ORDER BY k.id`)

// graphEdgesSQL reads the edges that lead to nodes. $1 ids
var graphEdgesSQL = named("graph edges", `SELECT e.from_id, e.to_id, e.needs FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.* FROM {s}.edges x WHERE x.to_id = u.id OFFSET 0) e
ORDER BY e.to_id, e.from_id`)

// Graph reads the graph of a root's newest round: its nodes in spawn order, and its edges by the
// nodes to which they lead.
func (s *Store) Graph(ctx context.Context, root int64) (nodes []Node, edges []NodeEdge, err error) {
	err = s.one(ctx, fastLock, graphNodesSQL, func(rows pgx.Rows) error {
		nodes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Node])
		return err
	}, root)
	if err != nil {
		return nil, nil, fmt.Errorf("read the nodes of instance %d: %w", root, err)
	}
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	ids := make([]int64, len(nodes))
	for i := range nodes {
		ids[i] = nodes[i].ID
	}
	err = s.one(ctx, fastLock, graphEdgesSQL, func(rows pgx.Rows) error {
		edges, err = pgx.CollectRows(rows, pgx.RowToStructByPos[NodeEdge])
		return err
	}, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("read the edges of instance %d: %w", root, err)
	}
	return nodes, edges, nil
}
