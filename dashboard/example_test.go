package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A host mounts the handler below a path, and says who may do what: here by a header that its login
// sets.
func ExampleNew() {
	pool, closing := exampleDatabase()
	defer closing()
	eng, err := engine.New(engine.Config{Pool: pool})
	if err != nil {
		panic(err)
	}
	pages, err := dashboard.New(eng, dashboard.Options{
		Authorize: func(r *http.Request) (dashboard.Access, error) {
			switch user := r.Header.Get("X-User"); user {
			case "":
				return dashboard.Access{}, nil // refused
			case "ada":
				return dashboard.Access{Level: dashboard.Operate, Actor: user}, nil
			default:
				return dashboard.Access{Level: dashboard.Read, Actor: user}, nil
			}
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", pages))

	for _, user := range []string{"", "bob"} {
		request := httptest.NewRequest(http.MethodGet, "/ops/", http.NoBody)
		request.Header.Set("X-User", user)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		fmt.Printf("%q %d\n", user, answer.Code)
	}
	// Output:
	// "" 403
	// "bob" 200
}

// One dashboard shows all places of a cluster.
func ExampleNewCluster() {
	north, closeNorth := exampleDatabase()
	defer closeNorth()
	south, closeSouth := exampleDatabase()
	defer closeSouth()
	places := []cluster.Place{{Pool: north}, {Pool: south}}
	if err := cluster.Init(context.Background(), places); err != nil {
		panic(err)
	}
	c, err := cluster.New(cluster.Config{Places: places})
	if err != nil {
		panic(err)
	}
	pages, err := dashboard.NewCluster(c, dashboard.Options{Authorize: dashboard.Loopback(dashboard.Access{Level: dashboard.Read})})
	if err != nil {
		panic(err)
	}
	for _, from := range []string{"127.0.0.1:4711", "192.0.2.7:4711"} {
		request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", http.NoBody)
		request.RemoteAddr = from
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, request)
		fmt.Println(from, answer.Code)
	}
	// Output:
	// 127.0.0.1:4711 200
	// 192.0.2.7:4711 403
}

// Options that are wrong are named, each with its bound.
func ExampleOptionError() {
	_, err := dashboard.New(nil, dashboard.Options{Heavy: 1000})
	if wrong, ok := errors.AsType[*dashboard.OptionError](err); ok {
		fmt.Println(wrong.Field, "|", wrong)
	}
	// Output: Heavy | gendurable: dashboard: Heavy: 1000, want 0 to 100
}

// A level says what its user may do, the levels before it included.
func ExampleLevel() {
	access := dashboard.Access{Level: dashboard.Read}
	fmt.Println(access.Level, access.Level >= dashboard.Outline, access.Level >= dashboard.Operate)
	// Output: read true false
}

func exampleDatabase() (pool *pgxpool.Pool, closing func()) {
	url, drop, err := pgtest.Example()
	if err != nil {
		panic(err)
	}
	if pool, err = pgxpool.New(context.Background(), url); err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := drop(); err != nil {
			panic(err)
		}
	}
}
