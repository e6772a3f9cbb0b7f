package query_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
)

// The predicates on documents find what a state holds, whatever it is, in every exec mode. No value
// and no name is a part of the statement, and none fails it.
func TestPredicatesOnDocuments(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	pool := pgtest.Pool(t, database)
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, state, labels) VALUES
		('m', 's', '{"total": 5, "customer": {"country": "NL", "tags": ["a", "b"]}, "it''s": true}', '{"tenant": "acme", "plan": "free"}'),
		('m', 's', '{"total": 50.0, "customer": null}', '{"tenant": "acme"}'),
		('m', 's', '{"total": "5"}', NULL),
		('m', 's', '{"total": true}', '{"tenant": "other''; --"}'),
		('m', 's', '[1, {"a": 2}]', NULL),
		('m', 's', '"text"', NULL)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, result) VALUES ('m', 's', 'done', now(), '{"sum": 9}')`)
	require.NoError(t, err)
	for name, want := range map[string]struct {
		where predicate.Instance
		ids   []fsm.ID
	}{
		"label":               {instance.HasLabel("tenant", "acme"), []fsm.ID{1, 2}},
		"labels":              {instance.LabelsContain(map[string]string{"tenant": "acme", "plan": "free"}), []fsm.ID{1}},
		"no label is wanted":  {instance.LabelsContain(nil), []fsm.ID{1, 2, 4}},
		"label with a quote":  {instance.HasLabel("tenant", "other'; --"), []fsm.ID{4}},
		"contains":            {instance.StateContains(map[string]any{"customer": map[string]any{"country": "NL"}}), []fsm.ID{1}},
		"contains an element": {instance.StateContains([]any{1}), []fsm.ID{5}},
		"number":              {instance.StateAt("total").EQ(5), []fsm.ID{1}},
		"number of two forms": {instance.StateAt("total").EQ(50), []fsm.ID{2}},
		"text":                {instance.StateAt("total").EQ("5"), []fsm.ID{3}},
		"boolean":             {instance.StateAt("total").EQ(true), []fsm.ID{4}},
		"null":                {instance.StateAt("customer").EQ(nil), []fsm.ID{2}},
		"another":             {instance.StateAt("total").NEQ(5), []fsm.ID{2}},
		"greater":             {instance.StateAt("total").GT(5), []fsm.ID{2}},
		"not less":            {instance.StateAt("total").GTE(5), []fsm.ID{1, 2}},
		"less":                {instance.StateAt("total").LT(50), []fsm.ID{1}},
		"not greater":         {instance.StateAt("total").LTE(50), []fsm.ID{1, 2}},
		"nested":              {instance.StateAt("customer", "country").EQ("NL"), []fsm.ID{1}},
		"in an array":         {instance.StateAt("customer", "tags", "1").EQ("b"), []fsm.ID{1}},
		"the whole":           {instance.StateAt().EQ("text"), []fsm.ID{6}},
		"exists":              {instance.StateAt("customer").Exists(), []fsm.ID{1, 2}},
		"name with a quote":   {instance.StateAt("it's").EQ(true), []fsm.ID{1}},
		"name like an array":  {instance.StateAt(`{a,"b`).Exists(), nil},
		"result":              {instance.ResultAt("sum").GT(8), []fsm.ID{7}},
		"result contains":     {instance.ResultContains(map[string]any{"sum": 9}), []fsm.ID{7}},
		"neither":             {instance.Not(instance.Or(instance.StateAt("total").Exists(), instance.StateAt().EQ("text"))), []fsm.ID{5, 7}},
		"both":                {instance.And(instance.HasLabel("tenant", "acme"), instance.StateAt("total").GT(5)), []fsm.ID{2}},
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(name+" in mode "+mode.String(), func(t *testing.T) {
				on := pgtest.Pool(t, database, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				client := ent.NewClient(ent.Driver(entpgx.New(on)), ent.AlternateSchema(query.Tables("gendurable")))
				got, err := client.Instance.Query().Where(want.where).Order(instance.ByID()).IDs(t.Context())
				require.NoError(t, err)
				require.ElementsMatch(t, want.ids, got)
			})
		}
	}
	client := ent.NewClient(ent.Driver(entpgx.New(pool)), ent.AlternateSchema(query.Tables("gendurable")))
	_, err = client.Instance.Query().Where(instance.StateContains(make(chan int))).IDs(t.Context())
	require.ErrorContains(t, err, "a predicate's value")
	for _, bad := range []string{"a\x00b", "\xff"} {
		for _, where := range []predicate.Instance{instance.StateAt("a", bad).GT(1), instance.ResultAt(bad).Exists(), instance.Not(instance.StateAt(bad).EQ("x"))} {
			_, err = client.Instance.Query().Where(where).IDs(t.Context())
			require.ErrorContains(t, err, "is not a text that Postgres takes")
		}
	}
}
