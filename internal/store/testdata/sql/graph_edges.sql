SELECT e.from_id, e.to_id, e.needs FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".edges x WHERE x.to_id = u.id OFFSET 0) e
ORDER BY e.to_id, e.from_id
