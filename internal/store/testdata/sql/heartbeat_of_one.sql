UPDATE "gendurable".gen_durable g SET lease_expires_at = (SELECT clock_timestamp()) + $4::bigint * interval '1 microsecond'
WHERE g.id = $1 AND coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = $2
RETURNING g.id, g.paused
