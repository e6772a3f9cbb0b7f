DELETE FROM "gendurable".gen_durable g WHERE g.id = nullif(current_setting('gendurable.held', true), '')::bigint
RETURNING set_config('gendurable.held', '', true)
