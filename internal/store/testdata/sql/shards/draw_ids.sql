SELECT "gendurable".gen_durable_draw('"gendurable".gen_durable_id_draw') FROM generate_series(1, $1::int)
