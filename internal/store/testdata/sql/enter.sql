SELECT "gendurable".gen_durable_enter()
