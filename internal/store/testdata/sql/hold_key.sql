INSERT INTO "gendurable".gen_durable (fsm, step, queue, paused, correlation_key, correlation_scope)
SELECT 'kept signals', 'none', 'kept signals', true, $1::text, '{runnable,executing,awaiting_signal,awaiting_children}'::"gendurable".durable_status[]
WHERE nullif(current_setting('gendurable.target'), '') IS NULL
ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
RETURNING set_config('gendurable.held', id::text, true)
