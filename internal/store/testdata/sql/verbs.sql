SELECT h.at, substr(h.kind, 7), h.actor, coalesce(h.reason, ''), coalesce(h.instance, 0), coalesce(h.fsm, ''),
  coalesce(h.fsm_version, 0), coalesce(h.subject, ''), h.before::text, h.after::text
FROM "gendurable".history h
WHERE h.actor IS NOT NULL AND ($1::text IS NULL OR h.kind = $1) AND ($2::text IS NULL OR h.actor = $2) AND ($3::text IS NULL OR h.subject = $3)
  AND h.at >= coalesce($4::timestamptz, '-infinity') AND h.at < coalesce($5::timestamptz, 'infinity')
  AND ($7::bigint IS NULL OR h.instance = $7) ORDER BY h.at DESC FETCH FIRST ($6::bigint) ROWS WITH TIES
