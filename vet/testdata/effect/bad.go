package effect

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/fsm"
)

var (
	Charge = fsm.Declare[int, fsm.None]("charge")
	Mail   = fsm.Declare[string, fsm.None]("mail")
	Night  = fsm.Declare[string, int]("night")
)

type shop struct {
	client *http.Client
	db     *pgxpool.Pool
	old    *sql.DB
}

type visit = fsm.Visit[int, fsm.None]

func (m shop) definitions() []fsm.Definition {
	g := dag.New(Night)
	return append([]fsm.Definition{
		Charge.Define(
			fsm.Step("start", m.charge).To("book"),
			fsm.Step("book", m.book).To("count"),
			fsm.Step("count", m.count).To(),
		).OnError(m.failed),
		Mail.Job(m.mail),
	}, g.Return(dag.Do(g, "report", dag.In(g), m.report))...)
}

func (m shop) charge(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.pay(ctx, v.State); err != nil {
		return nil, err
	}
	return v.Next("book", v.State), nil
}

// pay is a function that a step calls.
func (m shop) pay(ctx context.Context, cents int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example", bytes.NewReader(nil)) // want `effect: step "start" may run more than once, and this sends a request each time: hand on IdempotencyKey`
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := m.client.Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func (m shop) book(ctx context.Context, v *visit) (fsm.Outcome, error) {
	const insert = `INSERT INTO booking (cents)
		VALUES ($1)`
	if _, err := m.db.Exec(ctx, insert, v.State); err != nil { // want `effect: step "book" may run more than once, and this inserts a row each time`
		return nil, err
	}
	return v.Next("count", v.State), nil
}

func (m shop) count(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if _, err := m.old.ExecContext(ctx, `update account set cents = cents + $1 where id = $2`, v.State, 1); err != nil { // want `effect: step "count" may run more than once, and this adds each time`
		return nil, err
	}
	return v.Done(fsm.None{}), nil
}

func (m shop) failed(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	if _, err := http.Post("https://pager.example", "text/plain", nil); err != nil { // want `effect: the handler may run more than once, and this sends a request each time`
		return nil, err
	}
	return v.Fail(err), nil
}

func (m shop) mail(_ context.Context, to string) (fsm.None, error) {
	_, err := m.client.PostForm("https://mail.example", url.Values{"to": {to}}) // want `effect: the job may run more than once`
	return fsm.None{}, err
}

func (m shop) report(ctx context.Context, day string) (int, error) {
	_, err := m.db.Exec(ctx, `insert into report (day) values ($1)`, day) // want `effect: node "report" may run more than once`
	return 0, err
}

var Books = fsm.Declare[int, fsm.None]("books")

func (m shop) books() fsm.Definition {
	return Books.Define(fsm.Step("start", m.returning).To("begun"), fsm.Step("begun", m.begun).To("around"), fsm.Step("around", m.around).To())
}

// returning inserts by a query.
func (m shop) returning(ctx context.Context, v *visit) (fsm.Outcome, error) {
	var id int
	if err := m.db.QueryRow(ctx, `insert into booking (cents) values ($1) returning id`, v.State).Scan(&id); err != nil { // want `effect: step "start" may run more than once, and this inserts a row each time`
		return nil, err
	}
	return v.Next("begun", v.State), nil
}

// begun inserts in a transaction that is not the outcome's.
func (m shop) begun(ctx context.Context, v *visit) (fsm.Outcome, error) {
	tx, err := m.old.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `insert into booking (cents) values ($1)`, v.State); err != nil { // want `effect: step "begun" may run more than once, and this inserts a row each time`
		return nil, err
	}
	return v.Next("around", v.State), tx.Commit()
}

func (m shop) around(ctx context.Context, v *visit) (fsm.Outcome, error) {
	return v.Done(fsm.None{}), pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update account set cents = cents + 1 where id = 2`) // want `effect: step "around" may run more than once, and this adds each time`
		return err
	})
}
