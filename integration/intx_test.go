package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A booking waits for its order, and books it in its own transaction: a row of the application, an
// outcome that consumes signals, children, and a signal to the ledger.
type order struct {
	Outcome string
	Written string // only the application's row has it
	Decided string // only the outcome has it
	Gate    string
}

var (
	bookingMachine = fsm.Declare[order, string]("booking")
	ledgerMachine  = fsm.Declare[string, string]("ledger", fsm.Queue("nobody's"))
	ordered        = fsm.DeclareSignal[order]("ordered")
	booked         = fsm.DeclareSignal[string]("booked")
)

// ledger is the key of the one ledger.
const ledger = fsm.Key("ledger")

func (d deeds) bookings() fsm.Definition {
	type visit = fsm.Visit[order, string]
	return bookingMachine.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Await("book", v.State, ordered), nil
		}),
		fsm.Step("book", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			o, ok, err := ordered.First(v)
			if err != nil || !ok {
				return nil, fmt.Errorf("no order: %w", err)
			}
			return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
				if _, err := tx.Exec(ctx, `INSERT INTO bookings VALUES ($1, $2, $3)`, v.ID, o.Written, v.Attempt); err != nil {
					return nil, err
				}
				if err := d.pass(ctx, o.Gate); err != nil {
					return nil, err
				}
				if _, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, ledger, booked.With("")); err != nil {
					return nil, err
				}
				switch state := (order{Decided: o.Decided}); o.Outcome {
				case "done":
					return v.Done(o.Decided), nil
				case "await":
					return v.Await("end", state, ordered), nil // it is there still: Await consumes nothing
				case "children":
					return v.ScheduleChildren("end", state, deedMachine.New(deed{}), deedMachine.New(deed{}).Key("k"), deedMachine.New(deed{}).Key("k")), nil
				default:
					return v.Next("end", state), nil
				}
			}), nil
		}),
		fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Done(fmt.Sprint(len(v.Children()), " ", len(v.Awaited()))), nil
		})).OnError(func(ctx context.Context, v *visit, err error) (fsm.Outcome, error) {
		//gendurable:ignore effect each call leaves a trace of its own
		if _, traced := d.pool.Exec(ctx, `INSERT INTO handled VALUES ($1, $2)`, v.ID, err.Error()); traced != nil {
			return nil, traced
		}
		return v.Fail(err), nil
	})
}

// points are in a step's own transaction, by their text on the wire. BEGIN and COMMIT are simple
// queries, unlike all other statements of the engine: a byte for the kind and four for the length
// stand before the text.
var points = []struct {
	name  string
	text  func(o order) string
	after bool
}{
	{"begin", func(order) string { return "Q\x00\x00\x00\x29BEGIN ISOLATION" }, false},
	{"write", func(o order) string { return o.Written }, false},
	{"outcome", func(o order) string { return o.Decided }, false},
	{"commit", func(order) string { return "Q\x00\x00\x00\x0bcommit" }, false},
	{"answer of the commit", func(o order) string { return o.Written }, true},
}

// ordering starts one booking.
func (s *scene) ordering(outcome string) (id fsm.ID, o order) {
	s.t.Helper()
	insert(s.t, s.eng, ledgerMachine.New("").Key(ledger))
	id = insert(s.t, s.eng, bookingMachine.New(order{}))
	eventually(s.t, func() bool { return get(s.t, s.eng, id).Status == fsm.StatusAwaitingSignal })
	return id, order{Outcome: outcome, Written: marked("write"), Decided: marked("decision")}
}

func (s *scene) send(id fsm.ID, o order) {
	s.t.Helper()
	_, err := s.eng.Signal(s.t.Context(), id, ordered.With(o))
	require.NoError(s.t, err)
}

// bookedOnce requires that everything of the booking took effect, once.
func (s *scene) bookedOnce(id fsm.ID, o order) {
	s.t.Helper()
	i := ended(s.t, s.eng, id)
	require.Equal(s.t, fsm.StatusDone, i.Status, i.LastError)
	require.Equal(s.t, map[string]string{"done": `"` + o.Decided + `"`, "await": `"0 1"`, "children": `"2 0"`, "next": `"0 0"`}[o.Outcome], string(i.Result))
	require.Equal(s.t, []int64{int64(id), 1}, []int64{query[int64](s.t, s.pool, `SELECT max(instance) FROM bookings`), query[int64](s.t, s.pool, `SELECT count(*) FROM bookings`)})
	require.Equal(s.t, 1, query[int](s.t, s.pool, `SELECT count(*) FROM gendurable.signals`), "the ledger's")
	require.Equal(s.t, map[string]int{"children": 2}[o.Outcome], query[int](s.t, s.pool, `SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1`, id))
	s.noneHandled()
}

// The connection is cut at each point. All of the transaction takes effect or nothing does; then
// the whole step runs again. In the end everything is there once.
func TestAStepsOwnTransactionThatIsCutOffTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"next", "await", "children", "done"} {
		for _, point := range points {
			t.Run(outcome+", "+point.name, func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				s := newScene(t, database)
				p, url := newProxy(t, database)
				c := configOn(t, url, nil...)
				c.Machines = deeds{s.pool}.definitions()
				start(t, c)
				id, o := s.ordering(outcome)
				cutting := p.cut(point.text(o), point.after)
				s.send(id, o)
				s.bookedOnce(id, o)
				cutting.happened(t)
				require.Zero(t, query[int](t, s.pool, `SELECT max(attempt) FROM bookings`), "the attempt is that of the claim")
				require.Zero(t, get(t, s.eng, id).Crashes)
			})
		}
	}
}

// The process is killed at each point, and another one takes over.
func TestAStepsOwnTransactionWhoseProcessIsKilledTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for _, point := range points {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.Migrated(t)
			s := newScene(t, database)
			p, url := newProxy(t, database)
			first := spawn(t, role{URL: url, Lease: short()})
			id, o := s.ordering("children")
			killing := p.at(point.text(o), point.after, first.kill)
			s.send(id, o)
			<-killing.made
			committed := query[int](t, s.pool, `SELECT count(*) FROM bookings`)
			require.Equal(t, point.after, committed == 1)
			spawn(t, role{URL: database, Lease: short()})
			s.bookedOnce(id, o)
		})
	}
}

// A process stalls in the middle of its step's own transaction until its lease has run out and
// another process has done the work. The transaction of the zombie is never committed.
func TestAZombiesOwnTransactionIsNotCommitted(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	s := newScene(t, database)
	p, url := newProxy(t, database)
	stalled := spawn(t, role{URL: url, Lease: short()})
	id, o := s.ordering("next")
	freezing := p.at(o.Written, false, stalled.freeze)
	freezing.let = true
	s.send(id, o)
	<-freezing.made
	spawn(t, role{URL: database, Lease: short()})
	s.bookedOnce(id, o)
	require.Equal(t, 1, query[int](t, s.pool, `SELECT max(attempt) FROM bookings`), "the successor's")
	stalled.thaw()
	// It notices that its lease is lost, or its outcome is refused; either way its transaction ends.
	eventually(t, func() bool {
		return query[int](t, s.pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
	})
	require.Equal(t, "<nil>", stalled.terminate())
	s.bookedOnce(id, o)
}
