SET LOCAL lock_timeout = '5s';

-- Streams of children: see internal/store/commit_stream.go. NULL: none.
ALTER TABLE "gen_durable" ADD COLUMN "stream_most" integer NULL, ADD COLUMN "stream_nth" bigint NULL, ADD COLUMN "stream_visit" bigint NULL;
