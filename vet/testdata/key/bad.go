package key

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var (
	Order = fsm.Declare[int, fsm.None]("order")
	Mail  = fsm.Declare[string, fsm.None]("mail")
	Paid  = fsm.DeclareSignal[int]("paid")
)

type visit = fsm.Visit[int, fsm.None]

type shop struct {
	ship   func(ctx context.Context, order int, idempotencyKey string) error
	at     func(ctx context.Context, at time.Time, text, key string) error
	invite func(ctx context.Context, text, key string) error
}

func (m shop) definition() fsm.Definition {
	return Order.Define(fsm.Step("start", m.start), fsm.Step("effects", m.effects))
}

func (m shop) start(ctx context.Context, v *visit) (fsm.Outcome, error) {
	eng := engine.FromContext(ctx)
	id := uuid.NewString()
	if _, err := eng.Insert(ctx, Mail.New("hello").Key(fsm.Key("mail:"+id)).Priority(1)); err != nil { // want `key: the key of the instance is made of uuid.NewString, so it is another one when step "start" runs again: take IdempotencyKey, or the state`
		return nil, err
	}
	spec := Mail.New("hello").Key(fsm.Key(fmt.Sprintf("mail:%d", time.Now().UTC().UnixNano()))) // want `key: the key of the instance is made of time.Now`
	if _, err := eng.Insert(ctx, spec); err != nil {
		return nil, err
	}
	if _, err := eng.Signal(ctx, fsm.Key("ledger"), Paid.With(1).DedupKey(fmt.Sprint(rand.Int64()))); err != nil { // want `key: the key of the signal is made of rand.Int64`
		return nil, err
	}
	return v.Next("effects", v.State), nil
}

type params struct{ Key string }

func (m shop) effects(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.ship(ctx, v.State, uuid.New().String()); err != nil { // want `key: the idempotency key is made of uuid.New`
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Idempotency-Key", time.Now().Format(time.RFC3339)) // want `key: the idempotency key is made of time.Now`
	if _, err := http.DefaultClient.Do(request); err != nil {
		return nil, err
	}
	if err := m.ship(ctx, v.State, v.IdempotencyKey("ship", fmt.Sprint(time.Now()))); err != nil { // want `key: the idempotency key is made of time.Now`
		return nil, err
	}
	code := rand.Int64N(10000)
	if err := m.invite(ctx, fmt.Sprint("your code: ", code), v.IdempotencyKey("invite")); err != nil { // want `key: this is made of rand.Int64N, so it is another one when step "effects" runs again under the same key: make it in a step before`
		return nil, err
	}
	if err := m.ship(ctx, v.State, strings.Join([]string{v.IdempotencyKey("ship"), uuid.NewString()}, ":")); err != nil { // want `key: the idempotency key is made of uuid.NewString`
		return nil, err
	}
	return v.Done(fsm.None{}), nil
}
