SET LOCAL lock_timeout = '5s';

-- Machines as programs have declared them: Start stores them, so that programs that were not compiled with them can draw them.
CREATE TABLE "definitions" (
  "definition" text NOT NULL,
  "machine" text NOT NULL,
  "version" integer NOT NULL,
  "graph" jsonb NOT NULL,
  "declared_at" timestamptz NOT NULL DEFAULT now(),
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("definition"),
  CONSTRAINT "definitions_names_check" CHECK (
    octet_length("machine") BETWEEN 1 AND 512 AND "version" >= 1 AND "definition" = "machine" || '/' || "version"::text
  ),
  CONSTRAINT "definitions_graph_check" CHECK (
    jsonb_typeof("graph") = 'object' AND isfinite("declared_at") AND isfinite("updated_at")
  )
);
