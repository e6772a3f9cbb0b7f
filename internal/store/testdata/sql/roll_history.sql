SELECT made, dropped, refused, coalesce(because, '') FROM "gendurable".gen_durable_roll_history($1::bigint * interval '1 microsecond')
