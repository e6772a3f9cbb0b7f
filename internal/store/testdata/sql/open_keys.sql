INSERT INTO "gendurable".gate_keys (key) SELECT k FROM unnest($1::text[]) k ORDER BY k ON CONFLICT (key) DO NOTHING
