package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
)

// attempt is a test that a verb may fail, since a row that it needs is held.
type attempt struct {
	testing.TB

	mu     sync.Mutex
	failed string
}

func (a *attempt) Helper() {}

func (a *attempt) Errorf(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed += fmt.Sprintf(format, args...)
}

func (a *attempt) FailNow() { panic(a) }

// try runs what may fail, and returns why it did.
func try(t testing.TB, run func(testing.TB)) (failed string) {
	a := &attempt{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(a) {
			panic(r)
		}
		failed = a.failed
	}()
	run(a)
	return a.failed
}

// needed are the rows around a scene that another session holds, each by itself.
var needed = []struct {
	name string
	rows string // @row, @parent: its parent, @behind: the next row of its partition key
	next bool   // it is what waits behind the row
}{
	{"the row", `SELECT FROM gendurable.gen_durable WHERE id = @row FOR UPDATE`, false},
	{"its parent", `SELECT FROM gendurable.gen_durable WHERE id = @parent FOR UPDATE`, false},
	{"the next of its key", `SELECT FROM gendurable.gen_durable WHERE id = @behind FOR UPDATE`, true},
	{"its children", `SELECT FROM gendurable.gen_durable WHERE parent_id = @row FOR UPDATE`, false},
	{"its siblings", `SELECT FROM gendurable.gen_durable WHERE parent_id = @parent AND id <> @row FOR UPDATE`, false},
	{"its inbox", `SELECT FROM gendurable.signals WHERE target_id = @row FOR UPDATE`, false},
	{"its edges", `SELECT FROM gendurable.edges WHERE (from_id = @row OR to_id = @row) FOR UPDATE`, false},
}

// inFlight has the pipelines that a store has sent, and that have not been answered yet. It also
// knows whether a transaction that the store has begun has limits.
type inFlight struct {
	mu      sync.Mutex
	all     map[*entpgx.Stmt][]entpgx.Stmt
	limited bool
}

func (f *inFlight) around(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
	if len(stmts) > 0 {
		f.mu.Lock()
		f.all[&stmts[0]] = stmts
		f.limited = limits(stmts) || f.limited && stmts[0].SQL != beginning
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.all, &stmts[0])
		}()
	}
	return send(ctx)
}

// beginning is the text of the statement that begins each transaction.
const beginning = `BEGIN ISOLATION LEVEL READ COMMITTED`

// limits reports whether statements set limits to how long they wait and run.
func limits(stmts []entpgx.Stmt) bool {
	return slices.ContainsFunc(stmts, func(s entpgx.Stmt) bool {
		return s.Name == "settings" && len(s.Args) >= 2 && s.Args[0] != "0" && s.Args[1] != "0"
	})
}

// unbounded lists what waits in a transaction that has set no limits.
func (f *inFlight) unbounded() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, stmts := range f.all {
		for _, s := range stmts {
			if !f.limited {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

// Each transition meets another session that holds one kind of the rows around it. It may wait,
// within limits, or leave the row out, or need nothing of it; once the row is free, it has made of
// every column what it makes beside no other session: at once, or when its caller sends it again.
func TestVerbsThatNeedAHeldRow(t *testing.T) {
	t.Parallel()
	notOnCitus(t)
	picked := sampled(t, 6, 3)
	var flying inFlight
	flying.all = map[*entpgx.Stmt][]entpgx.Stmt{}
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	on := store.New(entpgx.New(pool).Around(flying.around), schema)
	b := bench{Store: on, Reader: query.New(on), t: t, pool: pool}
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	n, waits, skips := 0, 0, 0
	for _, g := range matrix {
		for _, x := range g.transitions {
			// The scenes of the one share a gate, and each keeps a place there; the scenes of the other
			// insert under one uid.
			if x.name == "claim from the line" || x.name == "insert" {
				continue
			}
			for _, slow := range []bool{false, true} {
				if slow && x.outcome == nil {
					continue
				}
				for _, what := range needed {
					if !picked() {
						continue
					}
					t.Run(fmt.Sprintf("%s, slow %t, beside %s", x.name, slow, what.name), func(t *testing.T) {
						b.t = t
						s := b.newScene(&x)
						tx, err := conn.Begin(t.Context())
						require.NoError(t, err)
						defer func() { _ = tx.Rollback(context.Background()) }()
						tag, err := tx.Exec(t.Context(), what.rows, pgx.NamedArgs{"row": s.id, "parent": s.parent, "behind": s.behind})
						require.NoError(t, err)
						if tag.RowsAffected() == 0 {
							return
						}
						n++
						waited, skipped := s.meet(&x, slow, tx, &flying, what.next)
						waits, skips = waits+waited, skips+skipped
					})
				}
			}
		}
	}
	t.Logf("%d meetings of a verb and a held row that it may need: %d waited, %d were sent again", n, waits, skips)
	require.NotZero(t, waits)
	require.NotZero(t, skips)
}

// meet lets a transition happen beside another session, which goes when the transition waits or has
// ended.
func (s *scene) meet(x *transition, slow bool, stranger pgx.Tx, flying *inFlight, passedBy bool) (waited, again int) {
	t := s.t
	s.was, s.from = s.photograph(), s.clock()
	over := make(chan string, 1)
	go func() {
		over <- try(t, func(t testing.TB) {
			s.t = t
			s.happen(x, slow)
		})
	}()
	pid, failed := stranger.Conn().PgConn().PID(), ""
	steady.Eventually(t, func() bool {
		select {
		case failed = <-over:
			return true
		default:
		}
		var blocked bool
		require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND $1 = ANY(pg_blocking_pids(pid)))`, int32(pid)).Scan(&blocked)) //nolint:gosec // as Postgres has it
		if !blocked {
			return false
		}
		waited = 1
		return true
	}, "it neither ends nor waits for the stranger")
	if waited == 1 {
		require.Empty(t, flying.unbounded(), "it waits for the stranger without a limit")
		require.NoError(t, stranger.Rollback(context.Background()))
		failed = <-over
	}
	_ = stranger.Rollback(context.Background())
	s.t = t
	if _, moves := x.makes[itsNext]; moves && passedBy {
		// It has told its caller that it has passed by the next of the key, and the caller settles that
		// then.
		_, err := s.Promote(t.Context(), []string{s.key()})
		require.NoError(t, err)
	}
	made := func(t testing.TB) {
		s.t = t
		s.until = s.clock()
		s.require(x, s.photograph())
	}
	if try(t, made) != "" {
		again = 1
		s.mark = newMark()
		failed += try(t, func(t testing.TB) {
			s.t = t
			s.happen(x, slow)
		})
		s.t = t
	}
	if why := try(t, made); why != "" {
		require.Fail(t, why, failed)
	}
	return waited, again
}
