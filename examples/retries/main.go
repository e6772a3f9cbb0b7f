// Retries shows a job: a policy runs its function again until it succeeds, and the function's
// errors say what a retry can do for them.
//
//	go run ./examples/retries
//
// A flaky web server answers 503 twice, then asks to come back later, then works; one of its pages
// is gone for good.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// Fetch downloads a URL; its result is the number of bytes.
var Fetch = fsm.Declare[string, int64]("fetch")

// policy: at most six runs, 100 ms, 200 ms, 400 ms … apart.
var policy = fsm.RetryPolicy{MaxAttempts: 6, Base: 100 * time.Millisecond}

func main() { run.Main("gendurable_retries", fetchAll) }

func fetchAll(ctx context.Context, out io.Writer, db *run.Database) error {
	server := httptest.NewServer(flaky())
	defer server.Close()
	eng, err := engine.New(engine.Config{
		Pool:     db.Pool,
		Schema:   db.Schema,
		Machines: []fsm.Definition{fetching(out)},
		Queues:   map[string]engine.Queue{"default": {}},
	})
	if err != nil {
		return err
	}
	return run.While(ctx, eng, func(ctx context.Context) error {
		works, err := eng.Insert(ctx, Fetch.New(server.URL+"/page"))
		if err != nil {
			return err
		}
		gone, err := eng.Insert(ctx, Fetch.New(server.URL+"/gone"))
		if err != nil {
			return err
		}
		size, err := Fetch.Wait(ctx, eng, works)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "done: %d bytes\n", size)
		_, err = Fetch.Wait(ctx, eng, gone)
		failed, ok := errors.AsType[*fsm.FailedError](err)
		if !ok {
			return fmt.Errorf("the page that is gone: want a failure, got %w", err)
		}
		fmt.Fprintf(out, "failed, as it should: %s: %s\n", failed.Failure, failed.Message)
		return nil
	})
}

// fetching writes each attempt to out.
func fetching(out io.Writer) fsm.Definition {
	return Fetch.Job(func(ctx context.Context, url string) (int64, error) {
		info, _ := fsm.InfoFrom(ctx)
		size, err := get(ctx, url, info.IdempotencyKey())
		fmt.Fprintf(out, "%s, attempt %d: %d bytes, error: %v\n", url, info.Attempt, size, err)
		return size, err
	}).Retry(policy)
}

// get returns an error that says what a retry can do: nothing (Permanent), something after a while
// (RetryAfter), or what the policy says.
func get(ctx context.Context, url, idempotencyKey string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, fsm.Permanent(err)
	}
	request.Header.Set("Idempotency-Key", idempotencyKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	switch failure := fmt.Errorf("the server says %s", response.Status); response.StatusCode {
	case http.StatusOK:
		return io.Copy(io.Discard, response.Body)
	case http.StatusGone:
		return 0, fsm.Permanent(failure)
	case http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			return 0, failure
		}
		return 0, fsm.RetryAfter(time.Duration(seconds)*time.Second, failure)
	default:
		return 0, failure
	}
}

// flaky fails in a different way each time, and then works.
func flaky() http.Handler {
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1, 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			fmt.Fprintln(w, "here it is")
		}
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	return mux
}
