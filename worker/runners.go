package worker

import "sync"

// runners are the goroutines that run executions: as many as there is user code that runs at the
// moment. An execution that waits for its commit holds none, and steps that return at once share a
// few, one after the other, whose stacks have grown already.
//
// While an execution is ready, a goroutine has been started that has not taken one yet. So user
// code that keeps a goroutine, or ends it, keeps no execution from running (T25, T73).
type runners struct {
	atOnce  int // goroutines that can run at a time
	mu      sync.Mutex
	ready   []*execution
	next    int // of ready; those before it have been taken
	started int // goroutines that have not taken their first yet
}

func (r *runners) add(x *execution) {
	r.mu.Lock()
	r.ready = append(r.ready, x)
	r.start()
	r.mu.Unlock()
}

// start starts a goroutine where there are too few for what is ready: more than can run at a time
// would find nothing left. mu is held.
func (r *runners) start() {
	if r.started < min(len(r.ready)-r.next, r.atOnce) {
		r.started++
		go r.run()
	}
}

func (r *runners) run() {
	for x := r.take(true); x != nil; x = r.take(false) {
		x.run()
	}
}

func (r *runners) take(first bool) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.started--
	}
	if r.next == len(r.ready) {
		return nil
	}
	x := r.ready[r.next]
	r.ready[r.next] = nil
	if r.next++; r.next == len(r.ready) {
		r.ready, r.next = r.ready[:0], 0
	}
	r.start() // whoever takes one may be kept by it
	return x
}
