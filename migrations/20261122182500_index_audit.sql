SET LOCAL lock_timeout = '5s';

-- By them the verbs of operators are found by who asked, by verb and by what they were about. Transitions of instances are in none of them.
-- The history is as new as this file, so they build at once.
CREATE INDEX "history_actor" ON "history" ("actor", "at") WHERE (actor IS NOT NULL);
CREATE INDEX "history_kind" ON "history" ("kind", "at") WHERE (actor IS NOT NULL);
CREATE INDEX "history_subject" ON "history" ("subject", "at") WHERE (subject IS NOT NULL);
