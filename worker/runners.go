package worker

import "sync"

// runners are the goroutines that run executions: as many as there is user code that runs at the moment. An execution that waits for its
// commit holds none, and steps that return at once share a few, one after the other, whose stacks have grown already.
//
// Each execution that is added comes with a goroutine, which takes the first that is ready, and then the next, until none is. So there is
// always one for each that is ready, however long the others are kept by user code, or if it ends them (T25, T73).
type runners struct {
	mu    sync.Mutex
	ready []*execution
	next  int // of ready; those before it have been taken
}

func (r *runners) add(x *execution) {
	r.mu.Lock()
	r.ready = append(r.ready, x)
	r.mu.Unlock()
	go r.run()
}

func (r *runners) run() {
	for x := r.take(); x != nil; x = r.take() {
		x.fly()
	}
}

func (r *runners) take() *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == len(r.ready) {
		return nil
	}
	x := r.ready[r.next]
	r.ready[r.next] = nil
	if r.next++; r.next == len(r.ready) {
		r.ready, r.next = r.ready[:0], 0
	}
	return x
}
