package engine

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/store"
)

// surroundings are what surrounds an instance. They come with the instance's row, by the same
// statement.
type surroundings struct {
	Now     time.Time        `json:"now"`
	Paused  *time.Time       `json:"paused"`  // since when its queue is
	Workers []*store.Present `json:"workers"` // of one that is runnable or executes
	Gates   []*ent.Gate      `json:"gates"`   // of one that is runnable
	Running int              `json:"running"` // in its queue, up to whyRunning; of one that is runnable
	// Restart is set if it has failed and a Retry is refused: the instance to restart instead, or 0.
	Restart *fsm.ID `json:"restart"`
}

// whyRunning bounds how many executing instances of a queue Why counts; no worker has more slots.
const whyRunning = 10_000

// aroundText selects what surrounds the instance that a statement reads. It is JSON, so that any
// driver can carry it. What an instance of another status does not need is not read.
var aroundText = `(SELECT jsonb_build_object('now', clock_timestamp(),
  'paused', (SELECT p.paused_at FROM {s}.paused_queues p WHERE p.queue = {queue}),
  'workers', CASE WHEN {status} IN ('runnable', 'executing') THEN (SELECT jsonb_agg(to_jsonb(w)) FROM {s}.workers w) END,
  'gates', CASE WHEN {status} = 'runnable' THEN (
    SELECT jsonb_agg(to_jsonb(g) || jsonb_build_object('id', g.name) ORDER BY g.name COLLATE "C") FROM {s}.gates g) END,
  'running', CASE WHEN {status} = 'runnable' THEN (SELECT count(*) FROM (
    SELECT FROM {s}.gen_durable e WHERE e.status = 'executing' AND e.queue = {queue} LIMIT {most}) r) ELSE 0 END,
  'restart', CASE WHEN {status} = 'failed' THEN ` + store.UseRestartText("{id}") + ` END)::text)`

const aroundColumn = "around"

// withSurroundings makes a query for an instance read its surroundings, too.
func withSurroundings(schema string) func(*entsql.Selector) {
	return func(q *entsql.Selector) {
		text := strings.NewReplacer("{s}", query.Quoted(schema), "{queue}", q.C(instance.FieldQueue), "{status}", q.C(instance.FieldStatus), "{id}", q.C(instance.FieldID),
			"{most}", strconv.Itoa(whyRunning)).Replace(aroundText)
		q.AppendSelectExprAs(entsql.Raw(text), aroundColumn)
	}
}

// surroundingsOf returns the surroundings that came with a row.
func surroundingsOf(row *ent.Instance) (a surroundings, err error) {
	v, err := row.Value(aroundColumn)
	if err != nil {
		return a, err
	}
	text, err := textOf(v)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// presentWorker returns a worker that has registered.
func presentWorker(p *store.Present, now time.Time) Worker {
	return Worker{ID: p.ID, Host: p.Host, PID: p.PID, Version: p.Version, Queues: p.Queues, Machines: p.Machines, Draining: p.Draining,
		Started: p.StartedAt.Local(), Beat: p.BeatAt.Local(), Live: now.Before(p.ExpiresAt)}
}
