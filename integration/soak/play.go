package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// roleVariable makes the program play a worker or a client; its value is the role.
const roleVariable = "GENDURABLE_SOAK_ROLE"

// role is the parameters of a process.
type role struct {
	Name   string  `json:"name"`
	Client bool    `json:"client"`
	Admin  bool    `json:"admin"` // an operator
	URL    string  `json:"url"`   // of the proxy
	Log    string  `json:"log"`
	Seed   uint64  `json:"seed"`
	Old    bool    `json:"old"`  // a worker that does not know the newest version of a machine
	Pace   float64 `json:"pace"` // of a client: undertakings a second; of an operator: acts

	Number int    `json:"number"` // of a client
	Calls  string `json:"calls"`  // of a client: the file that records calls about purses; "": there are none
	Began  int64  `json:"began"`  // ns since 1970: the beginning of that record
}

// The exit codes of a process.
const (
	exitOrderly  = 0
	exitFault    = 1
	exitOrphaned = 3
	exitLog      = 4
)

// saysReady is the line that a process writes when it works.
const saysReady = "ready"

// Play plays a role, if the environment has one, and reports whether it had. A program calls it
// before anything else.
func Play() (code int, played bool) {
	told := os.Getenv(roleVariable)
	if told == "" {
		return exitOrderly, false
	}
	var r role
	err := json.Unmarshal([]byte(told), &r)
	if err == nil {
		err = r.play()
	}
	if err != nil {
		slog.Error("ended", slog.Any("error", err))
		return exitFault, true
	}
	return exitOrderly, true
}

// play works until SIGTERM, or until the soak itself is gone, which ends the standard input.
func (r role) play() error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphaned)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGINT) // typed at the terminal, it is for the soak, which ends us
	log, err := openJournal(r.Log, r.Name)
	if err != nil {
		return err
	}
	defer log.close()
	pool, err := r.pool()
	if err != nil {
		return err
	}
	defer pool.Close()
	return r.work(ctx, pool, log, func() { fmt.Fprintln(os.Stdout, saysReady) })
}

// work works in the role until ctx ends.
func (r role) work(ctx context.Context, pool *pgxpool.Pool, log *journal, ready func()) error {
	switch {
	case r.Client:
		return r.playClient(ctx, pool, log, ready)
	case r.Admin:
		return r.playOperator(ctx, pool, log, ready)
	}
	return r.playWorker(ctx, pool, log, ready)
}

const (
	poolSize = 5 // small, so that connections are scarce
	// connectWithin is what a server takes to which all processes connect at once, on two processors:
	// with less, each would begin anew for ever.
	connectWithin = 6 * time.Second
)

func (r role) pool() (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(r.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.ConnConfig.ConnectTimeout = connectWithin
	config.ConnConfig.RuntimeParams["application_name"] = r.Name
	return pgxpool.NewWithConfig(context.Background(), config)
}

func (r role) playWorker(ctx context.Context, pool *pgxpool.Pool, log *journal, ready func()) error {
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: player{log}.definitions(r.Old),
		Queues:    map[string]engine.Queue{"default": {Concurrency: 10}, "post": {Concurrency: 10}, "narrow": {Concurrency: 2}},
		Logger:    slog.New(obedience{slog.Default().Handler(), log}),
		Schedules: schedules(), History: fsm.KeepTransitions,
		Lease: lease, Heartbeat: heartbeat, Reap: reap, DrainTimeout: 10 * time.Second, DrainGrace: 3 * time.Second,
		Hooks: []engine.Hooks{{
			Step: func(_ context.Context, e engine.StepEvent) {
				if i := e.Instance; e.Outcome != fsm.OutcomeNone {
					log.write(event{Kind: evCommitted, ID: int64(i.ID), Visit: i.Visit, Token: i.FencingToken, Outcome: string(e.Outcome)})
				}
			},
			Fire: func(_ context.Context, e engine.FireEvent) {
				if e.Inserted > 0 {
					log.write(event{Kind: evFired, Label: e.Schedule, Count: int64(e.Inserted)})
				}
			},
			Stale: func(_ context.Context, e engine.StaleEvent) {
				i := e.Instance
				log.write(event{Kind: evStale, ID: int64(i.ID), Visit: i.Visit, Token: i.FencingToken})
			},
		}},
	})
	if err != nil {
		return err
	}
	for err := eng.Start(ctx); err != nil; err = eng.Start(ctx) {
		if ctx.Err() != nil {
			return nil // it has to end before it began
		}
		slog.Warn("cannot start", slog.Any("error", err))
		pause(ctx, 200*time.Millisecond)
	}
	go exhaust(ctx, pool, log)
	ready()
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return eng.Stop(stopping)
}

// exhaust takes all of the pool's connections for a while, at each SIGUSR1. Heartbeats must not
// need one.
func exhaust(ctx context.Context, pool *pgxpool.Pool, log *journal) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		taking, cancel := context.WithTimeout(ctx, 3*lease)
		var held []*pgxpool.Conn
		for range poolSize {
			c, err := pool.Acquire(taking)
			if err != nil {
				break
			}
			held = append(held, c)
		}
		cancel()
		before := keptWaiting(pool)
		pause(ctx, lease*2/3)
		for _, c := range held {
			c.Release()
		}
		e := event{Kind: evExhausted, Count: keptWaiting(pool) - before}
		for since := time.Now(); e.Count == 0 && ctx.Err() == nil && time.Since(since) < lease; pause(ctx, 10*time.Millisecond) {
			e.Count = keptWaiting(pool) - before // a pool counts who waited when it has a connection, which is after the release
		}
		if len(held) < poolSize {
			e.Count, e.Detail = 0, fmt.Sprintf("only %d connections", len(held))
		}
		log.write(e)
	}
}

// keptWaiting is how many have waited for a connection of the pool, those included that gave up.
func keptWaiting(pool *pgxpool.Pool) int64 {
	stat := pool.Stat()
	return stat.EmptyAcquireCount() + stat.CanceledAcquireCount()
}

// pause waits, or not if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// obedience logs when a worker notices that a queue is paused, or no longer, and when it cannot do
// what it does regularly: the worker writes that to its own log.
type obedience struct {
	slog.Handler
	journal *journal
}

// Handle reads a record and passes it on.
func (o obedience) Handle(ctx context.Context, r slog.Record) error {
	e := event{Kind: evObeyed, Detail: "resumed"}
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "queue":
			e.Label = a.Value.String()
		case a.Key == "paused" && a.Value.Kind() == slog.KindBool && a.Value.Bool():
			e.Detail = "paused"
		}
		return true
	})
	switch {
	case r.Message == "a queue is paused, or resumed":
		o.journal.write(e)
	case r.Level >= slog.LevelWarn && strings.HasPrefix(r.Message, "cannot "):
		o.journal.write(event{Kind: evStruggled, Detail: r.Message})
	}
	if !o.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return o.Handler.Handle(ctx, r)
}

// Enabled lets records about queues through, also if little is printed.
func (o obedience) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// WithAttrs returns an obedience, too.
func (o obedience) WithAttrs(attrs []slog.Attr) slog.Handler {
	return obedience{o.Handler.WithAttrs(attrs), o.journal}
}

// WithGroup returns an obedience, too.
func (o obedience) WithGroup(name string) slog.Handler {
	return obedience{o.Handler.WithGroup(name), o.journal}
}
