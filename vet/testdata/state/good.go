package state

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

func carried(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if v.State.Count > 3 {
		return v.Done(1), nil
	}
	return v.AgainWith(v.State, time.Minute), nil
}

func passedOn(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Count++
	return v.Next("start", s), nil
}

func putBack(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Count++
	v.State = s
	return v.Next("start", v.State), nil
}

func putBackInPart(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Count++
	v.State.Count = s.Count
	return v.Next("start", v.State), nil
}

// policy reads v.State.
func policy(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	v.State.Count++
	return v.RetryBy(fsm.RetryPolicy{}, err), nil
}

// On one of its ways the change is carried.
func sometimes(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if len(v.Awaited()) == 0 {
		return v.Again(time.Minute), nil
	}
	return v.Next("start", v.State), nil
}

func helped(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	return finish(v)
}

func finish(v *visit) (fsm.Outcome, error) { return v.Next("start", v.State), nil }

// tried decides nothing at the end: whoever calls it goes on with the visit.
func tried(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if v.Attempt > 3 {
		return nil, errors.New("too often")
	}
	return nil, nil
}

// What a pointer or a map leads to is shared with the copy.
func sharedMemory(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.By["a"]++
	s.Next.Count++
	s.Seen[0] = "x"
	return v.Next("start", v.State), nil
}

func pointed(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := &v.State
	s.Count++
	return v.Next("start", v.State), nil
}

func (p *Poll) add() { p.Count++ }

func byMethod(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.add()
	s := v.State
	s.add()
	return v.Next("start", s), nil
}

func closed(_ context.Context, v *visit) (fsm.Outcome, error) {
	defer func() { println(v.State.Count) }()
	v.State.Count++
	return v.Again(time.Minute), nil
}

// The copy is for the step's own use.
func scratch(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Seen = []string{strings.ToLower(v.State.Seen[0])}
	println(s.Seen[0])
	return v.Next("start", v.State), nil
}

func result(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Count++
	if s.Count > 3 {
		return v.Done(s.Count), nil
	}
	return v.Next("start", v.State), nil
}

func looped(_ context.Context, v *visit) (fsm.Outcome, error) {
	for range 3 {
		if v.State.Count > 1 {
			break
		}
		v.State.Count++
	}
	return v.Again(time.Minute), nil
}

// Each of these needs its count once more.
func told(ctx context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if v.State.Count > 3 {
		return v.Next("start", v.State), nil
	}
	fsm.Logger(ctx).Info("again")
	return v.Again(time.Minute), nil
}

func logged(ctx context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	fsm.Logger(ctx).Info("again", "n", v.State.Count)
	return v.Again(time.Minute), nil
}

func handed(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if over(v.State) {
		return v.Fail(nil), nil
	}
	return v.Again(time.Minute), nil
}

func over(s Poll) bool { return s.Count > 3 }

func ends(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	if v.State.Count > 3 {
		return v.Fail(nil), nil
	}
	return v.Done(0), nil
}

func send(string) {}

// The change is for this run alone: it is sent, or counted by a switch.
func sent(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Seen = append(v.State.Seen, "x")
	for _, one := range v.State.Seen {
		send(one)
	}
	return v.Again(time.Minute), nil
}

func switched(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	switch v.State.Count {
	case 1:
		send("first")
	}
	return v.Again(time.Minute), nil
}

func cased(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Count++
	switch {
	case v.State.Count > 1:
		send("another")
	}
	return v.Again(time.Minute), nil
}

func sentCopy(_ context.Context, v *visit) (fsm.Outcome, error) {
	s := v.State
	s.Seen = append(s.Seen, "x")
	for _, one := range s.Seen {
		send(one)
	}
	return v.Next("start", v.State), nil
}
