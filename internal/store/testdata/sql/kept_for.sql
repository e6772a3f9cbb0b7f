SELECT EXISTS (SELECT FROM "gendurable".kept_signals k WHERE k.key = ANY($1::text[]))
