SELECT p.queue, p.paused_at, NULL::text AS name, NULL::text, NULL::text, NULL::text, NULL::text, NULL::int, NULL::int, NULL::bigint,
  NULL::int, NULL::int, NULL::int, NULL::bigint, NULL::int, NULL::text, NULL::bool, NULL::bool FROM "gendurable".paused_queues p
UNION ALL SELECT NULL, NULL, r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run FROM "gendurable".gates r
UNION ALL (SELECT NULL, NULL, b.key, NULL, NULL, NULL, NULL, b.places, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM "gendurable".gate_keys b WHERE b.places IS NOT NULL ORDER BY b.key LIMIT 1000)
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (SELECT FROM "gendurable".recorded_machines)
UNION ALL SELECT NULL, clock_timestamp(), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (SELECT FROM "gendurable".kept_signals)
