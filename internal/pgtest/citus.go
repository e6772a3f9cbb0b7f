package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

const (
	// citusVariable holds the bin directory of a Postgres that has Citus.
	citusVariable = "GENDURABLE_TEST_CITUS"
	// distributedVariable makes [Migrated] give each test a distributed schema, if it is not empty.
	distributedVariable = "GENDURABLE_TEST_DISTRIBUTED"
)

// Distributed is a database on each node of a Citus cluster, with a distributed engine's schema.
type Distributed struct {
	Nodes []string // superuser's URLs of the database on the coordinator, and then on the workers
	Owner int      // the index in Nodes of the worker that owns the schema at first
}

// citusWorkers is how many workers the cluster of tests has, beside its coordinator.
const citusWorkers = 2

// cluster is the Citus cluster of the process. It ends as the server does: see there.
var cluster = sync.OnceValues(func() (*pgdev.Citus, error) {
	nodes, err := pgdev.StartCitus(context.Background(), os.Getenv(citusVariable), citusWorkers, pgdev.WithoutFsync())
	if err != nil {
		return nil, fmt.Errorf("start a Citus cluster for the tests: %w", err)
	}
	return nodes, nil
})

// Citus returns the process's Citus cluster, and skips the test if there is none.
func Citus(t testing.TB) *pgdev.Citus {
	t.Helper()
	if os.Getenv(citusVariable) == "" {
		t.Skipf("no Citus: set %s to the bin directory of a Postgres that has it, or run make citus", citusVariable)
	}
	nodes, err := cluster()
	require.NoError(t, err)
	return nodes
}

// IsDistributed reports whether [Migrated] gives distributed schemas.
func IsDistributed() bool { return os.Getenv(distributedVariable) != "" }

// PlainOnly skips a test that cannot hold in a distributed schema where [Migrated] gives such.
func PlainOnly(t testing.TB, why string) {
	t.Helper()
	if IsDistributed() {
		t.Skip("not in a distributed schema: " + why)
	}
}

// Distribute returns a database with all migrations in schema gendurable, which is distributed. It
// is a copy, on every node, of a template, which the first test makes for all. The end of the test
// drops it. Without Citus, it skips the test.
func Distribute(t testing.TB) Distributed {
	t.Helper()
	nodes := Citus(t)
	from, err := distributedTemplate()
	require.NoError(t, err)
	name := distributedCopy(t, nodes.Nodes()...)
	d := Distributed{Owner: from.owner}
	for _, node := range nodes.Nodes() {
		d.Nodes = append(d.Nodes, node.URL(name))
	}
	return d
}

// OwnCitus starts a Citus cluster that the test may break, with a database on each node as
// [Distribute] makes it. Commits are durable unless the machine fails. It ends with the test.
func OwnCitus(t testing.TB) (*pgdev.Citus, Distributed) {
	t.Helper()
	if os.Getenv(citusVariable) == "" {
		Citus(t) // it skips the test
	}
	nodes, err := pgdev.StartCitus(t.Context(), os.Getenv(citusVariable), citusWorkers, pgdev.WithSetting("fsync", "off"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nodes.Stop()) })
	require.NoError(t, nodes.Join(t.Context(), distributedName))
	made, err := distribute(t.Context(), nodes)
	require.NoError(t, err)
	d := Distributed{Owner: made.owner}
	for _, node := range nodes.Nodes() {
		d.Nodes = append(d.Nodes, node.URL(distributedName))
	}
	return nodes, d
}

// distributedCopy copies the template's database on some nodes, and drops the copies after the
// test.
func distributedCopy(t testing.TB, nodes ...*pgdev.Cluster) string {
	t.Helper()
	name := pgclone.Name()
	for _, node := range nodes {
		require.NoError(t, node.Run(t.Context(), "", "CREATE DATABASE "+name+" TEMPLATE "+distributedName))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		for _, node := range nodes {
			require.NoError(t, node.Run(ctx, "", append(secluded(name), "DROP DATABASE "+name)...))
		}
	})
	return name
}

// distributedAtOwner returns the URL of a copy of the template at the owner alone, which is enough
// while the schema stays there, and takes a third of the time.
func distributedAtOwner(t testing.TB) string {
	t.Helper()
	nodes := Citus(t)
	from, err := distributedTemplate()
	require.NoError(t, err)
	node := nodes.Nodes()[from.owner]
	return addressByHand(node.URL(distributedCopy(t, node)), from.owner)
}

var tableName = regexp.MustCompile(`\bgendurable\.([a-z_]+)`)

// ByHand makes a statement that a test writes itself name the shards, where [Migrated] gives
// distributed schemas, as the statements of the store do. Citus would plan only some of them on the
// tables themselves. Elsewhere it returns the statement as it is.
func ByHand(sql string) string {
	if !IsDistributed() {
		return sql
	}
	from, err := distributedTemplate()
	if err != nil {
		return sql // Migrated has failed by the same error
	}
	return tableName.ReplaceAllStringFunc(sql, func(name string) string {
		if shard := from.shards[strings.TrimPrefix(name, "gendurable.")]; shard != "" {
			return "gendurable." + shard
		}
		return name
	})
}

// addressByHand returns the URL of a distributed schema for statements by which a test writes rows
// itself: what they draw has the first epoch, and they may see the shards, and change their
// definitions.
func addressByHand(address string, owner int) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return address // pgx refuses it, too, and says why
	}
	values := parsed.Query()
	values.Set("gendurable.epoch", "1")
	values.Set("gendurable.ids", strconv.Itoa(1<<34))
	values.Set("gendurable.base", strconv.Itoa(owner<<48)) // the group of a worker is its number
	values.Set("citus.enable_manual_changes_to_shards", "on")
	values.Set("citus.enable_ddl_propagation", "off")
	values.Set("citus.override_table_visibility", "off")
	parsed.RawQuery = values.Encode()
	return parsed.String()
}

const distributedName = "gendurable_distributed_template"

// placement says where a distributed schema is.
type placement struct {
	owner  int               // the index of the node
	shards map[string]string // table → its shard, the same in all copies; a sequence of ids likewise
}

// distributedTemplate makes the template. A database that is copied may have no connections, and
// Citus' own daemon would connect.
var distributedTemplate = sync.OnceValues(func() (placement, error) {
	ctx := context.Background()
	nodes, err := cluster()
	if err != nil {
		return placement{}, err
	}
	if err := nodes.Join(ctx, distributedName); err != nil {
		return placement{}, err
	}
	made, err := distribute(ctx, nodes)
	if err != nil {
		return placement{}, err
	}
	return made, nodes.OnAll(ctx, "", secluded(distributedName)...)
})

// secluded returns statements that end all sessions of a database, and keep others from it: Citus'
// own daemon's, too.
func secluded(name string) []string {
	return []string{
		"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '" + name + "'",
	}
}

// distribute migrates and distributes the template's schema.
func distribute(ctx context.Context, nodes *pgdev.Citus) (placement, error) {
	made := placement{shards: map[string]string{}}
	address := nodes.Coordinator.URL(distributedName)
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return made, fmt.Errorf("open a pool on the coordinator: %w", err)
	}
	defer pool.Close()
	if _, err := (migrate.Migrator{Pool: pool}).Up(ctx); err != nil {
		return made, fmt.Errorf("migrate: %w", err)
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return made, fmt.Errorf("connect to the coordinator: %w", err)
	}
	defer conn.Close(ctx)
	if err := citus.Distribute(ctx, conn, migrations.DefaultSchema); err != nil {
		return made, err
	}
	_, port, err := citus.Owner(ctx, pool, migrations.DefaultSchema)
	if err != nil {
		return made, err
	}
	for i, node := range nodes.Nodes() {
		if node.Port() == int(port) {
			made.owner = i
		}
	}
	rows, err := pool.Query(ctx, `SELECT c.relname, d.shardid FROM pg_dist_shard d JOIN pg_class c ON c.oid = d.logicalrelid
		WHERE c.relnamespace = 'gendurable'::regnamespace`)
	if err != nil {
		return made, fmt.Errorf("read the shards: %w", err)
	}
	var table string
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&table, &id}, func() error {
		made.shards[table] = fmt.Sprintf("%s_%d", table, id)
		return nil
	}); err != nil {
		return made, fmt.Errorf("read the shards: %w", err)
	}
	for _, drawn := range []string{"gen_durable", "signals"} {
		made.shards[drawn+"_id_seq"] = drawn + "_id_draw"
	}
	// The first epoch begins, so that rows written by hand have its ids.
	return made, nodes.Nodes()[made.owner].Run(ctx, distributedName, "SELECT gendurable.gen_durable_enter()")
}
