INSERT INTO "gendurable".edges (from_id, to_id, needs) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])
