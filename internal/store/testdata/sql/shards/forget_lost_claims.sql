WITH w AS MATERIALIZED (
  SELECT d.worker, CASE WHEN d.worker <> $1 THEN (SELECT h.since < pg_catalog.clock_timestamp() - interval '5 minutes' FROM "gendurable".gen_durable_home h) AND pg_try_advisory_xact_lock(hashtextextended('gendurable ' || $4::text || ' ' || d.worker, 0)) ELSE false END AS gone
  FROM (SELECT DISTINCT worker FROM "gendurable".lost_claims) d)
DELETE FROM "gendurable".lost_claims x WHERE x.ctid = ANY(ARRAY(
  SELECT y.ctid FROM "gendurable".lost_claims y JOIN w USING (worker)
  WHERE w.gone OR y.worker = $1 AND y.claim_token <> ALL(coalesce($2::bigint[], '{}'))
    AND y.lost_at < (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond'
  FOR UPDATE OF y SKIP LOCKED))
