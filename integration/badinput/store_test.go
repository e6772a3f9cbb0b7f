package badinput

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// The store relies on the checks of package fsm. If these ever miss something, one property
// decides: the store must take Postgres' refusal for a fault of the data, and not for a transient
// one, which it would repeat for ever.

// shelf is a store on a database of the fuzz process's own.
type shelf struct {
	*store.Store
	pool *pgxpool.Pool
}

func newShelf(f *testing.F) shelf {
	f.Helper()
	pool := pgtest.Pool(f, pgtest.Migrated(f))
	return shelf{store.New(entpgx.New(pool), "gendurable"), pool}
}

const self = "11111111-1111-4111-8111-111111111111" // the worker that claims

func document(state json.RawMessage) *step.Spec {
	return &step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "start", Queue: "q", State: state}
}

// claimed returns two claims of new instances: one for the bad input, one for an outcome in the
// same batch.
func (s shelf) claimed(t *testing.T) (bad, good *step.Claim) {
	t.Helper()
	s.empty(t)
	_, err := s.Insert(t.Context(), []*step.Spec{document([]byte(`"bad"`)), document([]byte(`"good"`))})
	require.NoError(t, err)
	got, err := s.Claim(t.Context(), store.ClaimParams{Queue: "q", Window: 10, Worker: self, Machines: []string{"m/1"}, Limit: 2,
		Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, got.Claims, 2)
	return got.Claims[0], got.Claims[1]
}

func (s shelf) empty(t *testing.T) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable`)
	require.NoError(t, err)
}

// everything returns both tables, to tell whether a refused statement has changed anything.
func (s shelf) everything(t *testing.T) (rows string) {
	t.Helper()
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT concat((SELECT string_agg(g::text, E'\n' ORDER BY id) FROM gendurable.gen_durable g),
		(SELECT string_agg(s::text, E'\n' ORDER BY id) FROM gendurable.signals s))`).Scan(&rows))
	return rows
}

func (s shelf) get(t *testing.T, id int64) fsm.RawInstance {
	t.Helper()
	i, err := query.New(s.Store).Get(t.Context(), store.Address{ID: id})
	require.NoError(t, err)
	return i
}

// seed adds texts that cause trouble as a name or any other text, and documents that cause trouble
// as JSON.
func seed(text, document func(bad string)) {
	for _, name := range badNames {
		text(name)
	}
	for _, name := range slices.Sorted(maps.Keys(badJSON)) {
		document(badJSON[name])
	}
	document(strings.Repeat("[", 10_000))
	document(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000))
	document(`"` + strings.Repeat("x", mostBytes) + `"`)
}

// FuzzStoreCommit tests that any outcome is stored equal, or is a fault of the data that changes
// nothing. After a fault, the other outcome of the batch can be committed alone, and so can the
// failure of the instance.
func FuzzStoreCommit(f *testing.F) {
	sample := seeds(f)
	kinds := []step.Kind{step.Next, step.Retry, step.Await, step.Children, step.Done, step.Fail, step.Again, step.Rejoin}
	add := func(kind step.Kind, to, raw, text, failure, name string) {
		sample(uint8(slices.Index(kinds, kind)), to, []byte(raw), text, failure, name) //nolint:gosec // eight
	}
	seed(func(text string) {
		add(step.Next, text, "{}", "", "", "")
		add(step.Retry, "", "{}", text, "", "")
		add(step.Await, "end", "{}", "", "", text)
		add(step.Children, "end", "{}", text, "", "m")
		add(step.Children, "end", "{}", "", "", text)
		add(step.Fail, "", "", text, "error", "")
		add(step.Fail, "", "", "", text, "")
	}, func(document string) {
		add(step.Next, "end", document, "", "", "")
		add(step.Done, "", document, "", "", "")
		add(step.Again, "", document, "", "", "")
		add(step.Rejoin, "end", document, "", "", "m")
		add(step.Children, "end", document, "", "", "m")
	})
	s := newShelf(f)
	f.Fuzz(func(t *testing.T, kind uint8, to string, raw []byte, text, failure, name string) {
		bad, good := s.claimed(t)
		o := &step.Commit{Kind: kinds[int(kind)%len(kinds)], Err: text}
		switch o.Kind {
		case step.Next:
			o.Step, o.State, o.Err = to, raw, ""
		case step.Retry:
			o.State = raw
		case step.Again:
			o.State, o.Err = raw, ""
		case step.Await:
			o.Step, o.State, o.Names, o.Err = to, raw, []string{name, "letter"}, ""
		case step.Children:
			o.Step, o.State, o.Err = to, raw, ""
			o.Spawn = []step.Spec{*document(raw), {UID: uuid.New(), Machine: name, Version: 1, Step: to, Queue: "elsewhere", State: raw, PartitionKey: text}}
		case step.Rejoin:
			o.Step, o.State, o.Err, o.Join = to, raw, "", &step.Join{Names: []string{name}}
		case step.Done:
			o.Result, o.Err = raw, ""
		case step.Fail:
			o.Failure = failure
		}
		fine := &step.Commit{Kind: step.Done, Result: []byte(`"fine"`)}
		before := s.everything(t)
		done, err := s.Commit(t.Context(), self, uuid.NewString(), []store.Entry{{Claim: bad, Commit: o}, {Claim: good, Commit: fine}}, 0)
		if err != nil {
			require.Equal(t, store.FaultData, store.Classify(err), "%v", err)
			require.False(t, store.Unknown(err), "%v", err)
			require.Equal(t, before, s.everything(t))
			safe := &step.Commit{Kind: step.Fail, Err: step.SanitizeError(errors.New(text)), Failure: "error"}
			for _, alone := range []store.Entry{{Claim: good, Commit: fine}, {Claim: bad, Commit: safe}} {
				done, err := s.Commit(t.Context(), self, uuid.NewString(), []store.Entry{alone}, 0)
				require.NoError(t, err)
				require.True(t, done.Applied[alone.Claim.ID])
			}
			require.Equal(t, safe.Err, s.get(t, bad.ID).LastError)
			return
		}
		require.Len(t, done.Applied, 2)
		require.Equal(t, fsm.StatusDone, s.get(t, good.ID).Status)
		i := s.get(t, bad.ID)
		require.Equal(t, o.Err, i.LastError)
		require.Equal(t, o.Failure, string(i.Failure))
		if o.Step != "" {
			require.Equal(t, o.Step, i.Step)
		}
		if len(o.State) > 0 {
			requireSameJSON(t, o.State, i.State, "state")
		}
		if o.Kind == step.Done && len(o.Result) > 0 {
			requireSameJSON(t, o.Result, i.Result, "result")
		}
		if o.Kind == step.Await {
			var names []string
			require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT awaits FROM gendurable.gen_durable WHERE id = $1`, bad.ID).Scan(&names))
			require.Equal(t, o.Names, names)
		}
	})
}

// FuzzStoreInsert tests the same for an insert, and for the others in its transaction.
func FuzzStoreInsert(f *testing.F) {
	add := seeds(f)
	seed(func(text string) {
		add(text, "start", "q", "", "", []byte("{}"), int32(1), int16(0), uint8(0))
		add("m", text, text, "", "", []byte("{}"), int32(1), int16(0), uint8(0))
		add("m", "start", "q", text, text, []byte("{}"), int32(1), int16(0), uint8(1))
	}, func(document string) {
		add("m", "start", "q", "", "", []byte(document), int32(1), int16(0), uint8(0))
	})
	add("m", "start", "q", "key", "", []byte("{}"), int32(-1), int16(-1<<15), uint8(9))
	s := newShelf(f)
	f.Fuzz(func(t *testing.T, machine, to, queue, key, partition string, raw []byte, version int32, priority int16, scope uint8) {
		s.empty(t)
		spec := &step.Spec{UID: uuid.New(), Machine: machine, Version: int(version), Step: to, Queue: queue, Priority: priority, State: raw,
			Key: key, Scope: step.Scope(scope), PartitionKey: partition}
		done, err := s.Insert(t.Context(), []*step.Spec{document([]byte("{}")), spec})
		if err != nil {
			require.Equal(t, store.FaultData, store.Classify(err), "%v", err)
			require.Empty(t, s.everything(t))
			return
		}
		require.Len(t, done, 2)
		i := s.get(t, done[1].ID)
		require.Equal(t, *spec, step.Spec{UID: spec.UID, Machine: i.Machine, Version: i.Version, Step: i.Step, Queue: i.Queue, Priority: int16(i.Priority), //nolint:gosec // a smallint
			State: raw, Key: string(i.Key), Scope: spec.Scope, PartitionKey: i.PartitionKey})
		requireSameJSON(t, raw, i.State, "state")
	})
}

// FuzzStoreDeliver tests the same for a delivery.
func FuzzStoreDeliver(f *testing.F) {
	add := seeds(f)
	seed(func(text string) {
		add(text, []byte("{}"), "", "")
		add("letter", []byte("{}"), text, "")
		add("letter", []byte("{}"), "", text)
	}, func(document string) { add("letter", []byte(document), "", "") })
	s := newShelf(f)
	f.Fuzz(func(t *testing.T, name string, raw []byte, dedup, key string) {
		s.empty(t)
		done, err := s.Insert(t.Context(), []*step.Spec{document([]byte("{}"))})
		require.NoError(t, err)
		to := store.Address{ID: done[0].ID, Key: key}
		m := &step.Signal{Name: name, Payload: raw, DedupKey: dedup}
		before := s.everything(t)
		d, err := s.Deliver(t.Context(), to, m, 10)
		if err != nil {
			require.True(t, store.Classify(err) == store.FaultData || key != "" && errors.Is(err, store.ErrNoTarget), "%v", err)
			require.Equal(t, before, s.everything(t))
			return
		}
		require.Equal(t, to.ID, d.Target)
		inbox, _, err := s.Inbox(t.Context(), to.ID, 0)
		require.NoError(t, err)
		require.Len(t, inbox, 1)
		require.Equal(t, name, inbox[0].Name)
		require.Equal(t, dedup, inbox[0].DedupKey)
		if len(raw) > 0 {
			requireSameJSON(t, raw, inbox[0].Payload, "payload")
		}
	})
}
