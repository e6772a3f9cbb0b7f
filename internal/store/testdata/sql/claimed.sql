SELECT current_setting('gendurable.claimed')::bigint[], current_setting('gendurable.fencing')::bigint[],
  current_setting('gendurable.unsettled')::text[]
