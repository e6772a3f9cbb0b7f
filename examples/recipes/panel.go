package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Proposal struct {
	Document string
	Panel    []string
	Needed   int // how many of them have to agree
}

type Verdict struct {
	Agreed []string
	Passed bool
}

type Ballot struct{ Document, Person string }

var (
	Proposals = fsm.Declare[Proposal, Verdict]("proposal")
	Ballots   = fsm.Declare[Ballot, string]("proposal.ballot")
	Vote      = fsm.DeclareSignal[bool]("vote")
)

type panel struct {
	ask func(ctx context.Context, document, person, idempotencyKey string) error
}

func (m panel) definitions() []fsm.Definition {
	return []fsm.Definition{
		Proposals.Define(fsm.Step("start", convene).To("count"), fsm.Step("count", tally).To()).Retry(fsm.RetryPolicy{}),
		Ballots.Define(fsm.Step("start", m.invite).To("cast").Timeout(time.Minute), fsm.Step("cast", cast).To()).Retry(fsm.RetryPolicy{}),
	}
}

// ballotKey is where a person's vote is sent: eng.Signal(ctx, ballotKey(…), Vote.With(true)).
func ballotKey(document, person string) fsm.Key { return fsm.Key("ballot:" + document + ":" + person) }

// convene asks everybody at once, and goes on when enough agree, when too few can, or after a week.
func convene(_ context.Context, v *fsm.Visit[Proposal, Verdict]) (fsm.Outcome, error) {
	ballots := make([]fsm.Spec, len(v.State.Panel))
	for i, person := range v.State.Panel {
		ballots[i] = Ballots.New(Ballot{v.State.Document, person}).Key(ballotKey(v.State.Document, person))
	}
	return v.ScheduleChildren("count", v.State, ballots...).Quorum(v.State.Needed).Timeout(7 * 24 * time.Hour).CancelRest(), nil
}

func tally(_ context.Context, v *fsm.Visit[Proposal, Verdict]) (fsm.Outcome, error) {
	var verdict Verdict
	for _, ballot := range Ballots.Children(v) {
		if person, err := ballot.Result(); err == nil {
			verdict.Agreed = append(verdict.Agreed, person)
		}
	}
	verdict.Passed = len(verdict.Agreed) >= v.State.Needed
	return v.Done(verdict), nil
}

// invite asks one person, and waits for the answer.
func (m panel) invite(ctx context.Context, v *fsm.Visit[Ballot, string]) (fsm.Outcome, error) {
	if err := m.ask(ctx, v.State.Document, v.State.Person, v.IdempotencyKey("mail")); err != nil {
		return nil, err
	}
	return v.Await("cast", v.State, Vote), nil
}

// cast ends the ballot: a vote that agrees is done, one that does not has failed.
func cast(_ context.Context, v *fsm.Visit[Ballot, string]) (fsm.Outcome, error) {
	agrees, _, err := Vote.First(v)
	switch {
	case err != nil:
		return nil, err
	case !agrees:
		return v.Fail(errors.New("does not agree")), nil
	}
	return v.Done(v.State.Person).Discard(), nil // the first vote counts
}
