package store_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// wire counts round trips: how often its traffic turns from sending to receiving. It also counts
// the statements that are sent, by Execute messages.
type wire struct {
	mu       sync.Mutex
	asking   bool
	turns    int
	executed int
	started  bool
	rest     []byte // the begin of a message
}

func (w *wire) sent(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking = true
	w.rest = append(w.rest, p...)
	for {
		head := 1 // the type; the first message has none
		if !w.started {
			head = 0
		}
		if len(w.rest) < head+4 {
			return
		}
		size := head + int(binary.BigEndian.Uint32(w.rest[head:]))
		if len(w.rest) < size {
			return
		}
		if w.started && w.rest[0] == 'E' {
			w.executed++
		}
		w.started, w.rest = true, w.rest[size:]
	}
}

// statements returns how many statements do sends.
func (w *wire) statements(do func()) int {
	w.mu.Lock()
	before := w.executed
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.executed - before
}

func (w *wire) received() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking {
		w.turns++
	}
	w.asking = false
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns
}

type wireEnd struct {
	net.Conn
	wire *wire
}

func (e wireEnd) Write(p []byte) (int, error) {
	e.wire.sent(p)
	return e.Conn.Write(p)
}

func (e wireEnd) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if n > 0 {
		e.wire.received()
	}
	return n, err
}

// neverPing keeps pgx from pinging a connection that was idle for a second: on a busy machine that
// would be a round trip more.
func neverPing(context.Context, pgxpool.ShouldPingParams) bool { return false }

// wired returns a bench with one connection, over a wire that counts.
func (b bench) wired() (bench, *wire) {
	b.t.Helper()
	w := &wire{}
	return b.beside(func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ShouldPing = neverPing
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return wireEnd{conn, w}, err
		}
	}), w
}

// trip is one use of a verb.
type trip struct {
	verb    string
	want    int // how many round trips
	prepare func(b bench, n int) any
	do      func(b bench, prepared any) error
}

// roundTrips lists the round trips of one use of each verb, on a connection that has prepared the
// statements, for any number of instances.
var roundTrips = []trip{
	{"claim", 1, func(b bench, n int) any { b.runnable(n); return n }, func(b bench, n any) error {
		got, err := b.Claim(b.t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 1000, Window: 1000,
			Lease: lease, Patience: time.Second})
		if err == nil && len(got.Claims) != n {
			return fmt.Errorf("claimed %d of %d", len(got.Claims), n)
		}
		return err
	}},
	{"claim, plain", 1, func(b bench, n int) any {
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'm', 's' FROM generate_series(1, $1::int)`, n)
		return n
	}, func(b bench, n any) error {
		got, err := b.Claim(b.t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 1000, Window: 1000,
			Lease: lease, Patience: time.Second, Plain: true})
		if err == nil && len(got.Claims) != n {
			return fmt.Errorf("claimed %d of %d", len(got.Claims), n)
		}
		return err
	}},
	{"commit, claims kept", 1, func(b bench, n int) any { return b.entries(n, true) }, commitAll},
	{"commit of all kinds", 1, func(b bench, n int) any { return b.mixture(n, false) }, commitAll},
	{"commit in the slow lane", 1, func(b bench, n int) any { return b.mixture(n, false) }, commitSlowly},
	{"commit of a Rejoin", 1, func(b bench, n int) any {
		entries := b.entries(n, false)
		for i := range entries {
			entries[i].Commit.Kind, entries[i].Commit.Join = step.Rejoin, &step.Join{Ended: 1}
		}
		return entries
	}, commitAll},
	{"commit of a stream", 1, func(b bench, n int) any {
		entries := b.entries(n, false)
		for i := range entries {
			entries[i].Commit.Kind, entries[i].Commit.Join = step.Children, &step.Join{Ended: 1, Stream: 1}
			entries[i].Commit.Spawn = kids(1)
		}
		return entries
	}, commitAll},
	{"read a portion", 3, func(b bench, n int) any {
		parent, kids := b.streaming(n, n)
		for _, kid := range kids {
			b.commit(newMark(), false, endOf(kid, true))
		}
		c := b.claimOne()
		require.Equal(b.t, parent, c.ID)
		return c
	}, func(b bench, c any) error {
		_, err := b.Portion(b.t.Context(), c.(*step.Claim), brief)
		return err
	}},
	{"look whether an end is free", 1, func(b bench, _ int) any {
		_, kids := b.policedParent(1, nil)
		return kids[0]
	}, func(b bench, c any) error {
		_, err := b.EndIsFree(b.t.Context(), c.(*step.Claim))
		return err
	}},
	{"shorten a portion", 3, func(b bench, n int) any {
		_, kids := b.streaming(n, n)
		for _, kid := range kids {
			b.commit(newMark(), false, endOf(kid, true))
		}
		c, _, _ := b.portion(kids)
		return c
	}, func(b bench, c any) error {
		_, err := b.Shorten(b.t.Context(), c.(*step.Claim), nil)
		return err
	}},
	{"commit with keyed children", 3, func(b bench, n int) any { return b.mixture(n, true) }, commitSlowly},
	{"commit of a graph", 3, func(b bench, n int) any { return []store.Entry{b.chained(n + 1)} }, commitAll},
	{"commit that adds nodes", 4, func(b bench, n int) any { return []store.Entry{b.growing(n)} }, commitAll},
	{"commit that adds nodes in front of another", 5, func(b bench, n int) any {
		e := b.growing(n)
		e.Commit.Add.Graph.Nodes = append(e.Commit.Add.Graph.Nodes, "b")
		e.Commit.Add.Graph.Edges = append(e.Commit.Add.Graph.Edges, step.Edge{From: 0, To: len(e.Commit.Add.Graph.Nodes) - 1})
		return []store.Entry{e}
	}, commitAll},
	{"commit that adds nodes in front of one that has begun, as before", 5, func(b bench, n int) any {
		e := b.growing(n)
		e.Commit.Add.Graph.Nodes = append(e.Commit.Add.Graph.Nodes, "b")
		e.Commit.Add.Graph.Edges = append(e.Commit.Add.Graph.Edges, step.Edge{From: 0, To: len(e.Commit.Add.Graph.Nodes) - 1})
		b.exec(`WITH x AS (INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, joined, parent_id, parent_round, node)
				SELECT $3, 's', 'done', now(), gen_random_uuid(), $1::bigint, 1, $2::text RETURNING id),
			g AS (UPDATE gendurable.gen_durable SET visit = 1, status = 'runnable' WHERE parent_id = $1 AND node = 'b' RETURNING id)
			INSERT INTO gendurable.edges (from_id, to_id, needs) SELECT x.id, g.id, 0 FROM x, g`, e.Claim.Parent, e.Commit.Add.Graph.Nodes[0], e.Commit.Add.Specs[0].Machine)
		return []store.Entry{e}
	}, commitAll},
	{"commit of ends of nodes", 1, func(b bench, n int) any { return b.endsOfNodes(n) }, commitAll},
	{"commit of ends of nodes in the slow lane", 1, func(b bench, n int) any { return b.endsOfNodes(n) }, commitSlowly},
	{"skip nodes", 3, func(b bench, n int) any { return b.toSkip(n) }, skipOnce},
	{"skip no nodes", 2, func(bench, int) any { return 0 }, skipOnce},
	{"restart of a graph", 13, func(b bench, n int) any { return b.brokenGraph(n) }, restartRoot},
	{"cancel within bounds", 4, func(b bench, n int) any { return b.joiner(n) }, func(b bench, id any) error {
		got, err := b.Operate(b.t.Context(), []int64{id.(int64)}, &store.Order{Verb: store.Cancel, Mark: newMark(), Most: 1000,
			Filter: store.Filter{Within: store.Bounds{Queues: []string{"default"}}}})
		if err == nil && len(got.Changed) != 1 {
			return fmt.Errorf("refused: %v", got.Refused)
		}
		return err
	}},
	{"restart of a graph that has ended", 15, func(b bench, n int) any {
		root := b.brokenGraph(n)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, root)
		return root
	}, restartRoot},
	{"restart of a graph with children below its nodes", 17, func(b bench, n int) any {
		root := b.brokenGraph(n)
		b.exec(`WITH p AS (UPDATE gendurable.gen_durable SET visit = 1, round = 1 WHERE parent_id = $1 AND failure = 'error' RETURNING id)
			INSERT INTO gendurable.gen_durable (fsm, step, status, failure, finished_at, joined, parent_id, parent_round)
			SELECT 'm', 's', 'failed', 'error', now(), gen_random_uuid(), id, 1 FROM p`, root)
		return root
	}, restartRoot},
	{"what nodes have waited for", 2, func(b bench, n int) any { return b.fedBy(n) }, func(b bench, claims any) error {
		return b.Feed(b.t.Context(), claims.([]*step.Claim), 8<<20)
	}},
	{"insert", 1, func(_ bench, n int) any { return newSpecs(n, false) }, insertAll},
	{"insert with keys", 2, func(_ bench, n int) any { return newSpecs(n, true) }, insertAll},
	{"insert as claimed", 1, func(_ bench, n int) any { return newSpecs(n, false) }, enterAll},
	{"insert with keys as claimed", 2, func(_ bench, n int) any { return newSpecs(n, true) }, enterAll},
	{"heartbeat", 1, func(b bench, n int) any { return b.claimed(n) }, nil},
	{"release of runs that were cut off", 1, func(b bench, n int) any { return b.claimed(n) }, func(b bench, claims any) error {
		for _, c := range claims.([]*step.Claim) {
			c.CutOff = "lease lost"
		}
		_, err := b.Release(b.t.Context(), me, claims.([]*step.Claim))
		return err
	}},
	{"release", 1, func(b bench, n int) any { return b.claimed(n) }, func(b bench, claims any) error {
		_, err := b.Release(b.t.Context(), me, claims.([]*step.Claim))
		return err
	}},
	{"set aside", 1, func(b bench, n int) any { return b.claimed(n) }, func(b bench, claims any) error {
		var aside []store.Aside
		for _, c := range claims.([]*step.Claim) {
			aside = append(aside, store.Aside{Claim: c})
		}
		_, err := b.SetAside(b.t.Context(), me, aside)
		return err
	}},
	{"claim of strays", 2, func(b bench, n int) any {
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, pick_lane, aside_step) SELECT 'm', 's', 4, 's' FROM generate_series(1, $1)`, n)
		return n
	}, func(b bench, n any) error {
		got, err := b.ClaimStrays(b.t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 1000, Lease: lease},
			[]store.StepKey{{Machine: "m", Version: 1, Step: "s"}})
		if err == nil && len(got.Claims) != n {
			return fmt.Errorf("claimed %d of %d", len(got.Claims), n)
		}
		return err
	}},
	{"reap", 2, func(b bench, n int) any { return b.expired(n, false) }, reapAll},
	{"reap of keyed rows and children", 3, func(b bench, n int) any { return b.expired(n, true) }, reapAll},
	{"fail those over their deadline", 2, func(b bench, n int) any { return b.overdue(n, false) }, expireAll},
	{"fail keyed ones and children over their deadline", 3, func(b bench, n int) any { return b.overdue(n, true) }, expireAll},
	{"poll", 1, func(b bench, n int) any {
		b.runnable(n)
		queues := make([]string, n)
		for i := range queues {
			queues[i] = fmt.Sprint("queue ", i)
		}
		return queues
	}, func(b bench, queues any) error {
		_, err := b.Poll(b.t.Context(), queues.([]string), []string{"m/1"}, nil)
		return err
	}},
	{"time out awaits", 1, func(b bench, n int) any {
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, awaits, await_deadline)
			SELECT 'm', 's', 'awaiting_signal', '{x}', now() FROM generate_series(1, $1) n`, n)
		return nil
	}, func(b bench, _ any) error {
		_, err := b.TimeOut(b.t.Context(), 1000)
		return err
	}},
	{"cancel the rest", 4, func(b bench, n int) any {
		b.exec(`WITH p AS (INSERT INTO gendurable.gen_durable (fsm, step, round, losers) SELECT 'm', 's', 1, '{1}' FROM generate_series(1, 3) RETURNING id)
			INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round) SELECT 'm', 's', p.id, 1 FROM p, generate_series(1, $1) n`, n)
		return 3 * n
	}, func(b bench, n any) error {
		got, err := b.CancelRest(b.t.Context(), newMark(), 0, 1000)
		if err == nil && len(got.Cancelled) != n {
			return fmt.Errorf("cancelled %d of %d", len(got.Cancelled), n)
		}
		return err
	}},
	{"cancel no rest", 2, func(bench, int) any { return nil }, func(b bench, _ any) error {
		_, err := b.CancelRest(b.t.Context(), newMark(), 0, 1000)
		return err
	}},
	{"promote", 1, func(b bench, n int) any {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
			b.ofKey(keys[i], 1, columns{"pick_lane": `1`})
		}
		return keys
	}, func(b bench, keys any) error {
		_, err := b.Promote(b.t.Context(), keys.([]string))
		return err
	}},
	{"deliver", 1, func(b bench, _ int) any { return b.parked("go") }, func(b bench, id any) error {
		_, err := b.Deliver(b.t.Context(), byID(id.(int64)), named("go"), 100)
		return err
	}},
	{"deliver and claim", 1, func(b bench, _ int) any { return b.parked("go") }, func(b bench, id any) error {
		_, woken, err := b.DeliverClaiming(b.t.Context(), byID(id.(int64)), named("go"), 100, waker())
		if err == nil && len(woken.Claims) != 1 {
			err = errors.New("no claim")
		}
		return err
	}},
	{"deliver many", 1, func(b bench, n int) any {
		var list []store.Letter
		for i := range n {
			list = append(list, letter(byID(b.parked("go")), named("go")), letter(byKey(fmt.Sprint("nobody ", i)), named("go")))
		}
		return list
	}, func(b bench, list any) error {
		got, err := b.DeliverMany(b.t.Context(), list.([]store.Letter), 100)
		if err == nil && !got[0].Woken {
			err = errors.New("not woken")
		}
		return err
	}},
	{"deliver or insert", 1, func(bench, int) any { return newcomer() }, func(b bench, x any) error {
		_, err := b.DeliverOrInsert(b.t.Context(), x.(*step.Spec), named("go"), 1000)
		return err
	}},
	// These are begin, fence, outcome and commit. The statements of the step's function are added.
	{"step's own transaction", 4, func(b bench, _ int) any { return b.mixture(1, false) }, func(b bench, entries any) error {
		e := entries.([]store.Entry)[0]
		got, err := b.Transact(b.t.Context(), b.t.Context(), me, newMark(), e.Claim, 0, func(any) (store.Entry, error) { return e, nil })
		if err == nil && !got.Applied[e.Claim.ID] {
			return errors.New("not applied")
		}
		return err
	}},
	{"resolve", 1, func(b bench, n int) any { return b.entries(n, false) }, func(b bench, entries any) error {
		_, err := b.Resolve(b.t.Context(), me, eachOf(entries.([]store.Entry), newMark()), entries.([]store.Entry), 0)
		return err
	}},
	{"list", 1, labelled, listAll(store.Filter{Machine: "m"}, 1000)},
	{"list by an index", 1, labelled, listAll(store.Filter{Labels: `{"a": "b"}`}, 1000)},
	{"list by an index that finds too much", 2, func(b bench, n int) any {
		labelled(b, 100)
		return n
	}, listAll(store.Filter{Labels: `{"a": "b"}`}, 100)},
	{"count", 1, labelled, func(b bench, _ any) error {
		_, err := b.Count(b.t.Context(), time.Minute)
		return err
	}},
}

func labelled(b bench, n int) any {
	b.t.Helper()
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, labels) SELECT 'm', 's', '{"a": "b"}' FROM generate_series(1, $1)`, n)
	return n
}

func listAll(f store.Filter, visit int) func(b bench, n any) error {
	return func(b bench, n any) error {
		got, err := b.List(b.t.Context(), query.ListParams{Filter: f, Limit: n.(int), Visit: visit})
		if err == nil && len(got.Instances) != n {
			return fmt.Errorf("listed %d", len(got.Instances))
		}
		return err
	}
}

func commitAll(b bench, entries any) error    { return b.commitOnce(entries.([]store.Entry), false) }
func commitSlowly(b bench, entries any) error { return b.commitOnce(entries.([]store.Entry), true) }

func (b bench) commitOnce(entries []store.Entry, slow bool) error {
	got, err := b.Commit(b.t.Context(), me, newMark(), entries, inLane(slow))
	if err == nil && len(got.Applied) != len(entries) {
		return fmt.Errorf("applied %d of %d", len(got.Applied), len(entries))
	}
	return err
}

func insertAll(b bench, specs any) error {
	_, err := b.Insert(b.t.Context(), specs.([]*step.Spec))
	return err
}

func enterAll(b bench, specs any) error {
	_, claims := b.enter(specs.([]*step.Spec)...)
	if len(claims) != len(specs.([]*step.Spec)) {
		return fmt.Errorf("claimed %d", len(claims))
	}
	return nil
}

func reapAll(b bench, n any) error {
	got, err := b.Reap(b.t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{3}}, 1000)
	if err == nil && got.Released+len(got.Failed) != n {
		return fmt.Errorf("reaped %d + %d of %d", got.Released, len(got.Failed), n)
	}
	return err
}

// brokenGraph makes a graph of which one node executes, n have failed, and n were skipped for
// these. Its root waits.
func (b bench) brokenGraph(n int) (root int64) {
	b.t.Helper()
	words := []string{"z"}
	for i := range n {
		words = append(words, fmt.Sprint("a", i), fmt.Sprintf("b%d<a%d", i, i))
	}
	root, _ = b.arrange(strings.Join(words, " "), nil)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', finished_at = now(), joined = gen_random_uuid(), children_pending = 0,
		failure = CASE WHEN node LIKE 'b%' THEN 'skipped' ELSE 'error' END, join_failed = CASE WHEN node LIKE 'b%' THEN 1 END
		WHERE parent_id = $1 AND node <> 'z'`, root)
	b.exec(`UPDATE gendurable.gen_durable SET children_pending = 1, join_failed = join_size - 1 WHERE id = $1`, root)
	return root
}

func restartRoot(b bench, root any) error {
	got, err := b.Operate(b.t.Context(), []int64{root.(int64)}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 1000})
	if err == nil && len(got.Changed) < 3 {
		return fmt.Errorf("restarted %d", len(got.Changed))
	}
	return err
}

// P15: the number of round trips of a verb does not depend on the number of instances.
func TestRoundTrips(t *testing.T) {
	b := newBench(t)
	wired, w := b.wired()
	line := wired.Line()
	defer func() { require.NoError(t, line.Close(context.Background())) }()
	for range 2 { // the statements by which inserts learn of gates are prepared like the others
		require.NoError(t, insertAll(wired, newSpecs(1, false)))
	}
	for _, verb := range roundTrips {
		do := verb.do
		if do == nil {
			do = func(_ bench, claims any) error {
				got, err := line.Beat(t.Context(), me, claims.([]*step.Claim), lease)
				if err == nil && len(got.Extended) != len(claims.([]*step.Claim)) {
					return fmt.Errorf("extended %d", len(got.Extended))
				}
				return err
			}
		}
		for i, n := range []int{20, 1, 60} {
			b.exec(`DELETE FROM gendurable.gen_durable`)
			prepared := verb.prepare(b, n)
			before := w.count()
			require.NoError(t, do(wired, prepared), "%s of %d", verb.verb, n)
			if i > 0 { // the first use prepares the statements
				require.Equal(t, verb.want, w.count()-before, "%s of %d", verb.verb, n)
			}
		}
	}
}

func (b bench) runnable(n int) {
	b.t.Helper()
	b.exec(`WITH g AS (INSERT INTO gendurable.gen_durable (fsm, step, awaits, partition_key)
			SELECT 'm', 's', '{go}', CASE WHEN n % 2 = 0 THEN 'key ' || n END FROM generate_series(1, $1) n RETURNING id)
		INSERT INTO gendurable.signals (target_id, name) SELECT id, 'go' FROM g`, n)
}

func (b bench) claimed(n int) []*step.Claim {
	b.t.Helper()
	b.runnable(n)
	got := b.claim(most(1000))
	require.Len(b.t, got.Claims, n)
	return got.Claims
}

func (b bench) entries(n int, keep bool) (out []store.Entry) {
	b.t.Helper()
	for _, c := range b.claimed(n) {
		out = append(out, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Next, Step: "two", State: []byte(`{}`)}, Keep: keep})
	}
	return out
}

// mixture makes outcomes of all kinds in turn, terminal ones for children of one parent, all with
// signals to consume.
func (b bench) mixture(n int, keyed bool) (out []store.Entry) {
	b.t.Helper()
	parent := b.joiner(n)
	if keyed {
		b.keyed("taken")
	}
	for i, c := range b.claimed(n) {
		kind := []step.Kind{step.Done, step.Children, step.Fail, step.Await, step.Retry, step.Next}[(i+1)%6]
		o := &step.Commit{Kind: kind, Step: "two", State: []byte(`{}`)}
		switch kind {
		case step.Done, step.Fail:
			b.exec(`UPDATE gendurable.gen_durable SET parent_id = $2, parent_round = 3 WHERE id = $1`, c.ID, parent)
			c.Parent, o = parent, ending(kind)
		case step.Await:
			o.Names = []string{"go"}
		case step.Children:
			o.Spawn = kids(2)
			if keyed {
				o.Spawn = withKeys(o.Spawn, fmt.Sprint("kid of ", i), "taken")
			}
		case step.Next, step.Retry, step.Again, step.Rejoin:
		}
		out = append(out, store.Entry{Claim: c, Commit: o})
	}
	return out
}

func (b bench) expired(n int, related bool) int {
	b.t.Helper()
	parent := b.joiner(n)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, locked_by, lease_expires_at, crashes, partition_key, parent_id, parent_round)
		SELECT 'm', 's', 'executing', 'w', now() - interval '1 s', 3 * (n % 2), CASE WHEN $2 THEN 'key ' || n END,
			CASE WHEN $2 THEN $3::bigint END, 3 FROM generate_series(1, $1) n`, n, related, parent)
	return n
}

func (b bench) overdue(n int, related bool) int {
	b.t.Helper()
	parent := b.joiner(n)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, deadline, partition_key, parent_id, parent_round)
		SELECT 'm', 's', now() - interval '1 s', CASE WHEN $2 THEN 'key ' || n END, CASE WHEN $2 THEN $3::bigint END, 3
		FROM generate_series(1, $1) n`, n, related, parent)
	return n
}

func expireAll(b bench, n any) error {
	got, err := b.Expire(b.t.Context(), newMark(), 1000)
	require.Len(b.t, got.Failed, n.(int))
	return err
}

func newSpecs(n int, keyed bool) (out []*step.Spec) {
	for i := range n {
		s := newSpec("")
		if keyed {
			s.Key = fmt.Sprintf("key %d", (i*7)%n)
		}
		out = append(out, s)
	}
	return out
}
