package dashboard

import (
	"net/http"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document names each type and each operation once, and every POST says what it takes.
func TestAPINamesAreItsOwn(t *testing.T) {
	t.Parallel()
	plain := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	named := map[string]reflect.Type{}
	var meet func(reflect.Type)
	meet = func(of reflect.Type) {
		switch of.Kind() { //nolint:exhaustive // the others hold no types
		case reflect.Pointer, reflect.Slice, reflect.Map:
			meet(of.Elem())
		case reflect.Struct:
			name := schemaName(of)
			require.Regexp(t, plain, name)
			if named[name] != nil {
				require.Equal(t, named[name], of, "two types of one name")
				return
			}
			named[name] = of
			if of != timeType {
				for _, f := range apiFields(of) {
					meet(f.of)
				}
			}
		default:
		}
	}
	names := map[string]bool{}
	for _, route := range apiRoutes() {
		require.False(t, names[route.name], route.name)
		names[route.name] = true
		require.Equal(t, route.method == http.MethodPost, route.in != nil, route.name)
		require.NotEmpty(t, route.summary)
		if route.in != nil {
			meet(route.in)
		}
		meet(route.out)
	}
	require.Len(t, apiFilter, len(filterFields), "the fields of the pages' filter")
	for _, p := range apiFilter {
		require.Contains(t, filterFields, p.name)
	}
}
