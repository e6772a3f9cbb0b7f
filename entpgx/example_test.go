package entpgx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A generated client works on a pool of pgx, here on the engine's own tables.
func ExampleNew() {
	ctx := context.Background()
	url, drop, err := pgtest.Example()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drop() //nolint:errcheck // an example's database
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	config.ConnConfig.RuntimeParams["search_path"] = "gendurable"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	client := ent.NewClient(ent.Driver(entpgx.New(pool)))
	fmt.Println(client.Instance.Query().Count(ctx))
	// Output: 0 <nil>
}
