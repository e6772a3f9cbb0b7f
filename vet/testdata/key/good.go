package key

import (
	"context"
	rand2 "crypto/rand"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type State struct{ Ref string }

var Good = fsm.Declare[State, fsm.None]("good")

func (m shop) good() fsm.Definition {
	return Good.Define(fsm.Step("start", m.ref), fsm.Step("insert", m.insert), fsm.Step("inTx", m.inTx))
}

// ref keeps in the state what the next step needs each time. The child and its key are committed
// with the outcome.
func (m shop) ref(_ context.Context, v *fsm.Visit[State, fsm.None]) (fsm.Outcome, error) {
	v.State.Ref = uuid.NewString()
	child := uuid.NewString()
	return v.ScheduleChildren("insert", v.State, Mail.New(child).Key(fsm.Key(child))), nil
}

func (m shop) insert(ctx context.Context, v *fsm.Visit[State, fsm.None]) (fsm.Outcome, error) {
	eng := engine.FromContext(ctx)
	ref := v.State.Ref
	if ref == "" {
		ref = uuid.NewString()
	}
	day := fsm.Key("mail:" + time.Now().Format("2006-01-02")) // once a day
	for _, key := range []fsm.Key{fsm.Key(ref), day, fsm.Key(v.IdempotencyKey("mail"))} {
		if _, err := eng.Insert(ctx, Mail.New("hello").Key(key)); err != nil {
			return nil, err
		}
	}
	if _, err := eng.Insert(ctx, Mail.New(fmt.Sprint("at ", time.Now())).Key(day)); err != nil {
		return nil, err
	}
	if err := m.ship(ctx, 1, v.IdempotencyKey()); err != nil {
		return nil, err
	}
	if err := m.at(ctx, time.Now(), fmt.Sprint("for ", v.State.Ref), v.IdempotencyKey("at")); err != nil {
		return nil, err
	}
	fsm.Logger(ctx).Info("inserted", "at", time.Now(), "trace", uuid.NewString())
	return v.Next("inTx", v.State), nil
}

// What a transaction has inserted that was undone is not there.
func (m shop) inTx(_ context.Context, v *fsm.Visit[State, fsm.None]) (fsm.Outcome, error) {
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		if _, err := engine.FromContext(ctx).WithPgx(tx).Insert(ctx, Mail.New("").Key(fsm.Key(uuid.NewString()))); err != nil {
			return nil, err
		}
		return v.Done(fsm.None{}), nil
	}), nil
}

// handle is no step.
func handle(ctx context.Context, eng *engine.Engine) error {
	_, err := eng.Insert(ctx, Mail.New("hello").Key(fsm.Key(uuid.NewString())))
	return err
}

type client struct{}

func (client) Logf(format string, args ...any)                              {}
func (client) Pay(ctx context.Context, host, key, trace string, try int)    {}
func (client) Timed(ctx context.Context, key string, unix int64, at string) {}

// What goes along with a key need not be what the call says.
func (m shop) beside() fsm.Definition {
	return Good.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[State, fsm.None]) (fsm.Outcome, error) {
		var c client
		key := "key"
		c.Logf("%v %v", v.IdempotencyKey(key), fmt.Sprint(rand.Int64()))
		c.Pay(ctx, fmt.Sprintf("replica-%d", rand.IntN(3)), v.IdempotencyKey(key), uuid.NewString(), rand.IntN(3))
		c.Pay(ctx, fmt.Sprintf("replica-%d", rand.IntN(len(key))), v.IdempotencyKey(key), rand2.Text(), rand.Int())
		c.Timed(ctx, v.IdempotencyKey(key), time.Now().Unix(), time.Now().Format(time.RFC3339))
		return v.Done(fsm.None{}), nil
	}))
}
