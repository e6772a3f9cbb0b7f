SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable"
  VALIDATE CONSTRAINT "gen_durable_lane_check";
