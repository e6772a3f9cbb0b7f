# For the Atlas CLI (community edition; make atlas builds the pinned one). Needs neither a login nor Docker.
#
#   DATABASE_URL=postgres://… atlas migrate apply --env local [--var schema=gendurable]
#
# DATABASE_URL:     the database to migrate.
# DEV_DATABASE_URL: a scratch database for migrate diff, lint and validate. Atlas empties its schema public.

variable "schema" {
  type        = string
  default     = "gendurable"
  description = "The Postgres schema of the engine: Config.Schema. It holds the tables and the revision table alike."
}

env "local" {
  src = "file://internal/ddl/schema.sql"
  url = urlqueryset(getenv("DATABASE_URL"), "search_path", var.schema)
  dev = urlqueryset(getenv("DEV_DATABASE_URL"), "search_path", "public")
  # atlas schema apply would drop what the desired schema has not.
  exclude = ["atlas_schema_revisions"]

  migration {
    dir              = "file://migrations"
    revisions_schema = var.schema
    # Do not wait for another migration, say so: this version of the CLI waits inside a statement, and a concurrent index build in turn
    # waits for every statement that is older, so the two would deadlock.
    lock_timeout = "0s"
  }

  format {
    migrate {
      diff = "{{ sql . \"  \" }}"
    }
  }
}
