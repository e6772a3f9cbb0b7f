package health_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/health"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// An orchestrator's probes. A client, which has no queues, is ready when its database is.
func ExampleHandler() {
	ctx := context.Background()
	url, drop, err := pgtest.Example()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drop() //nolint:errcheck // an example's database
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	eng, err := engine.New(engine.Config{Pool: pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/health/", http.StripPrefix("/health", health.Handler(eng)))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/health/ready", nil))
	var seen engine.Health
	fmt.Println(answer.Code, json.Unmarshal(answer.Body.Bytes(), &seen), seen.Ready, seen.State)
	// Output: 200 <nil> true created
}
