package durabletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgdev"
)

// ServerConfig configures [StartServer]. The zero value is a throwaway server.
type ServerConfig struct {
	// Directory keeps the data. Stop leaves it there, and the next server on it finds it again, at the
	// same URL if the port is free. Only one server runs on a directory at a time. "": a temporary
	// directory, which Stop removes, and a server that need not survive a crash.
	Directory string
	// Port is the port of 127.0.0.1 that the server listens at. 0: the port of the last server on the
	// Directory; for the first one, any free port.
	Port int
	// Schema is the Postgres schema of the engine's tables; "": "gendurable".
	Schema string
	// Settings of the server, by their names in postgresql.conf. Nil: Postgres' defaults, except 200
	// connections.
	Settings map[string]string
}

// Server is a Postgres with the engine's tables, for development and tests. It is a separate
// process, which ends with this one at the latest. Its methods may be called from several
// goroutines.
type Server struct{ cluster *pgdev.Cluster }

// serverMaxConns suffices for the tests of a few packages at a time.
const serverMaxConns = 200

// StartServer starts a Postgres from the machine's own binaries and migrates its database
// "postgres". ctx bounds the start only. If this process runs as root, the server runs as the user
// `postgres`, or `nobody`, since Postgres refuses to run as root. Without Postgres on the machine
// the error says how to install it; "gendurable dev --fetch" gets one without installing anything.
// Windows is not supported.
func StartServer(ctx context.Context, c ServerConfig) (*Server, error) {
	s, err := startServer(ctx, c)
	if err != nil {
		return nil, err
	}
	on, err := pgxpool.ParseConfig(s.URL())
	if err == nil {
		err = pgclone.Migrate(ctx, on, cmp.Or(c.Schema, engine.DefaultSchema))
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// startServer starts the server and leaves its database empty.
func startServer(ctx context.Context, c ServerConfig) (*Server, error) {
	options := []pgdev.Option{pgdev.WithSetting("max_connections", strconv.Itoa(serverMaxConns))}
	if c.Directory == "" {
		options = append(options, pgdev.WithoutFsync())
	} else {
		options = append(options, pgdev.WithDirectory(c.Directory))
	}
	if c.Port != 0 {
		options = append(options, pgdev.WithPort(c.Port))
	}
	for name, value := range c.Settings {
		options = append(options, pgdev.WithSetting(name, value))
	}
	cluster, err := pgdev.Start(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w%s", err, pgdev.Advice(err))
	}
	return &Server{cluster}, nil
}

// URL returns the URL of the migrated database, as superuser, with the password.
func (s *Server) URL() string { return s.cluster.URL("") }

// Stop ends the server and all of its connections. On a stopped server it does nothing.
func (s *Server) Stop() error { return s.cluster.Stop() }

// own is the server of all kits of this process that name no server. The first such kit starts it.
var own struct {
	sync.Mutex
	server *Server
}

// ownURL starts the process's own server, unless it runs. It ends with the process, since no test
// knows that it is the last.
func ownURL(ctx context.Context) (string, error) {
	own.Lock()
	defer own.Unlock()
	if own.server == nil {
		s, err := startServer(ctx, ServerConfig{}) // each kit has a migrated database of its own
		if err != nil {
			return "", err
		}
		own.server = s
	}
	return own.server.URL(), nil
}

// Tests runs the tests of a package: it is a *[testing.M], or a wrapper of one.
type Tests interface{ Run() (code int) }

// ThenStop returns the tests such that their end also stops the server that their kits have
// started, if any. Without it the server ends with the process. Until then a goroutine waits for
// it, which a check for leaks would report:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(durabletest.ThenStop(m)) }
func ThenStop(t Tests) Tests { return stopping{t} }

type stopping struct{ tests Tests }

// Run runs the tests, and stops the server.
func (s stopping) Run() (code int) {
	code = s.tests.Run()
	own.Lock()
	defer own.Unlock()
	if own.server != nil {
		if err := own.server.Stop(); err != nil {
			code = max(code, 1)
		}
		own.server = nil
	}
	return code
}
