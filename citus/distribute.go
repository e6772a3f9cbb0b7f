package citus

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A distributed schema has a table that plain schemas do not have, gen_durable_home, with one row.
// It is a shard like all other tables, and so moves and fails over together with them:
//
//   - grp is the group of nodes that has the schema, as of the last entrance; -1 makes the next one
//     begin a new epoch. since is when it came there.
//   - epoch counts the groups that it has been at. It leads all that is drawn.
//   - base is what the sequence of ids had given here when the epoch began.
//   - place and record say which place of a cluster the schema is, NULL if it is none: see package
//     cluster.
//
// An id is place × 2^44 + epoch × 2^34 + what the sequence has given beyond base. Everything else
// that is drawn, above all fencing tokens, is epoch × 2^40 + what the sequence gives there; such
// numbers are compared only within one instance or key.

// Distribute makes a migrated schema a distributed one, on a worker that Citus chooses, and creates
// there the functions and the table that engines need. coordinator has to lead to the coordinator,
// as the owner of the schema. No engine may work on the schema meanwhile.
//
// Calling it again changes nothing. Call it again after the schema was undistributed and
// distributed again, after a migration that replaces an SQL function, and with a new release whose
// notes ask for it. The contents of the schema, its ids and its record as a place of a cluster
// stay.
func Distribute(ctx context.Context, coordinator Querier, schema string) error {
	name := pgx.Identifier{schema}.Sanitize()
	for _, sql := range []string{distributeSQL, drawSQL, enterSQL, functionsSQL} {
		if _, err := coordinator.Exec(ctx, strings.ReplaceAll(sql, "{s}", name)); err != nil {
			return fmt.Errorf("distribute schema %q: %w", schema, err)
		}
	}
	return nil
}

// distributeSQL distributes a schema that is not distributed yet. Shards cannot have identity
// columns, so each identity column gets a default that draws from a sequence. The sequence is open
// to all roles, since an identity column requires no right on its sequence either. Its name differs
// from the name of the identity's sequence. So a statement for a plain schema, which would draw by
// the old name and without the epoch, fails. The function that draws is created first as a stub,
// since the defaults call it, and gets its body afterwards (drawSQL).
//
// The next entrance begins a new epoch in any case: workers draw from new sequences when the
// schema is distributed again, and the coordinator has drawn ids before the first distribution.
// The first epoch begins beyond those.
const distributeSQL = `DO $do$
DECLARE c record; sequence text; last bigint; ids bigint := 0; said text; at integer;
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_dist_schema d WHERE d.schemaid = '{s}'::regnamespace) THEN
    RETURN;
  END IF;
  CREATE OR REPLACE FUNCTION {s}.gen_durable_draw(regclass) RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT NULL::bigint';
  said := pg_catalog.obj_description(to_regclass('{s}.gen_durable_id_seq'), 'pg_class');
  at := substring(said FROM '^gendurable place (\d+) of ');
  FOR c IN SELECT a.attrelid::regclass AS t, a.attname AS n FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class r ON r.oid = a.attrelid
    WHERE r.relnamespace = '{s}'::regnamespace AND a.attidentity <> ''
  LOOP
    sequence := pg_catalog.pg_get_serial_sequence(c.t::text, c.n);
    EXECUTE format('SELECT pg_catalog.nextval(%L)', sequence) INTO last;
    IF c.t = '{s}.gen_durable'::regclass THEN
      ids := last;
    END IF;
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', c.t, c.n);
    sequence := regexp_replace(sequence, '_seq("?)$', '_draw\1');
    EXECUTE format('CREATE SEQUENCE %s OWNED BY %s.%I', sequence, c.t, c.n);
    EXECUTE format('GRANT USAGE ON SEQUENCE %s TO PUBLIC', sequence);
    PERFORM pg_catalog.setval(sequence, last);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT {s}.gen_durable_draw(%L)', c.t, c.n, sequence);
  END LOOP;
  CREATE TABLE IF NOT EXISTS {s}.gen_durable_home (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), grp integer NOT NULL, epoch bigint NOT NULL, since timestamptz NOT NULL,
    base bigint NOT NULL DEFAULT 0, place integer, record text);
  INSERT INTO {s}.gen_durable_home (grp, epoch, since, place, record)
  VALUES (-1, (ids - (coalesce(at, 0)::bigint << 44)) >> 34, '-infinity', at, CASE WHEN at IS NOT NULL THEN said END)
  ON CONFLICT (one) DO UPDATE SET grp = -1;
  PERFORM pg_catalog.citus_schema_distribute('{s}');
END $do$`

// drawSQL creates the function that draws ids and tokens. It uses the settings that the entrance of
// the transaction has made. Postgres inlines it, and since each caller names a sequence as a
// constant, only one branch is left. The sequences of workers have ranges that begin at multiples
// of 2^48, so the low 40 bits begin at 1.
//
// A domain bounds an epoch: a cast to it costs next to nothing, whereas a function that is called
// for each id makes an insert 1.4 times as dear. The check of the domain calls a function only to
// refuse a number, with an error that says what to do. An expression in gen_durable_draw could not
// do that: Citus evaluates every part of an expression when it plans an INSERT itself.
const drawSQL = `DO $do$
BEGIN
  CREATE OR REPLACE FUNCTION {s}.gen_durable_refuse(n bigint) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  RAISE EXCEPTION 'gendurable: the sequence of ids has left what this epoch may give: % is number %, of 1 to 17179869183',
      n + pg_catalog.current_setting('gendurable.base')::bigint, n
    USING ERRCODE = '2200H', HINT = 'Begin the next epoch, at the coordinator: UPDATE {s}.gen_durable_home SET grp = -1';
END $f$;
  IF to_regtype('{s}.gen_durable_number') IS NULL THEN
    CREATE DOMAIN {s}.gen_durable_number AS bigint
      CONSTRAINT gen_durable_number CHECK (VALUE BETWEEN 1 AND 17179869183 OR {s}.gen_durable_refuse(VALUE));
  END IF;
  CREATE OR REPLACE FUNCTION {s}.gen_durable_draw(regclass) RETURNS bigint LANGUAGE sql VOLATILE AS $f$
SELECT CASE WHEN $1 = '{s}.gen_durable_id_draw'::pg_catalog.regclass
  THEN (pg_catalog.nextval($1) - pg_catalog.current_setting('gendurable.base')::bigint)::{s}.gen_durable_number + pg_catalog.current_setting('gendurable.ids')::bigint
  ELSE (pg_catalog.current_setting('gendurable.epoch')::bigint << 40) | (pg_catalog.nextval($1) & 1099511627775) END
$f$;
END $do$`

// enterSQL creates the function that begins each transaction of an engine: see
// internal/store/shards.go. It takes the lock that Citus' own writers take, ShareLock on the
// schema's shards. Each statement of a volatile function has its own snapshot, so the function
// reads the placement as it is under the lock.
//
// The first transactions after a move all find the group of another node in the table. One of them
// updates the row; the others wait for the row, find nothing left to update, and read the new
// epoch. Beyond epoch 1,023 the ids of one place would run into the next place's.
const enterSQL = `DO $do$
DECLARE shard bigint; home bigint;
BEGIN
  SELECT shardid INTO STRICT shard FROM pg_catalog.pg_dist_shard WHERE logicalrelid = '{s}.gen_durable'::regclass;
  SELECT shardid INTO STRICT home FROM pg_catalog.pg_dist_shard WHERE logicalrelid = '{s}.gen_durable_home'::regclass;
  EXECUTE format($e$
CREATE OR REPLACE FUNCTION {s}.gen_durable_enter() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $f$
DECLARE here integer; h record;
BEGIN
  PERFORM pg_catalog.lock_shard_metadata(5, ARRAY[%1$s::bigint]);
  SELECT p.groupid INTO here FROM pg_catalog.pg_dist_placement p JOIN pg_catalog.pg_dist_local_group l ON l.groupid = p.groupid
  WHERE p.shardid = %1$s;
  IF here IS NULL THEN
    RAISE EXCEPTION 'gendurable: another node has this schema' USING ERRCODE = '25006';
  END IF;
  SELECT grp, epoch, base, place INTO h FROM {s}.gen_durable_home_%2$s;
  IF h.grp <> here THEN
    UPDATE {s}.gen_durable_home_%2$s SET grp = here, epoch = epoch + 1,
      base = (SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM {s}.gen_durable_id_draw),
      since = CASE WHEN h.grp = -1 THEN '-infinity' ELSE pg_catalog.clock_timestamp() END WHERE grp <> here;
    SELECT grp, epoch, base, place INTO h FROM {s}.gen_durable_home_%2$s;
    IF h.place IS NOT NULL AND h.epoch > 1023 THEN
      RAISE EXCEPTION 'gendurable: place %% has begun 1023 epochs, as many as its ids may carry', h.place
        USING ERRCODE = '54000', HINT = 'Move the schema back to the node where it was.';
    END IF;
  END IF;
  PERFORM pg_catalog.set_config('gendurable.epoch', h.epoch::text, true), pg_catalog.set_config('gendurable.base', h.base::text, true),
    pg_catalog.set_config('gendurable.ids', ((coalesce(h.place, 0)::bigint << 44) + (h.epoch << 34))::text, true);
  RETURN true;
END $f$ $e$, shard, home);
END $do$`

// functionsSQL changes the SQL functions for other languages: they enter the schema and name its
// shards, as the store does. At any node but the owner they fail with the error of the entrance. In
// their text a table's name follows one of a few words of SQL; where the schema was distributed
// before, the name of its shard stands there instead.
//
// The function that creates and drops the daily partitions of the history runs at the coordinator.
// Citus hands its DDL to the owner without a search_path, so the function has to qualify all names.
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
