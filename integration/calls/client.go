package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
)

// Purses is a machine that has purses as instances, and how clients call about one. Each method
// makes one call.
type Purses interface {
	Insert(ctx context.Context, key fsm.Key, n int) (fsm.ID, error)
	Add(ctx context.Context, key fsm.Key, bit uint64) error
	Close(ctx context.Context, key fsm.Key) error
	Cancel(ctx context.Context, key fsm.Key) error
	Get(ctx context.Context, key fsm.Key) (fsm.RawInstance, error)
	Wait(ctx context.Context, id fsm.ID) (fsm.RawInstance, error)
	// Read reads the number of an instance, and what it has taken.
	Read(i fsm.RawInstance) (n int, bits uint64, err error)
}

// Client makes calls, one after the other.
type Client struct {
	*Recorder
	Purses

	Number   int // of the client
	Random   *rand.Rand
	Bit      func(key string) uint64  // returns a bit that no other call about the key has
	Patience time.Duration            // how long a call may take; without an answer by then it is unknown
	Pause    time.Duration            // at most so long before each call
	Wonder   func(in Call, err error) // is told of errors that leave it open whether the call took effect, unless they say just that
}

// odds is how often a client calls each verb.
var odds = []Verb{Insert, Insert, Insert, Add, Add, Add, Add, Add, Add, Close, Cancel, Get, Get, Get, Wait}

// lives is how long a client waits for the end of an instance, which may live on.
const lives = 100 * time.Millisecond

// Some makes a random call about a key. It returns how that ended; "" if there was nothing to wait
// for.
func (c *Client) Some(ctx context.Context, key string) Told {
	if c.Pause > 0 {
		pace.Sleep(ctx, time.Duration(c.Random.Int64N(int64(c.Pause))))
	}
	in := Call{Key: key, Verb: odds[c.Random.IntN(len(odds))]}
	if in.Verb != Wait {
		return c.Make(ctx, in).Told
	}
	recent := c.recent(key, 3)
	if len(recent) == 0 {
		return ""
	}
	in.N = recent[c.Random.IntN(len(recent))]
	short, stop := context.WithTimeout(ctx, lives)
	defer stop()
	return c.Make(short, in).Told
}

// Make makes one call.
func (c *Client) Make(ctx context.Context, in Call) Answer {
	ctx, stop := context.WithTimeout(ctx, c.Patience)
	defer stop()
	key := fsm.Key(in.Key)
	if in.Verb == Insert {
		in.N = c.number()
	}
	if in.Verb == Add {
		in.Bit = c.Bit(in.Key)
	}
	return c.record(c.Number, in, func() Answer {
		switch in.Verb {
		case Insert:
			id, err := c.Insert(ctx, key, in.N)
			if taken, occupied := errors.AsType[*engine.DuplicateError](err); occupied {
				return Answer{Told: Refused, N: c.known(taken.Occupant), ID: taken.Occupant}
			}
			if err == nil {
				c.learn(purse{id, in.Key, in.N})
			}
			return Answer{Told: c.told(in, err), ID: id}
		case Add:
			return Answer{Told: c.told(in, c.Add(ctx, key, in.Bit), engine.ErrNoTarget)}
		case Close:
			return Answer{Told: c.told(in, c.Close(ctx, key), engine.ErrNoTarget)}
		case Cancel:
			return Answer{Told: c.told(in, c.Cancel(ctx, key), engine.ErrNotFound, engine.ErrConflict)}
		case Get:
			i, err := c.Get(ctx, key)
			if err == nil && i.Status.Terminal() { // none occupied the key when it looked
				return Answer{Told: Refused}
			}
			return c.read(in, i, err)
		default:
			i, err := c.Wait(ctx, c.id(in.N))
			return c.read(in, i, err)
		}
	})
}

// told sorts an error: refusals are what the verb says if it does not apply.
func (c *Client) told(in Call, err error, refusals ...error) Told {
	if err == nil {
		return OK
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return Refused
		}
	}
	if !errors.Is(err, engine.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
		c.Wonder(in, err)
	}
	return Unknown
}

// read returns the answer of a call that reads an instance.
func (c *Client) read(in Call, i fsm.RawInstance, err error) Answer {
	out := Answer{Told: c.told(in, err, engine.ErrNotFound)}
	if out.Told != OK {
		return out
	}
	out.ID = i.ID
	if out.N, out.Bits, err = c.Read(i); err != nil {
		out.Ended = fmt.Sprintf("unreadable: %v", err) // which no order explains
		return out
	}
	switch {
	case i.Status == fsm.StatusDone:
		out.Ended = "done"
	case i.Failure == fsm.FailureCancelled:
		out.Ended = "cancelled"
	case i.Status.Terminal():
		out.Ended = fmt.Sprint(i.Failure, ": ", i.LastError)
	}
	return out
}
