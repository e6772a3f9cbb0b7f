SET LOCAL lock_timeout = '5s';

-- An engine reads the revisions in the schema of its tables. The Atlas CLI keeps them in a schema of their own unless it is told
-- otherwise, and makes the tables in public: an engine would find neither.
DO $$
BEGIN
  IF to_regclass('atlas_schema_revisions.atlas_schema_revisions') IS NOT NULL
    AND to_regclass(format('%I.atlas_schema_revisions', current_schema())) IS NULL THEN
    RAISE EXCEPTION 'schema % has no revision table: the engine would not find what is migrated here', quote_ident(current_schema())
      USING HINT = 'Give the Atlas CLI the engine''s schema twice, as search_path of the URL and as revisions schema: '
        'gendurable migrate dir writes an atlas.hcl that does.';
  END IF;
END
$$;
