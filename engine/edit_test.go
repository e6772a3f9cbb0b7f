package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// An operator mends what an instance carries, if it still stands where he has seen it.
func ExampleAdmin_Edit() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := engine.WithActor(context.Background(), "ada")
	seen, err := checkout.Get(ctx, shop.eng, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	cheaper := checkout.Change(func(o *order) error { o.Cents -= 200; return nil })
	changed, err := shop.eng.Admin().Edit(ctx, id, cheaper, engine.AtVisit(seen.Visit), engine.Reason("ticket 4711"))
	fmt.Println(changed.Was, "to", changed.Is, err)
	now, err := checkout.Get(ctx, shop.eng, id)
	fmt.Println(seen.State.Cents, "to", now.State.Cents, err)
	// Output:
	// awaiting_signal to awaiting_signal <nil>
	// 4200 to 4000 <nil>
}

// An instance goes back to a step that it has gone through, here with the state that it has.
func ExampleAdmin_Rewind() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()
	before, err := checkout.Get(ctx, shop.eng, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	changed, err := shop.eng.Admin().Rewind(ctx, id, "start", fsm.Change{})
	fmt.Println(changed.Was, "to", changed.Is, err)
	shop.until(id, fsm.StatusAwaitingSignal) // start has run again
	now, err := checkout.Get(ctx, shop.eng, id)
	fmt.Println(now.Step, now.Visit > before.Visit, err)
	// Output:
	// awaiting_signal to runnable <nil>
	// ship true <nil>
}

// A plan edits many, each from its own state.
func ExampleChanging() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	shop.place(43)
	ctx := context.Background()
	plan, err := shop.eng.Admin().Bulk(ctx, engine.VerbEdit, engine.Filter{Machine: "checkout", Step: "ship"})
	if err != nil {
		fmt.Println(err)
		return
	}
	applied, err := plan.Apply(ctx, engine.Changing(checkout.Change(func(o *order) error { o.Cents += o.ID; return nil })))
	fmt.Println(plan.Matched, applied.Changed, err)
	i, err := checkout.Get(ctx, shop.eng, orderKey(43))
	fmt.Println(i.State.Cents, err)
	// Output:
	// 2 2 <nil>
	// 4243 <nil>
}

type parcel struct {
	N int `json:"n"`
}

var parcels = fsm.Declare[parcel, fsm.None]("parcel")

// line is a Config with a machine of three steps in a line, which nothing works on.
func line(c *engine.Config) {
	step := func(name string) fsm.StepDef[parcel, fsm.None] {
		return fsm.Step(name, func(_ context.Context, v *fsm.Visit[parcel, fsm.None]) (fsm.Outcome, error) {
			return v.Done(fsm.None{}), nil
		})
	}
	c.Machines = []fsm.Definition{parcels.Define(step("start").To("pack"), step("pack").To("send"), step("send").To())}
}

func TestEditAndRewind(t *testing.T) {
	t.Parallel()
	e, pool := client(t, line)
	a, ctx := e.Admin(), within(t)
	at := func(step string, n int) fsm.ID {
		id, err := e.Insert(ctx, parcels.New(parcel{n}).Step(step).After(time.Hour))
		require.NoError(t, err)
		return id
	}
	set := func(id fsm.ID, sql string) {
		_, err := pool.Exec(ctx, `UPDATE gendurable.gen_durable SET `+sql+` WHERE id = $1`, id)
		require.NoError(t, err)
	}
	id := at("pack", 1)
	twice := parcels.Change(func(p *parcel) error { p.N *= 2; return nil })

	// The compare-and-set.
	var conflict *engine.ConflictError
	_, err := a.Edit(ctx, id, twice, engine.AtVisit(7))
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, "at visit 0, not at 7")
	_, err = a.Edit(ctx, id, parcels.Change(func(p *parcel) error { // somebody else is quicker
		_, err := a.Edit(ctx, id, parcels.SetState(parcel{50}))
		p.N = 3
		return err
	}))
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, "it has changed since it was seen")
	changed, err := a.Edit(ctx, id, twice, engine.AtVisit(0), engine.NewKeys())
	require.NoError(t, err)
	require.Equal(t, engine.Changed{ID: id, Was: fsm.StatusRunnable, Is: fsm.StatusRunnable}, changed)
	i, err := parcels.Get(ctx, e, id)
	require.NoError(t, err)
	require.Equal(t, 100, i.State.N)
	require.Equal(t, int64(1), i.Visit)

	// Instances to which it does not apply.
	set(id, `status = 'executing', locked_by = 'w', lease_expires_at = now() + interval '1 hour'`)
	for _, err := range []error{second(a.Edit(ctx, id, twice)), second(a.Rewind(ctx, id, "start", fsm.Change{}))} {
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, fsm.StatusExecuting, conflict.Status)
	}
	set(id, `status = 'runnable', locked_by = NULL, lease_expires_at = NULL`)
	done := at("send", 1)
	set(done, `status = 'done', finished_at = now()`)
	_, err = a.Edit(ctx, done, twice)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = a.Edit(ctx, fsm.ID(99), twice)
	require.ErrorIs(t, err, engine.ErrNotFound)

	// Back to an earlier step, never forward.
	changed, err = a.Rewind(ctx, id, "start", parcels.SetState(parcel{7}))
	require.NoError(t, err)
	require.Equal(t, fsm.StatusRunnable, changed.Is)
	i, err = parcels.Get(ctx, e, id)
	require.NoError(t, err)
	require.Equal(t, []any{"start", 7, int64(2)}, []any{i.Step, i.State.N, i.Visit})
	for text, err := range map[string]error{
		`step: "send" does not lead to "start", where`: second(a.Rewind(ctx, id, "send", fsm.Change{})),
		`step: machine "parcel" version 1 has no step`: second(a.Rewind(ctx, id, "gone", fsm.Change{})),
		`change: no`:           second(a.Edit(ctx, id, parcels.Change(func(*parcel) error { return errors.New("no") }))),
		`change: nil function`: second(a.Edit(ctx, id, parcels.Change(nil))),
		`change: instance 1 is of machine "parcel", not`: second(a.Edit(ctx, id, echoes.SetState("x"))),
		`change: state:`: second(a.Edit(ctx, id, fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{`), nil }))),
		`change: state: 2000000 bytes, at most`: second(a.Edit(ctx, id, fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) {
			text := make([]byte, 2_000_000)
			for i := range text {
				text[i] = '1'
			}
			return text, nil
		}))),
		`AtVisit: an option of Edit and Rewind only`:     second(a.Pause(ctx, id, engine.AtVisit(1))),
		`NewKeys: an option of Edit only`:                second(a.Rewind(ctx, id, "start", fsm.Change{}, engine.NewKeys())),
		`ToStep: an option of Rewind only`:               second(a.Edit(ctx, id, twice, engine.ToStep("start"))),
		`Changing: an option of Edit and Rewind only`:    second(a.Retry(ctx, id, engine.Changing(twice))),
		`Rewind: step: empty`:                            second(a.Rewind(ctx, id, "", fsm.Change{})),
		`IfUnchanged: it saw instance 0, but the targ`:   second(a.Edit(ctx, id, twice, engine.IfUnchanged(fsm.RawInstance{}))),
		`options: this verb takes Actor and Reason only`: second(a.PauseQueue(ctx, "q", engine.AtVisit(1))),
	} {
		var wrong *engine.VerbError
		require.ErrorAs(t, err, &wrong, text)
		require.ErrorContains(t, err, text)
	}

	// A state that replaces another does so whatever the other is: another program may have written
	// it.
	broken := `state = '{"n": "seven"}', visit = visit`
	set(id, broken)
	require.ErrorContains(t, second(a.Edit(ctx, id, twice)), "decode state")
	require.NoError(t, second(a.Edit(ctx, id, parcels.SetState(parcel{8}))))
	set(id, broken)
	require.NoError(t, second(a.Rewind(ctx, id, "start", parcels.SetState(parcel{8}))))
	set(id, broken)
	mend, err := a.Bulk(ctx, engine.VerbEdit, engine.Filter{Machine: "parcel", Status: []fsm.Status{fsm.StatusRunnable}})
	require.NoError(t, err)
	applied, err := mend.Apply(ctx, engine.Changing(parcels.SetState(parcel{7})))
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: mend.Matched}, applied)
	i, err = parcels.Get(ctx, e, id)
	require.NoError(t, err)
	require.Equal(t, 7, i.State.N)

	// The definition of a machine that the operator's program does not have is the stored one.
	other := open(t, pool)
	_, err = other.Admin().Rewind(ctx, id, "start", fsm.Change{})
	require.ErrorContains(t, err, `no definition of machine "parcel" version 1 is stored`)
	working(t, pool, line, func(c *engine.Config) { c.Queues = map[string]engine.Queue{"nobody's": {}} })
	_, err = other.Admin().Rewind(ctx, id, "start", fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{"n": 9}`), nil }))
	require.NoError(t, err)
	bulk(ctx, t, e, set, at)
}

// bulk edits and rewinds many: what cannot be is counted, and the others are changed.
func bulk(ctx context.Context, t *testing.T, e *engine.Engine, set func(fsm.ID, string), at func(string, int) fsm.ID) {
	t.Helper()
	a := e.Admin()
	plan, err := a.Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "parcel"})
	require.NoError(t, err)
	_, err = plan.Apply(ctx)
	require.NoError(t, err)
	start, pack, send, moved := at("start", 1), at("pack", 2), at("send", 3), at("send", 4)
	live := engine.Filter{Machine: "parcel", Status: []fsm.Status{fsm.StatusRunnable}}
	plan, err = a.Bulk(ctx, engine.VerbRewind, live)
	require.NoError(t, err)
	require.Equal(t, int64(4), plan.Matched)
	set(moved, `status = 'executing', locked_by = 'w', lease_expires_at = now() + interval '1 hour'`)
	_, err = plan.Apply(ctx)
	require.ErrorContains(t, err, "ToStep: none")
	applied, err := plan.Apply(ctx, engine.ToStep("pack"))
	require.ErrorContains(t, err, fmt.Sprintf(`"pack" does not lead to "start", where instance %d stands`, start))
	require.Equal(t, engine.Applied{Changed: 2, Skipped: 1, Failed: 1}, applied)
	i, err := e.Get(ctx, send)
	require.NoError(t, err)
	require.Equal(t, "pack", i.Step)

	plan, err = a.Bulk(ctx, engine.VerbEdit, live)
	require.NoError(t, err)
	_, err = plan.Apply(ctx)
	require.ErrorContains(t, err, "Changing: none")
	applied, err = plan.Apply(ctx, engine.Changing(parcels.Change(func(p *parcel) error {
		if p.N == 2 {
			return errors.New("not this one")
		}
		p.N += 10
		return nil
	})))
	require.ErrorContains(t, err, "not this one")
	require.Equal(t, engine.Applied{Changed: 2, Failed: 1}, applied)
	p, err := parcels.Get(ctx, e, pack)
	require.NoError(t, err)
	require.Equal(t, 2, p.State.N)
	p, err = parcels.Get(ctx, e, start)
	require.NoError(t, err)
	require.Equal(t, 11, p.State.N)
}
