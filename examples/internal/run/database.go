package run

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/migrate"
)

// closeTimeout bounds the clean-up, which runs after the example's own context has ended.
const closeTimeout = 30 * time.Second

// keptName is the name of what Keep leaves behind.
const keptName = "demo"

// mark is the comment on the schemas that an example has made: only those are ever dropped.
const mark = "made by an example of gendurable"

// Options of [Open].
type Options struct {
	Schema string   // of the engine's tables
	Also   []string // further schemas, for tables of the example's own
	Keep   bool     // Close leaves the schemas, or the cluster, for the next run
}

// Database is a Postgres database with the engine's tables in place.
type Database struct {
	URL    string
	Schema string
	Pool   *pgxpool.Pool

	options Options
	cluster *pgdev.Cluster // nil with DATABASE_URL
	owner   *pgx.Conn      // holds the lock that keeps a second run of the same example out
}

// Open uses DATABASE_URL, or starts a new Postgres. Close throws that away; with Keep it stays in
// the directory that [pgdev.Home] gives.
func Open(ctx context.Context, o Options) (_ *Database, err error) {
	db := &Database{URL: os.Getenv("DATABASE_URL"), Schema: o.Schema, options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.release())
		}
	}()
	if db.URL == "" {
		if db.cluster, err = startCluster(ctx, o); err != nil {
			return nil, err
		}
		db.URL = db.cluster.URL("postgres")
	}
	if db.owner, err = pgx.Connect(ctx, db.URL); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := db.own(ctx); err != nil {
		return nil, err
	}
	if db.Pool, err = db.Connect(ctx, o.Schema); err != nil {
		return nil, err
	}
	if _, err := (migrate.Migrator{Pool: db.Pool, Schema: o.Schema}).Up(ctx); err != nil {
		return nil, fmt.Errorf("migrate schema %q: %w", o.Schema, err)
	}
	return db, nil
}

func startCluster(ctx context.Context, o Options) (*pgdev.Cluster, error) {
	var options []pgdev.Option
	if o.Keep {
		dir, err := pgdev.Home(keptName)
		if err != nil {
			return nil, err
		}
		options = append(options, pgdev.WithDirectory(dir))
	}
	return pgdev.Start(ctx, options...)
}

// own makes the schemas, or finds those that an earlier run kept. It refuses schemas of other
// programs.
func (db *Database) own(ctx context.Context) error {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(mark + db.Schema))
	var free bool
	if err := db.owner.QueryRow(ctx, `select pg_try_advisory_lock($1)`, int64(hash.Sum64())).Scan(&free); err != nil {
		return fmt.Errorf("lock schema %q: %w", db.Schema, err)
	}
	if !free {
		return fmt.Errorf("schema %q is in use by another run of this example", db.Schema)
	}
	for _, schema := range db.schemas() {
		var comment string
		err := db.owner.QueryRow(ctx,
			`select coalesce(obj_description(oid, 'pg_namespace'), '') from pg_namespace where nspname = $1`, schema).Scan(&comment)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			name := pgx.Identifier{schema}.Sanitize()
			if _, err := db.owner.Exec(ctx, `create schema `+name+`; comment on schema `+name+` is '`+mark+`'`); err != nil {
				return fmt.Errorf("create schema %q: %w", schema, err)
			}
		case err != nil:
			return fmt.Errorf("look for schema %q: %w", schema, err)
		case comment != mark:
			return fmt.Errorf("schema %q exists and was not made by an example; rename it, or use another database", schema)
		}
	}
	return nil
}

func (db *Database) schemas() []string {
	return append([]string{db.options.Schema}, db.options.Also...)
}

// Connect opens one more pool on the database, for the process itself. searchPath says where
// Postgres finds unqualified names.
func (db *Database) Connect(ctx context.Context, searchPath string) (*pgxpool.Pool, error) {
	return Connect(ctx, db.URL, "gendurable example", searchPath)
}

// Connect opens a pool that Postgres shows under the name.
func Connect(ctx context.Context, url, name, searchPath string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	config.MaxConns = 10
	config.ConnConfig.RuntimeParams["application_name"] = name
	config.ConnConfig.RuntimeParams["search_path"] = searchPath
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return pool, nil
}

// Where the database is, for people; without the password.
func (db *Database) Where() string {
	if db.cluster == nil {
		config := db.Pool.Config().ConnConfig
		return fmt.Sprintf("database %s at %s", config.Database, config.Host)
	}
	if !db.options.Keep {
		return "a throwaway Postgres"
	}
	dir, err := pgdev.Home(keptName)
	if err != nil {
		return "a Postgres of its own"
	}
	return "the Postgres in " + dir
}

// Forget says how to get rid of kept data.
func (db *Database) Forget() string {
	if db.cluster == nil {
		return "run it once without KEEP=1"
	}
	dir, err := pgdev.Home(keptName)
	if err != nil {
		return "remove its directory"
	}
	return "rm -r " + dir
}

// Close removes what Open made, unless Keep was asked for.
func (db *Database) Close() error {
	if db.cluster == nil && !db.options.Keep {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		for _, schema := range db.schemas() {
			if _, err := db.owner.Exec(ctx, `drop schema `+pgx.Identifier{schema}.Sanitize()+` cascade`); err != nil {
				return errors.Join(fmt.Errorf("drop schema %q: %w", schema, err), db.release())
			}
		}
	}
	return db.release()
}

func (db *Database) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var err error
	if db.Pool != nil {
		db.Pool.Close()
	}
	if db.owner != nil {
		err = db.owner.Close(ctx)
	}
	if db.cluster != nil {
		err = errors.Join(err, db.cluster.Stop())
	}
	return err
}
