package work

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/worker"
)

// queue is one queue of this process as all but its scheduler see it: the messages of others to the
// scheduler, and the values that it lets them see. All fields are safe for concurrent use.
type queue struct {
	name string
	conf worker.Queue

	committingMost int64 // most flights without a slot that are committed: see outside.go

	wake     chan struct{} // something may have become runnable
	freed    chan struct{} // a step has ended
	admitted chan *flight  // a flight got its partition key
	returned chan *flight  // a flight that has left its slot needs one again
	settled  settlements   // reservations that have ended

	aside   atomic.Int64 // number of flights that wait for a key that somebody else has for now
	before  atomic.Bool  // instances have come in front that may be before the place where claims resume
	strays  atomic.Bool  // there may be strays whose step this process knows
	cut     atomic.Bool  // a claim has visited as many keys of gates as it may, and not all
	crowded atomic.Bool  // the last claim found all places of a gate taken, or took some
	idle    atomic.Bool  // there is nothing to claim, as far as known: the poller looks
	overdue atomic.Bool  // a buffered claim's instance is over its deadline
	paused  atomic.Bool  // an operator has paused the queue: nothing of it may be claimed or started
	offer   atomic.Int64 // slots that an insert may reserve: see reserve.go
	entered atomic.Bool  // instances were inserted as claimed since the poller looked
	doubt   atomic.Bool  // an insert without an answer may have claimed instances
	urgent  atomic.Int64 // priority of the most urgent buffered claim; MaxInt64: none
	jumps   jumps
	picks   deed
	shown   shown
}

func newQueue(name string, conf worker.Queue) *queue {
	q := &queue{name: name, conf: conf, committingMost: committingRoom(conf.Concurrency), wake: make(chan struct{}, 1), freed: make(chan struct{}, conf.Concurrency),
		admitted: make(chan *flight), returned: make(chan *flight), settled: settlements{some: make(chan struct{}, 1)}}
	q.urgent.Store(math.MaxInt64)
	q.paused.Store(true) // until the first poll
	return q
}

// nudge announces that something may have become runnable. It never blocks.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// expect announces that something will become runnable after a while. It does nothing if the poller
// would find it in time anyway.
func (q *queue) expect(in time.Duration) {
	if in < q.conf.PollMax {
		time.AfterFunc(in, q.nudge)
	}
}
