package model_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	schema   = "gendurable"
	lease    = time.Minute
	inboxCap = 4               // small, so that histories reach it
	patience = 2 * time.Minute // for one statement, which waits for nobody
)

// clockSQL gives the database a clock that stands still unless it is set. Functions of a schema
// that is before pg_catalog in the search_path hide the built-in ones, and the engine's statements
// name clock_timestamp() without a schema. So every time in the tables can be predicted to the
// microsecond, and ties, which a real clock hardly ever makes, are common.
const clockSQL = `
CREATE SCHEMA clock;
CREATE SEQUENCE clock.hand MINVALUE 0;
CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
  RETURN timestamptz '2030-01-01 00:00Z' + pg_sequence_last_value('clock.hand') * interval '1 microsecond';
CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
  RETURN clock.clock_timestamp();
ALTER TABLE gendurable.gen_durable ALTER inserted_at SET DEFAULT clock.clock_timestamp();`

var beginning = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func moment(t *time.Time) model.Moment {
	if t == nil {
		return model.Never
	}
	return model.Moment(t.Sub(beginning))
}

func at(m model.Moment) time.Time {
	if m == model.Never {
		return time.Time{}
	}
	return beginning.Add(time.Duration(m))
}

// world is a database with the real store, on which histories run one after another.
type world struct {
	*store.Store
	pool     *pgxpool.Pool
	line     *store.Line
	stranger *pgx.Conn
	keeper   *pgx.Conn // of liveness locks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := pgtest.Migrated(t)
	_, err := pgtest.Pool(t, url).Exec(t.Context(), clockSQL)
	require.NoError(t, err)
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["search_path"] = "clock, pg_catalog"
		c.ConnConfig.RuntimeParams["timezone"] = "UTC"
	})
	w := &world{Store: store.New(entpgx.New(pool), schema), pool: pool}
	w.line = w.Line()
	w.stranger, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	w.keeper, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = w.keeper.Close(context.Background())
		_ = w.line.Close(context.Background())
		_ = w.stranger.Close(context.Background())
	})
	return w
}

// pair is one history: the model and the real store, to which the same things happen, with maps
// from the identities of the one to the identities of the other. Each of its verbs does one
// operation to both and compares their answers.
type pair struct {
	require.TestingT
	*world
	model model.World

	// unknowing is of a process that does not know of kept signals. Each history has its own: one of
	// the history before would know its gates for some seconds, and put rows in line at gates that are
	// gone, while no worker claims from lines in a history without gates.
	unknowing *store.Store

	ids     map[model.ID]int64 // in the database
	models  map[int64]model.ID
	tokens  map[int64]int64 // in the database → in the model
	newest  int64           // in the database
	lastUID int
	last    map[string]store.Place // of the newest claim of each queue
	alive   map[string]bool        // workers whose liveness lock somebody holds
	missed  map[string]bool        // partition keys whose head was held when it should have come forward
	pulse   model.Moment           // when the schedule is due next
	gated   bool                   // there are gates, or were
	lines   store.Turn

	logf func(format string, args ...any) // logs the operations of the history
}

// claim is a claim of both. An actor holds it, or a process that died has forgotten it.
type claim struct {
	model.Claim
	real *step.Claim
}

type logger interface {
	require.TestingT
	Logf(format string, args ...any)
}

func newPair(t logger, w *world) *pair {
	p := &pair{TestingT: t, logf: t.Logf, world: w, ids: map[model.ID]int64{}, models: map[int64]model.ID{}, tokens: map[int64]int64{0: 0},
		missed: map[string]bool{}, alive: map[string]bool{}, last: map[string]store.Place{},
		unknowing: store.New(entpgx.New(w.pool), schema)}
	p.rollBack()
	p.exec(`TRUNCATE gendurable.gen_durable, gendurable.signals, gendurable.schedules, gendurable.paused_queues, gendurable.lost_claims, gendurable.gates,
		gendurable.gate_keys, gendurable.kept_signals, gendurable.edges`)
	p.setClock()
	p.declare()
	p.record("")
	ctx, cancel := p.context()
	defer cancel()
	_, err := w.keeper.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	require.NoError(t, err)
	_, err = p.Poll(ctx, queues, nil, nil) // it forgets the gates of the history before
	require.NoError(t, err)
	return p
}

func (p *pair) exec(sql string, args ...any) {
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.pool.Exec(ctx, sql, args...)
	require.NoError(p, err, sql)
}

func (p *pair) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func (p *pair) setClock() {
	p.exec(`SELECT setval('clock.hand', $1)`, time.Duration(p.model.Now).Microseconds())
}

// advance lets time pass.
func (p *pair) advance(d time.Duration) {
	p.logf("advance(%v)", d)
	p.model.Advance(d)
	p.setClock()
}

func (p *pair) uid() int {
	p.lastUID++
	return p.lastUID
}

// realUID makes a uid with the number in its tail, and a head that does not follow the order of
// insertion.
func realUID(n int) (uid [16]byte) {
	uid[0] = byte(n * 167)
	binary.BigEndian.PutUint64(uid[8:], uint64(n))
	return uid
}

func modelUID(uid [16]byte) int {
	return int(binary.BigEndian.Uint64(uid[8:]))
}

// met notes the database row of an instance.
func (p *pair) met(id model.ID, row int64) {
	if known, ok := p.ids[id]; ok {
		require.Equal(p, known, row, "row of instance %d", id)
		return
	}
	p.ids[id], p.models[row] = row, id
}

func realSpec(s *model.Spec) *step.Spec {
	var labels []byte
	if s.Label != "" {
		labels = []byte(`{"c": "` + s.Label + `"}`)
	}
	return &step.Spec{
		Labels: labels, UID: realUID(s.UID), Machine: s.Machine.Name, Version: s.Machine.Version, Step: s.Step, Queue: s.Queue, OfRoot: s.Queue == "",
		Priority: int16(s.Priority), State: []byte(s.State), Key: s.Key, Scope: step.Scope(s.Scope), PartitionKey: s.PartitionKey,
		Delay: s.Delay, At: at(s.At), Deadline: s.Life,
	}
}

func realCommit(o *model.Outcome) *step.Commit {
	c := &step.Commit{Step: o.Step, Delay: o.Delay, At: at(o.At), Timeout: o.Timeout, Names: o.Names, Err: o.Err, Failure: o.Failure, Unbegun: o.Unbegun}
	c.Kind = map[model.Kind]step.Kind{model.Next: step.Next, model.Retry: step.Retry, model.Await: step.Await,
		model.ScheduleChildren: step.Children, model.Finish: step.Done, model.Fail: step.Fail, model.Again: step.Again, model.Rejoin: step.Rejoin}[o.Kind]
	if o.State != "" {
		c.State = []byte(o.State)
	}
	if len(o.Unless) > 0 {
		c.Unless = &step.Unless{Names: o.Unless, Step: o.Step, State: c.State}
		c.Step, c.State = "", nil
	}
	if o.Result != "" {
		c.Result = []byte(o.Result)
	}
	if j := o.Policy; j != nil {
		c.Join = &step.Join{Done: j.Quorum, Failed: j.Failures, Ended: j.Ends, Names: o.Names, Timeout: o.Timeout, At: c.At, Cancel: j.CancelRest,
			Stream: j.Stream}
		c.Names, c.Timeout, c.At = nil, 0, time.Time{}
	}
	for n := range o.Children {
		c.Spawn = append(c.Spawn, *realSpec(&o.Children[n]))
	}
	if g := o.Graph; g != nil {
		c.Graph = &step.Graph{Nodes: g.Nodes, Quorum: g.Any}
		for _, l := range g.Edges {
			c.Graph.Edges = append(c.Graph.Edges, step.Edge{From: l.From, To: l.To, Needs: step.Need(l.Needs)})
		}
	}
	if o.Add != nil {
		c.Add = realAdditions(o.Add)
	}
	return c
}

// seen is a claim in the form that a worker sees, without the values that differ between model and
// database.
type seen struct {
	ID           model.ID
	UID          int
	Machine      model.Machine
	Step         string
	Queue        string
	Priority     int
	Key          string
	PartitionKey string
	State        string
	Attempt      int
	Crashes      int
	Visit        int64
	Parent       model.ID
	Node         string
	ParentRound  int64
	Depth        int
	Round        int64
	TimedOut     bool
	Awaited      []string
	Dropped      []model.Dropped
	Expiry       model.Moment
	Lingers      bool
}

func seenModel(c *model.Claim) seen {
	s := seen{
		ID: c.ID, UID: c.UID, Machine: c.Machine, Step: c.Step, Queue: c.Queue, Priority: c.Priority, Key: c.Key,
		PartitionKey: c.PartitionKey, State: c.State, Attempt: c.Attempt, Crashes: c.Crashes, Visit: c.Visit, Parent: c.Parent,
		ParentRound: c.ParentRound, Depth: c.Depth, Round: c.Round, TimedOut: c.TimedOut, Expiry: c.Expiry,
		Lingers: c.Lingers, Node: c.Node,
	}
	if c.Joins() { // only the joining step reads it
		s.Dropped = c.Dropped
	}
	for _, g := range c.Awaited {
		s.Awaited = append(s.Awaited, g.Name+" "+g.Payload+" "+g.DedupKey)
	}
	return s
}

func (p *pair) seenReal(c *step.Claim) seen {
	s := seen{
		ID: p.models[c.ID], UID: modelUID(c.UID), Machine: model.Machine{Name: c.Machine, Version: c.Version}, Step: c.Step, Queue: c.Queue,
		Priority: c.Priority, Key: c.CorrelationKey, PartitionKey: c.PartitionKey, State: string(c.State), Attempt: c.Attempt,
		Crashes: c.Crashes, Visit: c.Visit, Parent: p.models[c.Parent], ParentRound: c.ParentRound, Depth: c.Depth, Round: c.Round,
		TimedOut: c.TimedOut, Expiry: model.Never, Lingers: c.Lingers, Node: c.Node,
	}
	if !c.Deadline.IsZero() {
		s.Expiry = moment(&c.Deadline)
	}
	for _, g := range c.Awaited {
		s.Awaited = append(s.Awaited, g.Name+" "+string(g.Payload)+" "+g.DedupKey)
	}
	for _, d := range c.Dropped {
		s.Dropped = append(s.Dropped, model.Dropped{Index: d.Index, Key: d.Key, Occupant: p.models[d.Occupant]})
	}
	return s
}

// mark returns the mark of a new batch.
func mark() string { return uuid.NewString() }

func number(n int) string { return strconv.Itoa(n) }

// brief formats a value without its zero fields.
func brief(of any) string {
	v := reflect.ValueOf(of)
	var parts []string
	switch v.Kind() {
	case reflect.String:
		if v.Len() > 100 {
			return fmt.Sprintf("%.20s… (%d bytes)", v.String(), v.Len())
		}
		return v.String()
	case reflect.Slice:
		for n := range v.Len() {
			parts = append(parts, brief(v.Index(n).Interface()))
		}
	case reflect.Struct:
		for n := range v.NumField() {
			if f := v.Field(n); !f.IsZero() && f.Interface() != any(model.Never) {
				parts = append(parts, v.Type().Field(n).Name+":"+brief(f.Interface()))
			}
		}
	default:
		return fmt.Sprint(of)
	}
	return "{" + strings.Join(parts, " ") + "}"
}
