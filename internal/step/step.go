// Package step is the seam between typed machines and the untyped engine: a [Claim] goes in, a [Commit] comes out.
//
// Package fsm turns typed values into these and back; packages store and worker move them. It is a leaf: it imports nothing of the
// project, so that every layer can speak it.
package step

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"time"
)

// Codec makes JSON of states, results and payloads, and back. fsm.Codec is this type.
type Codec interface {
	Encode(v any) (json.RawMessage, error)
	Decode(raw json.RawMessage, v any) error
}

// Limits bound what one outcome, insert or signal may hold (spec §4, §5). A zero field is not "unlimited": the engine fills in defaults.
type Limits struct {
	PayloadBytes int // state, result or signal payload, encoded; 1 MiB
	OutcomeBytes int // one outcome with all of its children, or all specs of one InsertMany; 256 MiB
	AwaitNames   int // distinct names of one Await; 1,000
	Inbox        int // unconsumed signals of one instance; 10,000
	Children     int // of one ScheduleChildren; 20,000
	Depth        int // of nesting; 100
}

// The defaults of Limits.
const (
	DefaultPayloadBytes = 1 << 20
	DefaultOutcomeBytes = 256 << 20
	DefaultAwaitNames   = 1_000
	DefaultInbox        = 10_000
	DefaultChildren     = 20_000
	DefaultDepth        = 100
)

// WithDefaults returns a copy in which zero fields have their defaults.
func (l Limits) WithDefaults() Limits {
	l.PayloadBytes = cmp.Or(l.PayloadBytes, DefaultPayloadBytes)
	l.OutcomeBytes = cmp.Or(l.OutcomeBytes, DefaultOutcomeBytes)
	l.AwaitNames = cmp.Or(l.AwaitNames, DefaultAwaitNames)
	l.Inbox = cmp.Or(l.Inbox, DefaultInbox)
	l.Children = cmp.Or(l.Children, DefaultChildren)
	l.Depth = cmp.Or(l.Depth, DefaultDepth)
	return l
}

// Env is what the engine lends to machines: how to encode, what is too large, where to log, and who sees what leaves a step.
type Env struct {
	Codec  Codec
	Limits Limits
	Logger *slog.Logger
	// Child is the host's middleware: it sees the spec of a child, a fsm.Spec, and returns the one to go on with. Nil: as it is.
	Child func(ctx context.Context, spec any) (any, error)
	// Inject says what of ctx goes with what is inserted or sent in it. Nil: nothing.
	Inject func(ctx context.Context) map[string]string
	// Machine finds a machine that this process has registered, nil where it has not: another process may know it. Nil: none is known.
	Machine func(name string, version int) *Machine
}

// Bounds of a trace: it is copied into every claim.
const (
	maxTrace     = 8 // entries
	maxTraceText = 1024
)

// Trace is what of ctx goes with what is inserted or sent in it, as it is stored; nil for nothing. What cannot be stored is left out: for
// the sake of a trace nothing fails.
func (e *Env) Trace(ctx context.Context) json.RawMessage {
	if e == nil || e.Inject == nil {
		return nil
	}
	carrier := maps.Clone(e.Inject(ctx))
	maps.DeleteFunc(carrier, func(name, value string) bool {
		return len(name) > maxTraceText || len(value) > maxTraceText || strings.ContainsRune(name+value, 0)
	})
	if len(carrier) == 0 || len(carrier) > maxTrace {
		return nil
	}
	text, err := json.Marshal(carrier)
	if err != nil {
		return nil
	}
	return text
}

// Claim is one execution of one step: the row as it was claimed, its awaited signals and, at a joining step, its children.
type Claim struct {
	Env *Env

	ID             int64
	UID            [16]byte // random, from the row's insertion; the root of idempotency keys
	Machine        string
	Version        int
	Step           string
	Queue          string
	Priority       int
	CorrelationKey string // "": none
	PartitionKey   string // "": none
	State          json.RawMessage
	Attempt        int   // 0 for the first
	Crashes        int   // times this visit lost its process
	Visit          int64 // moves with every progress
	Token          int64 // the claim token, part of the row's fence: what beats, commits and releases match
	FencingToken   int64 // what steps are shown: grows with every claim, and along the holders of a partition key
	Parent         int64 // 0: none
	ParentRound    int64
	Depth          int
	Round          int64 // the visit in which the newest children join; 0: never had any
	Awaits         []string
	TimedOut       bool
	InsertedAt     time.Time
	Deadline       time.Time         // zero: none
	Life           time.Duration     // from the claim to the deadline, on the server's clock
	Labels         map[string]string // nil: none; nobody changes it
	Trace          map[string]string // of the insertion; nil: none

	Awaited  []Signal  // the awaited signals in the inbox at claim time, oldest first
	Children []Child   // of this round, in spawn order; only where Joins
	Dropped  []Dropped // children of this round that were not inserted; only where Joins

	// Inbox reads all unconsumed signals of the instance now, oldest first. Nil where there is no database.
	Inbox func(ctx context.Context) ([]Signal, error)
}

// Joins reports whether this visit is the one that a round of children was scheduled to join at.
func (c *Claim) Joins() bool { return c.Round > 0 && c.Round == c.Visit }

// Signal is one signal of an inbox, or on its way to one.
type Signal struct {
	ID       int64 // 0 before it is inserted
	Name     string
	Payload  json.RawMessage
	DedupKey string // "": none
	At       time.Time
	Trace    json.RawMessage // of the sender; nil: none
}

// Child is a child as its parent's joining step sees it.
type Child struct {
	ID        int64
	Machine   string
	Version   int
	Status    string // done or failed; anything else only after an operator's Retry
	State     json.RawMessage
	Result    json.RawMessage // nil unless done
	Failure   string          // "" unless failed
	LastError string
}

// Dropped is a child that was not inserted, since another instance occupied its correlation key.
type Dropped struct {
	Index    int    `json:"i"`           // in the ScheduleChildren that named it
	Key      string `json:"k"`           //
	Occupant int64  `json:"o,omitempty"` // 0: freed again meanwhile
}

// Kind says which of its methods a step's outcome was made by. fsm.OutcomeKind is this type, and the commit statement knows the
// kinds by these names.
type Kind string

// The kinds.
const (
	Next     Kind = "next"     // progress to Step
	Retry    Kind = "retry"    // the same step again
	Await    Kind = "await"    // park until a signal of Names arrives
	Children Kind = "children" // insert Spawn and park until all are terminal
	Done     Kind = "done"     // end with Result
	Stop     Kind = "stop"     // end as failed
)

// String is the kind's name; "none" for the zero value.
func (k Kind) String() string { return cmp.Or(string(k), "none") }

// Terminal reports whether the outcome ends the instance.
func (k Kind) Terminal() bool { return k == Done || k == Stop }

// Commit is an outcome, validated and encoded; or, with Within, one that is yet to be decided.
type Commit struct {
	// Within decides the outcome inside the transaction that commits it, a pgx.Tx; all other fields are zero then. Its own is not another.
	Within func(ctx context.Context, tx any) (*Commit, error)

	Kind    Kind
	Step    string          // Next, Await, Children: where to
	State   json.RawMessage // nil: as it is (Done, Stop)
	Result  json.RawMessage // Done
	Delay   time.Duration   // Next, Retry
	At      time.Time       // Next: not before; Await: wake at the latest. Zero: none
	Timeout time.Duration   // Await; 0: none
	Names   []string        // Await: distinct, at least one
	Spawn   []Spec          // Children
	Err     string          // Retry, Stop: becomes last_error; sanitized
	Failure string          // Stop: why (fsm.Failure)
}

// Scope says in which statuses a correlation key is occupied. The order is that of fsm.Scope.
type Scope uint8

// The scopes.
const (
	ScopeLive Scope = iota
	ScopeLiveOrDone
	ScopeLiveOrFailed
	ScopeAll
	ScopeNone
)

// Spec is an instance to insert, validated and encoded.
type Spec struct {
	UID          [16]byte // made by the client, so that an insert whose commit was unknown knows its own row again
	Machine      string
	Version      int
	Step         string
	Queue        string
	Priority     int16
	State        json.RawMessage
	Key          string // "": none
	Scope        Scope
	PartitionKey string        // "": none
	Delay        time.Duration // or
	At           time.Time     // zero: now
	Deadline     time.Duration // 0: none
	Labels       json.RawMessage
	Trace        json.RawMessage
}

// Bytes of the spec, as it travels to Postgres.
func (s *Spec) Bytes() int {
	return len(s.Machine) + len(s.Step) + len(s.Queue) + len(s.State) + len(s.Key) + len(s.PartitionKey) +
		len(s.Labels) + len(s.Trace)
}

// Machine is a definition with its types erased.
type Machine struct {
	Name    string
	Version int
	Queue   string
	Initial string
	Job     bool
	Steps   map[string]Step
	// CrashLimit is how often an instance may lose its process; 0: unlimited.
	CrashLimit int
	// MaxAttempts bounds the runs of one visit, crashes included, before the step is even called; 0: unlimited.
	MaxAttempts int
	// OnError turns a step's error into an outcome. Never nil.
	OnError func(ctx context.Context, c *Claim, failed error) (*Commit, error)
	// Faults are what is wrong with the definition; engine.New reports them.
	Faults []error
}

// Step of a Machine.
type Step struct {
	To      []string // where it may lead; nil: anywhere in the machine
	Timeout time.Duration
	// Run decodes the state, runs the step, validates and encodes its outcome. It may panic as the user's code does.
	Run func(ctx context.Context, c *Claim) (*Commit, error)
}
