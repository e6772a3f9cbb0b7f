package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrations"
)

func status(t *testing.T, c *cluster.Cluster, o cluster.StatusOptions) []*cluster.PlaceStatus {
	t.Helper()
	all, err := c.Status(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, all, c.Places())
	for i, s := range all {
		require.Equal(t, i, s.Place)
	}
	return all
}

// registered waits until a worker is known at each place: the first heartbeat says so.
func registered(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	until(t, func() bool {
		return !slices.ContainsFunc(status(t, c, cluster.StatusOptions{NoCounts: true}), func(s *cluster.PlaceStatus) bool { return s.Workers == 0 })
	})
}

func TestStatusOfPlaces(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := working(t, s.places, impatient)
	registered(t, c)
	for n := range 3 {
		_, err := c.Insert(t.Context(), ticket.New("").Key(keyOf(1, 3, n)))
		require.NoError(t, err)
		_, err = ticket.WaitParked(within(t), c, keyOf(1, 3, n), -1)
		require.NoError(t, err)
	}
	_, err := c.Engine(1).Insert(t.Context(), ticket.New("").Queue("nobody's"))
	require.NoError(t, err)
	_, err = c.Engine(2).Admin().PauseQueue(t.Context(), "default")
	require.NoError(t, err)
	s.cutOff(0)
	all := status(t, c, cluster.StatusOptions{})
	require.False(t, all[0].Reached)
	require.ErrorContains(t, all[0].Wrong[0], `place 0 (schema "gendurable")`)
	require.Nil(t, all[0].Record)
	require.Nil(t, all[0].Counts)
	for _, at := range all[1:] {
		require.True(t, at.Reached)
		require.Empty(t, at.Wrong)
		require.Equal(t, migrations.Latest(), at.Migrated.Current)
		require.Equal(t, cluster.Record{Place: at.Place, Of: 3, Cluster: all[1].Record.Cluster}, *at.Record)
		require.Equal(t, 1, at.Workers)
		require.Contains(t, at.Server, s.pools[at.Place].Config().ConnConfig.Database)
	}
	require.EqualValues(t, 1, all[1].Due)
	require.False(t, all[1].Oldest.IsZero())
	require.EqualValues(t, 3, all[1].Counts[fsm.StatusAwaitingSignal])
	require.EqualValues(t, 1, all[1].Counts[fsm.StatusRunnable])
	require.Contains(t, all[1].Counts, fsm.StatusFailed)
	require.Equal(t, []string{"default"}, all[2].Paused)
	require.True(t, all[2].Oldest.IsZero())
	text, err := json.Marshal(all[0])
	require.NoError(t, err)
	require.Contains(t, string(text), `"wrong":[{"error":`)

	require.Nil(t, status(t, c, cluster.StatusOptions{NoCounts: true})[1].Counts)
	_, err = c.Status(t.Context(), cluster.StatusOptions{Counts: engine.CountsOptions{Timeout: -1}})
	var refused *engine.QueryError
	require.ErrorAs(t, err, &refused)
	s.restore(0)
}

// fault returns the one fault of a kind, and requires that it is about these places.
func fault(t *testing.T, found []cluster.Fault, kind cluster.FaultKind, places ...int) cluster.Fault {
	t.Helper()
	i := slices.IndexFunc(found, func(f cluster.Fault) bool { return f.Kind == kind && slices.Equal(f.Places, places) })
	require.GreaterOrEqual(t, i, 0, "no %s at %v in %v", kind, places, found)
	require.NotEmpty(t, found[i].Seen)
	require.NotEmpty(t, found[i].Do)
	return found[i]
}

// only requires that nothing but faults of these kinds was found.
func only(t *testing.T, found []cluster.Fault, kinds ...cluster.FaultKind) []cluster.Fault {
	t.Helper()
	for _, f := range found {
		require.Contains(t, kinds, f.Kind, "%v", f)
	}
	return found
}

func TestCheckOfTheHealthy(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := open(t, s.places)
	standing := only(t, c.Check(t.Context()), cluster.FaultWorkers)
	require.True(t, fault(t, standing, cluster.FaultWorkers, 0, 1, 2).Warning, "nobody works anywhere")
	working(t, s.places)
	_, err := c.Insert(t.Context(), family.New("a").Key(keyOf(0, 3, 0)))
	require.NoError(t, err)
	registered(t, c)
	require.Empty(t, c.Check(t.Context()))
	require.Empty(t, open(t, onSchemas(t, 2), works).Check(within(t))[1:], "one, of workers")
}

// Records that are not of the place, which Start refuses.
func TestCheckOfRecords(t *testing.T) {
	t.Parallel()
	s, other := initialised(t, 4), initialised(t, 4)
	p := s.places
	s.exec(t, 3, `COMMENT ON SEQUENCE gendurable.gen_durable_id_seq IS NULL`)
	s.exec(t, 0, `INSERT INTO gendurable.gen_durable (id, fsm, step) OVERRIDING SYSTEM VALUE VALUES (17592186044416, 'echo', 'start')`)
	found := only(t, open(t, []cluster.Place{p[0], other.places[1], p[2], p[3]}).Check(t.Context()), cluster.FaultRecord, cluster.FaultIDs, cluster.FaultWorkers)
	require.Contains(t, fault(t, found, cluster.FaultIDs, 0).Seen, "it holds ids from")
	require.Contains(t, fault(t, found, cluster.FaultRecord, 1).Seen, "it is of cluster")
	require.Contains(t, fault(t, found, cluster.FaultRecord, 3).Seen, "not initialised")
	require.Len(t, found, 4)
	require.Equal(t, cluster.FaultRecord, found[0].Kind, "by kind")

	swapped := open(t, []cluster.Place{p[0], p[2], p[1]}).Check(t.Context())
	require.Contains(t, fault(t, swapped, cluster.FaultRecord, 1).Seen, "it is place 2 of 4, and there are 3")

	again := pgtest.Pool(t, s.urls[0]) // the same database by another pool
	found = open(t, []cluster.Place{p[0], {Pool: again}}).Check(t.Context())
	require.Contains(t, fault(t, found, cluster.FaultTwice, 0, 1).Seen, "is place 0 already")
}

func TestCheckOfSchemas(t *testing.T) {
	t.Parallel()
	s := initialised(t, 4)
	_, err := s.pools[1].Exec(t.Context(), `UPDATE gendurable.atlas_schema_revisions SET applied = 0`)
	require.NoError(t, err)
	s.cutOff(3)
	places := slices.Clone(s.places)
	places[2].Schema = "nothing"
	c := open(t, places, impatient)
	found := only(t, c.Check(t.Context()), cluster.FaultUnreachable, cluster.FaultSchema, cluster.FaultVersions, cluster.FaultWorkers)
	require.Equal(t, cluster.FaultUnreachable, found[0].Kind)
	fault(t, found, cluster.FaultUnreachable, 3)
	require.Contains(t, fault(t, found, cluster.FaultSchema, 1).Seen, "is older than this program")
	require.Contains(t, fault(t, found, cluster.FaultSchema, 2).Seen, "is missing")
	require.Contains(t, fault(t, found, cluster.FaultVersions, 0, 1).Seen, "version "+migrations.Latest()+" at place 0")
	all := status(t, c, cluster.StatusOptions{})
	require.Equal(t, migrations.StateOlder, all[1].Migrated.State)
	require.NotNil(t, all[1].Record, "it has one all the same")
	require.Equal(t, migrations.StateMissing, all[2].Migrated.State)
	require.ErrorIs(t, all[2].Wrong[0], engine.ErrSchema)
	s.restore(3)
}

// Rows that were inserted past the cluster.
func TestCheckOfStrays(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	plain, err := engine.New(engine.Config{Pool: s.pools[1]})
	require.NoError(t, err)
	id, err := plain.Insert(t.Context(), ticket.New("").Key(keyOf(0, 2, 0)))
	require.NoError(t, err)
	_, err = plain.Insert(t.Context(), ticket.New("").PartitionKey(string(keyOf(0, 2, 1))))
	require.NoError(t, err)
	_, err = plain.Insert(t.Context(), ticket.New("").Key(keyOf(1, 2, 0)))
	require.NoError(t, err)
	name := string(keyOf(0, 2, 2))
	fires, err := engine.New(engine.Config{Pool: s.pools[1], Schedules: []engine.Schedule{engine.Every(name, time.Hour, echoes.New(""))}})
	require.NoError(t, err)
	require.NoError(t, fires.Start(t.Context()))
	require.NoError(t, fires.Stop(context.Background()))
	c := open(t, s.places)
	found := only(t, c.Check(t.Context()), cluster.FaultStrays, cluster.FaultWorkers)
	f := fault(t, found, cluster.FaultStrays, 1)
	require.Contains(t, f.Seen, fmt.Sprint("2 live instances by their keys, the first is ", id))
	require.Contains(t, f.Seen, `1 schedules by their names, the first is "`+name+`"`)
	require.False(t, f.Warning)
}

// Settings that each place has, and most places have alike.
func TestCheckOfWhatDiffers(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	c := open(t, s.places)
	for place, n := range []int{1, 2, 0} {
		if n > 0 {
			_, err := c.Engine(place).Admin().SetGate(t.Context(), engine.Gate{Name: "g", Places: n})
			require.NoError(t, err)
		}
		_, err := c.Engine(place).Admin().SetGate(t.Context(), engine.Gate{Name: "alike", Places: 5})
		require.NoError(t, err)
	}
	_, err := c.Engine(2).Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	_, err = c.Admin().PauseQueue(t.Context(), "everywhere")
	require.NoError(t, err)
	for place, step := range []string{"a", "b", "a"} {
		s.exec(t, place, `INSERT INTO gendurable.definitions (definition, machine, version, graph)
			VALUES ('order/1', 'order', 1, '{"machine": "order", "version": 1, "steps": [{"name": "`+step+`"}]}')`)
	}
	for place, row := range []string{`'{"default": 4}', '{order/1,fare/1}'`, `'{"default": 4, "slow": 1}', '{order/1}'`} {
		s.exec(t, place, `INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
			VALUES (gen_random_uuid(), 'here', 1, '', `+row+`, now() + interval '1 hour')`)
	}
	found := c.Check(t.Context())
	require.Len(t, found, 6, "%v", found)
	require.Equal(t, `gate "g" has one bound at place 0, another at place 1, none at place 2`, fault(t, found, cluster.FaultGates, 0, 1, 2).Seen)
	require.Equal(t, `queue "mail" is paused at place 2, and not at places 0, 1`, fault(t, found, cluster.FaultPauses, 2).Seen)
	require.Equal(t, "order/1 is stored with one form at places 0, 2, another at place 1", fault(t, found, cluster.FaultDefinitions, 0, 1, 2).Seen)
	require.Equal(t, "no live worker at place 2, but at places 0, 1", fault(t, found, cluster.FaultWorkers, 2).Seen)
	require.False(t, fault(t, found, cluster.FaultWorkers, 2).Warning)
	require.Equal(t, "no live worker serves queue slow at place 0, but at place 1", fault(t, found, cluster.FaultWorkers, 0).Seen)
	require.Equal(t, "no live worker registers fare/1 at place 1, but at place 0", fault(t, found, cluster.FaultWorkers, 1).Seen)
}
