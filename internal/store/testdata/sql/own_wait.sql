SELECT CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $1, true) END
