-- Everything goes: every instance and every signal.
DROP TABLE "signals";

DROP TABLE "gen_durable";

DROP TYPE "durable_status";
