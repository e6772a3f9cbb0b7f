SET LOCAL lock_timeout = '5s';

-- A node may wait for some of several others. needs: 3 the origin is one of a quorum, of which so many are to be done as wake_done of the
-- node says. No release before this one makes edges, so the table is small.
ALTER TABLE "edges"
  DROP CONSTRAINT "edges_needs_check",
  ADD CONSTRAINT "edges_needs_check" CHECK ("needs" BETWEEN 0 AND 3);
