package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/extensions/shop/ent"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// rig is a server of GraphQL on a kit.
type rig struct {
	t       *testing.T
	kit     *durabletest.Kit
	client  *ent.Client
	url     string
	queries atomic.Int64
}

// TraceQueryStart counts the queries of the host's client and of the engine.
func (r *rig) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.queries.Add(1)
	return ctx
}

// TraceQueryEnd does nothing.
func (*rig) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	r.kit = durabletest.New(t, durabletest.Config{Pool: pool, Machines: []fsm.Definition{Machine()}})
	r.client = ent.NewClient(ent.Driver(entpgx.New(r.kit.Pool)))
	require.NoError(t, r.client.Schema.Create(t.Context()))
	h := handler.New(NewExecutableSchema(Config{Resolvers: &Server{Client: r.client, Engine: r.kit.Engine}}))
	h.AddTransport(transport.POST{})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// instance is an instance as a client reads it.
type instance struct {
	Status, Step, Why string
	Progress          map[string]int
}

type answer struct {
	Data struct {
		Orders []struct {
			ID       string
			Cents    int
			Instance *instance
		}
		Pay *struct {
			Cents    int
			Instance *instance
		}
	}
	Errors []struct{ Message string }
}

// ask sends a request over HTTP.
func (r *rig) ask(query string, variables map[string]any) (a answer) {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	require.NoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url, bytes.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	defer got.Body.Close()
	require.NoError(r.t, json.NewDecoder(got.Body).Decode(&a))
	return a
}

// A client reads orders with their instances, pays one by a mutation, and sees the machine go on.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o, err := Place(t.Context(), r.client, r.kit.Engine, "ada", 100)
	require.NoError(t, err)
	_, err = r.client.Order.Create().SetCustomer("ada").SetCents(7).Save(t.Context())
	require.NoError(t, err)
	durabletest.RequireDrain(t, r.kit)

	const list = `query($customer: String!) { orders(customer: $customer) { id cents instance { status step progress why } } }`
	a := r.ask(list, map[string]any{"customer": "ada"})
	require.Empty(t, a.Errors)
	require.Len(t, a.Data.Orders, 2)
	first := a.Data.Orders[0].Instance
	require.Contains(t, first.Why, "awaits a signal, paid, since ")
	require.Equal(t, instance{"awaiting_signal", "settle", first.Why, map[string]int{"reminders": 0}}, *first)
	require.Nil(t, a.Data.Orders[1].Instance, "it was created without one")

	a = r.ask(`mutation($order: ID!) { pay(order: $order, cents: 60) { cents instance { status } } }`, map[string]any{"order": o.ID})
	require.Empty(t, a.Errors)
	require.Equal(t, 40, a.Data.Pay.Cents)
	require.NotNil(t, a.Data.Pay.Instance)
	durabletest.RequireDrain(t, r.kit)
	require.Equal(t, 60, durabletest.RequireDone(t, r.kit, checkout, *o.InstanceID))

	a = r.ask(`mutation($order: ID!) { pay(order: $order, cents: 1) { cents } }`, map[string]any{"order": o.ID})
	require.Len(t, a.Errors, 1, "it has ended")
	after, err := r.client.Order.Get(t.Context(), o.ID)
	require.NoError(t, err)
	require.Equal(t, 40, after.Cents, "neither, since the signal found no live instance")
}

// Many orders with their instances take two queries, and without instances one.
func TestNoQueryPerOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 20 {
		_, err := Place(t.Context(), r.client, r.kit.Engine, "ada", 100)
		require.NoError(t, err)
	}
	for query, want := range map[string]int64{
		`{ orders(customer: "ada") { id instance { status step } } }`: 2,
		`{ orders(customer: "ada") { id } }`:                          1,
	} {
		r.queries.Store(0)
		a := r.ask(query, nil)
		require.Empty(t, a.Errors)
		require.Len(t, a.Data.Orders, 20)
		require.Equal(t, want, r.queries.Load(), query)
	}
}
