package pgtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/migrations"
)

// Migrated returns the superuser's URL of a fresh database with all migrations applied in schema
// gendurable. It is dropped like [Database]'s. It is a copy of a template, which the first test on
// a server makes for all. With GENDURABLE_TEST_DISTRIBUTED, Citus distributes the schema, and the
// URL leads to the worker that owns it.
func Migrated(t testing.TB) string {
	t.Helper()
	if IsDistributed() {
		return distributedAtOwner(t)
	}
	name, err := template()
	require.NoError(t, err)
	return create(t, name)
}

// Example is Migrated for examples, which have no testing.TB: its caller drops the database.
func Example() (url string, drop func() error, err error) {
	from, err := template()
	if err != nil {
		return "", nil, err
	}
	on, err := config()
	if err != nil {
		return "", nil, err
	}
	name, err := pgclone.Create(context.Background(), on, from)
	if err != nil {
		return "", nil, err
	}
	drop = func() error { return pgclone.Drop(context.Background(), on, name) }
	address, err := server()
	if err != nil {
		return "", nil, errors.Join(err, drop())
	}
	url, err = inDatabase(address, name)
	return url, drop, err
}

// template returns the name of a database that holds the schema.
var template = sync.OnceValues(func() (string, error) {
	on, err := config()
	if err != nil {
		return "", err
	}
	return pgclone.Template(context.Background(), on, migrations.DefaultSchema)
})
