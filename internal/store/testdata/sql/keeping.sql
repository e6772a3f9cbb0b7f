SELECT EXISTS (SELECT FROM "gendurable".kept_signals)
