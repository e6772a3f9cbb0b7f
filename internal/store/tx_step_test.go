package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// written counts the rows that functions of steps' own transactions have written.
func (b bench) written() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM public.written`)
}

// transact commits an entry in a step's own transaction, in which its function writes a row first.
func (b bench) transact(worker, mark string, e store.Entry, meanwhile func()) (store.Transacted, error) {
	b.t.Helper()
	ctx := b.t.Context()
	return b.Transact(ctx, ctx, worker, mark, e.Claim, 0, func(tx any) (store.Entry, error) {
		_, err := tx.(pgx.Tx).Exec(ctx, `INSERT INTO public.written VALUES (1)`)
		if meanwhile != nil {
			meanwhile()
		}
		return e, err
	})
}

func newWriter(t *testing.T) bench {
	t.Helper()
	b := newBench(t)
	b.exec(`CREATE TABLE public.written (n int)`)
	return b
}

// A step's own transaction changes the row like any other commit.
func TestEveryOutcomeInAStepsOwnTransaction(t *testing.T) {
	b := newWriter(t)
	n := 0
	for _, g := range matrix {
		for _, x := range g.transitions {
			if x.outcome == nil {
				continue
			}
			n++
			t.Run(x.name, func(t *testing.T) {
				b.t = t
				s := b.newScene(&x)
				e := s.entry(&x)
				s.require(&x, s.run(func() {
					got, err := b.transact(me, s.mark, e, nil)
					require.NoError(t, err)
					require.True(t, got.Begun)
					require.True(t, got.Decided)
					require.True(t, got.Applied[s.id])
				}))
				require.Equal(t, n, b.written())
			})
		}
	}
	require.Greater(t, n, 10)
}

// T13, T14: a claim that is over does not begin. If a claim is lost while its function runs,
// neither the outcome nor the function changes anything.
func TestAStaleClaimsOwnTransactionWritesNothing(t *testing.T) {
	b, picked := newWriter(t), sampled(t, 4, 2)
	for _, how := range stalenesses {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, early %t", how.name, early), func(t *testing.T) {
				for _, g := range outcomes {
					for _, x := range g.transitions {
						if !picked() {
							continue
						}
						b.t = t
						b.exec(`DELETE FROM gendurable.gen_durable`)
						s := b.newScene(&x)
						e := s.entry(&x)
						worker, called, before := me, false, ""
						lose := func() { how.stale(s); before = b.everything() }
						if early {
							worker = how.worker
							lose()
						} else if how.worker != me {
							lose = func() {
								b.exec(`UPDATE gendurable.gen_durable SET locked_by = $1 WHERE id = $2`, how.worker, s.id)
								before = b.everything()
							}
						}
						got, err := b.transact(worker, s.mark, e, func() {
							if called = true; !early {
								lose()
							}
						})
						require.NoError(t, err, x.name)
						require.Empty(t, got.Applied, x.name)
						require.Equal(t, !early, called, x.name)
						require.Equal(t, before, b.everything(), x.name)
						require.Zero(t, b.written(), x.name)
					}
				}
			})
		}
	}
}

// T28: the COMMIT gets no answer, and the mark reveals its fate.
func TestAStepsOwnTransactionWithoutAnswer(t *testing.T) {
	b := newWriter(t)
	x := outcomes[0].transitions[0]
	s := b.newScene(&x)
	e := s.entry(&x)
	got, err := b.cutting().transact(me, s.mark, e, nil)
	require.Error(t, err)
	require.True(t, store.Unknown(err))
	require.True(t, got.Decided)
	verdict, err := b.Resolve(t.Context(), me, eachOf([]store.Entry{e}, s.mark), []store.Entry{e}, 0)
	require.NoError(t, err)
	require.Equal(t, map[int64]store.Verdict{s.id: store.Mine}, verdict)
	require.Equal(t, 1, b.written())
}

// An error before the COMMIT is never unknown, whatever broke: nothing was committed.
func TestAStepsOwnTransactionThatBreaksBeforeItsCommit(t *testing.T) {
	b := newWriter(t)
	x := outcomes[0].transitions[0]
	s := b.newScene(&x)
	e := s.entry(&x)
	before := b.everything()
	ctx, cancel := context.WithCancel(t.Context())
	got, err := b.Transact(t.Context(), ctx, me, s.mark, e.Claim, 0, func(tx any) (store.Entry, error) {
		_, err := tx.(pgx.Tx).Exec(t.Context(), `INSERT INTO public.written VALUES (1)`)
		cancel()
		return e, err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, got.Decided)
	require.False(t, store.Unknown(err))
	require.Equal(t, before, b.everything())

	got, err = b.Transact(t.Context(), t.Context(), me, s.mark, e.Claim, 0, func(tx any) (store.Entry, error) {
		b.exec(`SELECT pg_terminate_backend($1::int)`, tx.(pgx.Tx).Conn().PgConn().PID())
		_, err := tx.(pgx.Tx).Exec(t.Context(), `INSERT INTO public.written VALUES (1)`)
		return e, err
	})
	require.Error(t, err)
	require.True(t, got.Lost)
	require.False(t, got.Decided)
	require.False(t, store.Unknown(err))
	require.Zero(t, b.written())
	require.Equal(t, before, b.everything())
}

// T9: another session holds the row when the outcome arrives. The result is a lock timeout, and
// nothing is written.
func TestAStepsOwnTransactionBehindAStranger(t *testing.T) {
	b := newWriter(t)
	x := outcomes[0].transitions[0]
	s := b.newScene(&x)
	e := s.entry(&x)
	tx := b.begin()
	b.inTx(tx, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, s.id)
	_, err := b.transact(me, s.mark, e, nil)
	require.True(t, store.IsLockTimeout(err))
	require.False(t, store.Unknown(err))
	require.Zero(t, b.written())
	require.NoError(t, tx.Rollback(t.Context()))
	got, err := b.transact(me, s.mark, e, nil)
	require.NoError(t, err)
	require.True(t, got.Applied[s.id])
	require.Equal(t, 1, b.written())
}

func TestWhatMayPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"40001": true, "40P01": true, "55P03": true, "57P01": true, "57014": true, "53300": true, "08006": true, "25006": true,
		"25P02": false, "P0001": false, "23505": false, "22012": false, "42P01": false, "XX000": false, "0A000": false,
	} {
		require.Equal(t, want, store.MayPass(fmt.Errorf("book: %w", &pgconn.PgError{Code: code})), code)
	}
	require.False(t, store.MayPass(errors.New("insufficient funds")))
	require.False(t, store.MayPass(nil))
}

// A function waits for a lock as long as the engine lets it, unless its role says how long.
func TestAStepsOwnTransactionWaitsForLocksInTime(t *testing.T) {
	b := newBench(t)
	limit := func(b bench, tries int) (text string) {
		s := b.newScene(&transition{from: "executing"})
		got, err := b.Transact(t.Context(), t.Context(), me, s.mark, s.claim, tries, func(tx any) (store.Entry, error) {
			err := tx.(pgx.Tx).QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&text)
			return store.Entry{Claim: s.claim, Commit: ending(step.Done)}, err
		})
		require.NoError(t, err)
		require.True(t, got.Applied[s.id])
		return text
	}
	for tries, want := range []string{"1s", "2s", "4s", "5s", "5s"} {
		require.Equal(t, want, limit(b, tries))
	}
	own := b.beside(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "7s" })
	require.Equal(t, "7s", limit(own, 0))
}
