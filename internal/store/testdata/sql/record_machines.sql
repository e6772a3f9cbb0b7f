INSERT INTO "gendurable".recorded_machines (machine) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING
