SELECT c.success, c.result FROM pg_catalog.run_command_on_coordinator(
  format('SELECT concat_ws('' '', made, dropped, refused, because) FROM "gendurable".gen_durable_roll_history(%L)', $1::bigint * interval '1 microsecond')) c
