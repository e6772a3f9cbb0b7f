package engine_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func accountKey(of string) fsm.Key {
	if of == "" {
		return ""
	}
	return fsm.Key("account:" + of)
}

var (
	accounts = fsm.Declare[string, string]("account", fsm.KeyBy(accountKey))
	families = fsm.Declare[string, int]("family")
)

// running are accounts that wait until they are paid, and families, each of which spawns the
// account of its state twice.
func running() []fsm.Definition {
	return []fsm.Definition{
		accounts.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Await("paid", v.State+" later", paid), nil // the key stays the one of the first state
			}),
			fsm.Step("paid", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Done(v.State), nil
			})),
		families.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
				return v.ScheduleChildren("end", v.State, accounts.New(v.State), accounts.New(v.State)), nil
			}),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
				return v.Done(len(accounts.Children(v))), nil
			})),
	}
}

// Whichever verb inserts, it is the same instance.
func TestEveryInsertHasTheDeclaredKey(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := t.Context()
	id, err := e.Insert(ctx, accounts.New("a"))
	require.NoError(t, err)
	duplicate := engine.Inserted{ID: id, Duplicate: true}

	_, err = e.Insert(ctx, accounts.New("a"))
	taken, ok := errors.AsType[*engine.DuplicateError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, engine.DuplicateError{Key: "account:a", Occupant: id}, *taken)
	many, err := e.InsertMany(ctx, []fsm.Spec{accounts.New("b"), accounts.New("a"), accounts.New("b")})
	require.NoError(t, err)
	require.Equal(t, []engine.Inserted{{ID: many[0].ID}, duplicate, {ID: many[0].ID, Duplicate: true}}, many)
	got, err := e.GetOrInsert(ctx, accounts.New("a"))
	require.NoError(t, err)
	require.Equal(t, duplicate, got)
	in, err := e.SignalOrInsert(ctx, accounts.New("a"), paid.With(1))
	require.NoError(t, err)
	require.Equal(t, id, in.ID)
	require.True(t, in.Duplicate)
	_, err = e.Signal(ctx, accountKey("a"), paid.With(1))
	require.NoError(t, err, "the key is an address")

	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	got, err = e.WithPgx(tx).GetOrInsert(ctx, accounts.New("a"))
	require.NoError(t, err)
	require.Equal(t, duplicate, got)
	_, err = e.WithPgx(tx).Insert(ctx, accounts.New("c"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))

	replaced, err := e.InsertMany(ctx, []fsm.Spec{accounts.New("a").Priority(7).OnConflict(fsm.ConflictReplace), accounts.New("b").OnConflict(fsm.ConflictNewest)})
	require.NoError(t, err)
	require.Equal(t, engine.Inserted{ID: id, Replaced: true}, replaced[0])
	require.NotEqual(t, many[0].ID, replaced[1].ID)
	throttled, err := e.InsertMany(ctx, []fsm.Spec{accounts.New("d").Throttle("w", time.Hour), accounts.New("d").Throttle("w", time.Hour)})
	require.NoError(t, err)
	require.True(t, throttled[1].Duplicate)

	var keys []string
	require.NoError(t, pool.QueryRow(ctx, `SELECT array_agg(DISTINCT correlation_key ORDER BY correlation_key) FROM gendurable.gen_durable`).Scan(&keys))
	require.Equal(t, []string{"account:a", "account:b", "account:c", "account:d"}, keys)

	// A debounce replaces an instance that waits, also one of another state, and with it the key.
	for _, name := range []string{"e", "f"} {
		id, err = e.Insert(ctx, accounts.New(name).Scope(fsm.ScopeNone).Debounce("quiet", time.Hour, 0))
		require.NoError(t, err)
	}
	require.NoError(t, pool.QueryRow(ctx, `SELECT array_agg(correlation_key) FROM gendurable.gen_durable WHERE id = $1`, id).Scan(&keys))
	require.Equal(t, []string{"account:f"}, keys)
}

func TestInsertsOfWrongDeclaredKeys(t *testing.T) {
	t.Parallel()
	seen := map[fsm.Key]bool{}
	e, pool := client(t, func(c *engine.Config) {
		c.Machines = running()
		c.Middleware = []engine.Middleware{{Insert: func(_ context.Context, s fsm.Spec) (fsm.Spec, error) {
			seen[s.Options().Key] = true
			if s.State() == "moved" {
				return s.Key("elsewhere"), nil
			}
			return s, nil
		}}}
	})
	for says, spec := range map[string]fsm.Spec{
		"the key of this state: empty":                                        accounts.New(""),
		`of this state it is "account:a", and the spec says "b"`:              accounts.New("a").Key("b"),
		`of this state it is "account:moved", and the spec says "elsewhere"`:  accounts.New("moved"),
		"this spec has none, since it is made by a declaration without KeyFr": fsm.Declare[string, string]("account").New("a"),
	} {
		_, one := e.Insert(t.Context(), spec)
		_, many := e.InsertMany(t.Context(), []fsm.Spec{accounts.New("good"), spec})
		_, signalled := e.SignalOrInsert(t.Context(), spec, paid.With(1))
		for index, err := range map[int]error{0: one, 1: many, -1: signalled} {
			wrong, ok := errors.AsType[*engine.InsertError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "key", wrong.Field)
			require.Equal(t, max(index, 0), wrong.Index)
			require.ErrorContains(t, err, says)
			key, ok := errors.AsType[*fsm.KeyError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "account", key.Machine)
		}
	}
	require.True(t, seen["account:good"], "middleware sees the declared key")
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable`).Scan(&rows))
	require.Zero(t, rows)
}

// Children have the key; a round drops a second one of it, as it does with keys that specs give.
// Start stores that the machine declares its keys.
func TestChildrenHaveTheDeclaredKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, func(c *engine.Config) {
		c.Queues = map[string]engine.Queue{"default": {}}
		c.Machines = running()
	})
	ctx := within(t)
	id, err := e.Insert(ctx, families.New("a"))
	require.NoError(t, err)
	_, err = families.WaitParked(ctx, e, id, -1)
	require.NoError(t, err)
	child, err := accounts.WaitParked(ctx, e, accountKey("a"), -1)
	require.NoError(t, err)
	require.Equal(t, "a later", child.State)
	require.Equal(t, fsm.Key("account:a"), child.Key)
	_, err = e.Signal(ctx, accountKey("a"), paid.With(1))
	require.NoError(t, err)
	n, err := families.Wait(ctx, e, id)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	bad, err := e.Insert(ctx, families.New(""))
	require.NoError(t, err)
	ended, err := e.Wait(ctx, bad)
	require.NoError(t, err)
	require.Contains(t, ended.LastError, `children[0].key: machine "account" version 1 declares its keys: the key of this state: empty`)

	stored, err := e.Definitions(ctx)
	require.NoError(t, err)
	keyed := map[string]bool{}
	for _, d := range stored {
		keyed[d.Machine] = d.Graph.Keyed
	}
	require.Equal(t, map[string]bool{"account": true, "family": false}, keyed)
}

func TestSchedulesOfMachinesThatDeclareTheirKeys(t *testing.T) {
	t.Parallel()
	for says, spec := range map[string]fsm.Spec{
		`if the machine "account" declares its keys, schedule another machine`: accounts.New("a"),
		"the key of this state: empty":                                         accounts.New(""),
		"this spec has none":                                                   fsm.Declare[string, string]("account").New("a"),
	} {
		_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Machines: running(), Schedules: []engine.Schedule{engine.Cron("x", "@daily", spec)}})
		require.Equal(t, []string{"Schedules[x].Spec"}, configFaults(t, err), says)
		require.ErrorContains(t, err, says)
	}
	_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Machines: running(), Schedules: []engine.Schedule{engine.Cron("x", "@daily", families.New("a"))}})
	require.NoError(t, err)
}

// engine.New names all that can never be.
func TestNewRefusesDeclarationsOfKeys(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[string, string]("account", fsm.KeyBy(func(int) fsm.Key { return "" }), fsm.KeyScope(9))
	_, err := engine.New(engine.Config{Pool: nowhere(t, 2), Machines: []fsm.Definition{machine.Job(echo)}})
	require.ErrorAs(t, err, new(*fsm.DefinitionError))
	require.ErrorContains(t, err, `Machines[0].key: machine "account" version 1: KeyBy takes a int, and the state is a string`)
	require.ErrorContains(t, err, `Machines[0].key_scope: machine "account" version 1: 9 is no scope`)
}

// salted encodes each state as another text, as a codec that encrypts does.
type salted struct {
	fsm.JSON

	n *int
}

func (s salted) Encode(v any) (json.RawMessage, error) {
	raw, err := s.JSON.Encode(v)
	if err != nil {
		return nil, err
	}
	*s.n++
	return json.Marshal([]any{*s.n, base64.StdEncoding.EncodeToString(raw)})
}

func TestDeclaredKeysAreOfTheStateBeforeTheCodec(t *testing.T) {
	t.Parallel()
	e, pool := client(t, func(c *engine.Config) { c.Codec = salted{n: new(int)} })
	hashed := fsm.Declare[string, string]("hashed", fsm.KeyFromState(), fsm.KeyScope(fsm.ScopeAll))
	for _, spec := range []fsm.Spec{accounts.New("a"), hashed.New("a")} {
		first, err := e.GetOrInsert(t.Context(), spec)
		require.NoError(t, err)
		again, err := e.GetOrInsert(t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, engine.Inserted{ID: first.ID, Duplicate: true}, again)
		var key, state string
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT correlation_key, state::text FROM gendurable.gen_durable WHERE id = $1`, first.ID).Scan(&key, &state))
		require.Equal(t, string(spec.Options().Key), key)
		require.Contains(t, state, base64.StdEncoding.EncodeToString([]byte(`"a"`)))
	}
}
