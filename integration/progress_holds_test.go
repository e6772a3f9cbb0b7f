package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// holds are the rows and locks that another session may hold, beside the bystanders.
var holds = []hold{
	{name: "nothing", slots: 3, begin: func(*stage) {}},

	// A key's held head cannot run, and the instances behind it wait for it.
	{name: "the head of a key, by a host", slots: 1, begin: heads(1, 2)},
	{name: "the heads of as many keys as there are slots, by a host", slots: 4, begin: heads(4, 2)},
	{name: "the head of a key with many behind it, by a host", slots: 2, begin: heads(1, 50)},
	{name: "the head of a key, by a step of another queue", slots: 1, begin: byAStep},
	{name: "the row that executes a key, by a host", slots: 3, begin: func(s *stage) {
		ids := s.gated(errandMachine.New(errand{Kind: "gated"}).PartitionKey("k"))
		s.hold(ids...)
		s.held = append(ids, s.insert(keyed("k", 20)...)...)
		s.crew.open("")
	}},

	// The turn of a queue's claims: the server process of the claim that has it is stopped.
	{name: "the turn of claims", slots: 3, begin: func(s *stage) {
		s.within(`SELECT pg_advisory_xact_lock(hashtextextended('gendurable turn gendurable default', 0))`)
	}},

	// Outcomes that cannot be committed.
	{name: "an outcome's row", slots: 3, begin: outcomes(1, "gated")},
	{name: "as many outcomes' rows as there are slots", slots: 3, begin: outcomes(3, "gated")},
	{name: "the rows of kept claims", slots: 30, begin: outcomes(20, "gated, then on")},
	{name: "many outcomes' rows", slots: 60, begin: outcomes(40, "gated")},
	{name: "the parent of a child that ends", slots: 3, begin: func(s *stage) {
		parent := s.parent(3)
		s.hold(parent)
		s.held = append(s.held, parent)
		s.crew.open("")
	}},

	{name: "the parent of more children that end than may wait without a slot", slots: 20, crowded: true, begin: func(s *stage) {
		family(1100, `priority = 0`)(s)
		s.allInTurn()
	}},
	{name: "more parents than may wait without a slot, each of a child that ends", slots: 20, crowded: true, begin: func(s *stage) {
		crowdOf(s, crowdSize(), "status, round, children_pending", "'awaiting_children', 1, 1", "parent_round", "1", "parent_id IS NULL")
		s.allInTurn()
	}},
	{name: "children of more streams than may wait without a slot", slots: 20, crowded: true, begin: func(s *stage) {
		crowdOf(s, tier.Pick(200, 11_000), "round, stream_most, join_round, join_size, join_done, wake_ended", "-1, 10, 1, 1, 1, 1",
			"parent_round, status, finished_at, joined, stream_nth", "-1, 'done', now(), gen_random_uuid(), 1", "parent_id IS NOT NULL")
		s.allInTurn()
	}},
	{name: "children of as many streams as there are slots", slots: 3, begin: streams(3)},
	{name: "streams that go on, more than there are slots", slots: 2, begin: func(s *stage) {
		streams(4)(s)
		for n, id := range s.held { // themselves, too
			if n%2 == 0 {
				s.hold(id)
			}
		}
	}},
	{name: "a child that has ended, by a host that makes sure of it", slots: 3, begin: func(s *stage) {
		parent := put(s.T, s.pool, "fsm, fsm_version, step, state, status, visit, round, children_pending",
			"'errand', 1, 'end', '{}', 'awaiting_children', 1, 1, 1")
		child := func(columns, values string) fsm.ID {
			return put(s.T, s.pool, "fsm, fsm_version, step, state, depth, parent_round, parent_id"+columns, fmt.Sprintf("'errand', 1, 'start', '{}', 1, 1, %d%s", parent, values))
		}
		ended := child(", status, finished_at, joined", ", 'done', now(), gen_random_uuid()")
		s.beside = append(s.beside, parent, child("", ""))
		require.NoError(s, s.host.WithPgx(s.transaction()).RequireEnded(s.Context(), ended))
	}},

	// These sweeps find more held rows than they read at a time.
	{name: "the parent of many children over their deadline", slots: 3, begin: family(300, `status = 'awaiting_signal', awaits = '{word}', deadline = now() - interval '1 minute'`)},
	{name: "the parent of many children whose leases have expired", slots: 3, begin: family(300, `status = 'executing', locked_by = 'gone', crashes = 5, lease_expires_at = now() - interval '1 minute'`)},
	{name: "the root of many nodes that are to be skipped", slots: 3, begin: family(300, `node = 'n' || id, join_failed = 1, pick_lane = 5`)},
	{name: "many instances over their deadline", slots: 3, begin: func(s *stage) {
		ids := s.insert(errands(300, "overdue")...)
		execute(s.T, s.pool, `UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{word}', deadline = now() - interval '1 minute'`)
		s.within(`SELECT FROM gendurable.gen_durable WHERE id = ANY($1) FOR NO KEY UPDATE`, ids)
	}},
	{name: "many instances whose awaits are over", slots: 3, begin: func(s *stage) {
		ids := s.insert(errands(1100, "timer")...)
		execute(s.T, s.pool, `UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{word}', await_deadline = now() - interval '1 minute'`)
		s.within(`SELECT FROM gendurable.gen_durable WHERE id = ANY($1) FOR NO KEY UPDATE`, ids)
	}},

	// These holds are about keys.
	{name: "a correlation key that is not committed", slots: 3, begin: func(s *stage) {
		_, err := s.host.WithPgx(s.transaction()).Insert(s.Context(), errandMachine.New(errand{}).Key("taken"))
		require.NoError(s, err)
		ctx, cancel := context.WithCancel(context.Background())
		s.Cleanup(cancel)
		for range 5 { // whoever wants the key waits
			go func() {
				_, _ = s.host.SignalOrInsert(ctx, errandMachine.New(errand{Kind: "mail"}).Key("taken"), word.With(""))
			}()
		}
	}},
	{name: "the keys of children that are not committed", slots: 3, begin: func(s *stage) {
		_, err := s.host.WithPgx(s.transaction()).Insert(s.Context(), errandMachine.New(errand{}).Key("child"))
		require.NoError(s, err)
		for range 5 {
			s.held = append(s.held, s.insert(errandMachine.New(errand{Kind: "parent of one with a key"}))...)
		}
	}},
	{name: "a signal that is kept for a key", slots: 3, begin: func(s *stage) {
		s.held = s.insert(errandMachine.New(errand{Kind: "mail"}).Key("held"))
		s.beside = append(s.beside, s.insert(errandMachine.New(errand{Kind: "mail"}).Key("beside"))...)
		execute(s.T, s.pool, `INSERT INTO gendurable.kept_signals (key, name, payload, expires_at)
			SELECT key, 'word', '"go"', now() + interval '1 hour' FROM unnest('{held,beside}'::text[]) key`)
		s.within(`SELECT FROM gendurable.kept_signals WHERE key = 'held' FOR UPDATE`)
	}},
	{name: "the rows of more steps that publish progress than there are connections", slots: 3, begin: publishers},
	{name: "the row of a schedule", slots: 3, begin: func(s *stage) {
		s.config.Schedules = append(s.config.Schedules, engine.Every("held", time.Second, errandMachine.New(errand{})))
		s.work()
		s.within(`SELECT FROM gendurable.schedules WHERE name = 'held' FOR UPDATE`)
	}},
	{name: "the row of a schedule, by a process that stands still", slots: 3, within: patience / 2, begin: func(s *stage) {
		s.config.Schedules = []engine.Schedule{engine.Every("tick", time.Second, errandMachine.New(errand{Mark: "to be fired"}))}
		standStill(s, "to be fired", s.config.Schedules, s.config.Queues)
	}},
	{name: "the rows of paused queues", slots: 3, begin: func(s *stage) {
		_, err := s.host.Admin().PauseQueue(s.Context(), "third")
		require.NoError(s, err)
		s.within(`LOCK gendurable.paused_queues IN ROW EXCLUSIVE MODE`)
		s.within(`SELECT FROM gendurable.paused_queues FOR UPDATE`)
	}},
	{name: "the row of a gate, and the first in line there", slots: 3, begin: func(s *stage) {
		_, err := s.host.Admin().SetGate(s.Context(), engine.Gate{Name: "customers", Label: "customer", Places: 1})
		require.NoError(s, err)
		of := func(customer string) fsm.Spec {
			return errandMachine.New(errand{Kind: "job"}).Label("customer", customer)
		}
		s.held = s.insert(of("held"))
		execute(s.T, s.pool, `UPDATE gendurable.gen_durable SET pick_lane = 3, gate = 'customers/held'`)
		s.hold(s.held...)
		s.within(`SELECT FROM gendurable.gates FOR UPDATE`)
		s.beside = append(s.beside, s.insert(of("held"), of("another"), of("another"))...)
	}},
	{name: "the debt of a key of a gate", slots: 3, begin: func(s *stage) {
		s.customers(engine.Gate{Rate: engine.Rate{N: 1000, Burst: 1000}})
		execute(s.T, s.pool, `INSERT INTO gendurable.gate_keys (key, debt) VALUES ('customers/held', 1)`)
		s.within(`SELECT FROM gendurable.gate_keys FOR UPDATE`)
		s.held = s.insert(errandMachine.New(errand{Kind: "job"}).Label("customer", "held"))
		s.beside = append(s.beside, s.insert(errandMachine.New(errand{Kind: "job"}).Label("customer", "another"))...)
	}},
	{name: "the new row of a key of a gate", slots: 3, within: patience, begin: func(s *stage) {
		s.customers(engine.Gate{Rate: engine.Rate{N: 1000, Burst: 1000}})
		s.within(`INSERT INTO gendurable.gate_keys (key, weight) VALUES ('customers/held', 5)`)
		s.held = s.insert(errandMachine.New(errand{Kind: "job"}).Label("customer", "held"))
		s.beside = append(s.beside, s.insert(errandMachine.New(errand{Kind: "job"}).Label("customer", "another"))...)
	}},
	{name: "a goroutine of ByState", slots: 3, within: patience, begin: func(s *stage) {
		m, open := fsm.Declare[string, string]("grouped"), make(chan struct{})
		s.Cleanup(func() { close(open) })
		s.config.Machines = append(s.config.Machines, m.Define(fsm.BatchStep("start", func(_ context.Context, visits []*fsm.Visit[string, string]) ([]fsm.Outcome, error) {
			var ended []fsm.Outcome
			for _, v := range visits {
				ended = append(ended, v.Done(""))
			}
			return ended, nil
		}, fsm.ByState(func(state string) string { <-open; return state }))))
		s.beside = append(s.beside, s.insert(m.New("a"), m.New("b"), m.New("c"))...) // they run alone
	}},
	{name: "the lock of a gate", slots: 3, begin: func(s *stage) {
		s.customers(engine.Gate{Places: 1})
		s.within(`SELECT pg_advisory_xact_lock(hashtextextended('gendurable gate customers of gendurable', 0))`)
		s.held = s.insert(errandMachine.New(errand{Kind: "job"}).Label("customer", "held"))
	}},
	// These rows cannot be read, or Postgres refuses to change them.
	{name: "a row that cannot be read", slots: 3, begin: func(s *stage) {
		execute(s.T, s.pool, `ALTER TABLE gendurable.gen_durable DROP CONSTRAINT gen_durable_times_check`)
		put(s.T, s.pool, "fsm, fsm_version, step, state, inserted_at, priority", "'errand', 1, 'start', '{}', 'infinity', -1")
	}},
	{name: "a row that no claim may change", slots: 3, begin: refused("runnable", "executing", "")},
	{name: "more rows that no claim may change than there are slots", slots: 2, begin: func(s *stage) {
		for range 10 {
			put(s.T, s.pool, "fsm, fsm_version, step, state, priority, partition_key",
				`'errand', 1, 'start', '{"Mark": "`+refusal+`"}', -1, 'refused'`)
		}
		refused("runnable", "executing", "")(s)
	}},
	{name: "a row that no sweep may wake", slots: 3, begin: refused("awaiting_signal", "runnable", "awaits = '{word}', await_deadline = now()")},
	{name: "a row that no sweep may fail", slots: 3, begin: refused("awaiting_signal", "failed", "awaits = '{word}', deadline = now()")},
	{name: "a row that no sweep may reap", slots: 3, begin: refused("executing", "runnable", "locked_by = 'gone', lease_expires_at = now() - interval '1 hour'")},
	{name: "outcomes that no commit may apply", slots: 20, begin: func(s *stage) {
		s.refuse("executing", "done")
		specs := errands(10, "gated")
		for n := range 2 {
			specs[n] = errandMachine.New(errand{Kind: "gated", Mark: refusal})
		}
		s.beside = s.gated(specs...)[2:]
		s.crew.open("")
	}},

	// Steps' own transactions take turns, each of which may wait for a held row: those beside have to
	// wait for a turn.
	{name: "the targets of signals from steps' own transactions", slots: 3, within: patience, begin: byTransactions},

	// These holds are two things at once.
	{name: "a row that no claim may change, and the heads of keys, by a host", slots: 2, begin: func(s *stage) {
		refused("runnable", "executing", "")(s)
		heads(2, 3)(s)
	}},
	{name: "a row that no claim may change, and the row of an outcome", slots: 2, begin: func(s *stage) {
		refused("runnable", "executing", "")(s)
		outcomes(1, "gated")(s)
	}},
	{name: "a commit without an answer, and one of its rows", slots: 50, begin: unanswered},
	{name: "the rest of a claim's answer, by a process that stands still", slots: 20, begin: frozen},
	{name: "the rest of a claim's answer, by a process that stands still and is cut off", slots: 20, begin: cutOff},
	{name: "idle sessions, which are ended", slots: 3, begin: killed},

	{name: "a step that does not end", slots: 2, begin: func(s *stage) {
		s.gated(errandMachine.New(errand{Kind: "gated"}))
	}},
}

// errands returns n specs of a kind.
func errands(n int, kind string) []fsm.Spec {
	specs := make([]fsm.Spec, n)
	for i := range specs {
		specs[i] = errandMachine.New(errand{Kind: kind})
	}
	return specs
}

// keyed returns n specs of a partition key.
func keyed(key string, n int) []fsm.Spec {
	specs := errands(n, "")
	for i := range specs {
		specs[i] = specs[i].PartitionKey(key)
	}
	return specs
}

// heads makes a host's transaction signal to the first instance of each of some keys.
func heads(keys, each int) func(*stage) {
	return func(s *stage) {
		for k := range keys {
			var ids []fsm.ID
			for _, spec := range keyed(fmt.Sprint("held ", k), each) { // inserted together, all but the first would wait behind it from the start
				ids = append(ids, s.insert(spec)...)
			}
			_, err := s.host.WithPgx(s.transaction()).Signal(s.Context(), ids[0], word.With(""))
			require.NoError(s, err)
			s.held = append(s.held, ids...)
		}
	}
}

// byAStep makes a step's own transaction do the same, in another queue.
func byAStep(s *stage) {
	ids := append(s.insert(keyed("held", 1)...), s.insert(keyed("held", 1)...)...)
	m := fsm.Declare[fsm.ID, string]("sender", fsm.Queue("third"))
	signalled := make(chan struct{})
	s.config.Queues["third"] = quick(1)
	s.config.Machines = append(s.config.Machines, m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[fsm.ID, string]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, v.State, word.With("")); err != nil {
				return nil, err
			}
			close(signalled)
			select {
			case <-s.crew.gate(""):
				return v.Done(""), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}), nil
	})))
	sender := s.insert(m.New(ids[0]))
	c := s.config
	c.Queues = map[string]engine.Queue{"third": quick(1)}
	start(s.T, c)
	<-signalled
	s.held = append(ids, sender...)
}

// byTransactions makes more steps signal to held instances, in their own transactions, than may
// have one at a time.
func byTransactions(s *stage) {
	target := s.insert(errandMachine.New(errand{Kind: "mail"}))
	s.hold(target...)
	m := fsm.Declare[fsm.ID, string]("writer", fsm.Queue("third"))
	s.config.Queues["third"] = quick(30)
	writes := make(chan struct{}, 1000)
	s.config.Machines = append(s.config.Machines, m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[fsm.ID, string]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			writes <- struct{}{}
			_, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, v.State, word.With(""))
			if errors.Is(err, engine.ErrNoTarget) {
				err = nil // the first of them ends it
			}
			return v.Done(""), err
		}), nil
	})))
	s.held = target
	for range 30 {
		s.held = append(s.held, s.insert(m.New(target[0]))...)
	}
	s.work()
	for range s.config.Pool.Config().MaxConns - 1 {
		<-writes
	}
}

// publishers makes the other session hold rows of running steps, which then publish their progress.
func publishers(s *stage) {
	m := fsm.Declare[int, string]("publisher", fsm.Queue("third"))
	s.config.Queues["third"] = quick(100)
	running, open := make(chan struct{}, 100), make(chan struct{})
	s.config.Machines = append(s.config.Machines, m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		running <- struct{}{}
		<-open
		if err := v.Publish(ctx, "half"); err != nil {
			return nil, err
		}
		return v.Done(""), nil
	})))
	for range 100 {
		s.held = append(s.held, s.insert(m.New(0))...)
	}
	s.work()
	for range 100 {
		<-running
	}
	s.hold(s.held...)
	close(open)
}

// outcomes makes the other session hold rows of running steps, which then end.
func outcomes(n int, kind string) func(*stage) {
	return func(s *stage) {
		s.held = s.gated(errands(n, kind)...)
		s.hold(s.held...)
		s.crew.open("")
	}
}

// customers stores a gate with bounds for each customer.
func (s *stage) customers(g engine.Gate) {
	s.Helper()
	g.Name, g.Label = "customers", "customer"
	_, err := s.host.Admin().SetGate(s.Context(), g)
	require.NoError(s, err)
}

// parent inserts a parent with gated children, all of which run.
func (s *stage) parent(children int) fsm.ID {
	s.Helper()
	parent := s.insert(errandMachine.New(errand{Kind: "parent of gated"}))[0]
	s.work()
	for range children {
		<-s.crew.running
	}
	return parent
}

// family inserts a parent with children of a given shape, by SQL, and holds the parent.
func family(children int, shape string) func(*stage) {
	return func(s *stage) {
		parent := put(s.T, s.pool, "fsm, fsm_version, step, state, status, visit, round, children_pending",
			fmt.Sprintf("'errand', 1, 'end', '{}', 'awaiting_children', 1, 1, %d", children))
		execute(s.T, s.pool, `INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, parent_id, parent_round, depth)
			SELECT 'errand', 1, 'start', '{}', $1, 1, 1 FROM generate_series(1, $2)`, parent, children)
		execute(s.T, s.pool, `UPDATE gendurable.gen_durable SET `+shape+` WHERE parent_id = $1`, parent)
		s.hold(parent)
		s.held = []fsm.ID{parent}
	}
}

// crowdSize is the number of parents in a crowd: above that from which children give way, and in
// proof above the room for held outcomes.
func crowdSize() int { return tier.Pick(600, 11_000) }

// crowdOf inserts parents of one child each, by SQL, and holds the rows that fulfil a condition.
func crowdOf(s *stage, n int, parents, are, children, areToo, holds string) {
	execute(s.T, s.pool, `WITH p AS (INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, visit, `+parents+`)
			SELECT 'errand', 1, 'end', '{}', 1, `+are+` FROM generate_series(1, $1) RETURNING id)
		INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, depth, parent_id, `+children+`)
		SELECT 'errand', 1, 'start', '{}', 1, id, `+areToo+` FROM p`, n)
	s.held = append(s.held, query[[]fsm.ID](s.T, s.pool, `SELECT array_agg(id) FROM gendurable.gen_durable WHERE parent_id IS NULL`)...)
	s.within(`SELECT FROM gendurable.gen_durable WHERE ` + holds + ` FOR NO KEY UPDATE`)
}

// allInTurn waits until each runnable instance has had a turn: a large crowd comes before the
// bystanders.
func (s *stage) allInTurn() {
	s.Helper()
	s.work()
	eventually(s.T, func() bool {
		return query[int](s.T, s.pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND claim_token = 0
			AND correlation_key IS NULL`) == 0
	}, "no turn")
}

// streams inserts parents that are to be shown the end of a child of their stream, by SQL, and
// holds these children.
func streams(n int) func(*stage) {
	return func(s *stage) {
		for range n {
			parent := put(s.T, s.pool, "fsm, fsm_version, step, state, visit, round, stream_most, join_round, join_size, join_done, wake_ended",
				"'errand', 1, 'end', '{}', 1, -1, 10, 1, 1, 1, 1")
			child := put(s.T, s.pool, "fsm, fsm_version, step, state, depth, parent_id, parent_round, status, finished_at, joined, stream_nth",
				fmt.Sprintf("'errand', 1, 'start', '{}', 1, %d, -1, 'done', now(), gen_random_uuid(), 1", parent))
			s.hold(child)
			s.held = append(s.held, parent)
		}
	}
}

// refusal marks instances that a trigger of the host's refuses to change.
const refusal = "refused"

// refuse makes a trigger of the host's that refuses changes of marked instances.
func (s *stage) refuse(from, to string) {
	s.Helper()
	execute(s.T, s.pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END'`)
	execute(s.T, s.pool, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW
		WHEN (OLD.status = '%s' AND NEW.status = '%s' AND OLD.state->>'Mark' = '%s') EXECUTE FUNCTION refuse()`, from, to, refusal))
}

// refused inserts instances whose change of status is refused.
func refused(from, to, shape string) func(*stage) {
	return func(s *stage) {
		for range 2 {
			id := put(s.T, s.pool, "fsm, fsm_version, step, state, priority", `'errand', 1, 'start', '{"Mark": "`+refusal+`"}', -1`)
			execute(s.T, s.pool, fmt.Sprintf(`UPDATE gendurable.gen_durable SET status = '%s', %s WHERE id = %d`, from, cmp.Or(shape, "visit = 0"), id))
		}
		s.refuse(from, to)
	}
}

// unanswered makes a whole batch commit without an answer. By then another session holds one of its
// rows.
func unanswered(s *stage) {
	p, url := newProxy(s.T, s.url)
	s.config.Pool = pgtest.Pool(s.T, url)
	// Two outcomes keep both lanes of the fast lane busy, so that the others gather in one batch.
	enough := make(chan struct{})
	var specs []fsm.Spec
	var entered []chan struct{}
	for n := range 2 {
		mark, in := marked(fmt.Sprint("outcome ", n)), make(chan struct{})
		p.at(mark, false, func() { close(in); <-enough }).let = true
		entered = append(entered, in)
		specs = append(specs, errandMachine.New(errand{Kind: "gated", Gate: fmt.Sprint(n), Mark: mark}))
	}
	last := marked("the batch")
	specs = append(specs, errandMachine.New(errand{Kind: "gated, then on", Mark: last}))
	specs = append(specs, errands(40, "gated, then on")...)
	ids := s.gated(specs...)
	tx, held := s.transaction(), error(nil)
	cutting := p.at(last, true, func() {
		_, held = tx.Exec(context.Background(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, ids[2])
	})
	for n, in := range entered {
		s.crew.open(fmt.Sprint(n))
		<-in
	}
	s.crew.open("")
	for range specs {
		<-s.crew.left
	}
	pause(s.Context(), 100*time.Millisecond) // until they have come to the committer; a batch that is smaller shows less
	close(enough)
	<-cutting.made
	require.NoError(s, held)
	s.held, s.beside = ids[2:3], append(ids[:2:2], ids[3:]...)
}

// frozen makes a process stand still in the middle of the answer to its claim, which is too large
// for the buffers on the way.
func frozen(s *stage) { claimAndStandStill(s, padded(24)) }

// cutOff is frozen, and then the network forgets the connections of the process. So the server
// knows that it is gone, and the instances that wait behind its claims for a partition key go on,
// too.
func cutOff(s *stage) {
	specs := padded(24)
	for i := range specs {
		specs[i] = specs[i].PartitionKey(fmt.Sprint("frozen ", i))
	}
	c := claimAndStandStill(s, specs)
	for i := range specs {
		behind := errandMachine.New(errand{Kind: "lost for now"}).PartitionKey(fmt.Sprint("frozen ", i))
		s.beside = append(s.beside, s.insert(behind)...)
	}
	c.forget()
}

// padded returns n specs of some 900 KiB each. They have keys, so that an insert which loses its
// connection half-way, because the machine is slow to write so much, is repeated.
func padded(n int) (specs []fsm.Spec) {
	for i := range n {
		e := errand{Kind: "lost in an answer", Pad: strings.Repeat(fmt.Sprint("padding ", i), 700<<7)}
		specs = append(specs, errandMachine.New(e).Key(fsm.Key(fmt.Sprint("padded ", i))))
	}
	return specs
}

// claimAndStandStill starts a process that stands still from the middle of the answer to its claim
// of these instances.
func claimAndStandStill(s *stage, specs []fsm.Spec) *clog {
	s.beside = s.insert(specs...)
	return standStill(s, "padding ", nil, map[string]engine.Queue{"default": quick(len(specs))})
}

// standStill starts a process with some schedules and queues, which stands still from the answer on
// in which a mark occurs.
func standStill(s *stage, mark string, schedules []engine.Schedule, queues map[string]engine.Queue) *clog {
	c := newClog(s.T, s.url, mark)
	config := s.config
	config.Pool = pgtest.Pool(s.T, c.url)
	config.Schedules, config.Queues = schedules, queues
	eng, err := engine.New(config)
	require.NoError(s, err)
	require.NoError(s, eng.Start(s.Context()))
	s.Cleanup(func() {
		c.close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = eng.Stop(ctx) // its connections are gone
	})
	select {
	case <-c.stuck:
	case <-time.After(patience):
		require.Fail(s, "nothing has answered with the mark")
	}
	return c
}

// killed ends the engine's idle sessions, as a proxy or a role's idle_session_timeout does.
func killed(s *stage) {
	s.config.Pool = pgtest.Pool(s.T, s.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "engine" })
	ctx, cancel := context.WithCancel(context.Background())
	var killing sync.WaitGroup
	lost := make(chan struct{}, 1000)
	killing.Go(func() {
		for ctx.Err() == nil {
			n, err := s.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
				AND application_name LIKE 'engine%' AND state = 'idle' AND state_change < clock_timestamp() - interval '300 ms'`)
			if err == nil && n.RowsAffected() > 0 {
				lost <- struct{}{}
			}
			pause(ctx, 50*time.Millisecond)
		}
	})
	s.Cleanup(func() {
		cancel()
		killing.Wait()
	})
	s.work()
	for range 5 {
		<-lost
	}
}
