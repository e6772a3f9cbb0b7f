SET LOCAL lock_timeout = '5s';

DROP INDEX "history_verbs";
