SET LOCAL lock_timeout = '5s';

-- Nothing would ever wake a node that waits for others, nor a root that waits for it.
UPDATE "gen_durable" SET "status" = 'failed', "failure" = 'skipped', "last_error" = 'the migration of graphs was undone', "finished_at" = clock_timestamp()
WHERE "node" IS NOT NULL AND "status" = 'awaiting_children' AND "visit" = 0;
UPDATE "gen_durable" r SET "status" = 'runnable', "eligible_at" = clock_timestamp(), "await_deadline" = NULL
WHERE r."status" = 'awaiting_children' AND EXISTS (
  SELECT FROM "gen_durable" k WHERE k."parent_id" = r."id" AND k."parent_round" = r."round" AND k."failure" = 'skipped');

ALTER TABLE "workers" DROP COLUMN "graphs";
DROP TABLE "edges";
ALTER TABLE "gen_durable" DROP COLUMN "node";
