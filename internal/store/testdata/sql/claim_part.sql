SELECT set_config('gendurable.claimed', coalesce($1::bigint[], '{}')::text, true),
  set_config('gendurable.awaiting', ARRAY(
    SELECT unnest(current_setting('gendurable.awaiting')::bigint[]) INTERSECT SELECT unnest($1::bigint[]) WHERE $2::bool)::text, true)
