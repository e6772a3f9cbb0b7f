SELECT x.id, coalesce(x.partition_key, ''), x.status::text, coalesce(x.locked_by, ''), x.claim_token, x.parent_round < 0
FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT k.id, k.parent_round, k.partition_key, k.status, k.locked_by, k.claim_token FROM "gendurable".gen_durable k
  WHERE k.parent_id = u.parent AND abs(k.parent_round) = u.round AND k.finished_at IS NULL AND k.id = ANY($3::bigint[])
    AND NOT (k.joined IS NOT NULL AND coalesce(k.errors @> jsonb_build_array(jsonb_build_object('kind', 'cancel', 'error', 'cancelled: its parent does not wait for it any more')), false))
  FOR NO KEY UPDATE SKIP LOCKED) x
LIMIT $4
