package worker

import "time"

// Queue says how this process works on a queue. The zero value has good defaults.
type Queue struct {
	// Concurrency is how many of the queue's steps and handlers run at once in this process: 10 ×
	// GOMAXPROCS. A step that has returned makes way for another while its outcome is committed. So
	// beside the running ones, up to four times as many outcomes may not be durable yet, at most 1,000
	// unless Concurrency is more, and 64 MiB of them in the process. A crash makes their steps run
	// again, too. Nothing begins that follows from an outcome before it is durable.
	Concurrency int
	// Buffer is how many claims may wait for one of these slots. 0 adapts it to how fast the steps
	// are.
	Buffer int
	// PollMin and PollMax are how long an idle queue sleeps between two looks, at first and at last:
	// 250 ms and 1 s.
	PollMin, PollMax time.Duration
}
