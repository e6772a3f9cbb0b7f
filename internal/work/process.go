package work

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// process holds what all parts of a worker share: its identity, its configuration, its clock, its
// contexts, its database, its queues, and the hooks that it calls. A part holds the process, and
// otherwise only the parts that it uses.
type process struct {
	config Config
	id     string
	log    *slog.Logger
	db     backend
	hooks  listeners

	routes     map[store.StepKey]*route
	machineIDs []string // of the versions that run here, converted ones among them
	queues     map[string]*queue
	batches    bool // some machine has a batch step
	groupings  map[*step.Batch]*grouping
	unclaiming atomic.Int64 // signals in a row that have claimed nothing: see ReserveWoken

	began      time.Time
	gates      gates
	throttles  throttles
	outages    outages
	deeds      deeds
	beaten     atomic.Int64 // when the newest heartbeat met no error, by since
	quiet      quiet
	turns      chan struct{} // has an entry for each sweep that has a connection; nil: any number may
	byHand     bool          // there is nobody to make room for
	awaitsDue  chan struct{} // awaits have timed out
	overdueDue chan struct{} // instances are over their deadline
	keptDue    chan struct{} // signals are kept
	restDue    chan struct{} // a join does not wait for children any more that are to be cancelled then
	scout      chan struct{} // a claim of a queue was cut
	skipsDue   chan struct{} // nodes are to be skipped
	skipsOwn   atomic.Bool   // this process has left some of them

	// base ends everything. The other contexts derive from it, and end before it.
	base  context.Context //nolint:containedctx // the worker's own life
	abort context.CancelFunc
	// steps is the context from which the contexts of steps derive.
	steps       context.Context //nolint:containedctx // as base
	cancelSteps context.CancelCauseFunc
	// looking is for polls and sweeps, which may be cut off at any time.
	looking     context.Context //nolint:containedctx // as base
	stopLooking context.CancelFunc
	// claiming is for claims. A claim that is cut off may have taken effect, and then waits for its
	// lease to expire.
	claiming   context.Context //nolint:containedctx // as base
	stopClaims context.CancelFunc

	draining chan struct{}  // Stop closes it
	loops    sync.WaitGroup // the loops that draining ends
}

func newProcess(c Config, db backend) *process {
	p := &process{
		config: c, id: uuid.NewString(), db: db, hooks: listen(c.Hooks), routes: routes(c.Machines),
		queues: map[string]*queue{}, groupings: map[*step.Batch]*grouping{}, began: time.Now(), draining: make(chan struct{}),
		awaitsDue: make(chan struct{}, 1), overdueDue: make(chan struct{}, 1), keptDue: make(chan struct{}, 1),
		restDue: make(chan struct{}, 1), skipsDue: make(chan struct{}, 1), scout: make(chan struct{}, 1),
	}
	if c.Sweeps > 0 {
		p.turns = make(chan struct{}, c.Sweeps)
	}
	p.log = c.Logger.With(slog.String("worker", p.id))
	p.quiet.last = map[string]time.Time{}
	p.gates.regroup = make(chan struct{}, 1)
	p.outages.over = -24 * time.Hour
	for _, m := range c.Machines {
		for _, s := range m.Steps {
			if s.Batch != nil {
				p.batches, p.groupings[s.Batch] = true, &grouping{}
			}
		}
	}
	for at := range p.routes {
		p.machineIDs = append(p.machineIDs, store.MachineID(at.Machine, at.Version))
	}
	slices.Sort(p.machineIDs)
	p.machineIDs = slices.Compact(p.machineIDs)
	for name, conf := range c.Queues {
		p.queues[name] = newQueue(name, conf)
	}
	p.base, p.abort = context.WithCancel(context.Background())
	p.looking, p.stopLooking = context.WithCancel(p.base)
	p.claiming, p.stopClaims = context.WithCancel(p.base)
	steps := p.base
	if c.Context != nil {
		steps = c.Context(steps)
	}
	p.steps, p.cancelSteps = context.WithCancelCause(steps)
	return p
}

// names returns the names of the queues.
func (p *process) names() []string { return slices.Collect(maps.Keys(p.queues)) }

// ID returns the worker's UUID, which is locked_by of its claims.
func (p *process) ID() string { return p.id }

// Nudge announces that something became runnable in queues. It is cheap and never blocks. It
// ignores queues of other processes.
func (p *process) Nudge(queues ...string) {
	last := ""
	for i, name := range queues {
		if i > 0 && name == last {
			continue
		}
		last = name
		if q := p.queues[name]; q != nil {
			q.nudge()
		}
	}
}

// Serves reports whether this worker works on a queue.
func (p *process) Serves(queue string) bool { return p.queues[queue] != nil }

// ended tells the host's waiters that instances are terminal.
func (p *process) ended(ids []int64) {
	if len(ids) > 0 && p.config.Terminal != nil {
		p.config.Terminal(ids)
	}
}

// parked tells the host's waiters that an outcome has parked instances.
func (p *process) parked(ids []int64) {
	if len(ids) > 0 && p.config.Parked != nil {
		p.config.Parked(ids)
	}
}

// since returns the time since the worker was made, by a monotonic clock.
func (p *process) since() time.Duration { return time.Since(p.began) }

func (p *process) isDraining() bool {
	select {
	case <-p.draining:
		return true
	default:
		return false
	}
}

// pause waits, and reports whether there is still work to do: false once the worker drains.
func (p *process) pause(d time.Duration) bool {
	if d <= 0 {
		return !p.isDraining()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.draining:
		return false
	case <-t.C:
		return true
	}
}

// statementTimeout bounds one statement from the client's side, for networks that swallow answers.
// The server's own limit is shorter.
const statementTimeout = 75 * time.Second

// patientMost is the maximum of consecutive failures of a read for which the rows themselves may be
// to blame (they are damaged, or take too long). After that the failure is the step's error. A held
// lock is not.
const patientMost = 5

// patiently repeats a step's read until ctx ends. It waits for a database that is away, since that
// is not the step's error. One try takes statementTimeout at most, since a network may swallow the
// answer.
func (p *process) patiently(ctx context.Context, doing string, read func(ctx context.Context) error) error {
	refused := 0
	for n := 1; ; n++ {
		timed, cancel := context.WithTimeout(ctx, statementTimeout)
		err := read(timed)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		switch {
		case store.Classify(err) != store.FaultData && !store.MayNeverPass(err), store.IsLockTimeout(err):
			refused = 0
		case refused == patientMost-1:
			return err
		default:
			refused++
		}
		p.trouble(doing, err)
		if !pace.Sleep(ctx, pace.Backoff(n, 50*time.Millisecond, 5*time.Second)) {
			return ctx.Err()
		}
	}
}
