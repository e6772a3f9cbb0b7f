package store

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// droppedSQL lowers a parent's barrier to the children that were really inserted, and records the
// others for the step that joins. If none was inserted, or fewer than the policy asks for, it opens
// the barrier at once.
//
// $1 parents $2 mark $3 children that were not inserted, per parent $4 what to record
var droppedSQL = named("dropped", `UPDATE {s}.gen_durable g SET children_pending = g.children_pending - u.n, dropped = u.dropped::jsonb,
  join_size = CASE WHEN g.join_round = abs(g.round) THEN g.join_size - u.n ELSE g.join_size END,
  status = CASE WHEN `+tooFew+` THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN `+tooFew+` THEN (SELECT clock_timestamp()) ELSE g.eligible_at END,
  updated_at = CASE WHEN `+tooFew+` THEN (SELECT clock_timestamp()) ELSE g.updated_at END,
  await_deadline = CASE WHEN `+tooFew+` THEN NULL ELSE g.await_deadline END
FROM unnest($1::bigint[], $3::int[], $4::text[]) AS u(id, n, dropped)
WHERE g.id = u.id AND g.commit_id = $2::uuid
RETURNING g.queue`)

// tooFew is the condition that the children of g that were inserted leave nothing to wait for. None
// of them has ended.
const tooFew = `(g.children_pending <= u.n OR coalesce(g.join_round = g.round AND g.children_pending - u.n < g.wake_done, false))`

// messageBytes bounds one message to Postgres, unless a single value is larger. Client and server
// each hold such a message several times over.
const messageBytes = 16 << 20

// part holds some children of an outcome, for a separate message.
type part struct {
	parent   int64
	depth    int
	children []step.Spec
}

// kid is a child that occupies its correlation key. Its insertion may be dropped.
type kid struct {
	uid    uuid.UUID
	key    string
	parent int64
	index  int
}

// brood holds the children of a commit, and the graphs that they are nodes of.
type brood struct {
	spawn   specs   // up to messageBytes
	spawned int     // the bytes of spawn
	later   []part  // more than one message holds
	kids    []kid   // those that occupy correlation keys, in spawn and in later
	graph   *graph  // of an entry that makes one, which is alone in its batch
	growth  *growth // of an entry that adds to one, which is alone in its batch
}

// addChildren adds the children of an outcome. Those beyond one message go to later.
func (b *brood) addChildren(c *step.Claim, children []step.Spec) {
	for i := range children {
		if x := &children[i]; x.Key != "" && x.Scope != step.ScopeNone {
			b.kids = append(b.kids, kid{uid: x.UID, key: x.Key, parent: c.ID, index: i})
		}
	}
	n := 0
	for ; n < len(children); n++ {
		size := spawnBytes(&children[n])
		if b.spawned > 0 && b.spawned+size > messageBytes {
			break
		}
		b.spawned += size
	}
	b.spawn.addChildren(part{c.ID, c.Depth + 1, children[:n]})
	for from, size := n, 0; n < len(children); {
		size += spawnBytes(&children[n])
		if n++; n == len(children) || size+spawnBytes(&children[n]) > messageBytes {
			b.later = append(b.later, part{c.ID, c.Depth + 1, children[from:n]})
			from, size = n, 0
		}
	}
}

// addChildren adds the children of a part.
func (c *specs) addChildren(p part) {
	c.grow(len(p.children))
	for i := range p.children {
		c.addChild(p.parent, p.depth, &p.children[i])
	}
}

// inParts reports whether the batch takes more than one round trip. The store knows only after the
// insertion which children with correlation keys were dropped, and in whose favour. And it sends
// more children than one message holds in several messages, each after the answer to the one
// before. The edges of a graph lead between rows whose ids only their insertion tells. And the
// additions to a graph depend on its current rows.
func (b *brood) inParts() bool {
	return len(b.kids) > 0 || len(b.later) > 0 || b.graph != nil || b.growth != nil
}

// commitInParts sends a batch that takes several round trips, up to its COMMIT.
func (s *Store) commitInParts(send send, b *batch, out *Committed) error {
	if b.growth != nil {
		return s.commitGrowing(send, b, out)
	}
	fresh, held := map[uuid.UUID]int64{}, map[string]occupant{}
	var note func(pgx.Rows) error
	if len(b.kids) > 0 || b.graph != nil {
		note = readFresh(fresh)
	}
	spawn := func(c *specs) entpgx.Stmt { return s.spawn(c, b.mark, note) }
	if b.graph != nil {
		if err := s.needs(send, s.graphsSince); err != nil {
			return err
		}
		spawn = func(c *specs) entpgx.Stmt { return s.spawnNodes(c, b.mark, b.graph, note) }
	}
	stmts := append(s.outcomes(b, out), spawn(&b.spawn))
	for _, p := range b.later {
		if err := send(stmts...); err != nil {
			return err
		}
		var more specs
		more.addChildren(p)
		if b.graph == nil {
			more.chain()
		}
		stmts = []entpgx.Stmt{spawn(&more)}
	}
	if len(b.kids) > 0 {
		keys := make([]string, len(b.kids))
		for i := range b.kids {
			keys[i] = b.kids[i].key
		}
		stmts = append(append(stmts, s.stmt(occupantsSQL, readOccupants(held), keys)), s.lookForKept(keys)...)
		if err := send(stmts...); err != nil {
			return err
		}
		stmts = nil
	}
	if b.graph != nil {
		if err := send(stmts...); err != nil {
			return err
		}
		stmts = s.edges(b.graph, fresh)
	}
	stmts = append(stmts, s.settle(b, out)...)
	if len(b.kids) > 0 && s.keeping.Load() {
		var keys []string
		for _, k := range b.kids {
			if _, ok := fresh[k.uid]; ok {
				keys = append(keys, k.key)
			}
		}
		stmts = append(stmts, s.stmt(takeKeptSQL, nil, keys))
	}
	dropped, err := s.dropped(b, fresh, held, out)
	if err != nil {
		return err
	}
	if stmts = append(stmts, dropped...); len(stmts) == 0 {
		return nil
	}
	return send(stmts...)
}

// spawn returns the statement that inserts children. Only those with keys are noted.
func (s *Store) spawn(c *specs, mark string, note func(pgx.Rows) error) entpgx.Stmt {
	if !c.keyed {
		note = nil
	}
	if s.lineUp(c); len(c.gates) > 0 {
		text, args := spawnLinedForms.of(c, append(c.args(mark), c.gates)...)
		return s.stmt(text, note, args...)
	}
	text, args := spawnForms.of(c, c.args(mark)...)
	return s.stmt(text, note, args...)
}

// dropped returns the statements that correct the barriers of parents some of whose children were
// not inserted.
func (s *Store) dropped(b *batch, fresh map[uuid.UUID]int64, held map[string]occupant, out *Committed) ([]entpgx.Stmt, error) {
	lists := map[int64][]step.Dropped{}
	for _, k := range b.kids {
		if _, ok := fresh[k.uid]; !ok {
			lists[k.parent] = append(lists[k.parent], step.Dropped{Index: k.index, Key: k.key, Occupant: held[k.key].id})
		}
	}
	if len(lists) == 0 {
		return nil, nil
	}
	var parents []int64
	var counts []int32
	var texts []string
	for parent, list := range lists {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		parents, counts, texts = append(parents, parent), append(counts, int32(len(list))), append(texts, string(text)) //nolint:gosec // bounded
	}
	return []entpgx.Stmt{s.stmt(droppedSQL, readQueues(&out.Queues), parents, b.mark, counts, texts)}, nil
}
