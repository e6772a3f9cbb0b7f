SET LOCAL lock_timeout = '5s';

-- Many processes are told of too many requests in the same moment: by this the first of them slows the key down, once.
ALTER TABLE "gate_keys" ADD COLUMN "slowed_at" timestamptz NULL;
