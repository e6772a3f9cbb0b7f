package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
)

func TestRatesOfTheLastHour(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	none, err := e.Rates(ctx, engine.RatesOptions{})
	require.NoError(t, err)
	require.Empty(t, none.Bins)
	require.Equal(t, time.Hour, none.At.Sub(none.EndedSince))

	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, inserted_at, finished_at)
		SELECT 'm', 's', q, st::gendurable.durable_status, f, now() - i, now() - e FROM (VALUES
		('a', 'done', NULL, interval '2 h', interval '10 min'), ('a', 'failed', 'error', interval '30 min', interval '10 min'),
		('a', 'done', NULL, interval '3 h', interval '2 h'), ('b', 'runnable', NULL, interval '30 min', NULL)) v (q, st, f, i, e)`)
	require.NoError(t, err)
	rates, err := e.Rates(ctx, engine.RatesOptions{Bin: time.Hour})
	require.NoError(t, err)
	sum := map[string]engine.RateBin{}
	for _, b := range rates.Bins {
		require.Zero(t, b.At.Sub(b.At.Truncate(time.Hour)), "bins begin at whole hours")
		s := sum[b.Queue]
		sum[b.Queue] = engine.RateBin{Inserted: s.Inserted + b.Inserted, Ended: s.Ended + b.Ended, Failed: s.Failed + b.Failed}
	}
	require.Equal(t, map[string]engine.RateBin{"a": {Inserted: 1, Ended: 2, Failed: 1}, "b": {Inserted: 1}}, sum)

	for field, o := range map[string]engine.RatesOptions{
		"Past": {Past: time.Second}, "Bin": {Bin: time.Millisecond},
	} {
		_, err := e.Rates(ctx, o)
		wrong, ok := errors.AsType[*engine.QueryError](err)
		require.True(t, ok, field)
		require.Equal(t, field, wrong.Field)
	}
	_, err = e.Rates(ctx, engine.RatesOptions{Past: 24 * time.Hour, Bin: time.Second})
	require.Error(t, err, "too many bins")
}

// A row that the ent client has read carries the errors of its attempts, and Examine reads the row
// together with the causes.
func TestExamineReadsTheRowOnce(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	id, err := e.Insert(ctx, ticket.New("A1"))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET errors = jsonb_build_array($2::jsonb) WHERE id = $1`, int64(id),
		`{"at": "2026-11-22T10:00:00Z", "step": "s", "visit": 1, "attempt": 2, "kind": "error", "error": "no", "worker": "w"}`)
	require.NoError(t, err)
	row, causes, err := e.Admin().Examine(ctx, id)
	require.NoError(t, err)
	require.Equal(t, id, row.ID)
	why, err := e.Admin().Why(ctx, id)
	require.NoError(t, err)
	require.Equal(t, why, causes)
	list, err := e.Errors(ctx, id)
	require.NoError(t, err)
	require.Equal(t, list, engine.ErrorsIn(row))
}

// Relations has the ancestors, the first children of each round, and the signals in the inbox, as
// far as there is room.
func TestRelations(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	none, err := e.Admin().Relations(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, engine.Relations{
		Ancestors: []engine.Relative{}, Counts: []engine.ChildCount{}, Children: []engine.Relative{}, Inbox: []engine.PendingSignal{},
	}, none)
	for _, text := range []string{
		`INSERT INTO gendurable.gen_durable (id, fsm, step, depth, parent_id, correlation_key) OVERRIDING SYSTEM VALUE
			VALUES (1, 'root', 's', 0, NULL, 'r'), (2, 'middle', 's', 1, 1, NULL), (3, 'me', 's', 2, 2, NULL)`,
		`INSERT INTO gendurable.gen_durable (id, fsm, step, depth, parent_id, parent_round, status, last_error, finished_at, failure) OVERRIDING SYSTEM VALUE
			SELECT 100 + n, 'child', 's', 3, 3, 1 + n / 30, 'failed', repeat('e', 300), now(), 'error' FROM generate_series(0, 59) n`,
		`INSERT INTO gendurable.signals (target_id, name, payload) SELECT 3, 'go', to_jsonb(repeat('p', 300000)) FROM generate_series(1, 60)`,
	} {
		_, err := pool.Exec(ctx, text)
		require.NoError(t, err)
	}
	got, err := e.Admin().Relations(ctx, 3)
	require.NoError(t, err)
	require.Len(t, got.Ancestors, 2)
	require.Equal(t, "middle", got.Ancestors[0].Machine)
	require.Equal(t, engine.Relative{ID: 1, Machine: "root", Version: 1, Step: "s", Status: "runnable", Queue: "default", Key: "r"}, got.Ancestors[1])
	require.Equal(t, []engine.ChildCount{{1, "child", "failed", 30}, {2, "child", "failed", 30}}, got.Counts)
	require.False(t, got.AtLeast)
	require.Len(t, got.Children, 2*engine.MaxRoundListed)
	require.EqualValues(t, 2, got.Children[0].Round, "the newest round first")
	require.EqualValues(t, 130, got.Children[0].ID)
	require.Len(t, got.Children[0].LastError, 200)
	require.EqualValues(t, 100, got.Children[engine.MaxRoundListed].ID)
	require.Len(t, got.Inbox, engine.MaxInboxListed)
	require.True(t, got.More)
	require.NotEmpty(t, got.Inbox[2].Payload)
	require.Empty(t, got.Inbox[3].Payload, "there is no room")
	require.EqualValues(t, 300_002, got.Inbox[3].Bytes)
}
