package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/calls"
)

// Besides their undertakings, clients call about purses, and record what they were told. Module
// integration/clients looks for an order that explains the record. A search takes long if many
// calls overlap, so the calls are about many keys: all callers of a lane go on to another key in
// each window.
const (
	lanes      = 2
	callers    = 2 // of each client, in each lane
	window     = 6 * time.Second
	mostCalls  = 12              // of a caller, about a key
	wonder     = 2 * time.Second // after a call without an answer: there are few of these about each key
	triesAtEnd = 5               // of a call once the faults are over
)

// closing is the index of the letter that closes a purse; other indexes are bits.
const closing = -1

// purseCalls is how a client calls about purses. The log has these calls, too.
type purseCalls struct {
	*client

	rand *rand.Rand
}

func (p purseCalls) Insert(ctx context.Context, key fsm.Key, n int) (fsm.ID, error) {
	w := work{Label: fmt.Sprintf("%s/%d", key, n), Fate: "done", Busy: p.rand.IntN(40), Want: 1}
	if p.rand.IntN(8) == 0 {
		w.Busy, w.Fails = 200+p.rand.IntN(300), p.rand.IntN(2)
	}
	id, err := p.eng.Insert(ctx, purse.New(w).Key(key))
	e := event{Kind: evAccepted, Label: w.Label, Key: string(key), ID: int64(id)}
	if taken, occupied := errors.AsType[*engine.DuplicateError](err); occupied {
		e.Kind, e.Target = evDuplicate, int64(taken.Occupant)
	} else if err != nil {
		e.Kind, e.Detail = evUnknown, err.Error()
	}
	p.log.write(e)
	return id, err
}

func (p purseCalls) Add(ctx context.Context, key fsm.Key, bit uint64) error {
	return p.signal(ctx, key, bits.TrailingZeros64(bit))
}

func (p purseCalls) Close(ctx context.Context, key fsm.Key) error {
	return p.signal(ctx, key, closing)
}

// signal logs the letter as a stray one: porcupine knows which letters a purse must have taken.
func (p purseCalls) signal(ctx context.Context, key fsm.Key, index int) error {
	tag := fmt.Sprintf("stray:%s/%d#%d", key, index, p.rand.Uint64())
	d, err := p.eng.Signal(ctx, key, pings.With(ping{index, tag}))
	e := event{Kind: evAcked, Label: string(key), Tag: tag, Target: int64(d.To)}
	switch {
	case errors.Is(err, engine.ErrNoTarget):
		e.Kind = evRefused
	case err != nil:
		e.Kind, e.Detail = evUnknown, err.Error()
	}
	p.log.write(e)
	return err
}

func (p purseCalls) Cancel(ctx context.Context, key fsm.Key) error {
	p.log.write(event{Kind: evOrdered, Key: string(key), Detail: string(engine.VerbCancel)})
	_, err := p.eng.Admin().Cancel(ctx, key)
	return err
}

func (p purseCalls) Get(ctx context.Context, key fsm.Key) (fsm.RawInstance, error) {
	return p.eng.Get(ctx, key)
}

func (p purseCalls) Wait(ctx context.Context, id fsm.ID) (fsm.RawInstance, error) {
	i, err := p.eng.Wait(ctx, id)
	if err == nil {
		p.log.write(event{Kind: evResult, ID: int64(id), Label: string(i.Key), Outcome: string(i.Status), Detail: string(i.Failure)})
	}
	return i, err
}

func (p purseCalls) Read(i fsm.RawInstance) (n int, taken uint64, err error) {
	var w work
	if err := json.Unmarshal(i.State, &w); err != nil {
		return 0, 0, err
	}
	_, number, _ := strings.Cut(w.Label, "/")
	n, err = strconv.Atoi(number)
	for _, index := range w.Got {
		if index != closing {
			taken |= 1 << index
		}
	}
	return n, taken, err
}

// spent is the step after a purse has taken letters: it waits for more until it is closed.
func (p player) spent(_ context.Context, r *run) (fsm.Outcome, error) {
	if slices.Contains(r.State.Got, closing) {
		return r.done(), nil
	}
	return r.wait("take", r.moved()), nil
}

// caller calls about the purses of one lane.
type caller struct {
	calls.Client

	lane  int
	first int // the index of its first bit of a key
	next  int // bit
	keys  []string
}

// callAboutPurses records the calls of all callers of this client until ctx ends, and then finds
// out what has become of each purse.
func (c *client) callAboutPurses(ctx, life context.Context) error {
	file, err := os.OpenFile(c.r.Calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record calls: %w", err)
	}
	defer file.Close()
	began := time.Now().Add(-time.Since(time.Unix(0, c.r.Began))) // has a monotonic clock, in each process
	recorder := calls.NewRecorder(began, 1+c.r.Number, clients, file)
	var all []*caller
	var calling sync.WaitGroup
	for lane := range lanes {
		for i := range callers {
			number := (lane*clients+c.r.Number)*callers + i
			random := rand.New(rand.NewPCG(c.r.Seed, uint64(1<<32+number))) //nolint:gosec // repeatable
			a := &caller{lane: lane, first: (c.r.Number*callers + i) * mostCalls}
			a.Client = calls.Client{Recorder: recorder, Purses: purseCalls{c, random}, Number: number, Random: random, Patience: patience,
				Pause: 2 * window / mostCalls, Bit: a.bit, Wonder: func(in calls.Call, err error) {
					slog.Warn("unknown", slog.Any("call", in), slog.Any("error", err))
				}}
			all = append(all, a)
			calling.Go(func() { a.call(ctx, life, began) })
		}
	}
	calling.Wait()
	for range 2 { // again, when no call is under way any more: one without an answer may insert late
		all[0].closeAll(life, keys(all))
		pause(life, settled)
	}
	for _, in := range recorder.Waits() {
		for range triesAtEnd {
			if all[0].Make(life, in).Told != calls.Unknown {
				break
			}
		}
	}
	_, err = recorder.History()
	return err
}

// bit returns a bit that no other call about the key has: there are 64, and 48 calls at most.
func (a *caller) bit(string) uint64 {
	a.next++
	return 1 << (a.first + a.next - 1)
}

// call calls about the key of each window, until ctx ends. A call that has begun goes on.
func (a *caller) call(ctx, life context.Context, began time.Time) {
	for ctx.Err() == nil {
		now := time.Since(began)
		key, next := fmt.Sprintf("purse %d.%d", a.lane, now/window), now.Truncate(window)+window
		a.keys, a.next = append(a.keys, key), 0
		for n := 0; n < mostCalls && time.Since(began) < next && ctx.Err() == nil; n++ {
			if a.Some(life, key) == calls.Unknown {
				pause(ctx, wonder)
			}
		}
		a.Make(life, calls.Call{Key: key, Verb: calls.Close})
		pause(ctx, next-time.Since(began))
	}
}

// keys returns the keys that callers have called about.
func keys(callers []*caller) (all []string) {
	for _, a := range callers {
		all = append(all, a.keys...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// closeAll closes what is left of purses.
func (a *caller) closeAll(life context.Context, keys []string) {
	for _, key := range keys {
		for life.Err() == nil && a.Make(life, calls.Call{Key: key, Verb: calls.Get}).Told != calls.Refused {
			a.Make(life, calls.Call{Key: key, Verb: calls.Close})
			pause(life, 50*time.Millisecond)
		}
	}
}
