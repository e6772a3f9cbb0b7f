DELETE FROM "gendurable".recorded_machines r WHERE r.machine = ANY($1::text[])
