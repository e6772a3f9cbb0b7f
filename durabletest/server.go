package durabletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgclone"
)

// These variables name the server; the first one that is set counts.
const (
	testVariable = "GENDURABLE_TEST_URL"
	hostVariable = "DATABASE_URL"
)

// SQLSTATEs.
const (
	insufficientPrivilege = "42501"
	noSuchDatabase        = "3D000"
)

// place is the database and the schema that a kit works in.
type place struct {
	config *pgxpool.Config
	schema string
}

// URL returns the URL of the kit's database, for drivers other than pgx: the given one, with
// another database. In InSchema mode it does not hold the search_path.
func (k *Kit) URL() string {
	config := k.Pool.Config().ConnConfig
	given := config.ConnString()
	parsed, err := url.Parse(given)
	if err != nil || parsed.Scheme == "" {
		return strings.TrimSpace(given + " dbname=" + config.Database) // the last dbname counts
	}
	parsed.Path = "/" + config.Database
	return parsed.String()
}

// settle makes the database, or the schema, that the kit works in.
func settle(t testing.TB, c Config) (*place, error) {
	t.Helper()
	server, err := serverOf(t.Context(), c)
	if err != nil {
		return nil, err
	}
	thrifty(server, c.MaxConns)
	if !c.InSchema {
		at, err := ownDatabase(t, server, cmp.Or(c.Schema, engine.DefaultSchema))
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != insufficientPrivilege {
			return at, err
		}
	}
	return ownSchema(t, server)
}

// serverOf returns the configuration of a pool on the server.
func serverOf(ctx context.Context, c Config) (*pgxpool.Config, error) {
	if c.DatabaseURL == "" && c.Pool != nil {
		return c.Pool.Config(), nil
	}
	address := cmp.Or(c.DatabaseURL, os.Getenv(testVariable), os.Getenv(hostVariable))
	if address == "" {
		var err error
		if address, err = ownURL(ctx); err != nil {
			return nil, fmt.Errorf("neither %s nor %s names a server, and none could be started: %w", testVariable, hostVariable, err)
		}
	}
	server, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	return server, nil
}

func ownDatabase(t testing.TB, server *pgxpool.Config, schema string) (*place, error) {
	t.Helper()
	name, err := ownCopy(t.Context(), server, schema)
	if err != nil {
		return nil, err
	}
	atEnd(t, func(ctx context.Context) error { return pgclone.Drop(ctx, server, name) })
	return &place{config: pgclone.In(server, name), schema: schema}, nil
}

// templates has the templates that this process has seen on its servers.
var templates sync.Map

// ownCopy copies the server's template, whose name it looks up once per process.
func ownCopy(ctx context.Context, server *pgxpool.Config, schema string) (name string, err error) {
	c := server.ConnConfig
	key := fmt.Sprintf("%q %d %q %q", c.Host, c.Port, c.User, schema)
	if template, ok := templates.Load(key); ok {
		name, err = pgclone.Create(ctx, server, template.(string)) //nolint:forcetypeassert // it has nothing else
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != noSuchDatabase {
			return name, err
		}
	}
	template, err := pgclone.Template(ctx, server, schema)
	if err != nil {
		return "", err
	}
	if err := measureRoom(ctx, server); err != nil {
		return "", err
	}
	templates.Store(key, template)
	return pgclone.Create(ctx, server, template)
}

func ownSchema(t testing.TB, server *pgxpool.Config) (*place, error) {
	t.Helper()
	schema := pgclone.Name()
	atEnd(t, func(ctx context.Context) error { return pgclone.DropSchema(ctx, server, schema) })
	if err := pgclone.Migrate(t.Context(), server, schema); err != nil {
		return nil, err
	}
	return &place{config: server, schema: schema}, nil
}

func atEnd(t testing.TB, clean func(ctx context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := clean(ctx); err != nil {
			t.Errorf("durabletest: clean up: %v", err)
		}
	})
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// These bound the connections of all kits of a process together. A server allows a hundred
// connections by default, and go test runs a package per CPU.
const (
	openMost = 20
	// idleLeast is how many connections may stay open when they are idle, on a server of any size.
	idleLeast = 8
	// patience is how long a kit waits for a slot. Then it dials all the same, since it may hold the
	// slots itself.
	patience = 3 * time.Second
)

// slots has an entry for each open connection of the process's kits.
var slots = make(chan struct{}, openMost)

// idleMore is how many connections beside idleLeast may stay open when they are idle; more are
// closed, so that others can open theirs. A new connection costs more than the statements on it.
var idleMore atomic.Int64

// measureRoom lets kits keep an eighth of the connections that their server allows.
func measureRoom(ctx context.Context, server *pgxpool.Config) error {
	var allowed int64
	err := pgclone.OnKept(ctx, server, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT current_setting('max_connections')::bigint").Scan(&allowed)
	})
	if err != nil {
		return fmt.Errorf("read how many connections the server allows: %w", err)
	}
	idleMore.Store(min(max(allowed/8, idleLeast), openMost) - idleLeast)
	return nil
}

// thrifty bounds the connections of a pool.
func thrifty(c *pgxpool.Config, most int32) {
	c.MaxConns, c.MinConns, c.MinIdleConns = cmp.Or(most, DefaultMaxConns), 0, 0
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		held := acquire(ctx)
		conn, err := dial(ctx, network, address)
		if err != nil {
			held()
			return nil, err
		}
		return &counted{Conn: conn, held: held}, nil
	}
	after := c.AfterRelease
	c.AfterRelease = func(conn *pgx.Conn) bool {
		return waiting.Load() == 0 && int64(len(slots)) <= idleLeast+idleMore.Load() && (after == nil || after(conn))
	}
}

// waiting counts the connections that wait for a slot. While one does, none that is released stays
// open.
var waiting atomic.Int64

// pools has the pools of the process's kits.
var pools sync.Map

// acquire waits for a slot, at most for patience, and returns a function that gives it back. While
// it waits, it closes connections that are idle in a kit's pool.
func acquire(ctx context.Context) (release func()) {
	release = sync.OnceFunc(func() { <-slots })
	select {
	case slots <- struct{}{}:
		return release
	default:
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	timer, again := time.NewTimer(patience), time.NewTicker(patience/100)
	defer timer.Stop()
	defer again.Stop()
	for {
		evict(ctx)
		select {
		case slots <- struct{}{}:
			return release
		case <-again.C:
		case <-timer.C:
			return func() {}
		case <-ctx.Done():
			return func() {}
		}
	}
}

// evict closes the idle connections of one pool.
func evict(ctx context.Context) {
	pools.Range(func(pool, _ any) bool {
		idle := pool.(*pgxpool.Pool).AcquireAllIdle(ctx) //nolint:forcetypeassert // it has nothing else
		for _, conn := range idle {
			conn.Release() // AfterRelease does not keep it
		}
		return len(idle) == 0
	})
}

// counted is a connection that gives its slot back when it is closed.
type counted struct {
	net.Conn
	held func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.held()
	return c.Conn.Close()
}
