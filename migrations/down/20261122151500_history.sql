SET LOCAL lock_timeout = '5s';

DROP FUNCTION "gen_durable_roll_history"(interval, integer);

DROP TABLE "recorded_machines";

DROP TABLE "history";
