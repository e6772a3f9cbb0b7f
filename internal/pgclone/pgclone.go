// Package pgclone makes migrated databases within milliseconds: copies of a template, which the
// first process that needs one on a server migrates for all. Tests of the project use it through
// package pgtest, hosts' tests through package durabletest.
package pgclone

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// templateLock is the advisory lock that a process holds while it makes a template or migrates a
// schema.
const templateLock = 0x67656e6475726162 // "gendurab"

// Template returns the name of a database whose schema is migrated. The first process that asks
// makes it. The name has a hash of the migrations, the schema and the role that made it, since no
// other role may copy it. Template also drops databases that killed tests have left behind.
func Template(ctx context.Context, server *pgxpool.Config, schema string) (name string, err error) {
	hash, err := migrationsHash(schema, server.ConnConfig.User)
	if err != nil {
		return "", err
	}
	name = "gendurable_template_" + hash
	err = locked(ctx, server, func(conn *pgx.Conn) error {
		sweep(ctx, conn)
		return makeTemplate(ctx, conn, server, name, schema)
	})
	if err != nil {
		return "", fmt.Errorf("make the migrated template: %w", err)
	}
	return name, nil
}

// copied makes Postgres copy the files of a template, which takes half the time and no WAL. It
// needs checkpoints, which are cheap only where nothing is synchronized to a disk.
const copied = " STRATEGY file_copy"

// Create copies a template into a database with a new name. A copy of "template1" is empty.
func Create(ctx context.Context, server *pgxpool.Config, template string) (name string, err error) {
	name = Name()
	err = OnKept(ctx, server, func(conn *pgx.Conn) error {
		var fsync bool
		if err := conn.QueryRow(ctx, "SELECT current_setting('fsync')::bool").Scan(&fsync); err != nil {
			return err
		}
		how := ""
		if !fsync {
			how = copied
		}
		_, err := conn.Exec(ctx, "CREATE DATABASE "+quoted(name)+" TEMPLATE "+quoted(template)+how)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return name, nil
}

// Drop drops a database, and ends its connections.
func Drop(ctx context.Context, server *pgxpool.Config, name string) error {
	return OnKept(ctx, server, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted(name)+" WITH (FORCE)")
		return err
	})
}

// Name returns a new name for a database or a schema. It holds the time at which it was made.
func Name() string {
	return fmt.Sprintf("%s%x_%s", namePrefix, time.Now().Unix(), strings.ToLower(rand.Text()))
}

// Migrate brings a schema of the server's database up to date. One process at a time does so, since
// concurrent index builds would wait for each other.
func Migrate(ctx context.Context, server *pgxpool.Config, schema string) error {
	return locked(ctx, server, func(*pgx.Conn) error { return up(ctx, server, schema) })
}

// DropSchema drops a schema and everything in it.
func DropSchema(ctx context.Context, server *pgxpool.Config, schema string) error {
	return On(ctx, server, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+quoted(schema)+" CASCADE")
		return err
	})
}

// In returns the configuration for another database of the server.
func In(server *pgxpool.Config, database string) *pgxpool.Config {
	c := server.Copy()
	c.ConnConfig.Database = database
	return c
}

// Plain returns a pool without AfterConnect, which may need types or tables that do not exist yet.
func Plain(ctx context.Context, server *pgxpool.Config) (*pgxpool.Pool, error) {
	c := server.Copy()
	c.AfterConnect = nil
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return pool, nil
}

// On runs f on a new connection.
func On(ctx context.Context, server *pgxpool.Config, f func(conn *pgx.Conn) error) error {
	config := server.ConnConfig.Copy()
	if server.BeforeConnect != nil { // e.g. a password that is made for each connection
		if err := server.BeforeConnect(ctx, config); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	return f(conn)
}

func locked(ctx context.Context, server *pgxpool.Config, f func(conn *pgx.Conn) error) error {
	return On(ctx, server, func(conn *pgx.Conn) error {
		// The end of the session releases the lock, however this process ends.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
			return fmt.Errorf("wait for the other processes: %w", err)
		}
		return f(conn)
	})
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

func migrationsHash(more ...string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", more)
	err := fs.WalkDir(migrations.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := migrations.FS().ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// makeTemplate makes the template unless another process did.
func makeTemplate(ctx context.Context, conn *pgx.Conn, server *pgxpool.Config, name, schema string) error {
	var found bool
	row := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name)
	if err := row.Scan(&found); err != nil || found {
		return err
	}
	// The database is renamed when complete, so that a half-migrated one never has its name. A
	// process whose lock is in another database may make one, too: the lock saves work, the rename
	// decides.
	incomplete := Name()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+quoted(incomplete)+" TEMPLATE template1"); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	err := up(ctx, In(server, incomplete), schema)
	if err == nil {
		err = closeTemplate(ctx, conn, incomplete, name)
	}
	if err != nil {
		_, dropped := conn.Exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+quoted(incomplete)+" WITH (FORCE)")
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == duplicateDatabase {
			err = nil
		}
		return errors.Join(err, dropped)
	}
	return nil
}

// duplicateDatabase is the SQLSTATE of a name that is taken.
const duplicateDatabase = "42P04"

// closeTemplate gives the template its name. It may have no connections while it is copied.
func closeTemplate(ctx context.Context, conn *pgx.Conn, incomplete, name string) error {
	for _, statement := range []string{
		"ALTER DATABASE " + quoted(incomplete) + " ALLOW_CONNECTIONS false",
		"ALTER DATABASE " + quoted(incomplete) + " RENAME TO " + quoted(name),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("close the template: %w", err)
		}
	}
	return nil
}

func up(ctx context.Context, server *pgxpool.Config, schema string) error {
	pool, err := Plain(ctx, server)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := (migrate.Migrator{Pool: pool, Schema: schema}).Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
