package dashboard

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
)

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// openAPI returns the document of the API: of apiRoutes, and of the types that they name.
func openAPI() map[string]any {
	all, paths := schemas{}, map[string]map[string]any{}
	wrong := all.schemaOf(reflect.TypeFor[apiError]())
	kinds := []string{}
	for _, status := range []int{400, 403, 404, 405, 408, 409, 413, 415, 500, 503} {
		kinds = append(kinds, apiKinds[status])
	}
	if properties, ok := all["Error"]["properties"].(map[string]jsonSchema); ok {
		properties["kind"] = jsonSchema{"type": "string", "enum": kinds}
	}
	content := func(schema jsonSchema) map[string]any {
		return map[string]any{"application/json": map[string]any{"schema": schema}}
	}
	for _, route := range apiRoutes() {
		operation := map[string]any{
			"operationId": route.name, "summary": route.summary,
			"responses": map[string]any{
				"200":     map[string]any{"description": "It was done.", "content": content(all.schemaOf(route.out))},
				"default": map[string]any{"description": "It was not done.", "content": content(wrong)},
			},
		}
		parameters := []map[string]any{}
		for _, found := range pathParameter.FindAllStringSubmatch(route.path, -1) {
			parameters = append(parameters, map[string]any{"name": found[1], "in": "path", "required": true, "schema": jsonSchema{"type": "string"}})
		}
		for _, p := range route.query {
			parameters = append(parameters, p.describe())
		}
		if len(parameters) > 0 {
			operation["parameters"] = parameters
		}
		if route.in != nil {
			operation["requestBody"] = map[string]any{"required": true, "content": content(all.schemaOf(route.in))}
		}
		if paths[route.path] == nil {
			paths[route.path] = map[string]any{}
		}
		paths[route.path][strings.ToLower(route.method)] = operation
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "gendurable", "version": "1",
			"description": "What the pages of the dashboard show and do. Paths are below where it is mounted.",
		},
		"paths": paths, "components": map[string]any{"schemas": all},
	}
}

func (p *apiParam) describe() map[string]any {
	schema := jsonSchema{"type": p.kind}
	if len(p.enum) > 0 {
		schema["enum"] = p.enum
	}
	if p.many {
		schema = jsonSchema{"type": "array", "items": schema}
	}
	return map[string]any{"name": p.name, "in": "query", "description": p.description, "schema": schema}
}

// openAPI serves the document. It is the one answer that is not of a type.
func (s *server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(openAPI()) //nolint:errchkjson // who asked may have gone
}
