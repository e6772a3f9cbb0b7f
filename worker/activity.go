package worker

import "time"

// Activity describes what this process is doing, as far as it knows without asking the database.
// Package engine returns it by Engine.Activity.
type Activity struct {
	// InFlight counts the claims of this process: buffered, waiting for their key, running or
	// committing. The heartbeat extends the leases of all of them.
	InFlight int `json:"in_flight"`
	// LastPoll is when a poll last succeeded, which a worker attempts every second. It is zero before
	// the first.
	LastPoll time.Time `json:"last_poll,omitzero"`
	// LastHeartbeat is when a heartbeat last wrote: it extended a lease, or the report of this worker.
	// It is zero before the first.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// LastCommit is when outcomes were last committed. It is zero before the first.
	LastCommit time.Time `json:"last_commit,omitzero"`
	// Failing lists what has not succeeded since it failed. A single failure is nothing to worry
	// about: everything is tried again.
	Failing []Failing `json:"failing,omitempty"`
	// Queues lists the queues of this process by name.
	Queues []QueueActivity `json:"queues,omitempty"`
}

// QueueActivity counts the claims of one queue in this process.
type QueueActivity struct {
	Name string `json:"name"`
	// Running are in a slot: their code runs, or their outcomes are many or large enough to be waited
	// for.
	Running   int `json:"running"`
	Buffered  int `json:"buffered"`  // waiting for a slot
	Waiting   int `json:"waiting"`   // waiting for the lock of their partition key
	Collected int `json:"collected"` // waiting for others of their batch step, or for a slot with them
	// Committing are out of their slot, until their outcome is durable. Nothing that follows from it
	// begins before.
	Committing int  `json:"committing"`
	Held       int  `json:"held"` // out of their slot, since somebody has locked the row that their outcome is for
	Slots      int  `json:"slots"`
	Idle       bool `json:"idle"`   // the last look found nothing to claim
	Paused     bool `json:"paused"` // an operator has paused it; also true until the first poll
}

// Doing is work with the database without which a worker is of no use.
type Doing string

// These are all of them.
const (
	DoingPoll      Doing = "poll"
	DoingClaim     Doing = "claim"
	DoingCommit    Doing = "commit"
	DoingHeartbeat Doing = "heartbeat"
)

// Failing is work that has not succeeded since it failed.
type Failing struct {
	Doing    Doing     `json:"doing"`
	Queue    string    `json:"queue,omitempty"` // of a claim
	Since    time.Time `json:"since"`           // when it failed for the first time after its last success
	Obstacle Obstacle  `json:"obstacle"`        // at the newest try
}

// Obstacle says what keeps statements from taking effect.
type Obstacle string

// The obstacles.
const (
	ObstacleReadOnly    Obstacle = "read_only"    // the database takes no writes
	ObstacleConnections Obstacle = "connections"  // the server, the database or the role has no connection left
	ObstacleSilence     Obstacle = "silence"      // neither a connection of the pool nor an answer came in time
	ObstacleUnreachable Obstacle = "unreachable"  // the connection breaks, or there is none
	ObstacleRefused     Obstacle = "refused"      // the role may not, or the schema is another one
	ObstacleError       Obstacle = "server_error" // Postgres reports anything else
)
