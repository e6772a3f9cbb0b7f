package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
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

// A member that occurs twice is refused, at any depth, since two readers may take either.
func TestTheAPIRefusesAMemberThatOccursTwice(t *testing.T) {
	t.Parallel()
	type inner struct {
		Queue string `json:"queue"`
	}
	type body struct {
		Reason string          `json:"reason"`
		Filter inner           `json:"filter"`
		State  json.RawMessage `json:"state"`
	}
	read := func(text string) error {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		return decodeAPI(r, new(body))
	}
	require.NoError(t, read(`{"reason": "a", "filter": {"queue": "q"}, "state": [{"a": 1}, {"a": [2, {"a": null}]}]}`))
	for text, field := range map[string]string{
		`{"reason": "a", "reason": "b"}`: "reason", `{"filter": {"queue": "a", "queue": "b"}}`: "filter.queue",
		`{"filter": {"queue": "a"}, "filter": {}}`: "filter", `{"state": [{"a": 1, "a": 1}]}`: "state.a",
	} {
		wrong, ok := errors.AsType[*fieldError](read(text))
		require.True(t, ok, text)
		require.Equal(t, field, wrong.field)
	}
}
