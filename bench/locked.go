package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/ceiling"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// drainLocked is L1: the gain of steps without a durable claim. Jobs are drained without an engine,
// by one and by two workers (the better counts): by its statements, a claim and a commit for each
// batch; and under the row locks of one transaction that ends with the update of the outcomes, so
// that a row is written once: bare, and guarded by what an engine needs around that (see
// ceiling.Locked). No step runs: in the engine, its own share of a job comes on top on both sides.
func drainLocked(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000)
	t := &trial{contenders: []contender{
		{"ours", func(ctx context.Context) (report.Sample, error) {
			return b.drainOurs(ctx, "L1", n, ours.Options{Concurrency: b.workers})
		}},
	}}
	for _, size := range []int{50, 500} {
		claimed := fmt.Sprint("claimed ", size)
		t.contenders = append(t.contenders, contender{claimed, func(ctx context.Context) (report.Sample, error) {
			return b.drainBare(ctx, n, func(ctx context.Context, pool *pgxpool.Pool, workers int) error {
				return drainByStore(ctx, pool, workers, size)
			})
		}})
		for _, guarded := range []bool{false, true} {
			name := fmt.Sprint("locked ", size)
			if guarded {
				name = fmt.Sprint("guarded ", size)
			}
			t.contenders = append(t.contenders, contender{name, func(ctx context.Context) (report.Sample, error) {
				return b.drainBare(ctx, n, func(ctx context.Context, pool *pgxpool.Pool, workers int) error {
					return ceiling.Locked(ctx, pool, workers, size, guarded)
				})
			}})
			t.checks = append(t.checks, report.Check{Label: name, Of: name, Against: claimed, By: report.Rate})
		}
	}
	return t, nil
}

// drainBare measures a drain by one worker and by two; the better one counts.
func (b *bench) drainBare(ctx context.Context, n int, drain func(ctx context.Context, pool *pgxpool.Pool, workers int) error) (report.Sample, error) {
	return best([]int{1, 2}, func(workers int) (report.Sample, error) {
		db, err := b.database(ctx, "ceiling", ours.Migrate, ours.Clear)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(b.lab.Checkpoint(ctx), db.Exec(ctx, ceiling.BatchesSQL), ours.Fill(ctx, db, n, noop), ours.Settle(ctx, db)); err != nil {
			return nil, err
		}
		pool, err := ceiling.LockedPool(ctx, db, workers)
		if err != nil {
			return nil, err
		}
		sample, err := b.measure(ctx, db, n, func(ctx context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { pool.Close(); return nil }, drain(ctx, pool, workers)
		})
		return sample, errors.Join(err, ours.Check(ctx, db, n))
	})
}

// drainByStore claims and commits by the engine's statements.
func drainByStore(ctx context.Context, pool *pgxpool.Pool, workers, size int) error {
	s := store.New(entpgx.New(pool), engine.DefaultSchema)
	var all sync.WaitGroup
	var mu sync.Mutex
	var last store.Place
	errs := make([]error, workers)
	for i := range errs {
		worker := uuid.NewString()
		all.Go(func() {
			for errs[i] == nil {
				mu.Lock()
				after := last
				mu.Unlock()
				got, err := s.Claim(ctx, store.ClaimParams{Queue: "default", Worker: worker, Machines: []string{store.MachineID("noop", 1)},
					Limit: size, Window: size, Lease: time.Minute, After: after})
				if errs[i] = err; err != nil || len(got.Claims) == 0 {
					return
				}
				mu.Lock()
				if got.Last.Compare(last) > 0 {
					last = got.Last
				}
				mu.Unlock()
				entries := make([]store.Entry, len(got.Claims))
				for k, c := range got.Claims {
					entries[k] = store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: []byte(`{"ok":true}`)}}
				}
				errs[i] = commitAll(ctx, s, worker, entries)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// commitAll commits entries, those again that were left out: the other worker's claim may have
// locked a row that it found claimed.
func commitAll(ctx context.Context, s *store.Store, worker string, entries []store.Entry) error {
	for len(entries) > 0 {
		done, err := s.Commit(ctx, worker, uuid.NewString(), entries, 0)
		if err != nil {
			return err
		}
		entries = slices.DeleteFunc(entries, func(e store.Entry) bool { return done.Applied[e.Claim.ID] })
	}
	return nil
}
