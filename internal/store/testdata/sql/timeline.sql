SELECT h.at, h.instance, h.visit, h.took, h.waited, h.attempt, h.fsm_version, h.kind, h.worker::text, h.fsm, h.step, h.to_step,
  h.failure, h.error, h.actor, h.reason, h.subject, h.diff::text, h.before::text, h.after::text, 0::bigint, h.tableoid::bigint, h.ctid::text
FROM "gendurable".history h
WHERE h.instance = $1 AND (h.at, h.tableoid::bigint, h.ctid) > ($2::timestamptz, $3::bigint, $4::text::tid) AND h.at >= $2::timestamptz
ORDER BY h.at, h.tableoid::bigint, h.ctid LIMIT $5
