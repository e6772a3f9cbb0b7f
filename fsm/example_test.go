package fsm_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

type (
	Order   struct{ ID, Cents int64 }
	Receipt struct{ Order, Paid int64 }
	Payment struct{ Cents int64 }
)

// Inserters, senders and waiters share these declarations, and none of the steps' code.
var (
	Checkout = fsm.Declare[Order, Receipt]("checkout", fsm.Version(2), fsm.Queue("checkout"))
	Paid     = fsm.DeclareSignal[Payment]("payment_confirmed")
)

var errUnpaid = errors.New("unpaid")

type OutOfStock struct{ SKU string }

func (e *OutOfStock) Error() string { return "out of stock: " + e.SKU }

type Warehouse interface {
	Ship(ctx context.Context, order int64, key string, fence int64) error
}

type fullWarehouse struct{}

func (fullWarehouse) Ship(context.Context, int64, string, int64) error { return nil }

// The steps are methods, so that dependencies can be injected.
type checkout struct{ warehouse Warehouse }

type visit = fsm.Visit[Order, Receipt]

func (m checkout) Definition() fsm.Definition {
	return Checkout.Define(
		fsm.Step("start", m.start).To("ship"),
		fsm.Step("ship", m.ship).To("archive").Timeout(time.Minute),
		fsm.Step("archive", m.archive).To(),
	).OnError(m.failed).CrashLimit(5)
}

func (m checkout) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("ship", v.State, Paid).Timeout(24 * time.Hour), nil
}

func (m checkout) ship(ctx context.Context, v *visit) (fsm.Outcome, error) {
	p, ok, err := Paid.First(v)
	if err != nil || !ok { // timed out
		return nil, cmp.Or(err, errUnpaid)
	}
	if err := m.warehouse.Ship(ctx, v.State.ID, v.IdempotencyKey("ship"), v.FencingToken); err != nil {
		return nil, err
	}
	v.State.Cents = p.Cents
	return v.Next("archive", v.State).After(30 * 24 * time.Hour), nil // a durable timer
}

func (m checkout) archive(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Done(Receipt{Order: v.State.ID, Paid: v.State.Cents}), nil
}

// The handler treats errors that the business knows itself, and leaves the others to the policy.
func (m checkout) failed(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	if gone, ok := errors.AsType[*OutOfStock](err); ok {
		return v.Fail(fmt.Errorf("refund: %w", gone)), nil
	}
	return v.RetryBy(fsm.RetryPolicy{MaxAttempts: 8}, err), nil
}

// A machine of several steps waits for a payment, ships, and ends a month later.
func Example() {
	m := hidden.Machine(checkout{fullWarehouse{}}.Definition()) // engine.New does this

	claim := &step.Claim{ID: 1, Machine: "checkout", Version: 2, Step: "start", State: json.RawMessage(`{"ID":42}`)}
	out, err := m.Steps[claim.Step].Run(context.Background(), claim)
	fmt.Println(out.Kind, out.Names, out.Step, out.Timeout, err)

	claim.Step = out.Step
	claim.Awaited = []step.Signal{{Name: Paid.Name(), Payload: json.RawMessage(`{"Cents":4200}`)}}
	out, err = m.Steps[claim.Step].Run(context.Background(), claim)
	fmt.Println(out.Kind, out.Step, string(out.State), out.Delay, err)

	claim.Awaited = nil
	_, err = m.Steps[claim.Step].Run(context.Background(), claim)
	out, _ = m.OnError(context.Background(), claim, err)
	fmt.Println(out.Kind, out.Err)
	// Output:
	// await [payment_confirmed] ship 24h0m0s <nil>
	// next archive {"ID":42,"Cents":4200} 720h0m0s <nil>
	// retry unpaid
}

// Ping and Pong spawn each other. That compiles at package level, since a declaration mentions no
// behaviour.
var (
	Ping = fsm.Declare[int, fsm.None]("ping")
	Pong = fsm.Declare[int, fsm.None]("pong")
	Dir  = fsm.Declare[string, int64]("ingest.dir") // spawns itself
	File = fsm.Declare[string, int64]("ingest.file")

	machines = []fsm.Definition{
		Ping.Define(fsm.Step("start", ping), fsm.Step("end", over)),
		Pong.Define(fsm.Step("start", pong), fsm.Step("end", over)),
		Dir.Define(fsm.Step("start", walk).To("join"), fsm.Step("join", join).To()),
		File.Job(func(_ context.Context, path string) (int64, error) { return int64(len(path)), nil }),
	}
)

func ping(_ context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
	return v.ScheduleChildren("end", v.State, Pong.New(v.State-1)), nil
}

func pong(_ context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
	return v.ScheduleChildren("end", v.State, Ping.New(v.State)), nil
}

func over(_ context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
	return v.Done(fsm.None{}), nil
}

func walk(_ context.Context, v *fsm.Visit[string, int64]) (fsm.Outcome, error) {
	return v.ScheduleChildren("join", v.State, Dir.New(v.State+"/sub"), File.New(v.State+"/a").Queue("bulk").Priority(10)), nil
}

func join(_ context.Context, v *fsm.Visit[string, int64]) (fsm.Outcome, error) {
	var sum int64
	for _, child := range append(Dir.Children(v), File.Children(v)...) {
		n, err := child.Result()
		if err != nil {
			return v.Fail(err), nil
		}
		sum += n
	}
	return v.Done(sum), nil
}

// A refund fails unless it ends within a month; this one has an hour.
func ExampleDeadline() {
	refund := fsm.Declare[Order, Receipt]("refund", fsm.Deadline(30*24*time.Hour))
	fmt.Println(refund.New(Order{ID: 42}).Options().Deadline)
	fmt.Println(refund.New(Order{ID: 42}).Deadline(time.Hour).Options().Deadline)
	// Output:
	// 720h0m0s
	// 1h0m0s
}

// Children run in parallel. The step that joins them gets their results, typed, in the order in
// which they were spawned.
func ExampleVisit_ScheduleChildren() {
	m := hidden.Machine(machines[2])
	claim := &step.Claim{ID: 1, Machine: "ingest.dir", Version: 1, Step: "start", State: json.RawMessage(`"/data"`)}
	out, _ := m.Steps[claim.Step].Run(context.Background(), claim)
	for _, child := range out.Spawn {
		fmt.Println(child.Machine, string(child.State), child.Queue)
	}

	claim.Step = out.Step
	claim.Children = []step.Child{
		{ID: 2, Machine: "ingest.dir", Status: "done", Result: json.RawMessage(`30`)},
		{ID: 3, Machine: "ingest.file", Status: "done", Result: json.RawMessage(`12`)},
	}
	out, _ = m.Steps[claim.Step].Run(context.Background(), claim)
	fmt.Println(out.Kind, string(out.Result))
	// Output:
	// ingest.dir "/data/sub" default
	// ingest.file "/data/a" bulk
	// done 42
}

type Ballot struct {
	Need   int
	Closes time.Time
}

var (
	Vote = fsm.DeclareSignal[bool]("vote")
	Poll = fsm.Declare[Ballot, int]("poll", fsm.Initial("collect"))
)

func collect(_ context.Context, v *fsm.Visit[Ballot, int]) (fsm.Outcome, error) {
	votes, err := Vote.All(v)
	if err != nil {
		return nil, err
	}
	if len(votes) < v.State.Need && !v.TimedOut() {
		return v.Await("collect", v.State, Vote).Until(v.State.Closes), nil
	}
	return v.Done(len(votes)), nil
}

// A step that parks towards itself sleeps until another signal arrives: so it collects a set. The
// deadline is in the state, so it does not move.
func ExampleVisit_Await() {
	m := hidden.Machine(Poll.Define(fsm.Step("collect", collect).To("collect")))
	claim := &step.Claim{Machine: "poll", Version: 1, Step: "collect", State: json.RawMessage(`{"Need":2,"Closes":"2030-01-02T15:00:00Z"}`)}
	out, _ := m.Steps["collect"].Run(context.Background(), claim)
	fmt.Println(out.Kind, out.Step, out.Names, out.At.Format(time.DateOnly))

	vote := step.Signal{Name: "vote", Payload: json.RawMessage(`true`)}
	claim.Awaited = []step.Signal{vote, vote}
	out, _ = m.Steps["collect"].Run(context.Background(), claim)
	fmt.Println(out.Kind, string(out.Result))
	// Output:
	// await collect [vote] 2030-01-02
	// done 2
}

// uploaded is what an upload publishes of itself.
type uploaded struct{ Parts, Of int }

// A long step says how far it is. A reader of the instance decodes the progress, while the step
// still runs.
func ExampleVisit_Publish() {
	upload := fsm.Declare[int, fsm.None]("upload", fsm.Initial("send"))
	m := hidden.Machine(upload.Define(fsm.Step("send", func(ctx context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
		for n := range v.State {
			if err := v.Publish(ctx, uploaded{Parts: n + 1, Of: v.State}); err != nil {
				return nil, err
			}
		}
		return v.Done(fsm.None{}), nil
	})))

	claim := &step.Claim{Machine: "upload", Version: 1, Step: "send", State: json.RawMessage(`2`)}
	claim.Publish = func(_ context.Context, progress json.RawMessage) error {
		fmt.Println(string(progress)) // the engine stores it
		return nil
	}
	out, _ := m.Steps["send"].Run(context.Background(), claim)
	fmt.Println(out.Kind)
	// Output:
	// {"Parts":1,"Of":2}
	// {"Parts":2,"Of":2}
	// done
}

// An instance that has published nothing has no progress.
func ExampleProgressOf() {
	var eng reader // an *engine.Engine
	i := fsm.Instance[int, fsm.None]{ID: 7, Progress: json.RawMessage(`{"Parts": 1, "Of": 2}`)}
	progress, ok, err := fsm.ProgressOf[uploaded](eng, i)
	fmt.Println(progress.Parts, "of", progress.Of, ok, err)
	_, ok, err = fsm.ProgressOf[uploaded](eng, fsm.Instance[int, fsm.None]{ID: 8})
	fmt.Println(ok, err)
	// Output:
	// 1 of 2 true <nil>
	// false <nil>
}

// reader is an engine that has only a codec.
type reader struct{ fsm.Reader }

func (reader) Codec() fsm.Codec { return fsm.JSON{} }

// A job is a machine of one function. Its errors say whether and when to retry.
func ExampleMachine_Job() {
	mail := fsm.Declare[string, fsm.None]("mail.send")
	job := mail.Job(func(ctx context.Context, to string) (fsm.None, error) {
		info, _ := fsm.InfoFrom(ctx) // info.IdempotencyKey() goes to the provider
		if to == "" {
			return fsm.None{}, fsm.Permanent(errors.New("bad address"))
		}
		if info.Attempt == 0 {
			return fsm.None{}, fsm.RetryAfter(time.Minute, errors.New("429"))
		}
		return fsm.None{}, nil
	}).Retry(fsm.RetryPolicy{MaxAttempts: 5, Max: time.Minute})

	m := hidden.Machine(job)
	for _, claim := range []*step.Claim{
		{Step: "start", State: json.RawMessage(`"a@example.org"`)},
		{Step: "start", State: json.RawMessage(`"a@example.org"`), Attempt: 1},
		{Step: "start", State: json.RawMessage(`""`)},
	} {
		out, err := m.Steps["start"].Run(context.Background(), claim)
		if err != nil {
			out, _ = m.OnError(context.Background(), claim, err)
		}
		fmt.Printf("%v %s %v %q %q\n", out.Kind, string(out.Result), out.Delay, out.Err, out.Failure)
	}
	// Output:
	// retry  1m0s "429" ""
	// done {} 0s "" ""
	// fail  0s "bad address" "error"
}

// A wrong definition does not panic: engine.New returns all of its faults.
func ExampleDefinitionError() {
	//gendurable:ignore steps the faults are what this shows
	m := hidden.Machine(Checkout.Define(fsm.Step("begin", checkout{}.start).To("shp").Timeout(-time.Second)))
	for _, fault := range m.Faults {
		if d, ok := errors.AsType[*fsm.DefinitionError](fault); ok {
			fmt.Printf("%s: %v\n", d.Field, d.Err)
		}
	}
	// Output:
	// steps: no step "start", the initial one: define it, or declare another with fsm.Initial
	// steps["begin"].timeout: -1s is negative
	// steps["begin"].to: the machine has no step "shp"
}

// The options of an instance are methods of its spec, which return copies.
func ExampleSpec() {
	spec := Checkout.New(Order{ID: 42}).Key("order:42").Scope(fsm.ScopeLiveOrDone).PartitionKey("customer:7").Priority(-5).After(5 * time.Minute)
	o := spec.Options()
	fmt.Println(o.Machine, o.Version, o.Step, o.Queue, o.Key, o.PartitionKey, o.Priority, o.Delay)

	_, err := hidden.Spec(spec.Priority(40_000), nil) // the engine does this
	fmt.Println(err)
	// Output:
	// checkout 2 start checkout order:42 customer:7 -5 5m0s
	// spec: priority: 40000, want -32768 to 32767
}

// All that insert an order of this machine, or spawn one, mean the same instance of it.
func ExampleKeyBy() {
	orders := fsm.Declare[Order, string]("orders", fsm.KeyScope(fsm.ScopeAll),
		fsm.KeyBy(func(o Order) fsm.Key { return fsm.Key(fmt.Sprint("order:", o.ID)) }))
	o := orders.New(Order{ID: 42}).Options()
	fmt.Println(o.Key, o.Scope == fsm.ScopeAll)

	_, err := hidden.Spec(orders.New(Order{ID: 42}).Key("urgent:42"), nil) // the engine does this
	wrong, _ := errors.AsType[*fsm.KeyError](err)
	fmt.Println(wrong.Machine, "has declared another key")
	// Output:
	// order:42 true
	// orders has declared another key
}

func ExampleKeyFromState() {
	orders := fsm.Declare[Order, string]("orders", fsm.KeyFromState())
	fmt.Println(orders.New(Order{ID: 42}).Options().Key == orders.New(Order{ID: 42}).Options().Key)
	// Output: true
}

// Edits of one document within five seconds of each other are one instance, the last one's.
func ExampleSpec_Debounce() {
	w := Checkout.New(Order{ID: 42}).Debounce("order:42", 5*time.Second, time.Minute).Options().Window
	fmt.Println(w.Kind, w.Key, w.For, w.Most)

	_, err := hidden.Spec(Checkout.New(Order{ID: 42}).Debounce("order:42", time.Minute, time.Second), nil) // the engine does this
	fmt.Println(err)
	// Output:
	// debounce order:42 5s 1m0s
	// spec: window: debounce for at most 1s, want 0 or 1m0s to 100 years
}

// The first insert wins, and for ten seconds the others are told of it.
func ExampleSpec_Throttle() {
	w := Checkout.New(Order{ID: 42}).Throttle("order:42", 10*time.Second).Options().Window
	fmt.Println(w.Kind, w.Key, w.For)
	// Output: throttle order:42 10s
}

// The first insert of each day wins, in UTC.
func ExampleSpec_OncePer() {
	w := Checkout.New(Order{ID: 42}).OncePer("report", 24*time.Hour).Options().Window
	fmt.Println(w.Kind, w.Key, w.For)
	// Output: once report 24h0m0s
}

// A policy needs a key that can be occupied.
func ExampleSpec_OnConflict() {
	spec := Checkout.New(Order{ID: 42}).OnConflict(fsm.ConflictReplace)
	_, err := hidden.Spec(spec.Key("order:42"), nil) // the engine does this
	fmt.Println(err)
	_, err = hidden.Spec(spec, nil)
	fmt.Println(err)
	// Output:
	// <nil>
	// spec: conflict: set without a correlation key, whose conflict it decides: give the spec a Key
}

// Each named effect has its own key, the same whenever the visit runs again.
func ExampleInfo_IdempotencyKey() {
	first := hidden.InfoOf(&step.Claim{UID: [16]byte{1}, Visit: 7})
	again := hidden.InfoOf(&step.Claim{UID: [16]byte{1}, Visit: 7, Attempt: 3})
	next := hidden.InfoOf(&step.Claim{UID: [16]byte{1}, Visit: 8})
	fmt.Println(first.IdempotencyKey("ship") == again.IdempotencyKey("ship"))
	fmt.Println(first.IdempotencyKey("ship") == first.IdempotencyKey("invoice"))
	fmt.Println(first.IdempotencyKey("ship") == next.IdempotencyKey("ship"))
	// Output:
	// true
	// false
	// false
}

// A signal's value makes its messages, and reads them in the step.
func ExampleSignal() {
	message := Paid.With(Payment{Cents: 4200}).DedupKey("evt-7")
	sent, err := hidden.Signal(message, nil) // the engine does this
	fmt.Println(sent.Name, string(sent.Payload), sent.DedupKey, err)
	// Output: payment_confirmed {"Cents":4200} evt-7 <nil>
}

// A payment may come while the last step runs. The instance then goes on with it, instead of
// deleting it.
func ExampleEndOutcome_Unless() {
	m := hidden.Machine(Checkout.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Fail(errUnpaid).Unless("late", Paid), nil
		}).To("late"),
		fsm.Step("late", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			p, _, err := Paid.First(v)
			return v.Done(Receipt{Order: v.State.ID, Paid: p.Cents}), err
		}),
	))

	out, err := m.Steps["start"].Run(context.Background(), &step.Claim{Step: "start", State: json.RawMessage(`{"ID":42}`)})
	fmt.Println(out.Kind, "unless", out.Unless.Names, "else", out.Unless.Step, err)
	// Output: fail unless [payment_confirmed] else late <nil>
}
