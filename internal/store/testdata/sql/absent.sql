DELETE FROM "gendurable".workers w WHERE w.id = $1::uuid
