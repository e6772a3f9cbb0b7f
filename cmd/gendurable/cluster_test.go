package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// clusterHost is places on separate databases, each as if on its own server.
type clusterHost struct {
	*host

	urls   []string
	places []string // as --place takes them
}

// down is the address of a server that is not there.
const down = "postgres://nobody:hidden@127.0.0.1:1/nothing?connect_timeout=2"

func newClusterHost(t *testing.T, databases int) *clusterHost {
	t.Helper()
	h := &clusterHost{host: &host{t: t}}
	for range databases {
		url := pgtest.Migrated(t)
		h.urls = append(h.urls, url)
		h.places = append(h.places, url)
	}
	return h
}

// cluster runs a command of the cluster on these places.
func (h *clusterHost) cluster(verb string, places []string, flags ...string) answer {
	h.t.Helper()
	args := append([]string{"cluster", verb}, flags...)
	for _, place := range places {
		args = append(args, "--place", place)
	}
	return h.in(args...)
}

func (h *clusterHost) exec(place int, sql string) {
	h.t.Helper()
	_, err := pgtest.Pool(h.t, h.urls[place]).Exec(h.t.Context(), sql)
	require.NoError(h.t, err)
}

// keyAt returns a key of a place.
func keyAt(place, places int) fsm.Key {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("key-%d", n); cluster.PlaceOf(key, places) == place {
			return fsm.Key(key)
		}
	}
}

type clusterInitialised struct {
	Cluster string        `json:"cluster"`
	Places  []initialised `json:"places"`
}

// placeLine is a place as cluster status writes it.
type placeLine struct {
	Place   int             `json:"place"`
	Reached bool            `json:"reached"`
	Record  *cluster.Record `json:"record"`
	Workers int             `json:"workers"`
	Due     int64           `json:"due"`
	Paused  []string        `json:"paused"`
	Counts  map[string]int64
	Wrong   []struct {
		Place int    `json:"place"`
		Error string `json:"error"`
	} `json:"wrong"`
}

type placeLines struct {
	Places []placeLine `json:"places"`
}

func TestClusterInit(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 2)
	places := append(h.places, h.urls[0]+"#more")
	h.cluster("init", places).is(codeSchema).complains("nothing was done").complains(`place 2 (schema "more" of `).complains("--migrate")
	h.cluster("status", places).is(codeDone).says("no record", "no record", "missing")
	made := read[clusterInitialised](h.cluster("init", places, "--migrate", "--json").is(codeDone))
	require.Len(t, made.Places, 3)
	require.Empty(t, made.Places[0].Applied)
	require.NotEmpty(t, made.Places[2].Applied)
	h.cluster("init", places).is(codeDone).says("PLACE", "more", "cluster "+made.Cluster+" has these 3 places")
	for n, line := range read[placeLines](h.cluster("status", places, "--json").is(codeDone)).Places {
		require.Equal(t, n, line.Record.Place)
		require.Equal(t, made.Cluster, line.Record.Cluster.String())
		require.Empty(t, line.Wrong)
	}

	h.cluster("init", places[:2]).is(codeConflict).complains("it is place 0 of 3, and there are 2")
	h.cluster("init", append(places, down)).is(codeNoConnection).complains("place 3").complains("nothing was done")
	used := newClusterHost(t, 2)
	plainly, err := engine.New(engine.Config{Pool: pgtest.Pool(t, used.urls[0])})
	require.NoError(t, err)
	_, err = plainly.Insert(t.Context(), orders.New(order{1}).Key(keyAt(1, 2)))
	require.NoError(t, err)
	used.cluster("init", used.places).is(codeConflict).complains("1 live instances by their keys")
}

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 3)
	h.cluster("init", h.places).is(codeDone)
	one, err := engine.New(engine.Config{Pool: pgtest.Pool(t, h.urls[1])})
	require.NoError(t, err)
	for range 2 {
		_, err = one.Insert(t.Context(), orders.New(order{1}))
		require.NoError(t, err)
	}
	_, err = one.Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	h.exec(0, `INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'here', 1, '', '{"default": 4}', '{}', now() + interval '1 hour')`)

	places := []string{h.places[0], h.places[1], down}
	got := read[placeLines](h.cluster("status", places, "--json").is(codeDone)).Places
	require.Len(t, got, 3)
	require.Equal(t, 1, got[0].Workers)
	require.Empty(t, got[0].Wrong)
	require.EqualValues(t, 2, got[1].Due)
	require.EqualValues(t, 2, got[1].Counts["runnable"])
	require.Equal(t, []string{"mail"}, got[1].Paused)
	require.False(t, got[2].Reached)
	require.Equal(t, 2, got[2].Wrong[0].Place)
	swapped := []string{h.places[1], h.places[0], down}
	text := h.cluster("status", swapped, "--count", "0").is(codeDone).says("PLACE", "wrong record", "1 of 3", "mail", "wrong record", "0 of 3",
		"down", "place 0 (schema \"gendurable\"): ", "it was recorded as place 1, and is given as place 0", "place 2 (schema \"gendurable\"): ")
	require.NotContains(t, text.out, "hidden")
	h.cluster("status", h.places).is(codeDone).says(" ok ", " ok ", " ok ")
	require.NotContains(t, h.cluster("status", h.places).out, "recorded")
	h.cluster("status", []string{down}).is(codeNoConnection).says("down")

	// Places from the environment, and schemas of the one database.
	for _, schema := range []string{"a", "b c"} {
		_, err := migrate.Migrator{Pool: pgtest.Pool(t, h.urls[2]), Schema: schema}.Up(t.Context())
		require.NoError(t, err)
	}
	h.url = h.urls[2]
	h.run("cluster", "init", "--place", "#a", "--place", "#b%20c").is(codeDone).says("b c")
}

func TestClusterPlacesFromTheEnvironment(t *testing.T) {
	h := newClusterHost(t, 2)
	t.Setenv("GENDURABLE_PLACES", strings.Join(h.places, "\n"))
	t.Setenv("DATABASE_URL", "")
	require.Len(t, read[clusterInitialised](h.in("cluster", "init", "--json").is(codeDone)).Places, 2)
	h.in("cluster", "status", "--place", "#schema").is(codeUsage).complains("--place: place 0: it has no URL, and there is no --database-url")
	t.Setenv("GENDURABLE_PLACES", "")
	h.in("cluster", "status").is(codeUsage).complains("no places: give --place")
}

func TestClusterPlacesThatAreWrong(t *testing.T) {
	t.Parallel()
	h := &clusterHost{host: &host{t: t}}
	const good = "postgres://u:secret@127.0.0.1:1/db#s"
	for text, places := range map[string][]string{
		"--place: place 1: it is no URL":                               {good, "host=somewhere"},
		"--place: place 0: no schema behind the #":                     {"postgres://u:secret@127.0.0.1:1/db#"},
		`--place: place 1: schema "s" of the same database is place 0`: {good, good},
		"--place: place 1: cannot parse":                               {good, "postgres://u:secret@[#s"},
		"--place: 513 places, 1 to 512":                                {strings.Repeat(" #s", 513)},
		"--place: place 0 (schema":                                     {"postgres://127.0.0.1:1/db#" + strings.Repeat("x", 64)},
	} {
		wrong := h.cluster("status", places).is(codeUsage).complains(text)
		require.NotContains(t, wrong.errs, "secret")
	}
	h.cluster("status", []string{good}, "--wait", "0s").is(codeUsage).complains("--wait: 0s, 1ms to 10m0s")
	h.cluster("status", []string{good}, "--count=-1s").is(codeUsage).complains("--count: -1s")
	h.cluster("check", []string{good}, "--skip", "nonsense").is(codeUsage).complains(`no check "nonsense"; there are schema, server,`).complains("strays")
	h.cluster("check", []string{good}, "--wait", "0s").is(codeUsage).complains("--wait: 0s")
}

// examined runs cluster check, and returns what it found by check and places.
func (h *clusterHost) examined(code exitCode, places []string, flags ...string) map[string]finding {
	h.t.Helper()
	found := map[string]finding{}
	for _, f := range read[clusterDiagnosis](h.cluster("check", places, append(flags, "--json", "--skip", unsafely)...).is(code)).Findings {
		found[fmt.Sprint(f.Check, f.Places)] = f.finding
	}
	return found
}

func TestClusterCheckOfTheHealthy(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 2)
	places := append(h.places, h.urls[0]+"#more")
	h.cluster("init", places, "--migrate").is(codeDone)
	found := h.examined(codeDone, places)
	for name, f := range found {
		if name != "workers[0 1 2]" {
			require.Equal(t, gradeOK, f.Grade, "%s: %v", name, f)
		}
	}
	require.Equal(t, gradeWarn, found["workers[0 1 2]"].Grade)
	for _, name := range []string{"proxy[0 2]", "proxy[1]", "leases[0]", "leases[1]", "leases[2]"} {
		require.Contains(t, found, name)
	}
	h.cluster("check", places, "--skip", unsafely).is(codeDone).
		says("warn  place 0,1,2 workers", "→ ", "ok    place 0", "checks of doctor", "ok    place 2")
}

// One place is down, one is of another cluster, one has another's number, and one holds an instance
// of another.
func TestClusterCheckOfTheSick(t *testing.T) {
	t.Parallel()
	h, other := newClusterHost(t, 5), newClusterHost(t, 5)
	h.cluster("init", h.places).is(codeDone)
	other.cluster("init", other.places).is(codeDone)
	past, err := engine.New(engine.Config{Pool: pgtest.Pool(t, h.urls[0])})
	require.NoError(t, err)
	id, err := past.Insert(t.Context(), orders.New(order{1}).Key(keyAt(3, 5)))
	require.NoError(t, err)
	h.exec(0, `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, locked_by, lease_expires_at)
		VALUES ('order', 'start', 'default', 'executing', 'w', now() - interval '2 hours')`)
	places := []string{h.places[0], other.places[1], h.places[3], down, h.places[4]}
	found := h.examined(codeUnmet, places)
	for name, text := range map[string]string{
		"strays[0]":      fmt.Sprint("1 live instances by their keys, the first is ", id),
		"leases[0]":      "1 leases are over",
		"record[1]":      "it is of cluster",
		"record[2]":      "it was recorded as place 3, and is given as place 2",
		"unreachable[3]": "127.0.0.1",
	} {
		require.Equal(t, gradeFail, found[name].Grade, "%s in %v", name, found)
		require.Contains(t, found[name].Seen, text)
		require.NotEmpty(t, found[name].Do)
	}
	require.NotContains(t, found, "leases[3]")
	require.Equal(t, gradeOK, found["leases[4]"].Grade)
	text := h.cluster("check", places, "--skip", unsafely).is(codeUnmet).says("fail  place 3", "unreachable", "fail  place 1", "record", "fail  place 0", "strays")
	require.NotContains(t, text.out, "hidden")
	require.Empty(t, text.errs)
	require.NotContains(t, h.examined(codeUnmet, places, "--skip", "strays,leases"), "strays[0]")
}

// A server that takes connections and answers nothing costs each command its --wait, and no more.
func TestClusterPlacesThatAreSilent(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	h := newClusterHost(t, 1)
	places := append(h.places, "postgres://nobody@"+silent.Addr().String()+"/nothing?sslmode=disable")
	h.cluster("status", places, "--wait", "2s").is(codeDone).says("no record", "down", "deadline exceeded")
	h.cluster("check", places, "--wait", "2s", "--skip", unsafely).is(codeUnmet).says("fail  place 1     unreachable")
	h.cluster("init", places, "--wait", "2s").is(codeNoConnection).complains("nothing was done")
}

func TestClusterCheckOutOfTime(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 1)
	h.cluster("check", h.places, "--timeout", "1ms").is(codeTimeout).complains("--timeout changes")
}
