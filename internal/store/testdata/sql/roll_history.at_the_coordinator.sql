SELECT c.success, c.result FROM pg_catalog.run_command_on_coordinator(
  format('SELECT row_to_json(r) FROM "gendurable".gen_durable_roll_history(%L) r', $1::bigint * interval '1 microsecond')) c
