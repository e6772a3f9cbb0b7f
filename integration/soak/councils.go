package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// council has children, or the nodes of a graph, and waits for them under a policy; then, maybe,
// for those that are left under another one. delegate is a node that adds nodes to its graph.
var (
	council  = fsm.Declare[work, ending]("council")
	delegate = fsm.Declare[work, ending]("delegate")
)

// policy is the policy of a join, and the children that its step has seen. The checks decide by it,
// and by the ends of the children, when the parent has to wake.
type policy struct {
	Done      int  `json:"done,omitempty"`    // so many more that are done wake it, or that so many can never be
	Failed    int  `json:"failed,omitempty"`  // so many more that failed
	Ended     int  `json:"ended,omitempty"`   // so many more that ended
	Stream    int  `json:"stream,omitempty"`  // one that no visit was shown; so many are a portion at most
	Or        bool `json:"or,omitempty"`      // a signal
	Timeout   bool `json:"timeout,omitempty"` // a time
	Cancel    bool `json:"cancel,omitempty"`  // the others are cancelled then
	Again     bool `json:"again,omitempty"`   // it is a Rejoin
	SawDone   int  `json:"sawDone,omitempty"` // by the step of the Rejoin
	SawFailed int  `json:"sawFailed,omitempty"`

	Adds int `json:"adds,omitempty"` // nodes, by an outcome that is no join
	Left int `json:"left,omitempty"` // of a stream, that no visit was shown yet
}

// rules are what councils go by. Each client takes them in turn, so that a short soak has all.
var rules = []string{"quorum", "stream", "race", "graph", "failfast", "timeout", "signal", "graph of quorum", "all", "graph of failfast"}

// sleep is how long a child sleeps that is there to be cancelled.
const sleep = 20 * time.Second

func (p player) councils() []fsm.Definition {
	return []fsm.Definition{
		council.Define(p.step("start", p.advance("call")), p.step("call", p.call), p.step("weigh", p.weigh),
			p.step("last", p.last)).OnError(p.handle),
		delegate.Define(p.step("start", p.advance("name")), p.step("name", p.name)).OnError(p.decline),
	}
}

func (p player) call(_ context.Context, r *run) (fsm.Outcome, error) {
	return r.convene(r.moved()), nil
}

// convene begins a round.
func (r *run) convene(s work) fsm.Outcome {
	r.decide("children", "weigh", s.N)
	random := rand.New(rand.NewPCG(s.Seed, uint64(2000+s.N))) //nolint:gosec // repeatable
	specs := s.brood()
	n := len(specs)
	if s.Cancel && s.Fate == "done" && (s.Rule == "quorum" || s.Rule == "race" || s.Rule == "timeout") {
		sleeper := work{Label: fmt.Sprintf("%s.%d.z", s.Label, s.N), Fate: "done", Within: int(sleep / time.Millisecond)}
		specs = append(specs, timer.New(sleeper))
	}
	if !s.graphic() {
		return r.under(r.ScheduleChildren("weigh", s, specs...), s.Rule, n, s.Cancel, random)
	}
	nodes := s.nodes(specs, random)
	o := r.under(r.ScheduleGraph("weigh", s, nodes...), s.Rule, len(nodes), s.Cancel, random)
	if d := r.decided.Policy; d.Done+d.Failed+d.Ended == 0 && !d.Or && !d.Timeout {
		d.Cancel = true // the graph is over when its root is
	}
	return o
}

// under gives a join a policy, of n children.
func (r *run) under(j *fsm.ChildrenOutcome, rule string, n int, cancel bool, random *rand.Rand) fsm.Outcome {
	d := &policy{}
	if r.decided.Policy != nil {
		*d = *r.decided.Policy
	}
	switch rule {
	case "quorum", "graph of quorum":
		d.Done = 1 + random.IntN(n)
		j.Quorum(d.Done)
	case "race":
		d.Ended = 1
		j.Race()
	case "failfast", "graph of failfast":
		d.Failed = 1
		j.FailFast()
	case "stream":
		d.Stream = 1 + random.IntN(3)
		j.Stream(d.Stream)
	}
	if rule == "timeout" || rule == "stream" && random.IntN(3) == 0 {
		d.Timeout = true
		j.Timeout(time.Duration(1+random.IntN(400)) * time.Millisecond)
	}
	if rule == "signal" || rule == "quorum" && random.IntN(2) == 0 {
		d.Or = true
		j.Or(pings, pongs)
	}
	if cancel && rule != "stream" {
		d.Cancel = true
		j.CancelRest()
	}
	r.decided.Policy = d
	return j
}

// nodes makes a graph of children: some add others, and the last waits for these.
func (s *work) nodes(specs []fsm.Spec, random *rand.Rand) []fsm.GraphNode {
	nodes := make([]fsm.GraphNode, 0, len(specs)+1)
	last := fsm.Node("last", chainTwo.New(work{Label: fmt.Sprintf("%s.%d.last", s.Label, s.N), Fate: "done", Steps: 1}))
	for i, spec := range specs {
		name := strconv.Itoa(i)
		if i%3 == 0 {
			spec = delegate.New(work{Label: fmt.Sprintf("%s.%d.%d", s.Label, s.N, i), Fate: "done", Busy: random.IntN(40), Name: name, Adds: 1 + random.IntN(3)})
			last = last.AfterEnd(name)
		}
		node := fsm.Node(name, spec)
		for j := range i {
			switch random.IntN(9) {
			case 0, 1:
				node = node.After(strconv.Itoa(j))
			case 2:
				node = node.AfterEnd(strconv.Itoa(j))
			case 3:
				node = node.AfterFailure(strconv.Itoa(j))
			}
		}
		if i == 4 {
			node = fsm.Node(name, spec).AfterAny(1+random.IntN(3), "1", "2", "3")
		}
		nodes = append(nodes, node)
	}
	return append(nodes, last)
}

// name adds nodes to the graph of a delegate. Half of them precede the last node, which waits for
// the delegate itself, and so has not begun.
func (p player) name(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	s, done := &r.State, r.Done(ending{r.State.Label, r.State.N})
	for i := range s.Adds {
		child := work{Label: fmt.Sprintf("%s+%d", s.Label, i), Fate: "done", Busy: 10 * i, Steps: 2}
		node := fsm.Node(fmt.Sprintf("%s+%d", s.Name, i), chainTwo.New(child))
		switch (int(s.Seed%7) + i) % 3 {
		case 0:
			node = node.After(s.Name).BeforeEnd("last")
		case 1:
			node = node.AfterEnd("0").Before("last")
		}
		done = done.Add(node)
	}
	r.decide("done", r.Step, s.N)
	r.decided.Policy = &policy{Adds: s.Adds}
	return done, nil
}

// decline ends a delegate that comes too late: it had failed, the last node has begun since, and an
// operator has restarted the delegate.
func (p player) decline(ctx context.Context, v *visit, failed error) (fsm.Outcome, error) {
	if bad, ok := errors.AsType[*fsm.OutcomeError](failed); !ok || v.Step != "name" {
		return p.handle(ctx, v, failed)
	} else if failed = bad; v.State.Adds == 0 {
		return p.handle(ctx, v, failed)
	}
	e := of(&v.Info, &v.State)
	e.Kind, e.Detail, e.Outcome, e.To, e.ToN = evHandled, failed.Error(), "done", v.Step, v.State.N
	p.log.write(e)
	return v.Done(ending{v.State.Label, v.State.N}), nil
}

// weigh sees the children, or a portion of a stream, and maybe waits for those that are left.
func (p player) weigh(ctx context.Context, r *run) (fsm.Outcome, error) {
	round := r.sawChildren()
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	s := r.moved()
	random := rand.New(rand.NewPCG(s.Seed, uint64(3000+s.N))) //nolint:gosec // repeatable
	s.Rejoins++
	switch {
	case round.Left == 0:
	case s.Rule == "stream" && random.IntN(8) == 0:
		r.decide("rejoin", "last", s.N)
		r.decided.Policy = &policy{Again: true, Timeout: true, Cancel: true}
		return r.Rejoin("last", s).Until(time.Now()).CancelRest(), nil
	case s.Rule == "stream":
		return r.rejoin(s, s.Rule, round, random), nil
	case s.Rejoins < 3 && random.IntN(3) > 0:
		return r.rejoin(s, []string{"quorum", "race", "failfast", "timeout", "all"}[random.IntN(5)], round, random), nil
	}
	return r.adjourn()
}

// rejoin waits again for the children that are left.
func (r *run) rejoin(s work, rule string, saw fsm.Round, random *rand.Rand) fsm.Outcome {
	r.decide("rejoin", "weigh", s.N)
	r.decided.Policy = &policy{Again: true, SawDone: saw.Done, SawFailed: saw.Failed}
	return r.under(r.Rejoin("weigh", s), rule, saw.Left, random.IntN(2) == 0, random)
}

func (p player) last(ctx context.Context, r *run) (fsm.Outcome, error) {
	r.sawChildren()
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	return r.adjourn()
}

// sawChildren logs which children a step sees.
func (r *run) sawChildren() fsm.Round {
	saw, round := of(&r.Info, &r.State), r.Round()
	saw.Kind, saw.Count = evJoined, int64(len(r.Dropped()))
	ended := 0
	for _, c := range r.Children() {
		saw.Children = append(saw.Children, int64(c.ID))
		if c.Status.Terminal() {
			ended++
		}
	}
	saw.Policy = &policy{Left: round.Left}
	if r.State.Rule == "stream" && r.Step == "weigh" {
		saw.Policy.Stream = 1
	}
	if ended != round.Done+round.Failed+round.Skipped {
		r.wrong(fmt.Sprintf("%d have ended of what it sees, and it counts %+v", ended, round))
	}
	r.log.write(saw)
	return round
}

// adjourn begins the next round, or ends the council.
func (r *run) adjourn() (fsm.Outcome, error) {
	s := r.moved()
	if s.Rounds > 1 {
		s.Rounds--
		s.Rejoins = 0
		return r.convene(s), nil
	}
	if s.Fate != "done" {
		return nil, errFatal
	}
	return r.done(), nil
}

// council inserts a council, by each rule in turn, and sends signals to some. One that fails it
// restarts.
func (u *undertaking) council(ctx context.Context) {
	w := u.work()
	n := int(u.councils.Add(1)) - 1
	w.Rule, w.Cancel = rules[n%len(rules)], n/len(rules)%2 == 0
	w.Brood, w.Rounds, w.Depth = 3+u.IntN(5), 1+u.IntN(2), 1
	graph := w.Rule[0] == 'g' && w.Rule[1] == 'r'
	if w.graphic() != graph {
		w.Seed ^= 1
	}
	if u.IntN(3) == 0 {
		w.Fate = string(fsm.FailureDecided)
	}
	id, ok := u.insert(ctx, council.New(w).Key(fsm.Key("council:"+u.name)))
	if !ok {
		return
	}
	for w.Rule == "signal" || w.Rule == "quorum" {
		pause(ctx, time.Duration(50+u.IntN(400))*time.Millisecond)
		u.stray(ctx, id)
		if u.IntN(2) == 0 {
			break
		}
	}
	u.outcome(ctx, id)
	if w.Fate != "done" {
		u.operate(ctx, engine.VerbRestart, id)
		u.outcome(ctx, id)
	}
}
