UPDATE "gendurable".gen_durable g SET round = -g.round, stream_most = u.most
FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS most) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid AND x.round > 0 OFFSET 0) l
WHERE g.ctid = l.tid
