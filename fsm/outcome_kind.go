package fsm

import "github.com/gendurable/gendurable/internal/step"

// OutcomeKind says which method of [Visit] made an outcome. Hooks, middleware and tests get it;
// metrics and spans carry its text.
type OutcomeKind = step.Kind

// The kinds of outcomes.
const (
	OutcomeNone     OutcomeKind = ""            // no outcome: the step failed, or its claim was given back
	OutcomeNext     OutcomeKind = step.Next     // Visit.Next
	OutcomeRetry    OutcomeKind = step.Retry    // Visit.Retry and Visit.RetryBy
	OutcomeAgain    OutcomeKind = step.Again    // Visit.Again, Visit.AgainWith, and an error of fsm.Again
	OutcomeAwait    OutcomeKind = step.Await    // Visit.Await
	OutcomeChildren OutcomeKind = step.Children // Visit.ScheduleChildren
	OutcomeRejoin   OutcomeKind = step.Rejoin   // Visit.Rejoin
	OutcomeDone     OutcomeKind = step.Done     // Visit.Done
	OutcomeFail     OutcomeKind = step.Fail     // Visit.Fail
)
