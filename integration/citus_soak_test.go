package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// roundsVariable holds how many rounds of faults [TestASoakOnCitus] has; default 1.
const roundsVariable = "CITUS_ROUNDS"

const (
	soakProcesses = 4
	soakCustomers = 16
	soakKeys      = 40
	soakLease     = 2 * time.Second
)

// citusSoak is a load on a distributed schema of which worker processes do the steps, and the
// faults that they meet. Each fault comes when some orders have gone through behind the last one.
type citusSoak struct {
	*orders

	servers   []*pgdev.Cluster      // of the nodes
	fail      func() *pgdev.Cluster // kills the first owner, and returns its standby, which takes its place
	processes []*process
	random    *rand.Rand
	moves     int
}

// TestASoakOnCitus kills and stops worker processes, ends their sessions, crashes the owner, moves
// the schema, and lets an owner fail over. Then it checks the whole history, which triggers have
// written at each owner.
func TestASoakOnCitus(t *testing.T) {
	rounds := 1
	if told := os.Getenv(roundsVariable); told != "" {
		var err error
		rounds, err = strconv.Atoi(told)
		require.NoError(t, err, roundsVariable)
	}
	nodes, own := pgtest.OwnCitus(t)
	s := &citusSoak{orders: newOrders(t, distributed{own, pgtest.Pool(t, own.Nodes[0])}), servers: nodes.Nodes(),
		random: rand.New(rand.NewPCG(1, 2))}
	s.record()
	s.fail = failover(t, s.servers[own.Owner], s.d.meta)
	s.eng = client(t, s.d.follow(t))
	for range soakProcesses {
		s.processes = append(s.processes, s.spawn())
	}
	for n := range soakCustomers {
		s.senders.Go(func() { s.customer(n) })
	}
	s.some()
	for round := range rounds {
		s.round()
		if round == rounds/2 {
			s.failOver()
		}
	}
	pool := s.finish()
	for _, p := range s.processes {
		p.kill()
	}
	require.EqualValues(t, s.moves+1, query[int](t, pool, `SELECT epoch::int FROM gendurable.gen_durable_home`))
	s.check()
}

// spawn starts a worker process.
func (s *citusSoak) spawn() *process {
	return spawn(s.t, role{URL: s.d.Nodes[s.d.Owner], Meta: s.d.Nodes[0], Lease: soakLease})
}

// customer orders one after the other, and waits for each. One order in two has a partition key:
// these may have to wait until a process that is stopped goes on.
func (s *citusSoak) customer(n int) {
	for i := 0; s.enter(); i++ {
		name, spec := fmt.Sprintf("%d of %d", i, n), movedOrder.New(counter{})
		if i%2 == 0 {
			spec = spec.PartitionKey(fmt.Sprintf("key %d", (i+n)%soakKeys))
		}
		s.order(name, spec)
		s.again(func() error {
			_, err := s.eng.Wait(s.t.Context(), fsm.Key(name))
			return err
		})
		s.leave()
	}
}

// round is all faults but the failover. A process stands still while the schema moves.
func (s *citusSoak) round() {
	s.kill()
	stopped := s.processes[s.random.IntN(len(s.processes))]
	stopped.freeze()
	s.some()
	s.move(false)
	s.some()
	stopped.thaw()
	s.settle()
	s.terminate()
	s.kill()
	s.move(true)
	s.settle()
	s.crash()
	s.kill()
}

// kill kills a process and starts another.
func (s *citusSoak) kill() {
	i := s.random.IntN(len(s.processes))
	s.processes[i].kill()
	s.processes[i] = s.spawn()
	s.some()
}

// move moves the schema to the other worker. Citus may refuse that for a while behind a crash: the
// locks of what the crash has ended, and connections that broke with it, go later.
func (s *citusSoak) move(blockWrites bool) {
	to := s.servers[3-s.owner()]
	var err error
	if !happens(s.t, func() bool {
		err = citus.Move(s.t.Context(), s.d.meta, "gendurable", "127.0.0.1", uint16(to.Port()), citus.MoveOptions{BlockWrites: blockWrites}) //nolint:gosec // a port
		return err == nil
	}) {
		require.NoError(s.t, err)
	}
	s.moves++
}

// owner returns the index of the node that has the schema.
func (s *citusSoak) owner() int {
	_, port, err := citus.Owner(s.t.Context(), s.d.meta, "gendurable")
	require.NoError(s.t, err)
	for i, server := range s.servers {
		if server.Port() == int(port) {
			return i
		}
	}
	require.Fail(s.t, "nobody has the schema")
	return 0
}

// settle makes the move as old as it has to be for workers to count as gone for their liveness lock
// alone, once all processes have taken theirs at the new owner.
func (s *citusSoak) settle() {
	at := pgtest.Pool(s.t, s.d.Nodes[s.owner()])
	defer at.Close()
	eventually(s.t, func() bool {
		workers := query[[]string](s.t, at, `SELECT array_agg(id) FROM gendurable.workers`)
		return len(s.processes) == query[int](s.t, at, `SELECT count(DISTINCT k.pid) FROM pg_locks k WHERE k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted
			AND (k.classid::bigint << 32) + k.objid::bigint IN (SELECT hashtextextended('gendurable gendurable ' || w, 0) FROM unnest($1::text[]) w)`, workers)
	}, "a process has not connected to the new owner")
	execute(s.t, s.d.meta, `UPDATE gendurable.gen_durable_home SET since = '-infinity'`)
	s.some()
}

// terminate ends all sessions of the processes.
func (s *citusSoak) terminate() {
	at := pgtest.Pool(s.t, s.d.Nodes[s.owner()])
	defer at.Close()
	require.Positive(s.t, query[int](s.t, at, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'worker'`))
	s.some()
}

// crash crashes the owner, which comes back.
func (s *citusSoak) crash() {
	owner := s.servers[s.owner()]
	require.NoError(s.t, owner.StopImmediate())
	require.NoError(s.t, owner.Restart(s.t.Context()))
	s.d.meta.Reset() // the coordinator's sessions keep their own connections, which are broken
	s.some()
}

// failOver lets the node that has a standby fail over, as the owner.
func (s *citusSoak) failOver() {
	first := s.d.Owner
	if s.owner() != first {
		s.move(false)
		s.settle()
	}
	s.servers[first] = s.fail()
	s.d.meta.Reset() // as after a crash
	s.d.Nodes[first] = s.servers[first].URL(s.d.meta.Config().ConnConfig.Database)
	s.settle()
}

// recordSQL makes a table of a node's own, and the function of a trigger that writes each change of
// an instance to it. Changes of a row are numbered under the row's lock; the epoch, which grows
// with each move, leads the number, since each node has a separate sequence.
const recordSQL = `CREATE SCHEMA soak; CREATE SEQUENCE soak.seq;
CREATE TABLE soak.change (seq bigint, op text, id bigint, key text, was text, is_ text, old_token bigint, token bigint, old_visit bigint, visit bigint, crashes int);
CREATE FUNCTION soak.record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO soak.change VALUES ((current_setting('gendurable.epoch')::bigint << 40) | nextval('soak.seq'), TG_OP, coalesce(NEW.id, OLD.id), NEW.partition_key,
    OLD.status, NEW.status, OLD.claim_token, NEW.claim_token, OLD.visit, NEW.visit, NEW.crashes);
  RETURN NULL;
END $$`

// record makes the nodes write the history. Citus gives a shard its triggers wherever it moves, if
// they are allowed.
func (s *citusSoak) record() {
	for _, node := range s.d.Nodes {
		on := pgtest.Pool(s.t, node, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["citus.enable_ddl_propagation"] = "off" })
		execute(s.t, on, recordSQL)
		on.Close()
	}
	coordinator := pgtest.Pool(s.t, s.d.Nodes[0], func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["citus.enable_unsafe_triggers"] = "on" })
	defer coordinator.Close()
	execute(s.t, coordinator, `CREATE TRIGGER soak AFTER INSERT OR UPDATE OR DELETE ON gendurable.gen_durable FOR EACH ROW EXECUTE FUNCTION soak.record()`)
}
