package soak

import (
	"io"
	"time"
)

// The engine's times in a soak are short, so that leases expire often.
const (
	lease     = 3 * time.Second
	heartbeat = time.Second
	reap      = time.Second
	pollMax   = time.Second // the default, and the bound of its back-off
)

// The soak has this many processes.
const (
	workers = 12
	clients = 2 // and an operator
)

// noticed is how long after the pause of a queue no process may begin a step of it, however busy
// the machine is: a poll, and time to poll again if that failed. On two cores that also run other
// tests, a process was seen to wait half a second for the processor.
const noticed = pollMax + 3*time.Second

// Options configure a soak.
type Options struct {
	// Seconds is how long the faults last. The soak also starts, heals and checks, and the faults last
	// up to [busy] times as long where the machine is too busy to reach the floors in time.
	Seconds int
	// Seed determines everything random. How the processes react also depends on the machine: a seed
	// repeats a plan, not a run.
	Seed uint64
	// Out gets the report.
	Out io.Writer
	// Program plays a worker or a client when it starts with the environment variable that Play reads.
	Program string
	// Recovery makes the soak check the time between a kill and the next run of the killed step, and
	// not only print it. It is for machines that have nothing else to do.
	Recovery bool
	// Calls is the file that gets the record of some calls of the clients, for module
	// integration/clients; it is written anew. Without one the record goes with the log.
	Calls string
	// Keep leaves the log and the processes' output in their directory; after a violation they stay
	// anyway.
	Keep bool
}

// busy is how many times as long the faults may last on a machine that is too busy for the floors.
const busy = 12

func (o Options) duration() time.Duration { return time.Duration(o.Seconds) * time.Second }

// scaled scales a count of a soak of 180 seconds.
func (o Options) scaled(of180 int) int { return max(1, of180*o.Seconds/180) }

// floors are the counts that a soak of 180 seconds must reach at least.
var floors = map[string]int{
	killed:      60,
	stopped:     30,
	restarted:   5,
	cut:         60,
	swallowed:   20,
	unanswered:  20,
	terminated:  100,
	readOnly:    5,
	exhausted:   10,
	strange:     10,
	frozen:      6,
	rolled:      workers,
	"instances": 10_000,
	"signals":   20_000,

	cancelled:    250,
	retried:      200,
	rescheduled:  40,
	instsPaused:  60,
	queuesPaused: 8,
	planned:      25,
	hostCommits:  1000,
	hostUndone:   400,
	stepsOwn:     600,
	starts:       400,

	firings:          150,
	schedulesRun:     9,
	schedulesPaused:  9,
	schedulesDeleted: 5,

	gatesChanged: 60,
	togethers:    60,

	quorums:   30,
	races:     20,
	failFasts: 20,
	streams:   30,
	rests:     60,
	timed:     20,
	signalled: 20,
	rejoins:   40,
	additions: 30,
	reruns:    30,
}

// Operators and hosts act in these ways, and steps wait for children. An act counts if it is known
// to have taken effect, an outcome of a step if the step has returned it.
const (
	cancelled    = "cancels"
	retried      = "retries"
	rescheduled  = "reschedules"
	instsPaused  = "pauses"
	queuesPaused = "paused queues"
	planned      = "applied plans"
	hostCommits  = "hosts' commits"
	hostUndone   = "hosts' rollbacks"
	stepsOwn     = "steps' own transactions"
	starts       = "signals with start"

	firings          = "firings of schedules"
	schedulesRun     = "schedules run by hand"
	schedulesPaused  = "paused schedules"
	schedulesDeleted = "deleted schedules"

	gatesChanged = "changed gates"
	togethers    = "calls of batch steps for several"

	quorums   = "joins by a quorum"
	races     = "joins by the first end"
	failFasts = "joins that fail fast"
	streams   = "portions of streams"
	rests     = "joins that cancel the rest"
	timed     = "joins with a timeout"
	signalled = "joins with a signal"
	rejoins   = "rejoins"
	additions = "additions to graphs"
	reruns    = "restarts of what failed"
)

// The kinds of faults.
const (
	killed     = "SIGKILL"
	stopped    = "SIGSTOP"
	restarted  = "restart of Postgres"
	cut        = "cut connection"
	swallowed  = "black hole"
	unanswered = "cut after COMMIT"
	terminated = "pg_terminate_backend"
	readOnly   = "read-only"
	exhausted  = "pool exhausted"
	strange    = "stranger's locks"
	frozen     = "SIGSTOP without sessions"
	rolled     = "SIGTERM"
)
