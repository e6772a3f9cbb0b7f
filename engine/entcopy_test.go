package engine_test

import (
	"context"
	"errors"
	"go/types"
	"slices"
	"strings"
	"testing"
	"time"

	entgo "entgo.io/ent"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/entpgx"
)

var errIntercepted = errors.New("the host's interceptor refuses")

// refuse makes all queries of a client fail, of each entity.
func refuse(c *ent.Client) {
	c.Intercept(entgo.InterceptFunc(func(entgo.Querier) entgo.Querier {
		return entgo.QuerierFunc(func(context.Context, entgo.Query) (entgo.Value, error) { return nil, errIntercepted })
	}))
}

// Each way to a client gives the host a copy. An interceptor of one copy changes neither the
// engine's reads nor another copy.
func TestAHostsInterceptorsReachItsOwnClientOnly(t *testing.T) {
	t.Parallel()
	e, pool := client(t, line)
	ctx := within(t)
	id, err := e.Insert(ctx, parcels.New(parcel{1}).After(time.Hour))
	require.NoError(t, err)
	tx, err := e.Ent().Tx(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()

	ways := map[string]*ent.Client{
		"Ent": e.Ent(), "EntOn": e.EntOn(entpgx.New(pool)), "Ent's Debug": e.Ent().Debug(), "a transaction": tx.Client(),
	}
	for name, c := range ways {
		refuse(c)
		_, err := c.Instance.Query().Count(ctx)
		require.ErrorIs(t, err, errIntercepted, name)
	}
	for name, read := range map[string]func() error{
		"Ent":   func() error { _, err := e.Ent().Instance.Query().Count(ctx); return err },
		"EntOn": func() error { _, err := e.EntOn(entpgx.New(pool)).Instance.Query().Count(ctx); return err },
		"Why": func() error {
			causes, err := e.Admin().Why(ctx, id)
			require.NotEmpty(t, causes)
			return err
		},
		"Workers":      func() error { _, err := e.Admin().Workers(ctx); return err },
		"Schedules":    func() error { _, err := e.Admin().Schedules(ctx, engine.ScheduleQuery{}); return err },
		"PausedQueues": func() error { _, err := e.Admin().PausedQueues(ctx); return err },
		"Gates":        func() error { _, err := e.Admin().Gates(ctx); return err },
		"GateKeys":     func() error { _, err := e.Admin().GateKeys(ctx, "g"); return err },
		"Relations":    func() error { _, err := e.Admin().Relations(ctx, id); return err },
		"Get":          func() error { _, err := e.Get(ctx, id); return err },
		"List":         func() error { _, err := e.List(ctx, engine.Query{}); return err },
		"Definitions":  func() error { _, err := e.Definitions(ctx); return err },
		"Counts":       func() error { _, err := e.Counts(ctx, engine.CountsOptions{}); return err },
	} {
		require.NoError(t, read(), name)
	}
}

// Raw has all that Get returns.
func TestRawIsWhatGetReturns(t *testing.T) {
	t.Parallel()
	e, pool := client(t, line)
	ctx := within(t)
	id, err := e.Insert(ctx, parcels.New(parcel{1}).After(time.Hour).Key("k").PartitionKey("p").Priority(3).
		Label("customer", "ada").Deadline(48*time.Hour))
	require.NoError(t, err)
	columns := `queue = 'q', attempt = 2, crashes = 3, visit = 4, paused = true, progress = '{"pages": 3}', last_error = 'e'`
	for _, end := range []string{`result = '{}', status = 'done'`, `result = NULL, status = 'failed', failure = 'decided'`} {
		_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET finished_at = now(), `+columns+`, `+end)
		require.NoError(t, err)
		want, err := e.Get(ctx, id)
		require.NoError(t, err)
		row, err := e.Ent().Instance.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, want, engine.Raw(row))
	}
}

// No other part of the engine's API hands out a client.
func TestWhatHandsOutAClientOfEnt(t *testing.T) {
	t.Parallel()
	packages := compiled(t, "../engine", "../ent")
	engine := imported(t, packages, "engine")
	hands := func(signature *types.Signature) bool {
		for result := range signature.Results().Variables() {
			if strings.HasSuffix(result.Type().String(), "/ent.Client") || strings.HasSuffix(result.Type().String(), "/ent.Tx") {
				return true
			}
		}
		return false
	}
	var found []string
	for _, name := range engine.Scope().Names() {
		object := engine.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		if f, ok := object.(*types.Func); ok && hands(f.Signature()) {
			found = append(found, name)
		}
		if _, ok := object.(*types.TypeName); !ok {
			continue
		}
		for method := range types.NewMethodSet(types.NewPointer(object.Type())).Methods() {
			if f := method.Obj().(*types.Func); f.Exported() && hands(f.Signature()) {
				found = append(found, name+"."+f.Name())
			}
		}
		fields, ok := object.Type().Underlying().(*types.Struct)
		if !ok {
			continue
		}
		for field := range fields.Fields() {
			if field.Exported() && strings.HasSuffix(field.Type().String(), "/ent.Client") {
				found = append(found, name+"."+field.Name())
			}
		}
	}
	slices.Sort(found)
	require.Equal(t, []string{"Engine.Ent", "Engine.EntOn"}, found)
}
