SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', $2, false),
  set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('idle_session_timeout', '0', false),
  CASE WHEN "gendurable".gen_durable_enter() THEN CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
  THEN set_config('transaction_timeout', '0', true) END END
