SELECT h.at, h.instance, h.visit, h.took, h.waited, h.attempt, h.fsm_version, h.kind, h.worker::text, h.fsm, h.step, h.to_step,
  h.failure, h.error, h.actor, h.reason, h.subject, CASE WHEN h.until <= $6::bigint THEN h.diff::text END,
  CASE WHEN h.until <= $6::bigint THEN h.before::text END, CASE WHEN h.until <= $6::bigint THEN h.after::text END,
  CASE WHEN h.until <= $6::bigint THEN 0 ELSE h.bytes END, h.part, h.place::text
FROM (SELECT p.*, sum(p.bytes) OVER (ORDER BY p.at DESC, p.part DESC, p.place DESC) AS until FROM (
  SELECT h.*, h.tableoid::bigint AS part, h.ctid AS place,
    (coalesce(octet_length(h.diff::text), 0) + coalesce(octet_length(h.before::text), 0) + coalesce(octet_length(h.after::text), 0))::bigint AS bytes
  FROM "gendurable".history h WHERE h.instance = $1 AND h.at <= coalesce($2::timestamptz, 'infinity')
    AND (h.at, h.tableoid::bigint, h.ctid) < (coalesce($2::timestamptz, 'infinity'), $3::bigint, $4::text::tid)
  ORDER BY h.at DESC, h.tableoid::bigint DESC, h.ctid DESC LIMIT $5) p) h
ORDER BY h.at DESC, h.part DESC, h.place DESC
