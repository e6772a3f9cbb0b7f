SELECT u.f, u.t FROM unnest($1::bigint[], $2::bigint[]) AS u(f, t)
WHERE EXISTS (SELECT FROM "gendurable".edges e WHERE e.from_id = u.f AND e.to_id = u.t OFFSET 0)
