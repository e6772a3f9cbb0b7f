package fsm

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// Info describes one execution of an instance's step. Steps have it in their [Visit]; jobs, and
// functions that a step calls, get it by [InfoFrom].
type Info struct {
	ID           ID     `json:"id"`
	Machine      string `json:"machine"`
	Version      int    `json:"version"`
	Step         string `json:"step"`
	Queue        string `json:"queue"`
	Priority     int    `json:"priority"`                // lower runs first
	Key          Key    `json:"key,omitempty"`           // correlation key; "": none
	PartitionKey string `json:"partition_key,omitempty"` // "": none
	Attempt      int    `json:"attempt"`                 // of this visit, from 0; a retry and a crash each add 1
	Crashes      int    `json:"crashes"`                 // how often this visit has lost its process
	Visit        int64  `json:"visit"`                   // grows with every Next, Await and ScheduleChildren
	// FencingToken grows with every claim of this instance, and from holder to holder of its partition
	// key: pass it to stores that can refuse an older writer.
	FencingToken int64             `json:"fencing_token"`
	Parent       ID                `json:"parent,omitempty"` // 0: it is nobody's child
	Depth        int               `json:"depth"`            // levels of parents above it; 0: it is nobody's child
	InsertedAt   time.Time         `json:"inserted_at"`
	Deadline     time.Time         `json:"deadline,omitzero"` // the instance fails if it has not ended by then; zero: no deadline
	Labels       map[string]string `json:"labels,omitempty"`  // nil: none; the map is shared, do not change it

	uid uuid.UUID
}

// infoOf returns the Info of a claim.
func infoOf(c *step.Claim) Info {
	return Info{
		ID: ID(c.ID), Machine: c.Machine, Version: c.Version, Step: c.Step, Queue: c.Queue, Priority: c.Priority,
		Key: Key(c.CorrelationKey), PartitionKey: c.PartitionKey, Attempt: c.Attempt, Crashes: c.Crashes,
		Visit: c.Visit, FencingToken: c.FencingToken, Parent: ID(c.Parent), Depth: c.Depth, InsertedAt: c.InsertedAt,
		Deadline: c.Deadline, Labels: c.Labels, uid: c.UID,
	}
}

// IdempotencyKey returns a UUID for an effect of this visit. The UUID is the same on every
// execution of the visit (a retry, a crash, the handler, an operator's Retry), and differs for the
// next visit and for every other instance, also one in another database. Name the effect where a
// step has several: no name, the empty name and every list of names give different UUIDs.
//
// It is a UUIDv5 in the namespace of the instance's random uid. Its name is the visit in decimal,
// then for each effect a colon, the effect's length in bytes in decimal, a colon and the effect:
// "7", "7:4:ship". So SQL can compute it, too: uuid_generate_v5(uid, '7:4:ship').
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

// running is the value in a step's context that InfoFrom and Logger read.
type running struct {
	claim  *step.Claim // nobody changes it any more
	logger *slog.Logger

	outcome OutcomeKind // of the step that middleware surrounds, once the step has returned
	batch   bool        // a call for several instances; claim has only what they share
}

// withClaim returns a context from which [InfoFrom] and [Logger] answer. Steps and handlers get
// such a context anyway; the engine makes one for functions that it runs around them.
func withClaim(ctx context.Context, c *step.Claim) context.Context {
	own := *c
	return context.WithValue(ctx, infoKey{}, &running{claim: &own, logger: envOf(c.Env).Logger})
}

// InfoFrom returns the Info of the step that ctx belongs to. ok is false outside a step, and in the
// context of a batch step's call, which belongs to several instances: see [Visit.Context].
func InfoFrom(ctx context.Context) (i Info, ok bool) {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok || r.batch {
		return Info{}, false
	}
	return infoOf(r.claim), true
}

// Logger returns the engine's logger with the attributes instance, machine, version, step, visit
// and attempt; with machine, version and step in a batch step's call. Outside a step it returns
// slog.Default().
func Logger(ctx context.Context) *slog.Logger {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return slog.Default()
	}
	i := infoOf(r.claim)
	if r.batch {
		return r.logger.With(slog.String("machine", i.Machine), slog.Int("version", i.Version), slog.String("step", i.Step))
	}
	return r.logger.With(slog.Int64("instance", int64(i.ID)), slog.String("machine", i.Machine), slog.Int("version", i.Version),
		slog.String("step", i.Step), slog.Int64("visit", i.Visit), slog.Int("attempt", i.Attempt))
}

// envOf fills in what is missing in e, so that claims and specs work without an engine, too.
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
