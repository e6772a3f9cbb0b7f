package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/migrations"
)

// templateLock is the advisory lock of whoever makes the template.
const templateLock = 0x67656e6475726162 // "gendurab"

// Migrated returns the superuser's URL of a fresh database with all migrations applied in schema gendurable, dropped
// like that of [Database]. It is a copy of a template, which the first test on a server makes for all.
func Migrated(t testing.TB) string {
	t.Helper()
	name, err := template()
	require.NoError(t, err)
	return create(t, name)
}

// template returns the name of a database that holds the schema; the name tells the migrations that made it.
var template = sync.OnceValues(func() (string, error) {
	hash, err := migrationsHash()
	if err != nil {
		return "", err
	}
	name := "gendurable_template_" + hash
	address, err := server()
	if err != nil {
		return "", err
	}
	if err := makeTemplate(context.Background(), address, name); err != nil {
		return "", fmt.Errorf("make the migrated template: %w", err)
	}
	return name, nil
})

func migrationsHash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := migrations.FS.ReadFile(path)
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

// makeTemplate makes the template unless another process of the run did.
func makeTemplate(ctx context.Context, address, name string) (err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// The end of the session releases the lock, however this one ends.
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return fmt.Errorf("wait for the other processes: %w", err)
	}
	var found bool
	row := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name)
	if err := row.Scan(&found); err != nil || found {
		return err
	}
	// Renamed when complete, so that the name is never that of a half-migrated one.
	incomplete := name + "_incomplete"
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + quoted(incomplete) + " WITH (FORCE)",
		"CREATE DATABASE " + quoted(incomplete) + " TEMPLATE template1",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("create the database: %w", err)
		}
	}
	location, err := inDatabase(address, incomplete)
	if err != nil {
		return err
	}
	if err := migrate(ctx, location); err != nil {
		return err
	}
	// Nobody may connect to a template while it is copied.
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

func migrate(ctx context.Context, address string) error {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	defer pool.Close()
	if _, err := (migrations.Migrator{Pool: pool}).Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
