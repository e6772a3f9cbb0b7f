CREATE OR REPLACE FUNCTION "gen_durable_fingerprint"(errors jsonb, failure text, queue text, fsm text, fsm_version integer)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
BEGIN
  RETURN hashtextextended(
    left(regexp_replace(left(coalesce(errors->-1->>'error', ''), 500) COLLATE "C",
      '"(?:[^"\\]|\\.)*(?:"|$)|`[^`]*(?:`|$)|[A-Za-z]''[A-Za-z]|''[^'']*''|[A-Za-z0-9_.+-]*@[A-Za-z0-9_.-]*|-?(?:[0-9A-Fa-f]{4,}|[A-Za-z0-9_]*(?:[0-9]|::))[A-Za-z0-9_.:-]*',
      '#', 'g'), 200),
    hashtextextended(coalesce(failure, ''), hashtextextended(coalesce(errors->-1->>'step', ''),
      hashtextextended(queue, hashtextextended(fsm, fsm_version::bigint)))));
END $$;
