package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/work"
	"github.com/gendurable/gendurable/migrations"
	"github.com/gendurable/gendurable/worker"
)

// The work of a worker with the database.
const (
	DoingPoll      = worker.DoingPoll
	DoingClaim     = worker.DoingClaim
	DoingCommit    = worker.DoingCommit
	DoingHeartbeat = worker.DoingHeartbeat
)

// The obstacles to it.
const (
	ObstacleReadOnly    = worker.ObstacleReadOnly    // the database takes no writes
	ObstacleConnections = worker.ObstacleConnections // the server, the database or the role has no connection left
	ObstacleSilence     = worker.ObstacleSilence     // neither a connection of the pool nor an answer came in time
	ObstacleUnreachable = worker.ObstacleUnreachable // the connection breaks, or there is none
	ObstacleRefused     = worker.ObstacleRefused     // the role may not, or the schema is another one
	ObstacleError       = worker.ObstacleError       // Postgres reports anything else
)

// ReasonKind says what keeps an engine from being ready.
type ReasonKind string

// These are the reasons.
const (
	ReasonNotStarted ReasonKind = "not_started" // Start was not called, or was refused
	ReasonDraining   ReasonKind = "draining"    // Stop is under way
	ReasonStopped    ReasonKind = "stopped"     // for good
	ReasonDatabase   ReasonKind = "database"    // it does not answer in time, or is not reachable, or refuses
	ReasonPool       ReasonKind = "pool"        // all connections of the pool are in use
	ReasonSchema     ReasonKind = "schema"      // it is missing, older or newer
	ReasonReadOnly   ReasonKind = "read_only"   // the database takes no writes
	ReasonPoll       ReasonKind = "poll"        // polls do not succeed
	ReasonHeartbeat  ReasonKind = "heartbeat"   // no lease would be extended
	ReasonClaim      ReasonKind = "claim"       // claims of a queue fail
	ReasonCommit     ReasonKind = "commit"      // commits of outcomes fail
)

// HealthReason is why an engine is not ready. Its texts name no addresses, no accounts and no
// errors.
type HealthReason struct {
	Kind ReasonKind `json:"kind"`
	// Since is when this last was otherwise, as far as the process knows; zero if it does not.
	Since time.Time `json:"since,omitzero"`
	Seen  string    `json:"seen"`         // what is the matter
	Do    string    `json:"do,omitempty"` // what helps; "": nothing is to be done
}

// String returns what is the matter.
func (r HealthReason) String() string { return r.Seen }

// pollStale is how old the last poll of a healthy worker may be: it polls every second, and at most
// 5 s apart after errors.
const pollStale = 30 * time.Second

// examination is a Health in the making, with the facts for its reasons.
type examination struct {
	Health

	worker    bool
	lease     time.Duration
	now       time.Time
	readOnly  bool // the session that was asked takes no writes
	exhausted bool // the pool had no connection left when the database did not answer
}

func (x *examination) add(kind ReasonKind, since time.Time, do, seen string, args ...any) {
	x.Reasons = append(x.Reasons, HealthReason{Kind: kind, Since: since, Seen: fmt.Sprintf(seen, args...), Do: do})
}

// conclude finds the reasons why the engine is not ready.
func (x *examination) conclude() {
	switch {
	case x.State == StateCreated && x.worker:
		x.add(ReasonNotStarted, time.Time{}, "call Start, and look what it returns", "not started")
	case x.State == StateDraining:
		x.add(ReasonDraining, time.Time{}, "", "draining")
	case x.State == StateStopped:
		x.add(ReasonStopped, time.Time{}, "", "stopped")
	}
	switch {
	case !x.Database:
		x.silence()
	case x.Schema != migrations.StateCurrent && x.Schema != "":
		do := ""
		if wrong, is := errors.AsType[*migrations.SchemaError](x.Err); is {
			do = wrong.Remedy()
		}
		x.add(ReasonSchema, time.Time{}, do, "the schema is %s", x.Schema)
	case x.readOnly:
		x.add(ReasonReadOnly, time.Time{}, obstacles[ObstacleReadOnly].do, "%s", obstacles[ObstacleReadOnly].seen)
	}
	if x.State == StateStarted && x.worker {
		x.working()
	}
}

// silence says why the database did not answer, without its words.
func (x *examination) silence() {
	switch {
	case x.exhausted:
		x.add(ReasonPool, x.LastPoll, "look for code that keeps connections for long, or raise the pool's MaxConns",
			"all connections of the pool are in use")
	case errors.Is(x.Err, context.DeadlineExceeded):
		x.add(ReasonDatabase, x.LastPoll, obstacles[ObstacleSilence].do, "the database does not answer in time")
	case store.Classify(x.Err) == store.FaultConfig:
		x.add(ReasonDatabase, x.LastPoll, obstacles[ObstacleRefused].do, "the database refuses to show its schema")
	default:
		o := work.ObstacleOf(x.Err)
		x.add(ReasonDatabase, x.LastPoll, cmp.Or(obstacles[o].do, obstacles[ObstacleUnreachable].do), "the database is not reachable")
	}
}

// obstacles are those to a worker's work: the fault, and the remedy.
var obstacles = map[Obstacle]struct{ seen, do string }{
	ObstacleReadOnly: {"the database takes no writes", "let the pool find the primary (target_session_attrs=read-write), " +
		"or end default_transaction_read_only; a session that is open keeps it"},
	ObstacleConnections: {"there is no connection left for it", "raise max_connections or the role's CONNECTION LIMIT, or make pools smaller: " +
		"heartbeats have a connection beside the pool"},
	ObstacleSilence:     {"no connection or answer comes in time", "look what the server waits for (pg_stat_activity), and who keeps the pool's connections"},
	ObstacleUnreachable: {"the database is not reachable", "see that Postgres runs, and that the network leads there"},
	ObstacleRefused:     {"the database refuses it", "grant the role its rights, or migrate the schema: the log has the error"},
	ObstacleError:       {"the database answers with an error", "the log has the error"},
}

// working says what a started worker could not do within the last lease. It goes by the worker's
// own work. Polls and heartbeats never pause, so what counts is when they last succeeded. Claims
// and commits do: of them a failure counts that nothing has ended for a lease.
func (x *examination) working() {
	failing := map[Doing]Failing{}
	for _, f := range x.Failing {
		if f.Doing == DoingPoll || f.Doing == DoingHeartbeat {
			failing[f.Doing] = f
			continue
		}
		if age := x.now.Sub(f.Since); age >= x.lease {
			seen := fmt.Sprintf("no %s has succeeded for %s", f.Doing, age.Round(time.Second))
			if f.Queue != "" {
				seen = fmt.Sprintf("no %s of queue %q has succeeded for %s", f.Doing, f.Queue, age.Round(time.Second))
			}
			x.add(ReasonKind(f.Doing), f.Since, obstacles[f.Obstacle].do, "%s: %s", seen, obstacles[f.Obstacle].seen)
		}
	}
	x.stale(DoingPoll, x.LastPoll, pollStale, failing)
	x.stale(DoingHeartbeat, x.LastHeartbeat, x.lease, failing)
}

// stale adds a reason if work that never pauses has not succeeded for too long, or not yet.
func (x *examination) stale(doing Doing, last time.Time, most time.Duration, failing map[Doing]Failing) {
	age := x.now.Sub(last)
	if !last.IsZero() && age <= most {
		return
	}
	seen, do := fmt.Sprintf("no %s has succeeded for %s", doing, age.Round(time.Second)), ""
	if last.IsZero() {
		seen = fmt.Sprintf("no %s has succeeded yet", doing)
	}
	if f, fails := failing[doing]; fails {
		seen, do = seen+": "+obstacles[f.Obstacle].seen, obstacles[f.Obstacle].do
	}
	x.add(ReasonKind(doing), last, do, "%s", seen)
}
