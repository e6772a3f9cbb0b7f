package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/engine"
)

// The HTTP API lies below the pages. Each route reads by the functions of its page. Each verb runs
// the page's handler: the JSON that was sent is turned into the form of the page. So both obey the
// same access, the same redaction and the same bounds. apiRoutes is the only list of routes:
// handlers and the OpenAPI document are generated from it.

// apiRoute answers one path.
type apiRoute struct {
	method, path string
	name         string // of the operation
	summary      string
	query        []apiParam
	in, out      reflect.Type // of the body, nil without one; and of the answer
	serve        func(s *server, r *http.Request, in any) (any, error)
}

// apiParam is a field of a query.
type apiParam struct {
	name, kind, description string // kind is a type of JSON Schema
	many                    bool   // it may be given several times
	enum                    []string
}

// reading makes a route that reads.
func reading[O any](path, name, summary string, query []apiParam, ask func(*server, *http.Request) (O, error)) apiRoute {
	return apiRoute{http.MethodGet, path, name, summary, query, nil, reflect.TypeFor[O](), func(s *server, r *http.Request, _ any) (any, error) {
		out, err := ask(s, r)
		if l, may := any(&out).(interface{ without(all []lack) }); may {
			l.without(lacking(r.Context()))
		}
		return out, err
	}}
}

// changing makes a route that changes something.
func changing[I, O any](path, name, summary string, change func(*server, *http.Request, *I) (O, error)) apiRoute {
	return apiRoute{http.MethodPost, path, name, summary, nil, reflect.TypeFor[I](), reflect.TypeFor[O](), func(s *server, r *http.Request, in any) (any, error) {
		body, _ := in.(*I)
		return change(s, r, body)
	}}
}

// apiError is an error as the API sends it.
type apiError struct {
	Error  string `json:"error"`            // what is wrong, with the bound where there is one
	Kind   string `json:"kind"`             // one of apiKinds
	Field  string `json:"field,omitempty"`  // of the input, if one is wrong
	Advice string `json:"advice,omitempty"` // what to do
}

// apiKinds are the kinds of errors by status.
var apiKinds = map[int]string{
	http.StatusBadRequest: "bad_input", http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found", http.StatusMethodNotAllowed: "method",
	http.StatusConflict: "conflict", http.StatusRequestEntityTooLarge: "too_large", http.StatusUnsupportedMediaType: "media_type",
	http.StatusRequestTimeout: "timeout", http.StatusServiceUnavailable: "unavailable", http.StatusInternalServerError: "internal",
}

const apiRoot = "/api/"

// serveAPI registers the routes.
func (s *server) serveAPI(mux table) {
	for _, route := range apiRoutes() {
		mux.HandleFunc(route.method+" "+route.path, s.answerAPI(route))
	}
	mux.HandleFunc("GET "+apiRoot+"openapi.json", s.openAPI)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" "+apiRoot, func(w http.ResponseWriter, r *http.Request) {
			s.failAPI(w, r, &misuse{http.StatusNotFound, "There is no such operation.", "GET " + apiRoot + "openapi.json lists what there is."})
		})
	}
}

// answerAPI makes a handler of a route. Nothing is sent before the whole answer is there.
func (s *server) answerAPI(route apiRoute) http.HandlerFunc {
	known := map[string]bool{}
	for _, p := range route.query {
		known[p.name] = true
	}
	return func(w http.ResponseWriter, r *http.Request) {
		for name := range r.URL.Query() {
			if !known[name] {
				s.failAPI(w, r, &fieldError{name, errors.New("the operation has no such parameter; " + apiRoot + "openapi.json lists them")})
				return
			}
		}
		var in any
		if route.in != nil {
			body := reflect.New(route.in).Interface()
			if err := decodeAPI(r, body); err != nil {
				s.failAPI(w, r, err)
				return
			}
			in = body
		}
		out, err := route.serve(s, r, in)
		if err != nil {
			s.failAPI(w, r, err)
			return
		}
		s.sendAPI(w, http.StatusOK, out)
	}
}

// fieldError is a wrong field of the input.
type fieldError struct {
	field string
	err   error
}

func (f *fieldError) Error() string { return f.field + ": " + f.err.Error() }

// decodeAPI reads a body. Its type has to say that it is JSON, which a form of another site's page
// cannot.
func decodeAPI(r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &misuse{http.StatusUnsupportedMediaType, "The body has to be application/json.", "Set Content-Type."}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return cmp.Or(bodyFault(err), err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return &fieldError{cmp.Or(wrong.Field, "body"), fmt.Errorf("%s, want %s", wrong.Value, jsonName(wrong.Type))}
		}
		return &fieldError{"body", errors.New(strings.TrimPrefix(err.Error(), "json: "))}
	}
	if decoder.More() {
		return &fieldError{"body", errors.New("more text follows the JSON document: send one document")}
	}
	if err := onceEach("", json.NewDecoder(bytes.NewReader(text))); err != nil {
		return err
	}
	return exactNames("", reflect.TypeOf(into).Elem(), text)
}

// jsonName names a type as JSON does.
func jsonName(of reflect.Type) string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch of.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Bool, reflect.String:
		return of.Kind().String()
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int64, reflect.Int32:
		return fmt.Sprintf("integer of %d bits", of.Bits())
	}
	return of.String()
}

// onceEach returns an error for a member that occurs twice in one object. encoding/json takes the
// last one or makes one of both, and a proxy that judges the first would pass the other. So a state
// or a payload may not have it either.
func onceEach(in string, decoder *json.Decoder) error {
	token, err := decoder.Token()
	opens, _ := token.(json.Delim)
	if err != nil || opens == 0 {
		return err
	}
	for seen := map[string]bool{}; decoder.More(); {
		member := in
		if opens == '{' {
			token, err := decoder.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if seen[name] {
				return &fieldError{in + cut(name, 100), errors.New("given twice: give it once")}
			}
			seen[name] = true
			member = in + cut(name, 100) + "."
		}
		if err := onceEach(member, decoder); err != nil {
			return err
		}
	}
	_, err = decoder.Token() // the end
	return err
}

// exactNames returns an error for a field whose name differs from the documented one by case.
// encoding/json takes it, so that a program could send a name twice, and a proxy that judges one
// spelling would pass the other.
func exactNames(in string, of reflect.Type, text json.RawMessage) error {
	var members map[string]json.RawMessage
	if of.Kind() != reflect.Struct || of == timeType || json.Unmarshal(text, &members) != nil {
		return nil //nolint:nilerr // the document was decoded before: it is null
	}
	known := map[string]reflect.Type{}
	for _, f := range apiFields(of) {
		known[f.name] = f.of
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field, is := known[name]
		if !is {
			return &fieldError{in + cut(name, 100), errors.New("there is no such field: upper and lower case count")}
		}
		if err := exactNames(in+name+".", field, members[name]); err != nil {
			return err
		}
	}
	return nil
}

// failAPI sends an error.
func (s *server) failAPI(w http.ResponseWriter, r *http.Request, err error) {
	status, text, advice := explain(err)
	out := apiError{Error: text, Advice: advice}
	if bad, ok := errors.AsType[*fieldError](err); ok {
		status, out = http.StatusBadRequest, apiError{Error: bad.Error(), Field: bad.field}
	}
	if bad, ok := errors.AsType[*engine.QueryError](err); ok {
		out.Field = bad.Field
	}
	if bad, ok := errors.AsType[*engine.VerbError](err); ok {
		out.Field = bad.Field
	}
	if out.Kind = apiKinds[status]; out.Kind == "" {
		out.Kind = "unavailable"
	}
	if status >= http.StatusInternalServerError {
		s.log.Warn("dashboard: the API could not answer", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	s.sendAPI(w, status, out)
}

func (s *server) sendAPI(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(plainJSON(reflect.ValueOf(value)))
	if err != nil {
		s.log.Error("dashboard: the API made no JSON", slog.Any("error", err))
		status, text = http.StatusInternalServerError, []byte(`{"error":"The answer is no JSON; the log says more.","kind":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// did returns which verb a handler of a page has carried out. Such a handler answers with a
// redirect.
func did(err error) (verb string, fault error) {
	to, ok := errors.AsType[*elsewhere](err)
	if !ok {
		return "", err
	}
	at, err := url.Parse(to.path)
	if err != nil {
		return "", err
	}
	return at.Query().Get("did"), nil
}

// asForm gives a request the form that a page would have sent.
func asForm(r *http.Request, form url.Values) *http.Request {
	r.Form, r.PostForm = form, form
	return r
}
