SET LOCAL lock_timeout = '5s';

-- By it the verbs of operators are listed, which are few among many transitions. The history is as new as this file, so it builds at once.
CREATE INDEX "history_verbs" ON "history" ("at") WHERE (actor IS NOT NULL);
