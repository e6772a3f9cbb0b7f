package work

import "sync"

// runners starts the goroutines that run executions, as many as user code needs at the moment. An
// execution that waits for its commit has no goroutine, and steps that return at once share a few,
// one after the other, whose stacks have already grown.
//
// While an execution is ready, there is a started goroutine that has not taken one yet. So user
// code that blocks its goroutine, or ends it, keeps no execution from running (T25, T73).
type runners struct {
	atOnce  int // goroutines that can run at a time
	mu      sync.Mutex
	ready   []*execution
	next    int // index in ready: the executions before it have been taken
	started int // goroutines that have not taken their first execution yet
}

func (r *runners) add(x *execution) {
	r.mu.Lock()
	r.ready = append(r.ready, x)
	r.start()
	r.mu.Unlock()
}

// start starts a goroutine if there are too few for the ready executions. It starts no more than
// can run at a time, since the others would find nothing left. The caller holds mu.
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
	r.start() // the execution taken here may block its goroutine
	return x
}
