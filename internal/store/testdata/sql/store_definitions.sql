WITH u AS MATERIALIZED (
  SELECT t.machine || '/' || t.version::text AS definition, t.machine, t.version, t.graph::jsonb AS graph
  FROM (SELECT unnest($1::text[]) AS machine, unnest($2::int[]) AS version, unnest($3::text[]) AS graph) t),
changed AS (
  UPDATE "gendurable".definitions d SET graph = u.graph, updated_at = clock_timestamp()
  FROM u CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".definitions x
    WHERE x.definition = u.definition AND x.graph <> u.graph FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE d.ctid = l.tid),
missing AS (
  INSERT INTO "gendurable".definitions (definition, machine, version, graph)
  SELECT u.definition, u.machine, u.version, u.graph FROM u
  WHERE NOT EXISTS (SELECT FROM "gendurable".definitions x WHERE x.definition = u.definition)
  ORDER BY u.definition COLLATE "C"
  ON CONFLICT (definition) DO NOTHING)
SELECT r.machine FROM "gendurable".recorded_machines r
