package worker

import "fmt"

func (s *scene) dump() {
	for _, r := range s.db.rows {
		if !r.terminal() {
			fmt.Printf("%d %s lane %d key %q q %s step %s worker %.4s token %d visit %d att %d cr %d lease %v elig %v held %v pend %d out %v\n", r.ID, r.status, r.lane, r.PartitionKey, r.Queue, r.Step, r.worker, r.Token, r.Visit, r.Attempt, r.Crashes, r.lease.Format("15:04:05"), r.eligible.Format("15:04:05"), r.held.Format("15:04:05"), r.pending, r.outcomes)
		}
	}
}
