SET LOCAL lock_timeout = '5s';

ALTER INDEX "gen_durable_parent" RESET (deduplicate_items);

UPDATE "gen_durable" c SET "parent_id" = NULL
WHERE c."parent_id" IS NOT NULL AND NOT EXISTS (SELECT FROM "gen_durable" p WHERE p."id" = c."parent_id");
ALTER TABLE "gen_durable" ADD CONSTRAINT "gen_durable_parent_id_fkey"
  FOREIGN KEY ("parent_id") REFERENCES "gen_durable" ("id") ON DELETE SET NULL;
