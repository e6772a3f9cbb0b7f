package peers

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
)

// goWorkflowsAtOnce stays below the number of workflows that its worker keeps in memory.
const goWorkflowsAtOnce = 100

// GoWorkflows runs workflows of so many activities on its Postgres backend, with the settings of
// its benchmark.
type GoWorkflows struct {
	backend backend.Backend
	client  *client.Client
	worker  *worker.Worker
	flow    workflow.Workflow
	stop    context.CancelFunc
}

// GoWorkflowsMigrate makes the tables of go-workflows.
func GoWorkflowsMigrate(ctx context.Context, db *lab.Database) error {
	g, err := NewGoWorkflows(ctx, db, 1)
	if err != nil {
		return err
	}
	return g.Close()
}

// GoWorkflowsClear empties the tables of go-workflows.
func GoWorkflowsClear(ctx context.Context, db *lab.Database) error {
	return truncate(ctx, db, "public")
}

// NewGoWorkflows starts a worker.
func NewGoWorkflows(ctx context.Context, db *lab.Database, activities int) (*GoWorkflows, error) {
	c, err := pgx.ParseConfig(db.URL)
	if err != nil {
		return nil, err
	}
	b := monoprocess.NewMonoprocessBackend(postgres.NewPostgresBackend(c.Host, int(c.Port), c.User, c.Password, c.Database,
		postgres.WithBackendOptions(backend.WithLogger(slog.New(slog.DiscardHandler))),
		postgres.WithPostgresOptions(func(db *sql.DB) { db.SetMaxOpenConns(100); db.SetMaxIdleConns(100) })))
	activity := func(_ context.Context, o ours.Order) (ours.Order, error) { return o, nil }
	g := &GoWorkflows{backend: b, client: client.New(b), worker: worker.New(b, nil)}
	flow := func(ctx workflow.Context, o ours.Order) (ours.Result, error) {
		for range activities {
			if _, err := workflow.ExecuteActivity[ours.Order](ctx, workflow.DefaultActivityOptions, activity, o).Get(ctx); err != nil {
				return ours.Result{}, err
			}
		}
		return ours.Result{OK: true}, nil
	}
	g.flow = flow
	if err := errors.Join(g.worker.RegisterWorkflow(flow), g.worker.RegisterActivity(activity)); err != nil {
		return nil, err
	}
	ctx, g.stop = context.WithCancel(ctx)
	if err := g.worker.Start(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// Run runs n workflows to their durable ends.
func (g *GoWorkflows) Run(ctx context.Context, n int) error {
	turns := make(chan struct{}, goWorkflowsAtOnce)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			id := strconv.Itoa(i) + "-" + uuid.NewString()
			instance, err := g.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, g.flow, ours.NewOrder(i))
			if err == nil {
				_, err = client.GetWorkflowResult[ours.Result](ctx, g.client, instance, 2*time.Minute)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close stops the worker.
func (g *GoWorkflows) Close() error {
	g.stop()
	return errors.Join(g.worker.WaitForCompletion(), g.backend.Close())
}
