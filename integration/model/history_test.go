package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// nameOf makes the name of a worker. The history takes only UUIDs.
func nameOf(text string) string { return uuid.NewSHA1(uuid.Nil, []byte(text)).String() }

// record makes the history keep the transitions of a machine, or of none.
func (p *pair) record(machine string) {
	p.logf("record(%q)", machine)
	p.model.Record(machine)
	p.exec(`TRUNCATE gendurable.recorded_machines, gendurable.history`)
	ctx, cancel := p.context()
	defer cancel()
	if machine != "" {
		require.NoError(p, p.SetRecorded(ctx, []string{machine}, nil))
	}
	_, err := p.Poll(ctx, nil, nil, nil) // by which a process learns of it
	require.NoError(p, err)
}

// noted makes the history keep an outcome, if its machine is recorded.
func (p *pair) noted(e store.Entry, m model.Machine) store.Entry {
	if p.model.Recorded(m) {
		e.Record = &store.Record{Took: time.Second}
	}
	return e
}

const historySQL = `SELECT h.at, h.instance, coalesce(h.visit, 0), coalesce(h.attempt, 0), h.kind, coalesce(h.step, ''), coalesce(h.to_step, ''),
  coalesce(h.worker::text, ''), coalesce(h.failure, ''), coalesce(h.error, '')
FROM gendurable.history h WHERE h.subject IS NULL AND h.kind NOT IN ('admin.edit', 'admin.rewind', 'admin.migrate')`

// compareHistory compares the table of the history with the model's. Another test compares the
// entries of edits, rewinds and migrations.
func (p *pair) compareHistory() {
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, historySQL)
	require.NoError(p, err)
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h model.Happened, err error) {
		var when time.Time
		var id int64
		err = row.Scan(&when, &id, &h.Visit, &h.Attempt, &h.Kind, &h.From, &h.To, &h.Worker, &h.Failure, &h.Error)
		h.At, h.Instance = moment(&when), p.models[id]
		return h, err
	})
	require.NoError(p, err)
	slices.SortFunc(got, model.Happened.Compare)
	if want := p.model.History(); !slices.Equal(want, got) {
		require.Equal(p, want, got, "history")
	}
}

// A retry, an end that a signal turns, a stale outcome, a crash and a cancel: the first three as
// they were applied, the stale one not at all.
func TestHistoryOfOneInstance(t *testing.T) {
	p := newHistory(t)
	p.record("a")
	p.insert(plain("0"))
	take := func() claim {
		claims := p.claim(&everyone, "pay", 1, wide)
		require.Len(t, claims, 1)
		return claims[0]
	}
	again := outcome(model.Retry, "1")
	again.Step, again.Err = "first", "not yet"
	p.commit(false, decision{take(), again, false})
	p.deliver(model.Address{ID: 1}, "go", `1`, "")
	last := model.Outcome{Kind: model.Finish, Step: "late", Result: "1", Unless: []string{"go"}, At: model.Never}
	p.commit(true, decision{take(), last, false})
	p.advance(time.Second)
	stale := take()
	p.advance(2 * lease)
	p.reap(&everyone, 1000)
	p.commit(false, decision{stale, next("2"), false})
	p.cancel(1)
	p.prune(model.Retention{}, 1000)
	var kinds []string
	for _, h := range p.model.History() {
		kinds = append(kinds, h.Kind)
	}
	require.Equal(t, []string{"next", "retry", "crash", "admin.cancel"}, sortedAs(kinds, "next", "retry", "crash", "admin.cancel"))
}

// sortedAs returns a list in the order of another.
func sortedAs(list []string, order ...string) []string {
	slices.SortFunc(list, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return list
}
