package extensions

// The clients that the tests generate import these.
import (
	_ "entgo.io/ent/entql"
	_ "entgo.io/ent/privacy"
	_ "github.com/99designs/gqlgen/graphql"
	_ "github.com/99designs/gqlgen/graphql/errcode"
	_ "github.com/hashicorp/go-multierror"
	_ "github.com/vektah/gqlparser/v2/gqlerror"

	_ "github.com/gendurable/gendurable/engine"
	_ "github.com/gendurable/gendurable/entpgx"
)
