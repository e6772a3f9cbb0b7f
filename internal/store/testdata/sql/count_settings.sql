SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', '0', true),
  set_config('enable_seqscan', 'on', true), set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true),
  CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
  THEN set_config('transaction_timeout', '0', true) END
