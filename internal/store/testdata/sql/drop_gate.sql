DELETE FROM "gendurable".gates r WHERE r.name = $1 RETURNING r.name
