SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable" DROP CONSTRAINT "gen_durable_times_check";

ALTER TABLE "signals" DROP CONSTRAINT "signals_times_check";

ALTER TABLE "schedules" DROP CONSTRAINT "schedules_times_check";

ALTER TABLE "paused_queues" DROP CONSTRAINT "paused_queues_times_check";
