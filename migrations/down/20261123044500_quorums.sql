SET LOCAL lock_timeout = '5s';

-- Nothing would ever wake a node that waits for a quorum, nor a root that waits for it.
UPDATE "gen_durable" n SET "status" = 'failed', "failure" = 'skipped', "last_error" = 'the migration of quorums was undone', "finished_at" = clock_timestamp()
WHERE n."node" IS NOT NULL AND n."status" = 'awaiting_children' AND n."visit" = 0
  AND EXISTS (SELECT FROM "edges" e WHERE e."to_id" = n."id" AND e."needs" = 3);
UPDATE "gen_durable" r SET "status" = 'runnable', "eligible_at" = clock_timestamp(), "await_deadline" = NULL
WHERE r."status" = 'awaiting_children' AND EXISTS (
  SELECT FROM "gen_durable" k WHERE k."parent_id" = r."id" AND k."parent_round" = r."round" AND k."failure" = 'skipped');
DELETE FROM "edges" WHERE "needs" = 3;
ALTER TABLE "edges"
  DROP CONSTRAINT "edges_needs_check",
  ADD CONSTRAINT "edges_needs_check" CHECK ("needs" BETWEEN 0 AND 2);
