package work

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// answer is how a statement ends: its effect, and the answer to its sender.
type answer int

const (
	fair      answer = iota
	deadlock         // 40P01: no effect
	cut              // the connection breaks before the statement is sent: no effect
	lostDone         // it takes effect, and the answer is lost
	lostNever        // no effect, and the answer is lost: the sender cannot tell the difference
	lostLate         // the answer is lost; a commit's old backend takes effect a second later, and holds the rows until then
	silent           // never answers
)

// weather makes the fake answer late, wrongly or never. The zero value is fair, and takes no time.
type weather struct {
	rand                       *rand.Rand                                  // nil: nothing below happens by chance
	answers                    func(verb, about string) answer             // nil: fair
	latency                    func(verb string) time.Duration             // nil: none
	instead                    func(verb, about string, ids []int64) error // unless it returns nil, its error is the answer, and nothing happens
	frozen                     time.Time                                   // the server freezes until then: nothing takes effect, and no connection breaks
	leftOut, missed, collision float64
	older                      bool // a worker is live that cannot serve an instance that is done
}

// happens decides by chance. The caller holds the fake's mu, as for all of weather.
func (w *weather) happens(probability float64) bool {
	return probability > 0 && w.rand.Float64() < probability
}

// statement is a statement that was sent.
type statement struct {
	verb, about string
	at          time.Time
}

// poison, in a state or in an error's text, makes the fake refuse the data like Postgres.
const poison = "poison"

func poisonous(o *step.Commit) bool {
	return strings.Contains(string(o.State), poison) || strings.Contains(string(o.Result), poison)
}

func refusal(code string) error { return &pgconn.PgError{Code: code, Message: "fake"} }

// errLost is the error of a broken connection.
var errLost error = &net.OpError{Op: "read", Net: "tcp", Err: io.ErrUnexpectedEOF}

// lostAnswer leaves open whether a commit took effect.
type lostAnswer struct{ error }

func (lostAnswer) Unknown() bool   { return true }
func (l lostAnswer) Unwrap() error { return l.error }

// send handles every statement: it travels, takes effect as a whole, and its answer travels back.
func (db *fake) send(ctx context.Context, verb, about string, do func() error) error {
	return db.travel(ctx, verb, about, nil, do)
}

// bring lets the rows of a claim travel, which is committed by then.
func (db *fake) bring(ctx context.Context, queue string) error {
	db.mu.Lock()
	w := &db.weather
	var half time.Duration
	if w.latency != nil {
		half = w.latency(claimedRows) / 2
	}
	lost := w.answers != nil && w.answers(claimedRows, queue) == lostDone
	db.mu.Unlock()
	if !pace.Sleep(ctx, half) {
		return lostAnswer{ctx.Err()}
	}
	if lost {
		return lostAnswer{errLost}
	}
	return nil
}

// claimedRows is the verb of bring.
const claimedRows = "claimed rows"

func (db *fake) sendBatch(ctx context.Context, verb string, entries []store.Entry, do func() error) error {
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.Claim.ID
	}
	return db.travel(ctx, verb, "", ids, do)
}

func (db *fake) travel(ctx context.Context, verb, about string, ids []int64, do func() error) error {
	db.mu.Lock()
	db.sent = append(db.sent, statement{verb: verb, about: about, at: time.Now()})
	w := &db.weather
	var half time.Duration
	if w.latency != nil {
		half = w.latency(verb) / 2
	}
	frozen := w.frozen
	what := fair
	if w.answers != nil {
		what = w.answers(verb, about)
	}
	var instead error
	if w.instead != nil {
		instead = w.instead(verb, about, ids)
	}
	if db.flood[verb] {
		db.flying++
		db.mostEver = max(db.mostEver, db.flying)
		defer func() {
			db.mu.Lock()
			defer db.mu.Unlock()
			db.flying--
		}()
	}
	db.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case what == silent:
		<-ctx.Done()
		return lostAnswer{ctx.Err()}
	case !pace.Sleep(ctx, max(0, time.Until(frozen))), !pace.Sleep(ctx, half):
		return lostAnswer{ctx.Err()}
	case instead != nil:
		return instead
	}
	if err := db.act(what, ids, do); err != nil {
		return err
	}
	if !pace.Sleep(ctx, half) {
		return lostAnswer{ctx.Err()}
	}
	return nil
}

// act lets a statement take effect, or not.
func (db *fake) act(what answer, ids []int64, do func() error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch what {
	case deadlock:
		return refusal("40P01")
	case cut:
		return errLost
	case lostDone:
		if err := do(); err != nil {
			return err
		}
		return lostAnswer{errLost}
	case lostNever:
		return lostAnswer{errLost}
	case lostLate:
		db.later(ids, do)
		return lostAnswer{errLost}
	case fair, silent:
	}
	return do()
}

// later lets an old backend finish its statement a second after everybody has given it up. The
// caller holds mu.
func (db *fake) later(ids []int64, do func() error) {
	for _, id := range ids {
		db.rows[id].held = time.Now().Add(time.Second + time.Millisecond)
	}
	time.AfterFunc(time.Second, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		for _, id := range ids {
			db.rows[id].held = time.Time{}
		}
		_ = do()
	})
}

// lockAll waits for rows that other sessions hold, if the statement is to wait.
func (db *fake) lockAll(ctx context.Context, wait time.Duration, ids []int64) error {
	if wait == 0 {
		return nil
	}
	limit := time.After(wait)
	for {
		db.mu.Lock()
		free, changed := time.Duration(0), db.changed
		for _, id := range ids {
			if r := db.rows[id]; r != nil {
				free = max(free, time.Until(r.held))
			}
		}
		db.mu.Unlock()
		if free == 0 {
			return nil
		}
		select {
		case <-time.After(free):
		case <-changed:
		case <-limit:
			return refusal("55P03")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lockKeys waits for correlation keys of children that other sessions are inserting.
func (db *fake) lockKeys(ctx context.Context, wait time.Duration, entries []store.Entry) error {
	limit := time.After(max(wait, 20*time.Millisecond))
	for {
		db.mu.Lock()
		held, changed := false, db.changed
		for _, e := range entries {
			for _, child := range e.Commit.Spawn {
				r := db.rows[e.Claim.ID] // an outcome that is left out inserts nothing
				held = held || db.keys[child.Key] && !r.locked() && !r.busy
			}
		}
		db.mu.Unlock()
		if !held {
			return nil
		}
		select {
		case <-changed:
		case <-limit:
			return refusal("55P03")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
