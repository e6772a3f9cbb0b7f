// Package citus makes an engine's schema one that Citus distributes, and finds the node that owns
// it. The store does the rest, when the engine starts: see internal/store/shards.go, and decision
// D69.
//
// A migrated schema is distributed once, by [Distribute]. Its tables are then on one worker, and
// Citus can move them to another one while engines work. An engine's pool has to lead to the owner:
// [Follow] makes it do so, also after a move or a failover.
//
// It imports pgx, and nothing of the project.
package citus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotDistributed says that Citus does not distribute the schema.
var ErrNotDistributed = errors.New("the schema is not distributed")

// ownerSQL finds the node that owns a schema. $1 the table of instances, quoted
const ownerSQL = `SELECT n.nodename, n.nodeport FROM pg_catalog.pg_dist_shard s
JOIN pg_catalog.pg_dist_placement p USING (shardid) JOIN pg_catalog.pg_dist_node n USING (groupid)
WHERE s.logicalrelid = to_regclass($1::text) AND n.noderole = 'primary' AND n.isactive`

// Owner returns the address of the node that has a schema's tables, as the nodes know each other.
// meta leads to any node: each of them has the metadata.
func Owner(ctx context.Context, meta *pgxpool.Pool, schema string) (host string, port uint16, err error) {
	err = meta.QueryRow(ctx, ownerSQL, pgx.Identifier{schema, "gen_durable"}.Sanitize()).Scan(&host, &port)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotDistributed
	}
	if err != nil {
		return "", 0, fmt.Errorf("look who owns schema %q: %w", schema, err)
	}
	return host, port, nil
}

// Follow makes each new connection of a pool lead to the node that owns the schema by then. meta
// leads to any node. The store gives up the pool's connections when it finds that the schema has
// moved.
func Follow(config *pgxpool.Config, meta *pgxpool.Pool, schema string) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		host, port, err := Owner(ctx, meta, schema)
		if err != nil {
			return err
		}
		c.Host, c.Port, c.Fallbacks = host, port, nil
		if c.TLSConfig != nil {
			c.TLSConfig = c.TLSConfig.Clone()
			c.TLSConfig.ServerName = host
		}
		return nil
	}
}

// Distribute makes a migrated schema a distributed one, on the worker that Citus chooses, and makes
// there what engines need. coordinator leads to the coordinator, as the owner of the schema. No
// engine may work meanwhile. It may be repeated, and must be repeated after the schema was
// undistributed and distributed again, and after a migration that replaces an SQL function.
func Distribute(ctx context.Context, coordinator *pgx.Conn, schema string) error {
	name := pgx.Identifier{schema}.Sanitize()
	for _, sql := range []string{drawSQL, distributeSQL, enterSQL, functionsSQL} {
		if _, err := coordinator.Exec(ctx, strings.ReplaceAll(sql, "{s}", name)); err != nil {
			return fmt.Errorf("distribute schema %q: %w", schema, err)
		}
	}
	return nil
}

// drawSQL makes the function by which ids and tokens are drawn, behind the epoch that the
// transaction has entered by. Postgres inlines it. Sequences of workers have ranges of their own,
// which begin at multiples of 2^48, so that their low 40 bits begin at 1.
const drawSQL = `CREATE OR REPLACE FUNCTION {s}.gen_durable_draw(regclass) RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT (pg_catalog.current_setting(''gendurable.epoch'')::bigint << 40) | (pg_catalog.nextval($1) & 1099511627775)'`

// distributeSQL distributes a schema that is not yet distributed. Shards have no identity columns,
// so each of these becomes a default that draws from a sequence. As an identity column takes no
// right on its sequence, this takes none. Its name differs from the identity's, so that a statement
// for a plain schema, which draws by that name and without the epoch, fails.
//
// The epoch grows at the next entrance in any case: distributed anew, workers draw from new
// sequences, and before the first distribution the coordinator has drawn epoch 0.
const distributeSQL = `DO $do$
DECLARE c record; sequence text; last bigint;
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_dist_schema d WHERE d.schemaid = '{s}'::regnamespace) THEN
    RETURN;
  END IF;
  FOR c IN SELECT a.attrelid::regclass AS t, a.attname AS n FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class r ON r.oid = a.attrelid
    WHERE r.relnamespace = '{s}'::regnamespace AND a.attidentity <> ''
  LOOP
    sequence := pg_catalog.pg_get_serial_sequence(c.t::text, c.n);
    EXECUTE format('SELECT pg_catalog.nextval(%L)', sequence) INTO last;
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', c.t, c.n);
    sequence := regexp_replace(sequence, '_seq("?)$', '_draw\1');
    EXECUTE format('CREATE SEQUENCE %s OWNED BY %s.%I', sequence, c.t, c.n);
    EXECUTE format('GRANT USAGE ON SEQUENCE %s TO PUBLIC', sequence);
    PERFORM pg_catalog.setval(sequence, last);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT {s}.gen_durable_draw(%L)', c.t, c.n, sequence);
  END LOOP;
  CREATE TABLE IF NOT EXISTS {s}.gen_durable_home (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), grp integer NOT NULL, epoch bigint NOT NULL, since timestamptz NOT NULL);
  INSERT INTO {s}.gen_durable_home (grp, epoch, since) VALUES (-1, 0, '-infinity') ON CONFLICT (one) DO UPDATE SET grp = -1;
  PERFORM pg_catalog.citus_schema_distribute('{s}');
END $do$`

// enterSQL makes the function that begins each transaction of an engine: see
// internal/store/shards.go. The lock is the one that Citus' own writers take, ShareLock on the
// schema's shards. Each statement of a volatile function has a snapshot of its own, so the look at
// the placement is later than the lock.
//
// The first transactions after a move all find another node's group in the table. One of them
// updates it, and the others wait for its row, find that they have nothing to update any more, and
// read the new epoch.
const enterSQL = `DO $do$
DECLARE shard bigint; home bigint;
BEGIN
  SELECT shardid INTO STRICT shard FROM pg_catalog.pg_dist_shard WHERE logicalrelid = '{s}.gen_durable'::regclass;
  SELECT shardid INTO STRICT home FROM pg_catalog.pg_dist_shard WHERE logicalrelid = '{s}.gen_durable_home'::regclass;
  EXECUTE format($e$
CREATE OR REPLACE FUNCTION {s}.gen_durable_enter() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $f$
DECLARE here integer; was integer; moves bigint;
BEGIN
  PERFORM pg_catalog.lock_shard_metadata(5, ARRAY[%1$s::bigint]);
  SELECT p.groupid INTO here FROM pg_catalog.pg_dist_placement p JOIN pg_catalog.pg_dist_local_group l ON l.groupid = p.groupid
  WHERE p.shardid = %1$s;
  IF here IS NULL THEN
    RAISE EXCEPTION 'gendurable: another node has this schema' USING ERRCODE = '25006';
  END IF;
  SELECT grp, epoch INTO was, moves FROM {s}.gen_durable_home_%2$s;
  IF was <> here THEN
    UPDATE {s}.gen_durable_home_%2$s SET grp = here, epoch = epoch + 1,
      since = CASE WHEN was = -1 THEN '-infinity' ELSE pg_catalog.clock_timestamp() END WHERE grp <> here;
    SELECT epoch INTO moves FROM {s}.gen_durable_home_%2$s;
  END IF;
  PERFORM pg_catalog.set_config('gendurable.epoch', moves::text, true);
  RETURN true;
END $f$ $e$, shard, home);
END $do$`

// functionsSQL makes the SQL functions for other languages enter the schema and name its shards, as
// the store does. Anywhere but at the owner they fail with what the entrance says. The tables'
// names follow words of SQL there, or those of the shards do, where the schema was distributed
// before.
//
// The function that makes and drops the history's days runs at the coordinator. Citus hands its DDL
// to the owner, where no search_path is set, so that all names have to be qualified.
const functionsSQL = `DO $do$
DECLARE f record; t record; definition text;
BEGIN
  FOR f IN SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = '{s}'::regnamespace AND p.proname IN ('gen_durable_insert', 'gen_durable_signal')
  LOOP
    definition := pg_catalog.pg_get_functiondef(f.oid);
    FOR t IN SELECT c.relname, d.shardid FROM pg_catalog.pg_dist_shard d JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
      WHERE c.relnamespace = '{s}'::regnamespace
    LOOP
      definition := regexp_replace(definition, format('\m(FROM|INTO|UPDATE|JOIN) %s(_\d+)?\M', t.relname), format('\1 %s_%s', t.relname, t.shardid), 'g');
    END LOOP;
    IF strpos(definition, 'gen_durable_enter') = 0 THEN
      definition := regexp_replace(definition, '\nBEGIN\n', E'\nBEGIN\n  PERFORM gen_durable_enter();\n');
    END IF;
    EXECUTE definition;
  END LOOP;
  SELECT pg_catalog.pg_get_functiondef(p.oid) INTO STRICT definition FROM pg_catalog.pg_proc p
  WHERE p.pronamespace = '{s}'::regnamespace AND p.proname = 'gen_durable_roll_history';
  definition := replace(definition, 'quote_ident(current_schema())', quote_literal('{s}'));
  EXECUTE regexp_replace(definition, 'SET search_path TO [^\n]*', 'SET search_path TO ''pg_catalog''');
END $do$`
