package state

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Poll struct {
	Count int
	Seen  []string
	In    struct{ Deep [2]int }
	By    map[string]int
	Next  *Poll
}

type visit = fsm.Visit[Poll, int]

// Again runs the step again with the stored state.
func again(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++ // want `state: this change of v.State is lost: no outcome after it carries v.State`
	return v.Again(time.Minute), nil
}

func another(_ context.Context, v *visit) (fsm.Outcome, error) {
	old := v.State
	v.State.In.Deep[1] += 2 // want `state: this change of v.State is lost`
	if old.Count > 3 {
		return v.Done(old.Count), nil
	}
	return v.Next("start", old), nil
}

func whole(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State = Poll{Count: 1} // want `state: this change of v.State is lost`
	return v.Next("start", Poll{}), nil
}

// counted changes its copy, looks at it, and passes on what was there before.
func counted(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Count++ // want `state: this change of s is lost: no outcome after it carries s`
	if s.Count > 3 {
		return v.Fail(fmt.Errorf("too often")), nil
	}
	return v.Next("start", v.State).After(time.Minute), nil
}

func listed(ctx context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	for _, name := range []string{"a", "b"} {
		s.Seen = append(s.Seen, name) // want `state: this change of s is lost`
	}
	fsm.Logger(ctx).Info("seen", "n", len(s.Seen))
	return v.Retry(v.State, time.Minute), nil
}

func dead(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	if len(s.Seen) > 0 {
		s.In.Deep[0] = 1 // want `state: this change of s is lost`
	}
	return v.Next("start", v.State), nil
}

func handler(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	if v.Attempt > 3 {
		v.State.Count = 9 // want `state: this change of v.State is lost`
		return v.Fail(err), nil
	}
	return v.RetryBy(fsm.RetryPolicy{}, err), nil
}

// asked counts in vain: Again runs it with the count of before.
func asked(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++ // want `state: this change of v.State is lost`
	if v.State.Count > 3 {
		return v.Fail(fmt.Errorf("too often")), nil
	}
	return v.Again(time.Minute), nil
}

func askedTwice(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++ // want `state: this change of v.State is lost`
	if !(v.Attempt > 1 && (v.State.Count > 3 || v.State.In.Deep[0] > v.State.Count)) {
		return v.Fail(fmt.Errorf("too often")), nil
	}
	return v.Again(time.Minute), nil
}
