package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
)

// dbosAtOnce is how many workflows run at a time: enough to keep its pool of 20 connections busy,
// which is its own default.
const dbosAtOnce = 200

// DBOS runs workflows of so many steps. It starts them directly, which is its fastest way: through
// its queue they are half as fast.
type DBOS struct {
	ctx  dbos.Context
	flow dbos.Workflow[ours.Order, ours.Result]
}

// DBOSMigrate makes the tables of DBOS.
func DBOSMigrate(ctx context.Context, db *lab.Database) error {
	d, err := NewDBOS(ctx, db, 1)
	if err != nil {
		return err
	}
	return d.Close()
}

// DBOSClear empties the tables of DBOS.
func DBOSClear(ctx context.Context, db *lab.Database) error {
	return db.Exec(ctx, "TRUNCATE dbos.workflow_status CASCADE")
}

// NewDBOS launches DBOS.
func NewDBOS(ctx context.Context, db *lab.Database, steps int) (*DBOS, error) {
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: "bench", DatabaseURL: db.URL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	d := &DBOS{ctx: c}
	d.flow = func(ctx dbos.Context, o ours.Order) (ours.Result, error) {
		for range steps {
			if _, err := dbos.RunAsStep(ctx, func(context.Context) (ours.Order, error) { return o, nil }); err != nil {
				return ours.Result{}, err
			}
		}
		return ours.Result{OK: true}, nil
	}
	dbos.RegisterWorkflow(c, d.flow, dbos.WithWorkflowName("chain"))
	if err := dbos.Launch(c); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, time.Second))
	}
	return d, nil
}

// Run runs n workflows to their durable ends.
func (d *DBOS) Run(n int) error {
	turns := make(chan struct{}, dbosAtOnce)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			handle, err := dbos.RunWorkflow(d.ctx, d.flow, ours.NewOrder(i))
			if err == nil {
				_, err = handle.GetResult()
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close shuts DBOS down.
func (d *DBOS) Close() error { return dbos.Shutdown(d.ctx, 10*time.Second) }

// DBOSCheck checks that n workflows have ended well, and that each step was recorded.
func DBOSCheck(ctx context.Context, db *lab.Database, n, steps int) error {
	var done, recorded int64
	err := db.Row(ctx, `SELECT (SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'),
		(SELECT count(*) FROM dbos.operation_outputs)`, &done, &recorded)
	if err == nil && (done != int64(n) || recorded != int64(n*steps)) {
		err = fmt.Errorf("%d of %d workflows have ended, and %d of %d steps are recorded", done, n, recorded, n*steps)
	}
	return err
}

// truncate empties all tables of a schema except the tables of its migrations.
func truncate(ctx context.Context, db *lab.Database, schema string) error {
	var names []string
	if err := db.Row(ctx, `SELECT array_agg(format('%I.%I', schemaname, tablename)) FROM pg_tables
		WHERE schemaname = '`+schema+`' AND tablename NOT LIKE '%migration%'`, &names); err != nil {
		return err
	}
	return db.Exec(ctx, "TRUNCATE "+strings.Join(names, ", ")+" CASCADE")
}
