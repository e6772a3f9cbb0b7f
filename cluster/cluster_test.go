package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrate"
)

var (
	echoes = fsm.Declare[string, string]("echo")
	ticket = fsm.Declare[string, string]("ticket")
	family = fsm.Declare[string, string]("family")
	across = fsm.Declare[string, fsm.ID]("across")
	paid   = fsm.DeclareSignal[int]("paid")
)

func definitions() []fsm.Definition {
	return []fsm.Definition{
		echoes.Job(func(_ context.Context, text string) (string, error) { return text, nil }),
		ticket.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Await("issue", v.State, paid), nil
			}),
			fsm.Step("issue", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State + " paid"), nil
			})),
		family.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.ScheduleChildren("join", v.State, echoes.New("a"), ticket.New("b").Key(fsm.Key("child{"+v.State+"}"))), nil
			}),
			fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State), nil
			})),
		// A step works on what is at other places through the cluster.
		across.Job(func(ctx context.Context, key string) (fsm.ID, error) {
			done, err := cluster.FromContext(ctx).SignalOrInsert(ctx, ticket.New("from a step").Key(fsm.Key(key)), paid.With(1).DedupKey("d"))
			return done.ID, err
		}),
	}
}

// servers are databases, each as if it were a separate server, that can be cut off.
type servers struct {
	urls   []string // past the cut
	pools  []*pgxpool.Pool
	places []cluster.Place

	mu    sync.Mutex
	cut   map[int]bool
	deaf  map[int]bool
	conns map[int][]net.Conn

	unpinged atomic.Bool // the pools do not find out before a verb that a server does not answer
}

// listener is a connection that loses the answers of a server whose requests still arrive.
type listener struct {
	net.Conn
	lost func() bool
}

func (l listener) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.lost() { // once the server has done what was asked
		return 0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return n, err
}

func newServers(t *testing.T, n int) *servers {
	t.Helper()
	s := &servers{cut: map[int]bool{}, deaf: map[int]bool{}, conns: map[int][]net.Conn{}}
	for i := range n {
		url := pgtest.Migrated(t)
		s.urls = append(s.urls, url)
		pool := pgtest.Pool(t, url, func(c *pgxpool.Config) {
			c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
				return !s.unpinged.Load() && p.IdleDuration > time.Second
			}
			dial := c.ConnConfig.DialFunc
			c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.cut[i] {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				conn, err := dial(ctx, network, address)
				if err == nil {
					s.conns[i] = append(s.conns[i], conn)
				}
				return listener{conn, func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.deaf[i]
				}}, err
			}
		})
		s.pools = append(s.pools, pool)
		s.places = append(s.places, cluster.Place{Pool: pool})
	}
	return s
}

// cutOff breaks all connections to a server, and lets none begin. The pools know at once: the fate
// of a request on a broken connection would be unknown.
func (s *servers) cutOff(all ...int) {
	defer func() {
		for _, i := range all {
			s.pools[i].Reset()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range all {
		s.cut[i] = true
		for _, conn := range s.conns[i] {
			_ = conn.Close()
		}
		s.conns[i] = nil
	}
}

func (s *servers) restore(all ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range all {
		delete(s.cut, i)
	}
}

// initialised are servers whose places are recorded.
func initialised(t *testing.T, n int) *servers {
	t.Helper()
	s := newServers(t, n)
	require.NoError(t, cluster.Init(t.Context(), s.places))
	return s
}

func open(t *testing.T, places []cluster.Place, change ...func(*cluster.Config)) *cluster.Cluster {
	t.Helper()
	config := cluster.Config{Places: places, Engine: engine.Config{Logger: slog.New(slog.DiscardHandler)}}
	for _, f := range change {
		f(&config)
	}
	c, err := cluster.New(config)
	require.NoError(t, err)
	return c
}

func works(c *cluster.Config) {
	c.Engine.Machines = definitions()
	c.Engine.Queues = map[string]engine.Queue{"default": {Concurrency: 4, PollMin: 10 * time.Millisecond, PollMax: 50 * time.Millisecond}}
}

// impatient makes a call of all places give one up that is cut off soon, but none that a busy
// machine holds up.
func impatient(c *cluster.Config) { c.Patience = 2 * time.Second }

func working(t *testing.T, places []cluster.Place, change ...func(*cluster.Config)) *cluster.Cluster {
	t.Helper()
	c := open(t, places, append([]func(*cluster.Config){works}, change...)...)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := steady.Context(t)
	t.Cleanup(cancel)
	return ctx
}

// keyOf returns a key of a place.
func keyOf(place, places, n int) fsm.Key {
	for i := 0; ; i++ {
		key := fmt.Sprintf("key-%d-%d", n, i)
		if cluster.PlaceOf(key, places) == place {
			return fsm.Key(key)
		}
	}
}

func placeError(t *testing.T, err error) *cluster.PlaceError {
	t.Helper()
	e, ok := errors.AsType[*cluster.PlaceError](err)
	require.True(t, ok, "%v", err)
	return e
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Database(t))
	other := pgtest.Pool(t, pgtest.Database(t))
	three := []cluster.Place{{Pool: pool, Schema: "a"}, {Pool: pool, Schema: "b"}, {Pool: other, Schema: "b"}}
	for field, c := range map[string]cluster.Config{
		"Places":         {},
		"Places[1]":      {Places: []cluster.Place{{Pool: pool}, {Pool: pool, Schema: "gendurable"}}},
		"Places[1].Pool": {Places: []cluster.Place{{Pool: pool}, {}}},
		"Patience":       {Places: three, Patience: -1},
		"Each":           {Places: three, Each: func(_ int, c *engine.Config) { c.Schema = "other" }},
		"Engine":         {Places: three, Engine: engine.Config{Schema: "a"}},
		"Engine.Schedules[nightly].Spec": {Places: three, Engine: engine.Config{Schedules: []engine.Schedule{
			engine.Cron("nightly", "@daily", echoes.New("").PartitionKey(string(keyOf((cluster.PlaceOf("nightly", 3)+1)%3, 3, 0)))),
		}}},
		"Lease": {Places: three, Engine: engine.Config{Lease: -1}},
	} {
		_, err := cluster.New(c)
		e, ok := errors.AsType[*engine.ConfigError](err)
		require.True(t, ok, "%s: %v", field, err)
		require.Equal(t, field, e.Field)
	}
	_, err := cluster.New(cluster.Config{Places: make([]cluster.Place, cluster.MaxPlaces+1)})
	require.ErrorContains(t, err, "513 places, want 1 to 512")
	_, err = cluster.New(cluster.Config{Places: three, Engine: engine.Config{Lease: -1}})
	require.Equal(t, "a", placeError(t, err).Schema)
	c := open(t, three)
	require.Equal(t, 3, c.Places())
	require.Nil(t, c.Engine(3))
	require.Nil(t, c.Engine(-1))
	require.Nil(t, cluster.FromContext(t.Context()))
}

// onSchemas are places that are schemas of one database, with one pool.
func onSchemas(t *testing.T, n int) []cluster.Place {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t))
	var places []cluster.Place
	for i := range n {
		schema := fmt.Sprintf("place_%d", i)
		_, err := migrate.Migrator{Pool: pool, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		places = append(places, cluster.Place{Pool: pool, Schema: schema})
	}
	require.NoError(t, cluster.Init(t.Context(), places))
	return places
}

// All verbs, on schemas of one server with one pool as on a server each.
func TestClusterIsAnEngine(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*testing.T) []cluster.Place{
		"schemas": func(t *testing.T) []cluster.Place { return onSchemas(t, 3) },
		"servers": func(t *testing.T) []cluster.Place { return initialised(t, 3).places },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := working(t, made(t))
			require.Equal(t, engine.StateStarted, c.State())
			require.ErrorIs(t, c.Start(t.Context()), engine.ErrStarted)
			for place := range 3 {
				key := keyOf(place, 3, 0)
				require.Equal(t, place, c.PlaceOf(string(key)))
				id, err := c.Insert(t.Context(), ticket.New("A").Key(key))
				require.NoError(t, err)
				require.Equal(t, place, cluster.PlaceOfID(id))
				_, err = c.Insert(t.Context(), ticket.New("B").Key(key))
				require.ErrorIs(t, err, engine.ErrDuplicate)
				require.Equal(t, place, placeError(t, err).Place)
				got, err := c.GetOrInsert(t.Context(), ticket.New("B").Key(key))
				require.NoError(t, err)
				require.Equal(t, engine.Inserted{ID: id, Duplicate: true}, got)
				parked, err := ticket.WaitParked(within(t), c, key, -1)
				require.NoError(t, err)
				require.Equal(t, id, parked.ID)
				d, err := c.Signal(t.Context(), key, paid.With(1))
				require.NoError(t, err)
				require.Equal(t, id, d.To)
				result, err := ticket.Wait(within(t), c, id)
				require.NoError(t, err)
				require.Equal(t, "A paid", result)

				byPartition, err := c.Insert(t.Context(), echoes.New("p").PartitionKey(string(key)))
				require.NoError(t, err)
				require.Equal(t, place, cluster.PlaceOfID(byPartition))
				byWindow, err := c.Insert(t.Context(), echoes.New("w").Throttle(key, time.Hour))
				require.NoError(t, err)
				require.Equal(t, place, cluster.PlaceOfID(byWindow))
				_, err = c.Insert(t.Context(), echoes.New("w").Throttle(key, time.Hour))
				require.ErrorIs(t, err, engine.ErrThrottled)
			}
			require.Equal(t, fsm.JSON{}, c.Codec())
			require.NotNil(t, c.Definition("echo", 1))
		})
	}
}

func TestAddressesOfNoPlace(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 2).places)
	for _, id := range []fsm.ID{-1, 0, 2 << 44, 1 << 60} {
		_, err := c.Get(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound, id)
		_, err = c.Wait(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound, id)
		_, err = c.Signal(t.Context(), id, paid.With(1))
		require.ErrorIs(t, err, engine.ErrNoTarget, id)
		_, err = c.Admin().Cancel(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound, id)
	}
	_, err := c.Get(t.Context(), fsm.ID(7<<44))
	require.ErrorContains(t, err, "would be of place 7, and there are 2")
	_, err = c.Get(t.Context(), nil)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = c.Get(t.Context(), fsm.ID(1<<44))
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.Equal(t, 1, placeError(t, err).Place)
}

// The keys of a spec are guarded by one place only, so they have to be of one.
func TestKeysOfDifferentPlacesAreRefused(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 2).places)
	key, other := keyOf(0, 2, 0), keyOf(1, 2, 0)
	for field, spec := range map[string]fsm.Spec{
		"partition_key": echoes.New("").Key(key).PartitionKey(string(other)),
		"window":        echoes.New("").Key(key).Throttle(other, time.Hour),
	} {
		for _, insert := range []func() error{
			func() error { _, err := c.Insert(t.Context(), spec); return err },
			func() error { _, err := c.GetOrInsert(t.Context(), spec); return err },
			func() error { _, err := c.SignalOrInsert(t.Context(), spec, paid.With(1)); return err },
			func() error { _, err := c.InsertMany(t.Context(), []fsm.Spec{spec}); return err },
		} {
			err := insert()
			require.ErrorIs(t, err, cluster.ErrElsewhere)
			wrong, ok := errors.AsType[*engine.InsertError](err)
			require.True(t, ok)
			require.Equal(t, field, wrong.Field)
			require.ErrorContains(t, err, "give both one tag")
		}
	}
	// The key that a machine declares decides the place, too.
	declared := fsm.Declare[string, string]("echo", fsm.KeyBy(func(s string) fsm.Key { return fsm.Key(s) }))
	_, err := c.Insert(t.Context(), declared.New(string(key)).PartitionKey(string(other)))
	require.ErrorIs(t, err, cluster.ErrElsewhere)
	for place, key := range []fsm.Key{key, other} {
		id, err := c.Insert(t.Context(), declared.New(string(key)))
		require.NoError(t, err)
		require.Equal(t, place, cluster.PlaceOfID(id))
		got, err := c.GetOrInsert(t.Context(), declared.New(string(key)))
		require.NoError(t, err)
		require.Equal(t, engine.Inserted{ID: id, Duplicate: true}, got)
	}

	tagged := echoes.New("").Key("order{ada}").PartitionKey("{ada}").Throttle("w{ada}", time.Hour)
	id, err := c.Insert(t.Context(), tagged)
	require.NoError(t, err)
	require.Equal(t, c.PlaceOf("ada"), cluster.PlaceOfID(id))
}

// Where an instance with a key is does not depend on the process, nor on its restart; those without
// go around evenly.
func TestPlacesDoNotDependOnTheProcess(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	ids := map[fsm.Key]fsm.ID{}
	for process := range 3 {
		c := open(t, s.places)
		for n := range 30 {
			key := fsm.Key(fmt.Sprint("order-", n))
			done, err := c.GetOrInsert(t.Context(), ticket.New("").Key(key))
			require.NoError(t, err)
			require.Equal(t, process > 0, done.Duplicate)
			if process == 0 {
				ids[key] = done.ID
			}
			require.Equal(t, ids[key], done.ID)
			require.Equal(t, c.PlaceOf(string(key)), cluster.PlaceOfID(done.ID))
		}
		var each [3]int
		for range 9 {
			id, err := c.Insert(t.Context(), echoes.New(""))
			require.NoError(t, err)
			each[cluster.PlaceOfID(id)]++
		}
		specs := make([]fsm.Spec, 12)
		for i := range specs {
			specs[i] = echoes.New("")
		}
		done, err := c.InsertMany(t.Context(), specs)
		require.NoError(t, err)
		for _, one := range done {
			require.Equal(t, one.Place, cluster.PlaceOfID(one.ID))
			each[one.Place]++
		}
		require.Equal(t, [3]int{7, 7, 7}, each)
	}
	c := working(t, s.places)
	_, err := c.Signal(t.Context(), fsm.Key("order-7"), paid.With(1))
	require.NoError(t, err)
	_, err = ticket.Wait(within(t), c, ids["order-7"])
	require.NoError(t, err, "what a client has inserted, a process that is started later runs")
}

func TestChildrenAreWhereTheirParentIs(t *testing.T) {
	t.Parallel()
	c := working(t, initialised(t, 3).places)
	for place := range 3 {
		key := keyOf(place, 3, 1)
		id, err := c.Insert(t.Context(), family.New(string(key)).Key(key))
		require.NoError(t, err)
		// The child has the tag of its parent's key, so it is found by its key.
		child := fsm.Key("child{" + string(key) + "}")
		_, err = family.WaitParked(within(t), c, id, -1)
		require.NoError(t, err)
		_, err = ticket.WaitParked(within(t), c, child, -1)
		require.NoError(t, err)
		_, err = c.Signal(t.Context(), child, paid.With(1))
		require.NoError(t, err)
		_, err = family.Wait(within(t), c, id)
		require.NoError(t, err)
		page, err := c.List(t.Context(), engine.Query{Filter: engine.Filter{Parent: id}})
		require.NoError(t, err)
		require.Len(t, page.Instances, 2)
		for _, i := range page.Instances {
			require.Equal(t, place, cluster.PlaceOfID(i.ID))
		}
	}
}

// A step at one place inserts and signals at another through the cluster.
func TestStepsReachOtherPlaces(t *testing.T) {
	t.Parallel()
	type hostKey struct{}
	seen := make(chan any, 1)
	c := working(t, initialised(t, 2).places, func(config *cluster.Config) {
		config.Engine.Context = func(ctx context.Context) context.Context { return context.WithValue(ctx, hostKey{}, "host's") }
		config.Engine.Middleware = []engine.Middleware{{Step: func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			select {
			case seen <- ctx.Value(hostKey{}):
			default:
			}
			return run(ctx)
		}}}
	})
	target := keyOf(1, 2, 0)
	for n := range 2 { // the first inserts what the second signals
		id, err := c.Insert(t.Context(), across.New(string(target)).Key(keyOf(0, 2, n)))
		require.NoError(t, err)
		require.Equal(t, 0, cluster.PlaceOfID(id))
		there, err := across.Wait(within(t), c, id)
		require.NoError(t, err)
		require.Equal(t, 1, cluster.PlaceOfID(there))
	}
	require.Equal(t, "host's", <-seen)
}

// A host's own transaction is at one place, and takes only what belongs there.
func TestHostTransactionsAreOfOnePlace(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	c := open(t, s.places)
	require.NoError(t, c.Start(t.Context()))
	key := keyOf(1, 2, 0)
	home := c.PlaceOf(string(key))
	var id fsm.ID
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pools[home], func(tx pgx.Tx) (err error) {
		id, err = c.Engine(home).WithPgx(tx).Insert(t.Context(), ticket.New("").Key(key))
		return err
	}))
	got, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, id, got.ID)
	err = pgx.BeginFunc(t.Context(), s.pools[0], func(tx pgx.Tx) error {
		_, err := c.Engine(0).WithPgx(tx).Insert(t.Context(), ticket.New("").Key(keyOf(1, 2, 1)))
		return err
	})
	require.ErrorIs(t, err, cluster.ErrElsewhere)
	require.ErrorContains(t, err, "is of place 1, and this is the engine of place 0")
	_, err = c.Engine(0).Insert(t.Context(), echoes.New("anywhere"))
	require.NoError(t, err)
	require.NoError(t, c.Stop(t.Context()))
}

// Middleware of the host comes before the guard: a key that it changes must stay at its place.
func TestMiddlewareCannotMoveAnInsert(t *testing.T) {
	t.Parallel()
	key, other := keyOf(0, 2, 0), keyOf(1, 2, 0)
	c := open(t, initialised(t, 2).places, func(config *cluster.Config) {
		config.Engine.Middleware = []engine.Middleware{{Insert: func(_ context.Context, spec fsm.Spec) (fsm.Spec, error) { return spec.Key(other), nil }}}
	})
	_, err := c.Insert(t.Context(), echoes.New("").Key(key))
	require.ErrorIs(t, err, cluster.ErrElsewhere)
	_, err = c.Insert(t.Context(), echoes.New("").Key(other))
	require.NoError(t, err)
}

// A schedule is at the place of its name, and so is what it inserts.
func TestSchedulesAreAtTheirPlace(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	var names []string
	c := working(t, s.places, func(config *cluster.Config) {
		for n := range 6 {
			names = append(names, fmt.Sprint("every-", n))
			config.Engine.Schedules = append(config.Engine.Schedules, engine.Every(names[n], time.Second, echoes.New("")))
		}
	})
	admin := c.Admin()
	found := 0
	for stored, err := range admin.AllSchedules(t.Context()) {
		require.NoError(t, err)
		require.Contains(t, names, stored.Name)
		found++
	}
	require.Equal(t, len(names), found)
	for _, name := range names {
		id, err := admin.RunSchedule(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, c.PlaceOf(name), cluster.PlaceOfID(id))
		changed, err := admin.PauseSchedule(t.Context(), name)
		require.NoError(t, err)
		require.True(t, changed)
		changed, err = admin.ResumeSchedule(t.Context(), name)
		require.NoError(t, err)
		require.True(t, changed)
	}
	// One fires by itself, too: its instance's key decides no place.
	place := c.PlaceOf(names[0])
	fired := engine.Query{Filter: engine.Filter{KeyPrefix: "schedule:" + names[0] + ":2"}}
	for ctx := within(t); ; {
		page, err := c.List(ctx, fired)
		require.NoError(t, err)
		if len(page.Instances) > 0 {
			require.Equal(t, place, cluster.PlaceOfID(page.Instances[0].ID))
			break
		}
	}
	for _, name := range names {
		require.NoError(t, admin.DeleteSchedule(t.Context(), name))
		_, err := admin.PauseSchedule(t.Context(), name)
		require.ErrorIs(t, err, engine.ErrNoSchedule)
	}
}
