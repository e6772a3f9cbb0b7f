DELETE FROM "gendurable".windows w WHERE w.name = ANY($1::text[])
