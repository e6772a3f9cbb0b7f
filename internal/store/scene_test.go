package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	me    = "11111111-1111-4111-8111-111111111111" // the worker that holds the claims
	other = "22222222-2222-4222-8222-222222222222" // another worker
	lease = time.Minute
)

func newMark() string { return uuid.NewString() }

// columns are the columns of a fixture, as SQL expressions. $n is the scene's number.
type columns map[string]string

// with returns a copy in which more replaces some columns.
func (c columns) with(more columns) columns {
	out := maps.Clone(c)
	maps.Copy(out, more)
	return out
}

// insert inserts the row and returns its id.
func (b bench) insert(c columns) (id int64) {
	b.t.Helper()
	names := slices.Sorted(maps.Keys(c))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = c[n]
	}
	sql := `INSERT INTO gendurable.gen_durable (` + strings.Join(names, ", ") + `) VALUES (` + strings.Join(values, ", ") + `) RETURNING id`
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), byHand(sql)).Scan(&id), sql)
	return id
}

// usual is a row in which every column differs from its default if it may, so that a test notices
// when a transition touches a column that it should not.
var usual = columns{
	"fsm": `'machine'`, "fsm_version": `3`, "step": `'here'`, "state": `'{"state": "old"}'`, "result": `'{"result": "old"}'`,
	"awaits": `'{go,late}'`, "timed_out": `true`, "priority": `7`, "eligible_at": `now() - interval '1 hour'`,
	"attempt": `4`, "crashes": `3`, "last_error": `'old error'`, "visit": `11`, "claim_token": `41`, "commit_id": `gen_random_uuid()`,
	"inserted_at": `now() - interval '1 day'`, "updated_at": `now() - interval '2 hours'`,
	"round": `9`, "children_pending": `2`, "dropped": `'[{"index": 4, "key": "old", "occupant": 1}]'`, "parent_round": `6`, "depth": `2`,
	"correlation_scope": liveScope, "errors": `'[{"error": "old error"}]'`, "deadline": `now() + interval '1 day'`, "gate": `'gate/' || gen_random_uuid()`, "place": `4`,
	"seat": `4`, "run_gate": `'run/' || gen_random_uuid()`, "run_place": `4`, "aside_step": `'there'`, "retain": `'{-1,-1,-1}'`, "progress": `'{"at": 1}'`,
	"join_round": `8`, "join_size": `6`, "join_done": `3`, "join_failed": `2`, "wake_done": `4`, "wake_failed": `5`, "wake_ended": `6`,
	"losers": `'{9}'`, "graphs": `'{9}'`, "stream_most": `4`, "stream_nth": `70`, "stream_visit": `5`,
}

var noPlace = columns{"gate": `NULL`, "place": `NULL`, "seat": `NULL`}

// fixtures are the states from which transitions start, in the form in which the engine leaves
// them.
var fixtures = map[string]columns{
	"runnable": usual,
	"executing": usual.with(columns{
		"status": `'executing'`, "locked_by": `'` + me + `'`, "lease_expires_at": `now() + interval '1 hour'`, "paused": `true`}),
	"expired": usual.with(columns{
		"status": `'executing'`, "locked_by": `'` + me + `'`, "lease_expires_at": `now() - interval '1 second'`, "paused": `true`}),
	"awaiting_signal": usual.with(columns{
		"status": `'awaiting_signal'`, "timed_out": `false`, "await_deadline": `now() + interval '1 hour'`}).with(noPlace),
	"awaiting_children": usual.with(columns{"status": `'awaiting_children'`, "awaits": `NULL`, "timed_out": `false`}).with(noPlace),
	"failed": usual.with(columns{"status": `'failed'`, "failure": `'error'`, "finished_at": `now() - interval '1 hour'`, "pick_lane": `2`,
		"joined": `gen_random_uuid()`}).with(noPlace),
	"": {"fsm": `'m'`, "step": `'s'`}, // a row of defaults, for insertions
}

// scene is one row amid everything that a transition can touch: an inbox, a parent that waits for
// it, and a row that waits behind it for its partition key.
type scene struct {
	bench
	number             int64
	id, parent, behind int64
	claim              *step.Claim
	signals            map[int64]int // id → its number in the fixture
	mark               string
	was                image
	from, until        time.Time // the server's clock around the transition
	kids               []*step.Claim
	record             *store.Record // of the scene's outcome
}

// newScene builds the scene for a transition.
func (b bench) newScene(x *transition) *scene {
	b.t.Helper()
	s := &scene{bench: b, mark: newMark(), signals: map[int64]int{}}
	s.number = int64(b.number(`SELECT nextval('gendurable.gen_durable_token')`))
	s.parent = b.insert(columns{"fsm": `'parent'`, "step": `'join'`, "status": `'awaiting_children'`, "children_pending": `2`, "round": `6`,
		"queue": quote(s.queue())})
	row := fixtures[x.from]
	if x.from != "" {
		row = row.with(columns{"queue": quote(s.queue()), "partition_key": quote(s.key()), "correlation_key": quote(s.key()),
			"parent_id": number(s.parent)})
	}
	s.id = b.insert(row.with(x.with))
	if x.from != "" {
		priority := "1" // more urgent than the row itself, once the key is free
		if x.from == "runnable" {
			priority = "9"
		}
		s.behind = b.insert(columns{"fsm": `'machine'`, "fsm_version": `3`, "step": `'here'`, "queue": quote(s.queue()), "priority": priority,
			"partition_key": quote(s.key()), "pick_lane": `1`, "eligible_at": `now() - interval '1 minute'`})
	}
	s.claim = &step.Claim{ID: s.id, Machine: "machine", Version: 3, Step: "here", Queue: s.queue(), Token: 41, Visit: 11, Depth: 2,
		PartitionKey: s.key(), Parent: s.parent, ParentRound: 6, Round: 9}
	if x.with["parent_id"] == null.text {
		s.claim.Parent, s.claim.ParentRound = 0, 0
	}
	if x.with["round"] == "0" {
		s.claim.Round = 0
	}
	if x.from != "" {
		s.fillInbox()
	}
	if x.prepare != nil {
		x.prepare(s)
	}
	return s
}

func (s *scene) queue() string { return fmt.Sprint("q", s.number) }
func (s *scene) key() string   { return fmt.Sprint("k", s.number) }

// fillInbox inserts two awaited signals that the step has received, the second with a dedup key,
// one that came after its claim, and one that is not awaited.
func (s *scene) fillInbox() {
	for i, name := range []string{"go", "go", "late", "unasked"} {
		var id int64
		var dedup *string
		if i > 0 {
			dedup = new(fmt.Sprint("dedup", i))
		}
		require.NoError(s.t, s.pool.QueryRow(s.t.Context(), byHand(`INSERT INTO gendurable.signals (target_id, name, payload, dedup_key)
			VALUES ($1, $2, '{"p": 1}', $3) RETURNING id`), s.id, name, dedup).Scan(&id))
		s.signals[id] = i + 1
		if name == "go" {
			g := step.Signal{ID: id, Name: name, Payload: json.RawMessage(`{"p": 1}`)}
			if dedup != nil {
				g.DedupKey = *dedup
			}
			s.claim.Awaited = append(s.claim.Awaited, g)
		}
	}
}

// run takes an image of the row, lets the transition happen, and takes another.
func (s *scene) run(happen func()) (is image) {
	s.t.Helper()
	s.was, s.from = s.photograph(), s.clock()
	happen()
	s.until = s.clock()
	return s.photograph()
}

func (s *scene) clock() (at time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT clock_timestamp()`).Scan(&at))
	return at
}

// image is a row: the text of each column's value, nil for NULL, and the things around the row
// under their names.
type image map[string]*string

func (s *scene) photograph() image {
	s.t.Helper()
	out := image{}
	rows, err := s.pool.Query(s.t.Context(), byHand(`SELECT c.key, c.value #>> '{}' FROM gendurable.gen_durable g CROSS JOIN LATERAL jsonb_each(to_jsonb(g)) c
		WHERE g.id = $1`), s.id)
	require.NoError(s.t, err)
	var name string
	var value *string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { out[name] = value; return nil })
	require.NoError(s.t, err)
	out[itsInbox] = new(s.inbox())
	out[itsChildren] = new(number(s.bench.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1`, s.id)))
	out[itsBarrier], out[itsNext] = nil, nil
	if s.behind != 0 {
		out[itsBarrier] = new(s.text(`SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE id = $1`, s.parent))
		out[itsNext] = new(s.text(`SELECT status || ', lane ' || pick_lane FROM gendurable.gen_durable WHERE id = $1`, s.behind))
	}
	return out
}

// inbox lists the signals of the fixture by number. A dagger marks consumed ones, and a new one is
// "new".
func (s *scene) inbox() string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), byHand(`SELECT id, consumed_at IS NOT NULL, payload::text FROM gendurable.signals WHERE target_id = $1 ORDER BY id`), s.id)
	require.NoError(s.t, err)
	var id int64
	var consumed bool
	var payload string
	var list []string
	_, err = pgx.ForEachRow(rows, []any{&id, &consumed, &payload}, func() error {
		item := "new"
		if n, ok := s.signals[id]; ok {
			item = number(n)
		}
		if consumed {
			item += "†"
		}
		list = append(list, item+payload)
		return nil
	})
	require.NoError(s.t, err)
	return strings.Join(list, " ")
}

// number renders n as SQL.
func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
