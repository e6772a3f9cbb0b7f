package dashboard

import "net/http"

type patterns []string

func (p *patterns) HandleFunc(pattern string, _ func(http.ResponseWriter, *http.Request)) {
	*p = append(*p, pattern)
}

// Routes are the patterns of all routes that a handler has.
func Routes() []string {
	var all patterns
	new(server).routes(&all)
	return all
}
