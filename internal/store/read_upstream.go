package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// upstreamSQL reads what nodes have waited for, and whether their steps may run: not if the root
// has ended before the node had begun, and not if an edge is not met. The latter is what the node
// itself has counted, since
// the GC may have deleted a node that ended long ago, with its edges. A row without an edge stands
// for a node that waited for nothing. void is a claim that an operator has ended since: a Restart
// lets a node that was about to be skipped wait again, and it looks here as if it might run.
// $1 ids of nodes $2 the tokens of their claims
var upstreamSQL = named("upstream", `SELECT g.id, coalesce(r.over, true) AND NOT g.begun, g.unmet, g.void, coalesce(e.from_id, 0), coalesce(e.needs, 0)
FROM unnest($1::bigint[], $2::bigint[]) AS u(id, token)
CROSS JOIN LATERAL (SELECT x.id, x.parent_id, coalesce(x.join_failed > 0, false) AS unmet, `+begun+` AS begun, x.status <> 'executing' OR x.claim_token <> u.token AS void FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
LEFT JOIN LATERAL (SELECT x.finished_at IS NOT NULL AS over FROM {s}.gen_durable x WHERE x.id = g.parent_id OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT e.from_id, e.needs FROM {s}.edges e WHERE e.to_id = g.id OFFSET 0) e ON true
ORDER BY g.id, e.from_id`)

// Feed reads what nodes have waited for, into their claims: all of it, or, with most bytes, only
// for those claims whose upstream does not make it more in all. A result for which several
// claims have waited is read once. Those that stay without have no Upstream. Only at a node's
// first visit does it find a reason to skip it: later join_failed counts the node's own
// children, and the fence says of a claim that is void.
func (s *Store) Feed(ctx context.Context, claims []*step.Claim, most int) error {
	type edge struct {
		from  int64
		needs step.Need
	}
	s.graphs.Store(true)
	ids, tokens, edges := make([]int64, len(claims)), make([]int64, len(claims)), map[int64][]edge{}
	over, unmet, void := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for i, c := range claims {
		ids[i], tokens[i] = c.ID, c.Token
	}
	origins := map[int64]*step.Child{}
	if err := s.one(ctx, fastLock, upstreamSQL, func(rows pgx.Rows) error {
		var id int64
		var ended, failed, lost bool
		var e edge
		_, err := pgx.ForEachRow(rows, []any{&id, &ended, &failed, &lost, &e.from, &e.needs}, func() error {
			over[id], unmet[id], void[id] = ended, failed, lost
			if e.from != 0 {
				edges[id], origins[e.from] = append(edges[id], e), nil
			}
			return nil
		})
		return err
	}, ids, tokens); err != nil {
		return fmt.Errorf("read the nodes for which %d nodes have waited: %w", len(claims), err)
	}
	behind, err := s.origins(ctx, origins, most)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if slices.ContainsFunc(edges[c.ID], func(e edge) bool { return behind[e.from] }) {
			continue
		}
		c.Upstream = []step.Upstream{}
		if c.Visit > 0 {
			over[c.ID], unmet[c.ID], void[c.ID] = false, false, false
		}
		if over[c.ID] {
			c.Skip = "skipped: its graph is over"
		}
		if void[c.ID] {
			c.Skip = "skipped: its claim is void"
		}
		lost := ""
		for _, e := range edges[c.ID] {
			origin := origins[e.from]
			if origin == nil { // the GC has deleted it
				continue
			}
			c.Upstream = append(c.Upstream, step.Upstream{Child: *origin, Needs: e.needs})
			switch over := origin.Status == "done" || origin.Status == "failed"; {
			case c.Skip != "" || !unmet[c.ID] || !over || e.needs.Met(origin.Status):
			case e.needs == step.NeedsAny:
				lost = fmt.Sprintf("skipped: too few of a quorum are done: node %.80q is %s", origin.Node, origin.Status)
			default:
				c.Skip = fmt.Sprintf("skipped: node %.80q is %s", origin.Node, origin.Status)
			}
		}
		if c.Skip == "" {
			c.Skip = lost
		}
		if c.Skip == "" && unmet[c.ID] {
			c.Skip = "skipped: a node that it waited for, which has been deleted since, did not end as it had to"
		}
	}
	return nil
}

// origins reads nodes by their ids, until they are more than most bytes, and returns which are
// left.
func (s *Store) origins(ctx context.Context, into map[int64]*step.Child, most int) (left map[int64]bool, err error) {
	behind := slices.Sorted(maps.Keys(into))
	for size := 0; len(behind) > 0 && size <= most; {
		page, rest, err := s.Children(ctx, behind)
		if err != nil {
			return nil, err
		}
		for i := range page {
			size += page[i].Bytes()
			into[page[i].ID] = &page[i]
		}
		behind = rest
	}
	left = make(map[int64]bool, len(behind))
	for _, id := range behind {
		left[id] = true
	}
	return left, nil
}
