SET LOCAL lock_timeout = '5s';

-- Everything goes: every instance, every signal, the history.
DROP FUNCTION "gen_durable_insert", "gen_durable_signal", "gen_durable_roll_history", "gen_durable_move_history";

DROP TABLE
  "history", "recorded_machines", "definitions", "workers", "schedules", "windows", "lost_claims", "paused_queues", "gate_keys", "gates",
  "edges", "kept_signals", "signals", "gen_durable";

DROP FUNCTION "gen_durable_fingerprint";

DROP TYPE "durable_status";
