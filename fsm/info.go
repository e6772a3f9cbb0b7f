package fsm

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// Info is which execution of which instance this is. Steps have it in their [Visit], jobs and whatever is deeper in a call by [InfoFrom].
type Info struct {
	ID           ID
	Machine      string
	Version      int
	Step         string
	Queue        string
	Priority     int    // lower first
	Key          Key    // correlation key; "": none
	PartitionKey string // "": none
	Attempt      int    // of this visit: 0 for the first run; a retry and a crash each add 1
	Crashes      int    // how often this visit lost its process
	Visit        int64  // moves with every Next, Await and ScheduleChildren
	// FencingToken grows with every claim of this instance, and from holder to holder of its partition key: give it to stores that can
	// refuse an older writer.
	FencingToken int64
	Parent       ID  // 0: nobody's child
	Depth        int // of nesting; 0: nobody's child
	InsertedAt   time.Time
	Deadline     time.Time         // when the instance fails unless it has ended; zero: never
	Labels       map[string]string // nil: none; shared: do not change it

	uid uuid.UUID
}

// InfoOf is the Info of a claim; for the engine's hooks.
func InfoOf(c *step.Claim) Info {
	return Info{
		ID: ID(c.ID), Machine: c.Machine, Version: c.Version, Step: c.Step, Queue: c.Queue, Priority: c.Priority,
		Key: Key(c.CorrelationKey), PartitionKey: c.PartitionKey, Attempt: c.Attempt, Crashes: c.Crashes,
		Visit: c.Visit, FencingToken: c.FencingToken, Parent: ID(c.Parent), Depth: c.Depth, InsertedAt: c.InsertedAt,
		Deadline: c.Deadline, Labels: c.Labels, uid: c.UID,
	}
}

// IdempotencyKey is a UUID for an effect of this visit: the same on every execution of the visit (a retry, a crash, the handler, an
// operator's Retry), another for the next visit and for every other instance, also in another database. Name the
// effect where a step has several; no name, the empty name and every list of names differ.
//
// It is UUIDv5 in the namespace of the instance's random uid. The name is the visit in decimal, then for each effect a colon, its length
// in bytes in decimal, a colon and the effect: "7", "7:4:ship". So SQL finds it too: uuid_generate_v5(uid, '7:4:ship').
func (i Info) IdempotencyKey(effect ...string) string {
	name := strconv.AppendInt(nil, i.Visit, 10)
	for _, e := range effect {
		name = append(name, ':')
		name = strconv.AppendInt(name, int64(len(e)), 10)
		name = append(name, ':')
		name = append(name, e...)
	}
	return uuid.NewSHA1(i.uid, name).String()
}

type infoKey struct{}

// running is what InfoFrom and Logger answer from.
type running struct {
	claim  *step.Claim // nobody changes it any more
	logger *slog.Logger

	outcome OutcomeKind // of the step that middleware surrounds, once it has returned
}

// WithClaim makes ctx answer [InfoFrom] and [Logger]. Steps and handlers get such a context already; this is for what
// the engine runs around them.
func WithClaim(ctx context.Context, c *step.Claim) context.Context {
	own := *c
	return context.WithValue(ctx, infoKey{}, &running{claim: &own, logger: envOf(c.Env).Logger})
}

// InfoFrom is the Info of the step that ctx belongs to; !ok outside one.
func InfoFrom(ctx context.Context) (i Info, ok bool) {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return Info{}, false
	}
	return InfoOf(r.claim), true
}

// Logger is the engine's logger with the attributes instance, machine, version, step, visit and attempt; slog.Default outside a step.
func Logger(ctx context.Context) *slog.Logger {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return slog.Default()
	}
	i := InfoOf(r.claim)
	return r.logger.With(slog.Int64("instance", int64(i.ID)), slog.String("machine", i.Machine), slog.Int("version", i.Version),
		slog.String("step", i.Step), slog.Int64("visit", i.Visit), slog.Int("attempt", i.Attempt))
}

// envOf completes what the engine lends, so that a claim or a spec works without an engine, too.
func envOf(e *step.Env) *step.Env {
	if e == nil {
		e = &step.Env{}
	}
	limits := e.Limits.WithDefaults()
	if e.Codec != nil && e.Logger != nil && e.Limits == limits {
		return e
	}
	own := *e
	own.Limits = limits
	if own.Codec == nil {
		own.Codec = JSON{}
	}
	if own.Logger == nil {
		own.Logger = slog.Default()
	}
	return &own
}
