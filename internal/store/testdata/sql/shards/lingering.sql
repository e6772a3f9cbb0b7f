WITH l AS MATERIALIZED (
  SELECT x.ctid AS tid, x.partition_key, x.worker FROM "gendurable".lost_claims x WHERE x.partition_key = ANY($1::text[]) AND x.worker <> $2),
w AS MATERIALIZED (
  SELECT d.worker, (SELECT h.since < pg_catalog.clock_timestamp() - interval '5 minutes' FROM "gendurable".gen_durable_home h) AND pg_try_advisory_xact_lock(hashtextextended('gendurable ' || $3::text || ' ' || d.worker, 0)) AS gone FROM (SELECT DISTINCT worker FROM l) d),
d AS (DELETE FROM "gendurable".lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM "gendurable".lost_claims y WHERE y.ctid = ANY(ARRAY(SELECT l.tid FROM l JOIN w USING (worker) WHERE w.gone)) FOR UPDATE SKIP LOCKED)))
SELECT DISTINCT l.partition_key FROM l JOIN w USING (worker) WHERE NOT w.gone
