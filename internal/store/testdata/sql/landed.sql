DELETE FROM "gendurable".lost_claims x WHERE x.worker = $1 AND x.claim_token = ANY($2::bigint[])
