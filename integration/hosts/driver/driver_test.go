package driver

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	entgo "entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/dialect/sql/sqljson"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/integration/hosts/driver/ent"
	"github.com/gendurable/gendurable/integration/hosts/driver/ent/item"
	"github.com/gendurable/gendurable/integration/hosts/driver/ent/migrate"
	"github.com/gendurable/gendurable/integration/hosts/driver/ent/owner"
	"github.com/gendurable/gendurable/internal/pgtest"
	gendurable "github.com/gendurable/gendurable/schema"
)

// everywhere runs a test with a client on ent's own driver, and on entpgx in each exec mode of pgx:
// what it asserts holds for both.
func everywhere(t *testing.T, test func(t *testing.T, client *ent.Client)) {
	t.Helper()
	t.Parallel()
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	drivers := map[string]func(pool *pgxpool.Pool) dialect.Driver{
		"entpgx":   func(pool *pgxpool.Pool) dialect.Driver { return entpgx.New(pool) },
		"surround": func(pool *pgxpool.Pool) dialect.Driver { return entpgx.New(pool).Around(plain) },
		"ent": func(pool *pgxpool.Pool) dialect.Driver {
			return entsql.OpenDB(dialect.Postgres, stdlib.OpenDBFromPool(pool))
		},
	}
	for name, driver := range drivers {
		of := modes
		if name != "entpgx" {
			of = modes[:1]
		}
		for _, mode := range of {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.Pool(t, pgtest.Database(t), func(config *pgxpool.Config) {
					config.MaxConns = 4
					config.ConnConfig.DefaultQueryExecMode = mode
				})
				d := driver(pool)
				client := ent.NewClient(ent.Driver(d))
				create(t, client)
				test(t, client)
				require.NoError(t, d.Close())
				// A connection that broke is closed beside the test.
				require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 30*time.Second, 5*time.Millisecond,
					"all connections are back")
			})
		}
	}
}

var creating sync.Mutex

// create makes the tables, one client after the other: ent's migration writes to the tables that
// all clients share.
func create(t *testing.T, client *ent.Client, options ...schema.MigrateOption) {
	t.Helper()
	creating.Lock()
	defer creating.Unlock()
	require.NoError(t, client.Schema.Create(t.Context(), options...))
}

func plain(ctx context.Context, _ []entpgx.Stmt, send func(context.Context) error) error {
	return send(ctx)
}

// ada makes an owner with items of sizes 1, 2 and 3.
func ada(t *testing.T, client *ent.Client) *ent.Owner {
	t.Helper()
	o, err := client.Owner.Create().SetName("ada").SetSince(time.Unix(1_700_000_000, 0)).Save(t.Context())
	require.NoError(t, err)
	var items []*ent.ItemCreate
	for size := 1; size <= 3; size++ {
		items = append(items, client.Item.Create().SetName(fmt.Sprint("item ", size)).SetSize(size).SetPrice(1.5).SetOwner(o))
	}
	require.NoError(t, client.Item.CreateBulk(items...).Exec(t.Context()))
	return o
}

// The migration that ent offers for development makes the tables, finds nothing to do, and adds
// what is missing.
func TestSchemaCreate(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		ada(t, client)
		create(t, client, schema.WithDropColumn(true), schema.WithDropIndex(true))
		creating.Lock()
		tables, err := schema.CopyTables(migrate.Tables)
		creating.Unlock()
		require.NoError(t, err)
		for _, table := range tables {
			added := &schema.Column{Name: "added", Type: field.TypeEnum, Enums: []string{"a", "b"}, Default: "b"}
			table.Columns = append(table.Columns, added)
			table.Indexes = append(table.Indexes, &schema.Index{Name: table.Name + "_added", Columns: []*schema.Column{added}})
		}
		require.NoError(t, migrate.Create(t.Context(), client.Schema, tables, schema.WithDropColumn(true)))
		rows, err := client.QueryContext(t.Context(), `SELECT count(*) FROM items WHERE added = 'b'`)
		require.NoError(t, err)
		defer rows.Close()
		n, err := entsql.ScanInt(rows)
		require.NoError(t, errors.Join(err, rows.Err(), rows.Close()))
		require.Equal(t, 3, n)
		create(t, client, schema.WithDropColumn(true), schema.WithDropIndex(true))
		_, err = client.QueryContext(t.Context(), `SELECT added FROM items`) //nolint:rowserrcheck,sqlclosecheck // there are none
		require.ErrorContains(t, err, "42703")
	})
}

func TestEveryKindOfField(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		at := time.Date(2031, 2, 3, 4, 5, 6, 789_000, time.UTC)
		made, err := client.Item.Create().SetName(`a"b\c'é`).SetSize(7).SetPrice(0.25).SetSold(true).SetKind(item.KindFilm).
			SetRaw([]byte{0, 255}).SetDocument(map[string]any{"a": []any{"x", 1.5}}).SetTags([]string{"x", "y,z"}).
			SetWords(gendurable.Names{`q"r`, "{}", ""}).SetMade(at).Save(t.Context())
		require.NoError(t, err)
		got, err := client.Item.Get(t.Context(), made.ID)
		require.NoError(t, err)
		require.True(t, got.Made.Equal(at))
		got.Made = made.Made
		require.Equal(t, fmt.Sprintf("%#v", made.Tags), fmt.Sprintf("%#v", got.Tags))
		require.Equal(t, made.String(), got.String())
		bare, err := client.Item.Create().SetName("bare").SetSize(0).Save(t.Context())
		require.NoError(t, err)
		got, err = client.Item.Get(t.Context(), bare.ID)
		require.NoError(t, err)
		require.Nil(t, got.Made)
		require.Empty(t, got.Raw)
		require.Empty(t, got.Words)

		found, err := client.Item.Query().Where(func(s *entsql.Selector) {
			s.Where(sqljson.ValueContains(item.FieldTags, "y,z"))
			s.Where(sqljson.ValueEQ(item.FieldDocument, 1.5, sqljson.Path("a", "[1]")))
		}, item.MadeGT(at.Add(-time.Second)), item.IDIn(made.ID, uuid.New()), item.NameContainsFold(`B\C`), item.Raw([]byte{0, 255})).OnlyID(t.Context())
		require.NoError(t, err)
		require.Equal(t, made.ID, found)
		require.NoError(t, got.Update().SetSize(5).AddPrice(1).AppendTags([]string{"w"}).ClearMade().Exec(t.Context()))
		got, err = client.Item.Get(t.Context(), bare.ID)
		require.NoError(t, err)
		require.Equal(t, []any{5, 1.0, []string{"w"}}, []any{got.Size, got.Price, got.Tags})
	})
}

func TestQueriesAndEdges(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		o := ada(t, client)
		require.NoError(t, client.Owner.Create().SetName("bob").Exec(t.Context()))
		owners, err := client.Owner.Query().WithItems(func(q *ent.ItemQuery) { q.Order(item.BySize(entsql.OrderDesc())).WithOwner() }).
			Order(owner.ByItemsCount(entsql.OrderDesc())).All(t.Context())
		require.NoError(t, err)
		require.Len(t, owners, 2)
		require.Len(t, owners[0].Edges.Items, 3)
		require.Equal(t, 3, owners[0].Edges.Items[0].Size)
		require.Equal(t, "ada", owners[0].Edges.Items[0].Edges.Owner.Name)
		require.Empty(t, owners[1].Edges.Items)
		sizes, err := o.QueryItems().Where(item.SizeGT(1), item.HasOwnerWith(owner.Name("ada"))).Order(item.BySize()).Select(item.FieldSize).Ints(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{2, 3}, sizes)

		var total []struct{ Count, Sum, Min, Max int }
		require.NoError(t, client.Item.Query().Aggregate(ent.As(ent.Count(), "count"), ent.As(ent.Sum(item.FieldSize), "sum"),
			ent.As(ent.Min(item.FieldSize), "min"), ent.As(ent.Max(item.FieldSize), "max")).Scan(t.Context(), &total))
		require.Equal(t, []struct{ Count, Sum, Min, Max int }{{3, 6, 1, 3}}, total)
		mean, err := client.Item.Query().Aggregate(ent.Mean(item.FieldSize)).Float64(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 2, mean, 1e-9)
		var groups []struct {
			Kind  item.Kind
			Price float64 `sql:"price"`
		}
		require.NoError(t, client.Item.Query().GroupBy(item.FieldKind).Aggregate(ent.As(ent.Sum(item.FieldPrice), "price")).Scan(t.Context(), &groups))
		require.Len(t, groups, 1)
		require.InDelta(t, 4.5, groups[0].Price, 1e-9)

		computed, err := client.Item.Query().Where(item.Size(2)).Modify(func(s *entsql.Selector) {
			for name, of := range map[string]string{"double": "size * 2", "at": "now()", "loud": "upper(name)", "many": "size > 1"} {
				s.AppendSelectExprAs(entsql.Expr(of), name)
			}
		}).Only(t.Context())
		require.NoError(t, err)
		for name, want := range map[string]any{"double": int64(4), "loud": "ITEM 2", "many": true} {
			got, err := computed.Value(name)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		at, err := computed.Value("at")
		require.NoError(t, err)
		require.IsType(t, time.Time{}, at)

		_, err = client.Item.Query().Only(t.Context())
		require.True(t, ent.IsNotSingular(err))
		_, err = client.Item.Get(t.Context(), uuid.New())
		require.True(t, ent.IsNotFound(err))
		require.True(t, ent.IsNotFound(client.Owner.UpdateOneID(99).SetName("x").Exec(t.Context())))
		exists, err := client.Item.Query().Where(item.Size(9)).Exist(t.Context())
		require.NoError(t, err)
		require.False(t, exists)
		n, err := client.Item.Update().Where(item.SizeLT(3)).AddSize(10).Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		n, err = client.Item.Delete().Where(item.SizeGT(10)).Exec(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 1, client.Debug().Item.Query().CountX(t.Context()))
	})
}

func TestHooksAndInterceptors(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		var seen []string
		client.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				seen = append(seen, m.Type())
				if m, ok := m.(*ent.OwnerMutation); ok && m.Op().Is(ent.OpUpdateOne) {
					old, err := m.OldName(ctx)
					if err != nil {
						return nil, err
					}
					m.SetNote("was " + old)
				}
				return next.Mutate(ctx, m)
			})
		})
		client.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
				seen = append(seen, entgo.QueryFromContext(ctx).Op)
				return next.Query(ctx, q)
			})
		}))
		o := ada(t, client)
		require.Equal(t, []string{"Owner", "Item", "Item", "Item"}, seen)
		o, err := o.Update().SetName("eva").Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, "was ada", *o.Note)
		seen = nil
		client.Owner.Query().WithItems().AllX(t.Context())
		require.Equal(t, []string{"All", "All"}, seen)
	})
}

func TestUpserts(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		o := ada(t, client)
		id, err := client.Owner.Create().SetName("ada").SetNote("again").OnConflictColumns(owner.FieldName).UpdateNewValues().ID(t.Context())
		require.NoError(t, err)
		require.Equal(t, o.ID, id)
		require.Equal(t, "again", *client.Owner.GetX(t.Context(), id).Note)
		err = client.Owner.Create().SetName("ada").OnConflictColumns(owner.FieldName).DoNothing().Exec(t.Context())
		require.ErrorIs(t, err, stdsql.ErrNoRows)
		require.NoError(t, client.Owner.CreateBulk(client.Owner.Create().SetName("ada"), client.Owner.Create().SetName("bob")).
			OnConflictColumns(owner.FieldName).Update(func(u *ent.OwnerUpsert) { u.SetNote("bulk") }).Exec(t.Context()))
		require.Equal(t, 2, client.Owner.Query().CountX(t.Context()))
	})
}

func TestConstraints(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		o := ada(t, client)
		for name, err := range map[string]error{
			"unique":      client.Owner.Create().SetName("ada").Exec(t.Context()),
			"bulk":        client.Owner.CreateBulk(client.Owner.Create().SetName("x"), client.Owner.Create().SetName("x")).Exec(t.Context()),
			"update":      client.Item.Update().SetName("same").Exec(t.Context()),
			"check":       client.Item.Create().SetName("big").SetSize(1000).Exec(t.Context()),
			"foreign key": client.Item.Create().SetName("lost").SetSize(1).SetOwnerID(99).Exec(t.Context()),
		} {
			require.True(t, ent.IsConstraintError(err), "%s: %v", name, err)
		}
		require.True(t, ent.IsValidationError(client.Item.Create().SetName("less").SetSize(-1).Exec(t.Context())))
		require.Equal(t, 3, o.QueryItems().CountX(t.Context()), "the bulk insert left nothing")
	})
}

func TestTransactions(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		ada(t, client)
		for _, commit := range []bool{true, false} {
			tx, err := client.BeginTx(t.Context(), &entsql.TxOptions{Isolation: stdsql.LevelRepeatableRead})
			require.NoError(t, err)
			var ended []string
			tx.OnCommit(func(next ent.Committer) ent.Committer {
				return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
					ended = append(ended, "commit")
					return next.Commit(ctx, tx)
				})
			})
			tx.OnRollback(func(next ent.Rollbacker) ent.Rollbacker {
				return ent.RollbackFunc(func(ctx context.Context, tx *ent.Tx) error {
					ended = append(ended, "rollback")
					return next.Rollback(ctx, tx)
				})
			})
			locked, err := tx.Item.Query().Where(item.Size(2)).ForUpdate().WithOwner().Only(t.Context())
			require.NoError(t, err)
			require.NoError(t, locked.Update().SetSold(commit).Exec(t.Context()))
			result, err := tx.ExecContext(t.Context(), `UPDATE items SET price = $1 WHERE size < $2`, 9.5, 3)
			require.NoError(t, err)
			affected, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 2, affected)
			rows, err := tx.QueryContext(t.Context(), `SELECT sum(price)::float8 FROM items`)
			require.NoError(t, err)
			defer rows.Close()
			require.True(t, rows.Next())
			var sum float64
			require.NoError(t, errors.Join(rows.Scan(&sum), rows.Err(), rows.Close()))
			require.InDelta(t, 20.5, sum, 1e-9)
			if commit {
				require.NoError(t, tx.Commit())
				require.Equal(t, []string{"commit"}, ended)
			} else {
				require.NoError(t, tx.Rollback())
				require.Equal(t, []string{"rollback"}, ended)
			}
			require.True(t, client.Item.Query().Where(item.Sold(true)).ExistX(t.Context()))
		}
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		require.True(t, ent.IsConstraintError(tx.Owner.Create().SetName("ada").Exec(t.Context())))
		_, err = tx.Owner.Query().Count(t.Context())
		require.ErrorContains(t, err, "25P02")
		require.NoError(t, tx.Rollback())
	})
}

func TestPlainStatements(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		ada(t, client)
		rows, err := client.QueryContext(t.Context(), `SELECT 1::int2, 2::int8, 1.5::float8, true, 'x'::text, '\x00ff'::bytea,
			'2031-02-03 04:05:06Z'::timestamptz, '{"a": 1}'::jsonb, NULL::text, 1.25::numeric, ARRAY['a'] AS list`)
		require.NoError(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		require.NoError(t, err)
		require.Equal(t, "list", columns[10])
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		require.Equal(t, "TIMESTAMPTZ", types[6].DatabaseTypeName())
		got := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range got {
			into[i] = &got[i]
		}
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(into...))
		require.False(t, rows.Next())
		require.NoError(t, errors.Join(rows.Err(), rows.Close()))
		require.True(t, got[6].(time.Time).Equal(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)))
		got[6] = nil
		require.Equal(t, []any{int64(1), int64(2), 1.5, true, "x", []byte{0, 255}, nil, []byte(`{"a": 1}`), nil, "1.25", "{a}"}, got)

		_, err = client.QueryContext(t.Context(), `SELECT 1/0`) //nolint:rowserrcheck,sqlclosecheck // there are none
		require.ErrorContains(t, err, "22012")
		_, err = client.ExecContext(t.Context(), `INSERT INTO owners (name, since) VALUES ('ada', now())`)
		require.ErrorContains(t, err, "23505")
	})
}

// A context that ends in the middle of a result ends it with an error, and gives the connection
// back.
func TestCancelledInTheMiddle(t *testing.T) {
	everywhere(t, func(t *testing.T, client *ent.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := client.QueryContext(ctx, `SELECT repeat('x', 1000) FROM generate_series(1, 1000000)`)
		require.NoError(t, err)
		defer rows.Close()
		require.True(t, rows.Next())
		cancel()
		for rows.Next() {
			continue
		}
		require.ErrorIs(t, rows.Err(), context.Canceled)
		_ = rows.Close() // whatever it says: what counts is the connection
		_, err = client.Owner.Query().All(ctx)
		require.ErrorIs(t, err, context.Canceled)

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		tx, err := client.Tx(ctx)
		require.NoError(t, err)
		time.AfterFunc(300*time.Millisecond, cancel)
		_, err = tx.ExecContext(ctx, `SELECT pg_sleep(60)`)
		require.Error(t, err)
		require.Error(t, tx.Commit())
		_ = tx.Rollback()
		require.Zero(t, client.Owner.Query().CountX(t.Context()))
	})
}

// Inside a transaction of the host, the client's transactions are savepoints.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Database(t))
	create(t, ent.NewClient(ent.Driver(entpgx.New(pool))))
	host, err := pool.Begin(t.Context())
	require.NoError(t, err)
	client := ent.NewClient(ent.Driver(entpgx.Within(host)))
	o := ada(t, client)
	tx, err := client.Tx(t.Context())
	require.NoError(t, err)
	require.True(t, ent.IsConstraintError(tx.Owner.Create().SetName("ada").Exec(t.Context())))
	require.NoError(t, tx.Rollback())
	require.Equal(t, 3, o.QueryItems().CountX(t.Context()), "the transaction goes on")
	require.NoError(t, host.Commit(t.Context()))
}
