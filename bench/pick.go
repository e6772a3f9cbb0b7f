package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	picked = 100 // rows of one pick
	picks  = 5   // timed in a round
)

// pickSize is P8: the engine's pick of 100 rows on a large table and on a small one, each with a
// tenth of its rows runnable.
func pickSize(ctx context.Context, b *bench) (*trial, error) {
	const small = 10_000
	size := 1_000_000
	if b.full {
		size = 10_000_000
	}
	large := max(b.count(size), 2*small)
	db, err := b.database(ctx, "pick_large", ours.Migrate, ours.Clear)
	if err != nil {
		return nil, err
	}
	if err := table(ctx, db, large, min(5000, large/20)); err != nil {
		return nil, err
	}
	return &trial{
		contenders: []contender{
			{"large", func(ctx context.Context) (report.Sample, error) { return pick(ctx, db) }},
			{"small", func(ctx context.Context) (report.Sample, error) {
				db, err := b.database(ctx, "pick_small", ours.Migrate, ours.Clear)
				if err != nil {
					return nil, err
				}
				if err := table(ctx, db, small, small/2000); err != nil {
					return nil, err
				}
				return pick(ctx, db)
			}},
		},
		checks: []report.Check{
			{Label: "buffers", Of: "large", Against: "small", By: report.Buffers, AtMost: 1.3},
			{Label: "time", Of: "large", Against: "small", By: report.Time, AtMost: 1.3},
		},
		notes: []string{fmt.Sprintf("large: %d rows, %d of them runnable; small: %d and %d", large, large/10, small, small/10)},
	}, nil
}

// table fills gen_durable with n rows: most are done, a tenth is runnable.
func table(ctx context.Context, db *lab.Database, n, executing int) error {
	rows := func(n int, status, others, values string) string {
		return fmt.Sprintf(`INSERT INTO gendurable.gen_durable (uid, fsm, step, status, state, eligible_at%s)
			SELECT gen_random_uuid(), 'noop', 'start', '%s', '{"n": 7, "note": "abcdefgh", "items": [1, 2, 3], "order": "ord_0000000042"}',
			now() - interval '1 day' + i * interval '1 millisecond'%s FROM generate_series(1, %d) i`, others, status, values, n)
	}
	return db.Exec(ctx,
		rows(n-n/10-executing, "done", ", result, finished_at", `, '{"ok": true}', now()`),
		rows(executing, "executing", ", locked_by, lease_expires_at", `, 'bench', now() + interval '1 day'`),
		rows(n/10, "runnable", "", ""),
		"VACUUM (ANALYZE) gendurable.gen_durable")
}

// pick times some picks, then reads the buffers of another one.
func pick(ctx context.Context, db *lab.Database) (report.Sample, error) {
	pool, err := db.Pool(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var took []time.Duration
	for i := range picks + 1 {
		began := time.Now()
		if err := claim(ctx, pool); err != nil {
			return nil, err
		}
		if i > 0 { // the first one prepares the statements
			took = append(took, time.Since(began))
		}
	}
	median, _ := report.Quantiles(took, func(d time.Duration) float64 { return d.Seconds() * 1000 })
	buffers, err := explain(ctx, db)
	return report.Sample{report.Time: median, report.Buffers: float64(buffers)}, err
}

func claim(ctx context.Context, pool *pgxpool.Pool) error {
	got, err := claimed(ctx, pool, picked)
	if err == nil && len(got) != picked {
		err = fmt.Errorf("a pick brought %d rows", len(got))
	}
	return err
}

// claimed makes one pick by the engine's own statements.
func claimed(ctx context.Context, pool *pgxpool.Pool, n int) ([]*step.Claim, error) {
	got, err := store.New(entpgx.New(pool), "gendurable").Claim(ctx, store.ClaimParams{Queue: "default", Worker: bencher,
		Machines: []string{store.MachineID("noop", 1)}, Limit: n, Window: n, Lease: time.Hour})
	return got.Claims, err
}

// bencher is the worker in whose name picks are made.
var bencher = uuid.NewString()

// explain returns how many buffers a pick touches, on a connection whose statements are prepared.
func explain(ctx context.Context, db *lab.Database) (buffers int, err error) {
	pool, err := db.Pool(ctx, 1, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			var explained struct {
				Plan struct {
					Hit  int `json:"Shared Hit Blocks"`
					Read int `json:"Shared Read Blocks"`
				} `json:"Plan"`
			}
			if _, text, ok := strings.Cut(n.Message, "plan:\n"); ok && json.Unmarshal([]byte(text), &explained) == nil {
				buffers += explained.Plan.Hit + explained.Plan.Read
			}
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = notice;
				SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off;
				SET auto_explain.log_format = json`)
			return err
		}
	})
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if err := claim(ctx, pool); err != nil {
		return 0, err
	}
	buffers = 0
	err = claim(ctx, pool)
	if err == nil && buffers == 0 {
		err = errors.New("auto_explain reported no buffers")
	}
	return buffers, err
}

// roundTrips is P15: how many round trips a batch of n steps takes, on a connection that knows the
// statements.
func roundTrips(_ context.Context, b *bench) (*trial, error) {
	t := &trial{rounds: 1}
	for _, n := range []int{1, 500} {
		for _, verb := range []string{"claim", "commit"} {
			name := fmt.Sprintf("%s %d", verb, n)
			t.contenders = append(t.contenders, contender{name, func(ctx context.Context) (report.Sample, error) { return b.trips(ctx, verb, n) }})
			t.checks = append(t.checks, report.Check{Label: strings.ReplaceAll(name, " ", "-"), Of: name, By: report.Trips, AtMost: 1})
		}
	}
	return t, nil
}

func (b *bench) trips(ctx context.Context, verb string, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := ours.Fill(ctx, db, n+1, noop); err != nil {
		return nil, err
	}
	var wire lab.Wire
	pool, err := db.Pool(ctx, 1, wire.Tap)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	once := func(n int) (float64, error) {
		before := wire.Trips()
		claims, err := claimed(ctx, pool, n)
		if err == nil && len(claims) != n {
			err = fmt.Errorf("%d of %d rows were claimed", len(claims), n)
		}
		between := wire.Trips()
		if err == nil {
			err = finish(ctx, pool, claims)
		}
		if verb == "claim" {
			return float64(between - before), err
		}
		return float64(wire.Trips() - between), err
	}
	if _, err := once(1); err != nil { // it prepares the statements
		return nil, err
	}
	trips, err := once(n)
	return report.Sample{report.Trips: trips}, err
}

// finish commits the ends of claims as one batch.
func finish(ctx context.Context, pool *pgxpool.Pool, claims []*step.Claim) error {
	entries := make([]store.Entry, len(claims))
	for i, c := range claims {
		entries[i] = store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{"ok":true}`)}}
	}
	done, err := store.New(entpgx.New(pool), "gendurable").Commit(ctx, bencher, uuid.NewString(), entries, 0)
	if err == nil && len(done.Applied) != len(claims) {
		err = fmt.Errorf("%d of %d outcomes were applied", len(done.Applied), len(claims))
	}
	return err
}
