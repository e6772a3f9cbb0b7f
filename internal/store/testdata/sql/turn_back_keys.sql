UPDATE "gendurable".gate_keys b SET at = clock_timestamp()
FROM (SELECT k.key FROM "gendurable".gate_keys k WHERE k.at > clock_timestamp() ORDER BY k.key FOR NO KEY UPDATE SKIP LOCKED) l
WHERE b.key = l.key AND b.at > clock_timestamp()
