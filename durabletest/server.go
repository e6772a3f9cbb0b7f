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

const insufficientPrivilege = "42501"

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
	template, err := pgclone.Template(t.Context(), server, schema)
	if err != nil {
		return nil, err
	}
	name, err := pgclone.Create(t.Context(), server, template)
	if err != nil {
		return nil, err
	}
	atEnd(t, func(ctx context.Context) error { return pgclone.Drop(ctx, server, name) })
	return &place{config: pgclone.In(server, name), schema: schema}, nil
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
	// idleMost is how many connections may stay open when they are idle; more are closed, so that
	// others can open theirs.
	idleMost = 8
	// patience is how long a kit waits for a slot. Then it dials all the same, since it may hold the
	// slots itself.
	patience = 3 * time.Second
)

// slots has an entry for each open connection of the process's kits.
var slots = make(chan struct{}, openMost)

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
		return len(slots) <= idleMost && (after == nil || after(conn))
	}
}

// acquire waits for a slot, at most for patience, and returns a function that gives it back.
func acquire(ctx context.Context) (release func()) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots })
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
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
