SELECT s.target_id FROM "gendurable".signals s WHERE s.consumed_at IS NOT NULL
GROUP BY s.target_id HAVING count(*) > $1::bigint ORDER BY s.target_id LIMIT $2::bigint
