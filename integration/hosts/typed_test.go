package hosts

import (
	"context"
	"encoding/json"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	durableent "github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
)

// State and result have the machine's types, of an instance that a page has loaded, and of one that
// is queried.
func TestStateAndResult(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		o, err := creation(client.Order, 7).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		s.reaches(*o.InstanceID, fsm.StatusAwaitingSignal)
		state, err := o.InstanceState(t.Context(), s.eng)
		require.NoError(t, err)
		require.Equal(t, cart{Order: 7, Cents: 100}, state)
		_, err = o.InstanceResult(t.Context(), s.eng)
		require.ErrorIs(t, err, fsm.ErrNotTerminal)

		_, err = s.eng.Signal(t.Context(), *o.InstanceID, paid.With(120))
		require.NoError(t, err)
		_, err = s.eng.Wait(within(t), *o.InstanceID)
		require.NoError(t, err)
		result, err := o.InstanceResult(t.Context(), s.eng)
		require.NoError(t, err)
		require.EqualValues(t, 120, result)

		// What WithInstance loaded is decoded without a query: this context would end one.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = o.InstanceState(ended, s.eng)
		require.ErrorIs(t, err, context.Canceled)
		o, err = client.Order.Query().WithInstance(s.eng).Only(t.Context())
		require.NoError(t, err)
		state, err = o.InstanceState(ended, s.eng)
		require.NoError(t, err)
		require.Equal(t, cart{Order: 7, Cents: 100}, state)
		result, err = o.InstanceResult(ended, s.eng)
		require.NoError(t, err)
		require.EqualValues(t, 120, result)
		narrow, err := client.Order.Query().WithInstance(s.eng, func(q *durableent.InstanceQuery) { q.Select(instance.FieldStep) }).Only(t.Context())
		require.NoError(t, err)
		_, err = narrow.InstanceState(t.Context(), s.eng)
		require.ErrorAs(t, err, new(*fsm.DecodeError))
		require.ErrorContains(t, err, "it needs machine, version and state")

		failing, err := creation(client.Order, 8).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		_, err = s.eng.Signal(t.Context(), *failing.InstanceID, paid.With(1))
		require.NoError(t, err)
		s.reaches(*failing.InstanceID, fsm.StatusFailed)
		var failed *fsm.FailedError
		_, err = failing.InstanceResult(t.Context(), s.eng)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "too little", failed.Message)
		state, err = failing.InstanceState(t.Context(), s.eng)
		require.NoError(t, err)
		require.EqualValues(t, 8, state.Order)
	})
}

// Without an instance, or without one any more, it is ent's own error.
func TestStateOfNoInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		require.NoError(t, creation(client.Order, 1).Exec(t.Context()))
		require.NoError(t, creation(client.Order, 2).SetInstanceID(12345).Exec(t.Context()))
		loaded, err := client.Order.Query().WithInstance(s.eng).All(t.Context())
		require.NoError(t, err)
		queried, err := client.Order.Query().All(t.Context())
		require.NoError(t, err)
		require.Len(t, append(loaded, queried...), 4)
		for _, o := range append(loaded, queried...) {
			_, err = o.InstanceState(t.Context(), s.eng)
			require.True(t, ent.IsNotFound(err), "%v", err)
			_, err = o.InstanceResult(t.Context(), s.eng)
			require.True(t, ent.IsNotFound(err), "%v", err)
		}
	})
}

// turned is a codec that stores something else than the JSON of a value.
type turned struct{ fsm.JSON }

func (c turned) Encode(v any) (json.RawMessage, error) {
	text, err := c.JSON.Encode(v)
	if err != nil {
		return nil, err
	}
	for from, to := 0, len(text)-1; from < to; from, to = from+1, to-1 {
		text[from], text[to] = text[to], text[from]
	}
	return c.JSON.Encode(string(text))
}

func (c turned) Decode(raw json.RawMessage, v any) error {
	var text []byte
	var stored string
	if err := c.JSON.Decode(raw, &stored); err != nil {
		return err
	}
	for i := len(stored) - 1; i >= 0; i-- {
		text = append(text, stored[i])
	}
	return c.JSON.Decode(text, v)
}

// States are decoded as the engine decodes them: by its codec, for the machine, in a version that
// the declaration reads or the engine's definition converts.
func TestStatesAreReadAsTheEngineReadsThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	sealing, err := engine.New(engine.Config{Pool: s.pool, Codec: turned{}})
	require.NoError(t, err)
	o, err := creation(client.Order, 1).SaveWith(t.Context(), sealing, func(o *ent.Order) fsm.Spec {
		return specOf(o).Queue("nobody's")
	})
	require.NoError(t, err)
	state, err := o.InstanceState(t.Context(), sealing)
	require.NoError(t, err)
	require.Equal(t, cart{Order: 1, Cents: 100}, state)
	_, err = o.InstanceState(t.Context(), s.eng)
	require.ErrorAs(t, err, new(*fsm.DecodeError), "by a codec that did not encode it")

	s.exec(`UPDATE gendurable.gen_durable SET fsm_version = 2`)
	var version *fsm.VersionError
	_, err = o.InstanceState(t.Context(), sealing)
	require.ErrorAs(t, err, &version)
	require.Equal(t, []int{1, 2}, []int{version.Want, version.Got})
	s.exec(`UPDATE gendurable.gen_durable SET fsm_version = 1, fsm = 'refund'`)
	loaded, err := client.Order.Query().Where(order.HasInstance(s.eng)).WithInstance(s.eng).Only(t.Context())
	require.NoError(t, err)
	for _, one := range []*ent.Order{o, loaded} {
		_, err = one.InstanceState(t.Context(), sealing)
		require.ErrorAs(t, err, new(*fsm.MachineError))
	}
}

func (s *shop) exec(statement string) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), statement)
	require.NoError(s.t, err)
}
