SELECT nextval('"gendurable".gen_durable_id_seq') FROM generate_series(1, $1::int)
