package effect

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var Good = fsm.Declare[int, fsm.None]("good")

func (m shop) good() fsm.Definition {
	return Good.Define(
		fsm.Step("start", m.keyed), fsm.Step("header", m.header), fsm.Step("get", m.get), fsm.Step("elsewhere", m.elsewhere),
		fsm.Step("inTx", m.inTx), fsm.Step("repeatable", m.repeatable), fsm.Step("fenced", m.fenced), fsm.Step("made", m.made),
		fsm.Step("looks", m.looks), fsm.Step("asks", m.asks), fsm.Step("within", m.within), fsm.Step("given", m.given),
	)
}

func (m shop) keyed(ctx context.Context, v *visit) (fsm.Outcome, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example/"+v.IdempotencyKey("pay"), nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.client.Do(request); err != nil {
		return nil, err
	}
	return v.Next("header", v.State), nil
}

// The other side may name the key differently.
func (m shop) header(ctx context.Context, v *visit) (fsm.Outcome, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", "https://pay.example", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Request-Id", string(v.Key))
	if _, err := m.client.Do(request); err != nil {
		return nil, err
	}
	return v.Next("get", v.State), nil
}

// GET and PUT may be repeated.
func (m shop) get(ctx context.Context, v *visit) (fsm.Outcome, error) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		request, err := http.NewRequestWithContext(ctx, method, "https://pay.example", nil)
		if err != nil {
			return nil, err
		}
		if _, err := m.client.Do(request); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://pay.example", nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.client.Do(request); err != nil {
		return nil, err
	}
	return v.Next("elsewhere", v.State), nil
}

// The function that gets the request may set its key.
func (m shop) elsewhere(ctx context.Context, v *visit) (fsm.Outcome, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example", nil)
	if err != nil {
		return nil, err
	}
	if err := sign(request); err != nil {
		return nil, err
	}
	if _, err := m.client.Do(request); err != nil {
		return nil, err
	}
	return v.Next("inTx", v.State), nil
}

var sign func(*http.Request) error

func (m shop) inTx(_ context.Context, v *visit) (fsm.Outcome, error) {
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		if _, err := tx.Exec(ctx, `insert into booking (cents) values ($1)`, v.State); err != nil {
			return nil, err
		}
		return v.Next("repeatable", v.State), nil
	}), nil
}

func (m shop) repeatable(ctx context.Context, v *visit) (fsm.Outcome, error) {
	for _, sql := range []string{
		`insert into booking (id, cents) values ($1, $2) on conflict do nothing`,
		`update booking set cents = $2 where id = $1`,
	} {
		if _, err := m.db.Exec(ctx, sql, v.ID, v.State); err != nil {
			return nil, err
		}
	}
	if _, err := m.db.Exec(ctx, `insert into booking (id) values ($1) on conflict do nothing`, v.ID); err != nil {
		return nil, err
	}
	if _, err := m.db.Exec(ctx, `update account set cents = cents + $1 where id = $2 and fence < $3`, 1, 2, 3); err != nil {
		return nil, err
	}
	return v.Next("fenced", v.State), nil
}

func (m shop) fenced(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if _, err := m.db.Exec(ctx, `insert into booking (fence) values ($1)`, v.FencingToken); err != nil {
		return nil, err
	}
	return v.Next("made", v.State), nil
}

// A request that is made and not sent is no effect.
func (m shop) made(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if _, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example", nil); err != nil {
		return nil, err
	}
	return v.Next("looks", v.State), nil
}

// looks finds what an earlier run has inserted.
func (m shop) looks(ctx context.Context, v *visit) (fsm.Outcome, error) {
	var there bool
	if err := m.db.QueryRow(ctx, `select exists (select from booking where id = $1)`, v.ID).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		if _, err := m.db.Exec(ctx, `insert into booking (id) values ($1)`, v.ID); err != nil {
			return nil, err
		}
	}
	return v.Next("asks", v.State), nil
}

// asks whether an earlier run has paid.
func (m shop) asks(_ context.Context, v *visit) (fsm.Outcome, error) {
	if answer, err := m.client.Get("https://pay.example/charged"); err != nil || answer.StatusCode == http.StatusOK {
		return v.Next("within", v.State), err
	}
	_, err := m.client.Post("https://pay.example", "text/plain", nil)
	return v.Done(fsm.None{}), err
}

// handle is no step: nothing runs it again.
func (m shop) handle(ctx context.Context) error {
	_, err := m.db.Exec(ctx, `insert into booking (cents) values (1)`)
	return err
}

// within looks in its own transaction.
func (m shop) within(ctx context.Context, v *visit) (fsm.Outcome, error) {
	return v.Next("given", v.State), pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, `select exists (select from booking where id = $1)`, v.ID).Scan(&there); err != nil || there {
			return err
		}
		_, err := tx.Exec(ctx, `insert into booking (id) values ($1)`, v.ID)
		return err
	})
}

// given uses transactions that this code has not begun: their commit may be the outcome's.
func (m shop) given(_ context.Context, v *visit) (fsm.Outcome, error) {
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into booking (cents) values ($1)`, v.State)
			return err
		})
		inner, err2 := tx.Begin(ctx)
		if err != nil || err2 != nil {
			return nil, err
		}
		_, err = inner.Exec(ctx, `insert into booking (cents) values ($1)`, v.State)
		return v.Done(fsm.None{}), err
	}), nil
}
