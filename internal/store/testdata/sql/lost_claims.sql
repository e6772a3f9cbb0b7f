INSERT INTO "gendurable".lost_claims (partition_key, worker, claim_token)
SELECT u.k, u.w, u.t FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(k, w, t)
