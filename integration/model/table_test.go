package model_test

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
)

const instancesSQL = `SELECT id, uid, fsm, fsm_version, queue, priority, coalesce(partition_key, ''), coalesce(correlation_key, ''),
  correlation_scope::text, coalesce(correlation_guard, ''), status::text, step, state::text, coalesce(result::text, ''), eligible_at,
  finished_at, coalesce(failure, ''), coalesce(last_error, ''), attempt, crashes, visit, coalesce(locked_by, ''), claim_token,
  lease_expires_at, awaits, await_deadline, timed_out, coalesce(parent_id, 0), parent_round, depth, joined IS NOT NULL, round,
  joined IS NOT NULL AND (finished_at IS NULL OR coalesce(joined <> commit_id, false)),
  children_pending, dropped::text, paused, deadline, errors::text, coalesce(labels ->> 'c', ''),
  CASE WHEN place IS NULL THEN '' ELSE gate END, seat IS NOT NULL, CASE WHEN run_place IS NULL THEN '' ELSE run_gate END,
  pick_lane = 4 AND aside_step = step,
  coalesce(join_round, 0), coalesce(join_size, 0), coalesce(join_done, 0),
  coalesce(join_failed, 0), coalesce(wake_done, 0), coalesce(wake_failed, 0), coalesce(wake_ended, 0),
  coalesce(node, ''), losers, graphs, coalesce(stream_most, 0), stream_nth IS NOT NULL, coalesce(stream_visit, 0), commit_id IS NOT NULL
FROM gendurable.gen_durable ORDER BY id`

const signalsSQL = `SELECT target_id, name, payload::text, coalesce(dedup_key, ''), consumed_at FROM gendurable.signals ORDER BY id`

// compareTables compares the whole content of the tables with the model.
func (p *pair) compareTables() {
	want := p.model.Instances(func(*model.Instance) bool { return true })
	got := p.readInstances(want)
	for n := range min(len(got), len(want)) {
		if !reflect.DeepEqual(want[n], got[n]) {
			require.Equal(p, want[n], got[n], "row of instance %d", want[n].ID)
		}
	}
	require.Len(p, got, len(want), "rows")
	p.compareSignals()
	p.compareKept()
	p.compareLost()
	p.compareHistory()
	p.compareEdges()
}

func (p *pair) compareEdges() {
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, `SELECT from_id, to_id, needs FROM gendurable.edges ORDER BY from_id, to_id`)
	require.NoError(p, err)
	var got []model.Edge
	var from, to int64
	var needs model.Need
	_, err = pgx.ForEachRow(rows, []any{&from, &to, &needs}, func() error {
		got = append(got, model.Edge{From: p.models[from], To: p.models[to], Needs: needs})
		return nil
	})
	require.NoError(p, err)
	if want := p.model.Edges(); !slices.Equal(want, got) {
		require.Equal(p, want, got, "edges")
	}
}

func (p *pair) compareLost() {
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, `SELECT partition_key, worker, claim_token FROM gendurable.lost_claims`)
	require.NoError(p, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[model.Lost])
	require.NoError(p, err)
	for n := range got {
		require.Contains(p, p.tokens, got[n].Token)
		got[n].Token = p.tokens[got[n].Token]
	}
	slices.SortFunc(got, func(a, b model.Lost) int { return cmp.Compare(a.Token, b.Token) })
	if want := p.model.Lost(); !slices.Equal(want, got) {
		require.Equal(p, want, got, "lost claims")
	}
}

func (p *pair) readInstances(want []*model.Instance) []*model.Instance {
	byUID, begun := map[int]model.ID{}, map[int]bool{}
	for _, i := range want {
		byUID[i.UID] = i.ID
		begun[i.UID] = i.Begun
	}
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, instancesSQL)
	require.NoError(p, err)
	defer rows.Close()
	var got []*model.Instance
	for rows.Next() {
		var (
			i                         model.Instance
			id, parent                int64
			uid                       [16]byte
			scope, guard, status      string
			eligible                  time.Time
			finished, lease, deadline *time.Time
			expiry                    *time.Time
			dropped, errors           *string
		)
		require.NoError(p, rows.Scan(&id, &uid, &i.Machine.Name, &i.Machine.Version, &i.Queue, &i.Priority, &i.PartitionKey, &i.Key, &scope,
			&guard, &status, &i.Step, &i.State, &i.Result, &eligible, &finished, &i.Failure, &i.LastError, &i.Attempt, &i.Crashes, &i.Visit,
			&i.Worker, &i.Token, &lease, &i.Awaits, &deadline, &i.TimedOut, &parent, &i.ParentRound, &i.Depth, &i.Joined, &i.Round, &i.Retried,
			&i.Pending, &dropped, &i.Paused, &expiry, &errors, &i.Label, &i.Place, &i.Seat, &i.RunPlace, &i.Stray,
			&i.Join.Round, &i.Join.Size, &i.Join.Done, &i.Join.Failed, &i.Join.Quorum, &i.Join.Failures, &i.Join.Ends,
			&i.Node, &i.Losers, &i.Graphs, &i.Most, &i.Numbered, &i.Shown, &i.Begun))
		i.UID = modelUID(uid)
		require.Contains(p, byUID, i.UID, "row %d should not be", id)
		i.ID = byUID[i.UID]
		p.met(i.ID, id)
		i.Status, i.Parent, i.Scope = model.Status(status), p.models[parent], scopeOf(scope)
		require.Equal(p, guard, guardOf(&i), "guard of instance %d", i.ID)
		i.EligibleAt, i.FinishedAt, i.Lease, i.Deadline = moment(&eligible), moment(finished), moment(lease), moment(deadline)
		require.Contains(p, p.tokens, i.Token, "token of instance %d", i.ID)
		i.Token = p.tokens[i.Token]
		i.Expiry, i.Errors = moment(expiry), p.readErrors(errors)
		i.Dropped = p.readDropped(dropped)
		if i.Node == "" || i.Visit > 0 || i.Status.Terminal() { // nobody asks
			i.Begun = begun[i.UID]
		}
		got = append(got, &i)
	}
	require.NoError(p, rows.Err())
	return got
}

func (p *pair) readErrors(text *string) (out []model.Error) {
	if text == nil {
		return nil
	}
	var list []struct {
		At                        time.Time
		Step, Kind, Error, Worker string
		Visit                     int64
		Attempt                   int
	}
	require.NoError(p, json.Unmarshal([]byte(*text), &list))
	for _, e := range list {
		out = append(out, model.Error{At: moment(&e.At), Step: e.Step, Visit: e.Visit, Attempt: e.Attempt, Kind: e.Kind, Text: e.Error, Worker: e.Worker})
	}
	return out
}

func (p *pair) readDropped(text *string) (out []model.Dropped) {
	if text == nil {
		return nil
	}
	var dropped []struct {
		I int    `json:"i"`
		K string `json:"k"`
		O int64  `json:"o"`
	}
	require.NoError(p, json.Unmarshal([]byte(*text), &dropped))
	for _, d := range dropped {
		out = append(out, model.Dropped{Index: d.I, Key: d.K, Occupant: p.models[d.O]})
	}
	return out
}

func scopeOf(text string) model.Scope {
	done, failed := strings.Contains(text, "done"), strings.Contains(text, "failed")
	switch {
	case text == "{}":
		return model.ScopeNone
	case done && failed:
		return model.ScopeAll
	case done:
		return model.ScopeLiveOrDone
	case failed:
		return model.ScopeLiveOrFailed
	default:
		return model.ScopeLive
	}
}

// guardOf returns the value of the generated column: the key while it is occupied.
func guardOf(i *model.Instance) string {
	covered := !i.Status.Terminal() || i.Scope == model.ScopeAll ||
		i.Status == model.Done && i.Scope == model.ScopeLiveOrDone || i.Status == model.Failed && i.Scope == model.ScopeLiveOrFailed
	if i.Scope == model.ScopeNone || !covered {
		return ""
	}
	return i.Key
}

func (p *pair) compareSignals() {
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, signalsSQL)
	require.NoError(p, err)
	defer rows.Close()
	var got []model.Signal
	for rows.Next() {
		var s model.Signal
		var target int64
		var consumed *time.Time
		require.NoError(p, rows.Scan(&target, &s.Name, &s.Payload, &s.DedupKey, &consumed))
		s.Target, s.Consumed = p.models[target], moment(consumed)
		if s.Consumed != model.Never && s.Payload == "{}" {
			s.Payload = ""
		}
		got = append(got, s)
	}
	require.NoError(p, rows.Err())
	want := p.model.Signals(func(*model.Signal) bool { return true })
	for n := range want {
		want[n].ID = 0
	}
	if !slices.Equal(want, got) {
		require.Equal(p, want, got, "signals")
	}
}
