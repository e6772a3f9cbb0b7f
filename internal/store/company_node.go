package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Stores whose schemas Citus distributes have separate pools, which follow the schemas. While
// several of them are on one node, they poll in one round trip nevertheless. A company has another
// one for each node and role; a store learns by a poll that it sends by itself where its schema
// is, and then joins the rounds of that node. When it learns that the schema has moved it leaves
// them, and polls by itself until its pool leads to the new owner.
//
// Such rounds have a connection that one of the stores has dialled. It is used only if it leads to
// the node of the rounds, and given up when it seems to lead nowhere that is written to. Heartbeats
// have no connection in common: decision D75.

// node identifies where polls may go together: a node of Citus, in a database, with a role.
type node struct {
	server, database, role string
	group                  int32
}

// nodeSQL reads the node. A failover does not change it.
var nodeSQL = named("node", `SELECT coalesce((SELECT m.metadata->>'server_id' FROM pg_catalog.pg_dist_node_metadata m LIMIT 1), ''),
current_database()::text, current_user::text, coalesce((SELECT l.groupid FROM pg_catalog.pg_dist_local_group l LIMIT 1), 0)`)

// here returns the statement that reads the node.
func (s *Store) here(n *node) entpgx.Stmt {
	return s.stmt(nodeSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n.server, &n.database, &n.role, &n.group}, func() error { return nil })
		return err
	})
}

// rounds returns the company in whose rounds the store may poll; nil: there is none.
func (s *Store) rounds() *Company {
	if s.accompanied() {
		return s.company
	}
	return s.home.Load()
}

// alone sends a poll by the store's own pool. Unless the store knows on which node a distributed
// schema is, the poll finds that out.
func (s *Store) alone(ctx context.Context, reads []entpgx.Stmt) error {
	if s.company == nil || s.outside.lasts() || !s.rendered.Load().distributed() || s.home.Load() != nil {
		return s.pollAlone(ctx, reads...)
	}
	var n node
	err := s.transaction(ctx, fastLock, append(reads, s.here(&n))...)
	if err == nil {
		s.home.Store(s.company.of(n))
	}
	return err
}

// depart makes the store leave the rounds of a node.
func (s *Store) depart() {
	if c := s.home.Swap(nil); c != nil {
		c.forget(s)
	}
}

// of returns the company of a node.
func (c *Company) of(n node) *Company {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[n] == nil {
		its := NewCompany(nil)
		its.node, its.gathers, its.slow = &n, c.gathers, c.slow
		if c.nodes == nil {
			c.nodes = map[node]*Company{}
		}
		c.nodes[n] = its
	}
	return c.nodes[n]
}

var errOtherNode = errors.New("gendurable: the connection leads to another node of Citus")

// verify returns an error if a connection does not lead to the node of the rounds.
func (c *Company) verify(ctx context.Context, s *Store, conn *pgx.Conn) error {
	if c.node == nil {
		return nil
	}
	var n node
	if err := s.db.PipelineOn(ctx, conn, s.here(&n)); err != nil {
		return err
	}
	if n != *c.node {
		return errOtherNode
	}
	return nil
}
