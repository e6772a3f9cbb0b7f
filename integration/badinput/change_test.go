package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

// states calls f with states that codecs and functions of hosts may make.
func states(add func(raw []byte)) {
	for _, name := range slices.Sorted(maps.Keys(badJSON)) {
		add([]byte(badJSON[name]))
	}
	for _, n := range []int{mostNested, mostNested + 1} {
		add([]byte(strings.Repeat("[", n) + strings.Repeat("]", n)))
	}
	for _, n := range []int{mostBytes - 2, mostBytes - 1, mostBytes + 1} {
		add([]byte(`"` + strings.Repeat("x", n) + `"`))
	}
}

func requireVerbError(t *testing.T, err error, verb engine.Verb, field string) {
	t.Helper()
	wrong, ok := errors.AsType[*engine.VerbError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.Equal(t, []any{verb, field}, []any{wrong.Verb, wrong.Field}, "%v", err)
}

// FuzzEdit edits and rewinds an instance: to any state, from any visit, to any step. It is refused
// with an error that names the field, or because the instance is at another visit; or it has that
// state afterwards.
func FuzzEdit(f *testing.F) {
	add := seeds(f)
	states(func(raw []byte) { add(raw, int64(0), "start") })
	for _, name := range badNames {
		add([]byte(`1`), int64(0), name)
	}
	for _, visit := range []int64{1, -1, 1 << 62, -1 << 63} {
		add([]byte(`1`), visit, "start")
	}
	add([]byte(`1`), int64(0), "behind")
	pool := pgtest.Pool(f, pgtest.Migrated(f))
	machine := fsm.Declare[json.RawMessage, json.RawMessage]("edited")
	end := func(_ context.Context, v *parcel) (fsm.Outcome, error) { return v.Done(v.State), nil }
	eng, err := engine.New(engine.Config{Pool: pool, Codec: verbatim{}, Machines: []fsm.Definition{machine.Define(
		fsm.Step("start", end).To("here"), fsm.Step("here", end).To("behind"), fsm.Step("behind", end).To())}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte, visit int64, to string) {
		ctx := t.Context()
		id, err := eng.Insert(ctx, machine.New(json.RawMessage(`{"was": 1}`)).Step("here").After(time.Hour))
		require.NoError(t, err)
		defer func() {
			_, err := pool.Exec(ctx, `DELETE FROM gendurable.gen_durable`)
			require.NoError(t, err)
		}()
		_, refused := eng.Insert(ctx, machine.New(raw).After(time.Hour)) // what an insert stores an edit stores
		state := fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return raw, nil })
		check := func(verb engine.Verb, err error) {
			i, read := eng.Get(ctx, id)
			require.NoError(t, read)
			switch {
			case verb == engine.VerbRewind && to != "start" && to != "here" && (visit == 0 || badName(to)):
				requireVerbError(t, err, verb, "step")
			case visit != 0:
				require.ErrorIs(t, err, engine.ErrConflict)
			case refused != nil:
				requireVerbError(t, err, verb, "change")
				require.ErrorContains(t, err, "state: ")
			default:
				require.NoError(t, err)
				requireSameJSON(t, raw, i.State, string(verb))
				return
			}
			require.JSONEq(t, `{"was": 1}`, string(i.State), "it was refused")
			require.Equal(t, "here", i.Step)
		}
		_, err = eng.Admin().Rewind(ctx, id, to, state, engine.AtVisit(visit))
		if check(engine.VerbRewind, err); err != nil {
			_, err = eng.Admin().Edit(ctx, id, state, engine.AtVisit(visit))
			check(engine.VerbEdit, err)
		}
	})
}

// TestBadChanges gives the verbs that change live instances what they cannot do: each is refused
// with an error that names the field or the conflict, and nothing has changed.
func TestBadChanges(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t, pgtest.Migrated(t))
	machine := fsm.Declare[int, int]("changed")
	newer := fsm.Declare[string, int]("changed", fsm.Version(2))
	other := fsm.Declare[int, int]("other")
	start := fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(v.State), nil })
	eng, err := engine.New(engine.Config{Pool: pool, Machines: []fsm.Definition{machine.Define(start), newer.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) { return v.Done(1), nil })).
		From(fsm.Migrate(machine, newer, func(int) (string, error) { return "", errors.New("never") }, fsm.StepNames{"start": "start"}))}})
	require.NoError(t, err)
	admin := eng.Admin()
	at := map[string]fsm.ID{}
	for _, name := range []string{"runnable", "executing", "done", "joining", "rejoining", "unknown"} {
		spec := machine.New(1).After(time.Hour)
		if name == "unknown" {
			spec = other.New(1)
		}
		at[name], err = eng.Insert(ctx, spec)
		require.NoError(t, err)
	}
	for name, set := range map[string]string{
		"executing": `status = 'executing', locked_by = 'w', lease_expires_at = now() + interval '1 hour'`,
		"done":      `status = 'done', finished_at = now(), result = '1'`,
		"joining":   `visit = 4, round = 4, status = 'awaiting_children', children_pending = 1`,
		"rejoining": `visit = 5, round = 4, join_round = 5, status = 'awaiting_children', children_pending = 1`,
	} {
		_, err := pool.Exec(ctx, `UPDATE gendurable.gen_durable SET `+set+` WHERE id = $1`, at[name])
		require.NoError(t, err)
	}
	add := machine.Change(func(n *int) error { *n++; return nil })
	failing := machine.Change(func(*int) error { return errors.New("on purpose") })
	edit := func(name string, c fsm.Change, o ...engine.VerbOption) func() error {
		return func() error { _, err := admin.Edit(ctx, at[name], c, o...); return err }
	}
	rewind := func(name, to string, c fsm.Change, o ...engine.VerbOption) func() error {
		return func() error { _, err := admin.Rewind(ctx, at[name], to, c, o...); return err }
	}
	migrate := func(name string, from, to int) func() error {
		return func() error { _, err := admin.Migrate(ctx, name, from, to); return err }
	}
	bulk := func(verb engine.Verb, o ...engine.VerbOption) func() error {
		return func() error {
			plan, err := admin.Bulk(ctx, verb, engine.Filter{Machine: "changed"})
			if err != nil {
				return err
			}
			_, err = plan.Apply(ctx, o...)
			return err
		}
	}
	for name, c := range map[string]struct {
		ask   func() error
		field string // of a VerbError; "": a conflict
		says  string
	}{
		"edit of what executes":          {edit("executing", add), "", "executing"},
		"edit of what is done":           {edit("done", add), "", "done"},
		"edit of another visit":          {edit("runnable", add, engine.AtVisit(7)), "", "it is at visit 0, not at 7"},
		"edit of another version":        {edit("runnable", newer.SetState("x")), "change", "version 1"},
		"edit of another machine":        {edit("unknown", add), "change", `of machine "other", not of "changed"`},
		"edit that fails":                {edit("runnable", failing), "change", "on purpose"},
		"edit by a nil function":         {edit("runnable", machine.Change(nil)), "change", "nil function"},
		"edit of JSON by nil":            {edit("runnable", fsm.ChangeJSON(nil)), "change", "nil function"},
		"edit by what is too large":      {edit("runnable", fsm.ChangeJSON(tooLarge)), "change", "at most 1048576"},
		"new keys where children join":   {edit("joining", add, engine.NewKeys()), "", "its children join"},
		"new keys where they join again": {edit("rejoining", add, engine.NewKeys()), "", "its children join"},
		"edit with a step":               {edit("runnable", add, engine.ToStep("start")), "ToStep", "an option of Rewind only"},
		"rewind of what executes":        {rewind("executing", "start", add), "", "executing"},
		"rewind of what is done":         {rewind("done", "start", add), "", "done"},
		"rewind of another visit":        {rewind("runnable", "start", add, engine.AtVisit(-1)), "", "not at -1"},
		"rewind to no step":              {rewind("runnable", "", add), "step", "empty"},
		"rewind to a long name":          {rewind("runnable", strings.Repeat("s", 513), add), "step", "513 bytes, at most 512"},
		"rewind to an undeclared step":   {rewind("runnable", "gone", add), "step", `has no step "gone"`},
		"rewind of an unknown machine":   {rewind("unknown", "start", add), "step", "no definition of machine"},
		"rewind with new keys":           {rewind("runnable", "start", add, engine.NewKeys()), "NewKeys", "an option of Edit only"},
		"bulk edit without a change":     {bulk(engine.VerbEdit), "Changing", "none"},
		"bulk rewind without a step":     {bulk(engine.VerbRewind), "ToStep", "none"},
		"visit of another verb":          {bulk(engine.VerbPause, engine.AtVisit(1)), "AtVisit", "an option of Edit and Rewind only"},
		"change of another verb":         {bulk(engine.VerbPause, engine.Changing(add)), "Changing", "an option of Edit and Rewind only"},
		"migrate an unknown machine":     {migrate("gone", 1, 2), "to", `machine "gone" version 2 is not registered`},
		"migrate to an unknown version":  {migrate("changed", 1, 3), "to", "version 3 is not registered"},
		"migrate from an unknown one":    {migrate("changed", -1, 2), "from", "no migration from version -1"},
		"migrate to the same version":    {migrate("changed", 2, 2), "from", "no migration from version 2"},
		"migrate back":                   {migrate("changed", 2, 1), "from", "no migration from version 2"},
		"migrate without a name":         {migrate("", 1, 2), "to", "not registered"},
	} {
		err := c.ask()
		require.ErrorContains(t, err, c.says, name)
		if c.field == "" {
			require.ErrorIs(t, err, engine.ErrConflict, name)
			continue
		}
		wrong, ok := errors.AsType[*engine.VerbError](err)
		require.True(t, ok, "%s: %T", name, err)
		require.Equal(t, c.field, wrong.Field, name)
	}
	plan, err := admin.Migrate(ctx, "changed", 1, 2)
	require.NoError(t, err)
	_, err = plan.Apply(ctx, engine.AtVisit(1))
	requireVerbError(t, err, engine.VerbMigrate, "options")
	_, err = plan.Apply(ctx, engine.Actor(strings.Repeat("a", 513)))
	requireVerbError(t, err, engine.VerbMigrate, "Actor")
	var changed int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE state <> '1' OR fsm_version <> 1`).Scan(&changed))
	require.Zero(t, changed)
}

func tooLarge(json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`"` + strings.Repeat("x", mostBytes) + `"`), nil
}

// TestBadMigrations registers definitions whose migrations cannot be right: New refuses each and
// names the field. Migrations only lead to newer versions, so there are no cycles.
func TestBadMigrations(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.URL(t))
	v := func(n int) *fsm.Machine[int, int] { return fsm.Declare[int, int]("m", fsm.Version(n)) }
	same := func(n int) (int, error) { return n, nil }
	way := func(from, to int) fsm.Migration {
		return fsm.Migrate(v(from), v(to), same, fsm.StepNames{"start": "start"})
	}
	define := func(n int, from ...fsm.Migration) fsm.Definition {
		return v(n).Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(1), nil })).From(from...)
	}
	for name, c := range map[string]struct {
		d           fsm.Definition
		field, says string
	}{
		"a cycle":                   {define(2, way(1, 2), way(2, 1)), "from[version 2]", "to version 1, want a newer one"},
		"a loop":                    {define(2, way(2, 2)), "from[version 2]", "to version 2, want a newer one"},
		"two ways":                  {define(3, way(1, 2), way(2, 3), way(1, 3)), "from[version 1]", "2 migrations from it, want one"},
		"a gap":                     {define(4, way(1, 2), way(3, 4)), "from[version 1]", "nothing here leads from there to 4"},
		"beyond the definition":     {define(2, way(2, 3)), "from[version 2]", "leads to version 3"},
		"a step that is not there":  {define(2, fsm.Migrate(v(1), v(2), same, fsm.StepNames{"start": "gone"})), "from[version 1].steps", `no step "gone"`},
		"a step whose name is long": {define(2, fsm.Migrate(v(1), v(2), same, fsm.StepNames{strings.Repeat("s", 513): "start"})), "from[version 1].steps", "at most 512"},
	} {
		_, err := engine.New(engine.Config{Pool: pool, Machines: []fsm.Definition{c.d}})
		wrong, ok := errors.AsType[*engine.ConfigError](err)
		require.True(t, ok, "%s: %v", name, err)
		require.Equal(t, "Machines[0]."+c.field, wrong.Field, name)
		fault, ok := errors.AsType[*fsm.DefinitionError](err)
		require.True(t, ok, name)
		require.Equal(t, c.field, fault.Field, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

// FuzzMigrated converts to any state. A state that cannot be stored is a fault of the dry run, and
// pauses the instance as it was when it is claimed, with an error that says why; it costs no
// attempt. All else arrives as it was made, by either way.
func FuzzMigrated(f *testing.F) {
	add := seeds(f)
	states(func(raw []byte) { add(raw) })
	older := fsm.Declare[json.RawMessage, json.RawMessage]("converted")
	newer := fsm.Declare[json.RawMessage, json.RawMessage]("converted", fsm.Version(2))
	var raw json.RawMessage
	r := &rig{}
	r.start(f, verbatim{}, newer.Define(fsm.Step("start", func(_ context.Context, v *parcel) (fsm.Outcome, error) { return v.Done(v.State), nil })).
		From(fsm.Migrate(older, newer, func(json.RawMessage) (json.RawMessage, error) { return raw, nil }, fsm.StepNames{"start": "start"})))
	f.Fuzz(func(t *testing.T, made []byte) {
		raw = made
		x := r.begin(t)
		defer x.finish()
		ctx := t.Context()
		bad, err := x.insert(newer.New(made).After(time.Hour))
		storable := err == nil
		if storable {
			_, err = r.eng.Admin().Cancel(ctx, bad)
			require.NoError(t, err)
		}
		id, err := x.insert(older.New(json.RawMessage(`{"was": 1}`)).After(time.Hour))
		require.NoError(t, err)
		plan, err := r.eng.Admin().Migrate(ctx, older.Name(), 1, 2)
		require.NoError(t, err)
		if storable {
			require.Equal(t, []int64{1, 0}, []int64{plan.Ready, plan.Faulty})
		} else {
			require.Equal(t, []int64{0, 1}, []int64{plan.Ready, plan.Faulty})
			require.Contains(t, plan.Faults[0].Error, "state: ")
		}
		_, err = r.eng.Admin().RunNow(ctx, id)
		require.NoError(t, err)
		if storable {
			i := x.ended(id)
			require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
			require.Equal(t, 2, i.Version)
			requireSameJSON(t, made, i.Result, "converted")
			return
		}
		var i fsm.RawInstance
		steady.Eventually(t, func() bool {
			i, err = r.eng.Get(ctx, id)
			return err == nil && i.Paused
		})
		require.Equal(t, []any{fsm.StatusRunnable, 1, 0}, []any{i.Status, i.Version, i.Attempt + i.Crashes})
		require.JSONEq(t, `{"was": 1}`, string(i.State))
		require.Contains(t, i.LastError, "cannot become version 2 of machine converted, paused as it was")
		require.Contains(t, i.LastError, "state: ")
		require.Len(t, x.log.take(), 1, "the log says so once")
	})
}
