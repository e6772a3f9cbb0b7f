SET LOCAL lock_timeout = '5s';

DROP INDEX "history_subject";
DROP INDEX "history_kind";
DROP INDEX "history_actor";
