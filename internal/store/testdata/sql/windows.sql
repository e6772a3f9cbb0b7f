SELECT w.name, w.uid, w.instance, w.opened_at, w.until FROM "gendurable".windows w WHERE w.name = ANY($1::text[])
