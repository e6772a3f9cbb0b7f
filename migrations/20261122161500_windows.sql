SET LOCAL lock_timeout = '5s';

-- Inserts that are throttled or debounced by a key meet here, and nobody else does. Most of its updates change no indexed column.
CREATE TABLE "windows" (
  "name" text NOT NULL,
  "uid" uuid NOT NULL,
  "instance" bigint NOT NULL DEFAULT 0,
  "opened_at" timestamptz NOT NULL,
  "until" timestamptz NOT NULL,
  PRIMARY KEY ("name"),
  CONSTRAINT "windows_names_check" CHECK (octet_length("name") BETWEEN 3 AND 530),
  CONSTRAINT "windows_times_check" CHECK (isfinite("opened_at") AND isfinite("until"))
) WITH (fillfactor = 50);
