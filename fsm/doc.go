// Package fsm declares durable machines and signals and defines their steps:
//
//	var (
//		Invoice = fsm.Declare[Bill, int64]("invoice") // the stored name, state and result
//		Paid    = fsm.DeclareSignal[int64]("paid")
//	)
//
//	var machine = Invoice.Define(
//		fsm.Step("start", send).To("settle"),
//		fsm.Step("settle", settle).To("start"),
//	).Retry(fsm.RetryPolicy{MaxAttempts: 8})
//
//	func send(ctx context.Context, v *fsm.Visit[Bill, int64]) (fsm.Outcome, error) {
//		if err := mail(ctx, v.State, v.IdempotencyKey("mail")); err != nil {
//			return nil, err // the step runs again, by the retry policy
//		}
//		return v.Await("settle", v.State, Paid).Timeout(14 * 24 * time.Hour), nil
//	}
//
//	func settle(_ context.Context, v *fsm.Visit[Bill, int64]) (fsm.Outcome, error) {
//		cents, paid, err := Paid.First(v)
//		if err != nil {
//			return nil, err
//		}
//		if !paid {
//			return v.Next("start", v.State), nil
//		}
//		return v.Done(cents), nil
//	}
//
// Read these twelve names first, which are enough for a first service: [Declare], [Machine.Define],
// [Step], [Visit.Next], [Visit.Await], [Visit.Done], [Defined.Retry], [Spec.Key] and [Machine.Get]
// here, Insert, Signal and Run in package engine. docs/guide/twelve-names.md is a program of them.
//
// Read these next: [Machine.Job], a machine of one function; [DeclareSignal], [Signal.With],
// [Signal.First] and [Message.DedupKey]; [Visit.Fail] and [Visit.Again]; [Visit.ScheduleChildren];
// [Machine.New] and [Machine.Wait]; [Check], for a test. Look up the other names when a step needs
// them.
//
// A [Machine] is declared once, at package level. The declaration suffices to insert, spawn,
// address and wait for instances. [Machine.Define] or [Machine.Job] defines the behaviour apart
// from it, from functions that carry their dependencies; so two machines that spawn each other
// compile, and a client links no step's code.
//
// A step turns a [Visit] into an [Outcome]. The methods of the visit make outcomes, so a state or
// result of the wrong type does not compile. A fault that the compiler cannot see (an unknown step,
// a value that cannot be stored, a negative delay) is an [OutcomeError], which reaches the
// machine's handler like any error of the step. Nothing here panics for a user's mistake:
// engine.New reports the faults of declarations and definitions; the verb that uses a [Spec] or a
// [Message] reports its fault.
//
// The package does no I/O, and imports only internal/step.
//
// Comments cite docs/hazards.txt by number, as T99, and docs/specification.md by section, as spec
// §1.
package fsm
