// Package step is the seam between typed machines and the untyped engine: a [Claim] goes in, a
// [Commit] comes out.
//
// Package fsm turns typed values into these and back; packages store and worker pass them on.
// Package step imports nothing of the project, so that every layer can use it.
//
// Comments cite docs/hazards.txt by number, as T99, and docs/specification.md by section, as spec
// §1.
package step

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits bound what one outcome, insert or signal may hold (spec §4, §5). A zero field is not
// "unlimited": the engine uses the default.
type Limits struct {
	PayloadBytes int `json:"payload_bytes"` // one encoded state, result or payload of a signal; 1 MiB
	OutcomeBytes int `json:"outcome_bytes"` // one outcome with all of its children, or all specs of one InsertMany, or messages of one SignalMany; 256 MiB
	AwaitNames   int `json:"await_names"`   // distinct names of one Await; 1,000
	Inbox        int `json:"inbox"`         // unconsumed signals of one instance; 10,000
	// AwaitedBytes bounds the signals that one visit is given (Visit.Awaited), and those that
	// Visit.Inbox returns: payloads and traces as stored, and 100 bytes each; 16 MiB. Awaited signals
	// that are over it stay in the inbox, and come once those before are consumed; one that is larger
	// comes alone. An inbox that is over it is an ErrTooLarge: Visit.EachSignal reads it in pages.
	AwaitedBytes int `json:"awaited_bytes"`
	Children     int `json:"children"` // of one ScheduleChildren; 20,000
	// ChildrenBytes bounds the round of children that is read for a joining step: states, results and
	// errors as stored, and 200 bytes each; 256 MiB. A round that is over it is the step's error, an
	// ErrTooLarge, unless the step reads it in pages: see StepDef.ChildrenOnDemand.
	ChildrenBytes int `json:"children_bytes"`
	Depth         int `json:"depth"` // of nesting; 100
}

// The defaults of Limits.
const (
	DefaultPayloadBytes = 1 << 20
	DefaultOutcomeBytes = 256 << 20
	DefaultAwaitNames   = 1_000
	DefaultInbox        = 10_000
	DefaultAwaitedBytes = 16 << 20
	DefaultChildren     = 20_000

	DefaultChildrenBytes = 256 << 20
	DefaultDepth         = 100
)

// WithDefaults returns a copy in which zero fields have their defaults.
func (l Limits) WithDefaults() Limits {
	l.PayloadBytes = cmp.Or(l.PayloadBytes, DefaultPayloadBytes)
	l.OutcomeBytes = cmp.Or(l.OutcomeBytes, DefaultOutcomeBytes)
	l.AwaitNames = cmp.Or(l.AwaitNames, DefaultAwaitNames)
	l.Inbox = cmp.Or(l.Inbox, DefaultInbox)
	l.AwaitedBytes = cmp.Or(l.AwaitedBytes, DefaultAwaitedBytes)
	l.Children = cmp.Or(l.Children, DefaultChildren)
	l.ChildrenBytes = cmp.Or(l.ChildrenBytes, DefaultChildrenBytes)
	l.Depth = cmp.Or(l.Depth, DefaultDepth)
	return l
}

// Env holds what the engine lends to machines: the codec, the limits, the logger, and functions
// that see the specs and contexts of a step.
type Env struct {
	Codec  Codec
	Limits Limits
	Logger *slog.Logger
	// Child is the host's middleware. It gets the spec of a child, an fsm.Spec, and returns the one to
	// insert. Nil changes nothing.
	Child func(ctx context.Context, spec any) (any, error)
	// Inject returns the trace of ctx, which is stored with instances and signals that are inserted or
	// sent with it. Nil: no trace.
	Inject func(ctx context.Context) map[string]string
	// Machine returns a machine that this process has registered. It returns nil for others, which
	// another process may know. If Machine is nil, no machine is known.
	Machine func(name string, version int) *Machine
}

// Bounds of a trace. They are tight, since every claim copies the trace.
const (
	maxTrace     = 8 // entries
	maxTraceText = 1024
)

// Trace returns the trace of ctx, encoded; nil if there is none. It leaves out entries that cannot
// be stored, and those over maxTrace, of which the W3C's come first, and then others by name:
// nothing may fail because of a trace, and no entry too many may cost the trace itself.
func (e *Env) Trace(ctx context.Context) json.RawMessage {
	if e == nil || e.Inject == nil {
		return nil
	}
	carrier := maps.Clone(e.Inject(ctx))
	maps.DeleteFunc(carrier, func(name, value string) bool {
		return len(name) > maxTraceText || len(value) > maxTraceText || strings.ContainsRune(name+value, 0)
	})
	if len(carrier) > maxTrace {
		names := slices.SortedFunc(maps.Keys(carrier), func(a, b string) int {
			return cmp.Or(cmp.Compare(traceRank(a), traceRank(b)), strings.Compare(a, b))
		})
		for _, name := range names[maxTrace:] {
			delete(carrier, name)
		}
	}
	if len(carrier) == 0 {
		return nil
	}
	text, err := json.Marshal(carrier)
	if err != nil {
		return nil
	}
	return text
}

func traceRank(name string) int {
	if i := slices.Index([]string{"traceparent", "tracestate", "baggage"}, strings.ToLower(name)); i >= 0 {
		return i
	}
	return maxTrace
}

// Claim is one execution of one step: the row as it was claimed, its awaited signals and, at a
// joining step, its children.
type Claim struct {
	Env *Env

	ID             int64
	UID            [16]byte // random, from the row's insertion; idempotency keys derive from it
	Machine        string
	Version        int
	Step           string
	Queue          string
	Priority       int
	CorrelationKey string // "": none
	PartitionKey   string // "": none
	State          json.RawMessage
	Attempt        int   // from 0
	Crashes        int   // how often this visit lost its process
	Visit          int64 // grows with every progress
	Token          int64 // the claim token: part of the row's fence, which heartbeats, commits and releases must match
	FencingToken   int64 // the one for steps: grows with every claim, and along the holders of a partition key
	Parent         int64 // 0: none
	ParentRound    int64
	Depth          int
	Node           string // its name in its parent's graph; "": it is no node
	Round          int64  // the visit at which the newest children join first, negative if they are a stream; 0: it never had any
	JoinsAt        int64  // the newest visit at which children join under a policy, also after a Rejoin; 0: none
	TimedOut       bool
	InsertedAt     time.Time
	Deadline       time.Time         // zero: none
	Life           time.Duration     // from the claim to the deadline, on the server's clock
	Labels         map[string]string // nil: none; nobody changes it
	Trace          map[string]string // of the insertion; nil: none

	Gate string // the gate of which the instance has a place; "": none

	Begun bool // this visit's code has been called under this claim: of a node, its release notes that

	// Migrated is the version of the row, where the claim was converted from an older one: Version,
	// Step and State are the newer one's. 0: it was not.
	Migrated int

	// Lingers: a step of another worker may still run under the partition key, though its claim was
	// taken away.
	Lingers bool

	Awaited  []Signal  // the awaited signals in the inbox at claim time, oldest first
	Children []Child   // of this round, in spawn order; empty unless Joins
	Dropped  []Dropped // children of this round that were not inserted; empty unless Joins
	// Portion says that Children are those that a stream shows this visit, in the order of their ends;
	// and how many it has yet to show. Nil: they are a whole round.
	Portion *Portion

	// Upstream is what a node waited for, at its first step: nil until it is known, and never nil
	// then. Skip says why the node's step must not run: an edge is not met, or the graph is over. ""
	// lets it run.
	Upstream []Upstream
	Skip     string

	// CutOff is why the engine ended the run that has just begun before it had an outcome, for the
	// statement that gives the claim back; "": no run began.
	CutOff string
	// Fleeting: the row goes with its Done.
	Fleeting bool

	// Partial: the state, the dropped children or the awaited signals were too large to come with the
	// claim, and are yet to be read.
	Partial bool
	// Unread is why the row could not be read, or nil. Such a claim brings what identifies the
	// instance, and neither its state nor what the host has stored with it. No step runs for it: the
	// error is the step's.
	Unread error
	// Group is the key of a batch step's call, and Ungrouped is why there is none: it is the step's
	// error then. Alone: there is none in time, and the instance runs alone. The worker sets them.
	Group     string
	Ungrouped error
	Alone     bool
	// Omitted: more signals are awaited than Awaited holds, since all together are over
	// Limits.AwaitedBytes.
	Omitted bool

	// Inbox reads a page of the unconsumed signals of the instance now, oldest first, behind an id,
	// and says whether there are more. Nil without a database.
	Inbox func(ctx context.Context, after int64) (page []Signal, more bool, err error)
	// Publish stores the progress of the instance, for all to read, while the claim holds. Nil without
	// a database.
	Publish func(ctx context.Context, progress json.RawMessage) error
	// ReadRound reads the round that joins, in spawn order: each call of next reads a page, an empty
	// one is the end. Nil without a database, or if nothing joins.
	ReadRound func(ctx context.Context) (next func() ([]Child, error))
}

// Joins reports whether a round of children joins at this visit, maybe not for the first time: see
// Rejoin.
func (c *Claim) Joins() bool {
	return c.Round != 0 && (c.Round == c.Visit || -c.Round == c.Visit || c.JoinsAt == c.Visit)
}

// Portion is what a visit is shown of a stream.
type Portion struct{ Left int }

// Unfed reports whether the claim is of a node at its first visit, and what it waited for is yet to
// be read.
func (c *Claim) Unfed() bool { return c.Node != "" && c.Visit == 0 && c.Upstream == nil }

// Signal is a signal in an inbox, or one that is about to be delivered.
type Signal struct {
	ID       int64 // 0 before it is inserted
	Name     string
	Payload  json.RawMessage
	DedupKey string // "": none
	At       time.Time
	Trace    json.RawMessage // of the sender; nil: none
	Keep     time.Duration   // how long it is kept if nobody occupies the key that it is sent to; 0: not at all
}

// Child is a child as its parent's joining step sees it.
type Child struct {
	ID        int64
	Node      string // its name in the graph; "": it is no node
	Machine   string
	Version   int
	Status    string // done or failed; another status if the join did not wait for it, or after an operator's Retry
	State     json.RawMessage
	Result    json.RawMessage // nil unless done
	Failure   string          // "" unless failed
	LastError string
	// Retried says that a join has counted its end, as failed, and that an operator has let it run
	// again since. No join waits for it, or counts it again.
	Retried bool
}

// Bytes of the child, as Limits.ChildrenBytes counts them.
func (c *Child) Bytes() int {
	return len(c.Node) + len(c.State) + len(c.Result) + len(c.LastError) + 200
}

// Dropped is a child that was not inserted, since another instance occupied its correlation key.
type Dropped struct {
	Index    int    `json:"i"`           // its index in the children of the ScheduleChildren
	Key      string `json:"k"`           //
	Occupant int64  `json:"o,omitempty"` // 0: the key has become free since
}

// Kind says which method made a step's outcome. fsm.OutcomeKind is this type. The commit statement
// uses these names, too.
type Kind string

// The kinds of outcomes.
const (
	Next     Kind = "next"     // progress to Step
	Retry    Kind = "retry"    // the same step again, as the next attempt
	Again    Kind = "again"    // the same step again, as the same attempt
	Await    Kind = "await"    // park until a signal of Names arrives
	Children Kind = "children" // insert Spawn and park until all are terminal
	Rejoin   Kind = "rejoin"   // park until the children of the newest round that are left are terminal
	Done     Kind = "done"     // end with Result
	Fail     Kind = "fail"     // end as failed
)

// String returns the kind's name; "none" for the zero value.
func (k Kind) String() string { return cmp.Or(string(k), "none") }

// Terminal reports whether the outcome ends the instance.
func (k Kind) Terminal() bool { return k == Done || k == Fail }

// Parks reports whether the outcome parks the instance, unless what it waits for is there already.
func (k Kind) Parks() bool { return k == Await || k == Children || k == Rejoin }

// Commit is an outcome, validated and encoded; or, with Within, one that is still to be decided.
type Commit struct {
	// Within decides the outcome inside the transaction that commits it, a pgx.Tx; all other fields
	// are zero then. The Commit that it returns has no Within.
	Within func(ctx context.Context, tx any) (*Commit, error)

	Kind    Kind
	Step    string          // Next, Await, Children, Rejoin: the step to go on at
	State   json.RawMessage // nil: unchanged (Done, Fail, and Again without a state)
	Result  json.RawMessage // Done
	Version int             // of a converted claim: the row becomes one of it; Step and State are set. 0: unchanged
	Delay   time.Duration   // Next, Retry, Again
	At      time.Time       // Next: not before it; Await: wake no later. Zero: none
	Timeout time.Duration   // Await; 0: none
	Names   []string        // Await: distinct, at least one
	Spawn   []Spec          // Children
	Join    *Join           // Children: when they wake the instance; nil: when all have ended. Rejoin: as Children, never nil
	Graph   *Graph          // Children: they are nodes of a graph; nil: they are not
	Err     string          // Retry, Fail: becomes last_error; sanitized
	Failure string          // Fail: the reason, an fsm.Failure
	Unless  *Unless         // Done, Fail: what the instance does instead of ending; nil: nothing
	Unbegun bool            // Again: the step was not called, so that a node's first visit has not begun
	Add     *Additions      // Next, Done, Fail: nodes for the instance's own graph; nil: none. Without Unless
}

// Join says what wakes an instance before all of its children have ended, and the fate of the
// others. A zero field wakes nothing. The numbers of a Rejoin are of the children that are left.
type Join struct {
	Done    int           // so many children that are done, or too few left for that
	Failed  int           // so many children that failed
	Ended   int           // so many children that have ended
	Names   []string      // a signal of one of these names; distinct
	Timeout time.Duration // so long after the commit
	At      time.Time     // this time
	Stream  int           // show so many ends to a visit at most, each end once; goes with Ended = 1. 0: no stream
	Cancel  bool          // cancel the children that have not ended, as soon as it does not wait for them any more
	Seen    *Seen         // Rejoin: what its step has seen of the children; nil: it has not looked
}

// Seen is how many children a step has seen that had ended. Those that ended later count for its
// Rejoin.
type Seen struct{ Done, Failed int }

// Unless says what becomes of an outcome that ends an instance if signals of these names wait.
type Unless struct {
	Names []string        // distinct, at least one
	Step  string          // the step to go on at
	State json.RawMessage // nil: unchanged
}

// Scope says in which statuses a correlation key is occupied. fsm.Scope has the same values.
type Scope uint8

// The scopes; fsm describes them.
const (
	ScopeLive Scope = iota
	ScopeLiveOrDone
	ScopeLiveOrFailed
	ScopeAll
	ScopeNone
)

// Spec is an instance to insert, validated and encoded.
type Spec struct {
	UID          [16]byte // the client makes it, so that an insert whose commit got no answer recognises its own row
	Machine      string
	Version      int
	Step         string
	Queue        string
	OfRoot       bool // of Additions: the queue is the root's, which the commit reads. Queue is "" until then
	Priority     int16
	State        json.RawMessage
	Key          string // "": none
	Scope        Scope
	PartitionKey string        // "": none
	Delay        time.Duration // of the first step; at most one of Delay and At is set
	At           time.Time     // zero: after Delay
	Deadline     time.Duration // 0: none
	Labels       json.RawMessage
	Trace        json.RawMessage
	Conflict     Conflict
	Window       Window // a zero Kind: none
	Retain       Retain
}

// Retain says how long an instance is kept after its end, by how it ends. A zero field is no say;
// RetainNone is not at all.
type Retain struct {
	Done      time.Duration `json:"done,omitempty"`
	Failed    time.Duration `json:"failed,omitempty"`
	Cancelled time.Duration `json:"cancelled,omitempty"`
}

// RetainNone keeps an ended instance not at all.
const RetainNone time.Duration = -1

// Bytes returns the size of the spec as it is sent to Postgres.
func (s *Spec) Bytes() int {
	return len(s.Machine) + len(s.Step) + len(s.Queue) + len(s.State) + len(s.Key) + len(s.PartitionKey) +
		len(s.Labels) + len(s.Trace)
}

// Keep says what the history keeps of a machine. fsm.Keep is this type.
type Keep string

// The values of Keep; fsm describes them. Empty: not chosen.
const (
	KeepNothing     Keep = "nothing"
	KeepTransitions Keep = "transitions"
	KeepStates      Keep = "states"
)

// Recorded reports whether transitions are kept.
func (k Keep) Recorded() bool { return k == KeepTransitions || k == KeepStates }

// Ruled reports whether the insert of the spec depends on more than whether its key is free.
func (s *Spec) Ruled() bool { return s.Conflict != ConflictRefuse || s.Window.Kind != "" }

// Conflict says what an insert does when a live instance occupies its correlation key. fsm.Conflict
// has the same values.
type Conflict uint8

// The policies; fsm describes them.
const (
	ConflictRefuse Conflict = iota
	ConflictReplace
	ConflictNewest
)

// WindowKind says what a window makes of the inserts that come while it is open. fsm.WindowKind is
// this type. The statements use these names, too.
type WindowKind string

// The kinds of windows; fsm describes them.
const (
	WindowThrottle WindowKind = "throttle"
	WindowOnce     WindowKind = "once"
	WindowDebounce WindowKind = "debounce"
)

// Window bounds how often specs with its key are inserted.
type Window struct {
	Kind WindowKind
	Key  string
	For  time.Duration
	Most time.Duration // of a debounce, from the first spec on; 0: no bound
}

// Name returns the name of the window's row.
func (w Window) Name() string { return string(w.Kind) + ":" + w.Key }

// Machine is a definition with its types erased.
type Machine struct {
	Name    string
	Version int
	Queue   string
	Initial string
	Job     bool
	Keyed   bool // it declares the correlation keys of its instances
	Steps   map[string]Step
	// CrashLimit is how often an instance may lose its process in one visit; 0: unlimited.
	CrashLimit int
	// MaxAttempts bounds the runs of one visit, crashes included, before the step is called; 0:
	// unlimited.
	MaxAttempts int
	// History says what the history keeps; empty: what the engine's Config says.
	History Keep
	// OnError turns a step's error into an outcome. It is never nil.
	OnError func(ctx context.Context, c *Claim, failed error) (*Commit, error)
	// From lists the migrations by which instances of older versions become ones of this.
	From []*Migration
	// Unless is what a Done without an alternative does instead, if such signals wait; nil: it ends.
	Unless *Unless
	// Faults lists the faults of the definition; engine.New returns them.
	Faults []error
	// TypeFaults lists the faults of its types with a codec; nil: there are none.
	TypeFaults func(c Codec) []error
}

// Step is a step of a Machine.
type Step struct {
	To      []string // the steps it may lead to; nil: every step of the machine
	Timeout time.Duration
	// Run decodes the state, runs the step, and validates and encodes its outcome. It panics if the
	// user's code does.
	Run func(ctx context.Context, c *Claim) (*Commit, error)
	// OnDemand: the round that joins at this step is read by the step, in pages, not before it runs.
	OnDemand bool
	// Batch is set for a batch step, whose Run calls it for one instance alone; nil for others.
	Batch *Batch
}

// Batch is what a batch step has beside a step's Run: one call for several instances.
type Batch struct {
	Most   int           // instances of one call
	Within time.Duration // how long the first of them waits for others; 0: not at all
	// Key returns a text that two instances share if they may share a call. It runs user code, but
	// does not panic. Nil: all of the step may.
	Key func(c *Claim) (string, error)
	// Alike are labels in which all that share a call are alike.
	Alike []string
	// Run is Step.Run for several instances: it calls the user's code once. It does not panic. ctx is
	// the call's. The result has an element for each member, at its index.
	Run func(ctx context.Context, members []Member) []Decided
}

// Member is an instance of a batch: its claim, and the context that belongs to it alone.
type Member struct {
	Context context.Context //nolint:containedctx // a parameter, one for each claim
	Claim   *Claim
}

// Decided is what a step's Run returns, for one member of a batch.
type Decided struct {
	Commit *Commit
	Err    error
}

// BatchSize returns how many instances may share a call of a batch step with one that is in its nth
// attempt, from 0. Instances of different sizes do not meet. Each failure, and each crash, divides
// the size by four, and the last attempt is alone: an instance that fails with its batch, over and
// over, costs the others none of the attempts on which their end depends.
func (m *Machine) BatchSize(b *Batch, attempt int) int {
	switch {
	case attempt == 0:
		return b.Most
	case m.MaxAttempts > 0 && attempt+1 >= m.MaxAttempts, attempt > 15:
		return 1
	}
	return max(1, b.Most>>(2*attempt))
}
