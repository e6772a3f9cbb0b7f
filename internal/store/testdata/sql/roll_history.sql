SELECT made, dropped FROM "gendurable".gen_durable_roll_history($1::bigint * interval '1 microsecond')
