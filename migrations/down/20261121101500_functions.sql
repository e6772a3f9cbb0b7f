SET LOCAL lock_timeout = '5s';

DROP FUNCTION "gen_durable_insert", "gen_durable_signal";
