SET LOCAL lock_timeout = '5s';

-- The key locked the parent anew for every child: a quarter of what the insertion of a child cost. The engine inserts children under the
-- lock of their parent, and deletes a parent after them. Only who deletes one by hand leaves children behind; they end without it.
ALTER TABLE "gen_durable" DROP CONSTRAINT "gen_durable_parent_id_fkey";

-- Each update of a child adds an entry. Among entries that are lists, this splits one, and dead entries are found more slowly.
ALTER INDEX "gen_durable_parent" SET (deduplicate_items = off);
