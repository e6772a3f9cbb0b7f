package ent

import (
	"context"

	"github.com/gendurable/gendurable/ent/internal"
)

// WithSchemas returns a context in which predicates on edges find the tables by the configuration.
// The queries of this package's client have it. A predicate needs it in a query of another client.
func WithSchemas(ctx context.Context, tables SchemaConfig) context.Context {
	return internal.NewSchemaConfigContext(ctx, tables)
}
