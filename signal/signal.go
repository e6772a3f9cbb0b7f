// Package signal sends signals from programs that run no engine, such as a server that takes
// webhooks:
//
//	var Paid = fsm.DeclareSignal[Payment]("payment_received") // the worker's program has the same
//
//	sender, err := signal.New(signal.Config{Pool: pool})
//	…
//	paid := Paid.With(Payment{Cents: 4200}).DedupKey("event-7")
//	sent, err := sender.Send(ctx, fsm.Key("order:42"), paid)
//	switch {
//	case errors.Is(err, signal.ErrNoTarget):
//		http.Error(w, "no order waits for a payment", http.StatusNotFound)
//	case err != nil:
//		http.Error(w, "try again", http.StatusServiceUnavailable)
//	case sent.Duplicate:
//		log.Print("had been paid already")
//	}
//
// A Sender does what engine.Engine.Signal does in a client, an engine without queues. It has no
// middleware and none of the engine's other verbs, and links neither the engine nor ent's client.
//
// It imports fsm, entpgx, migrations, internal/hidden, internal/send, internal/step and
// internal/store; never ent or engine.
package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrations"
)

// These errors answer questions by errors.Is. They are the errors of package engine with the same
// names.
var (
	// ErrNoTarget is returned when no live instance has that address.
	ErrNoTarget = store.ErrNoTarget
	// ErrInboxFull is returned when the instance holds as many unconsumed signals as Limits.Inbox
	// allows.
	ErrInboxFull = store.ErrInboxFull
	// ErrUnknown is returned when the connection was lost before a COMMIT was answered, and a
	// repetition could deliver twice: for a message without a dedup key, or with one whose target has
	// ended in between.
	ErrUnknown = store.ErrUnknown
	// ErrTooLarge is returned for a payload over Limits.PayloadBytes.
	ErrTooLarge = fsm.ErrTooLarge
)

// Limits bound payloads and inboxes. Give senders the same as engines.
type Limits = step.Limits

// DefaultSchema is the Postgres schema unless Config says otherwise.
const DefaultSchema = migrations.DefaultSchema

// Config configures a Sender. Only Pool is needed.
type Config struct {
	// Pool is the connection pool. A sender uses one connection at a time for each call of Send.
	Pool *pgxpool.Pool
	// Schema is the Postgres schema of the engine's tables: DefaultSchema.
	Schema string
	// Limits bound the payload and the inbox of the target. The other fields mean nothing here.
	Limits Limits
	// Codec encodes payloads: fsm.JSON. All processes need the same.
	Codec fsm.Codec
	// Logger receives a warning when a delivery is repeated: slog.Default().
	Logger *slog.Logger
	// Inject returns what of a context is stored with a signal that is sent in it, as
	// engine.Config.Inject does. Nil stores nothing.
	Inject func(ctx context.Context) map[string]string
}

// Sender sends signals. It is safe for concurrent use, and holds nothing that has to be closed.
type Sender struct {
	env *step.Env
	to  *send.Sender
}

// New makes a Sender. It does not touch the database, and joins all faults of the Config.
func New(c Config) (*Sender, error) {
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.Limits = c.Limits.WithDefaults()
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Codec == nil {
		c.Codec = fsm.JSON{}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	inboxes := store.New(entpgx.New(c.Pool), c.Schema)
	return &Sender{
		env: &step.Env{Codec: c.Codec, Limits: c.Limits, Logger: c.Logger, Inject: c.Inject},
		to:  &send.Sender{Inboxes: inboxes, Inbox: c.Limits.Inbox, Logger: c.Logger},
	}, nil
}

func (c Config) validate() error {
	var faults []error
	add := func(field, format string, a ...any) {
		faults = append(faults, fmt.Errorf("gendurable: config of a sender: %s: %w", field, fmt.Errorf(format, a...)))
	}
	if c.Pool == nil {
		add("Pool", "nil: give the pool of a database with the engine's tables")
	}
	if strings.ContainsRune(c.Schema, 0) || len(c.Schema) > 63 {
		add("Schema", "%.80q is not a name that Postgres takes: at most 63 bytes, without NUL", c.Schema)
	}
	if c.Limits.PayloadBytes < 0 {
		add("Limits.PayloadBytes", "%d is negative", c.Limits.PayloadBytes)
	}
	if c.Limits.Inbox < 0 {
		add("Limits.Inbox", "%d is negative", c.Limits.Inbox)
	}
	return errors.Join(faults...)
}

// Delivery says what became of a signal. A duplicate inserted nothing and woke no instance.
type Delivery struct {
	To        fsm.ID `json:"to"`
	Duplicate bool   `json:"duplicate"`
	// Kept says that no instance occupies the key, and that the message waits for the first that
	// will: see fsm.Message.KeepFor. Then To is 0, and Duplicate says that the message was kept
	// before.
	Kept bool `json:"kept,omitempty"`
}

// Send puts a message into the inbox of a live instance, by id or by the correlation key that it
// occupies, and wakes it if it awaits that name. A worker finds it by its next poll: see
// worker.Queue. A message whose dedup key was delivered to this instance before, consumed or not,
// is no error but a Duplicate.
//
// Send repeats a delivery that met a transient fault of Postgres until ctx ends, and waits as long
// for a target whose row another transaction keeps locked: give ctx a deadline. Where the
// connection breaks during the commit, Send does not repeat a message without a dedup key, and
// returns ErrUnknown. It repeats a message with one, and may then report it as the duplicate of
// itself.
//
// If a message has KeepFor and no instance occupies the key, the message is kept for the first
// instance that will.
//
// Errors: ErrNoTarget if there is no such instance or it has ended; ErrInboxFull, also where too
// many are kept; ErrTooLarge for a payload over the limit; ErrUnknown; a *[fsm.MessageError] for a
// message that is not valid.
func (s *Sender) Send(ctx context.Context, to fsm.Target, m fsm.Message) (Delivery, error) {
	erased, err := hidden.Signal(m, s.env)
	if err != nil {
		return Delivery{}, err
	}
	erased.Trace = s.env.Trace(ctx)
	d, err := s.to.Send(ctx, to, erased)
	if err != nil {
		return Delivery{}, err
	}
	return Delivery{To: fsm.ID(d.Target), Duplicate: d.Duplicate, Kept: d.Kept}, nil
}
