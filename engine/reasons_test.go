package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/migrations"
)

func TestReasonsWhyAnEngineIsNotReady(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const lease = time.Minute
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		change func(x *examination)
		client bool
		want   []string
	}{
		"none":                    {change: func(*examination) {}},
		"not started":             {change: func(x *examination) { x.State = StateCreated }, want: []string{"not_started: not started"}},
		"a client need not be":    {change: func(x *examination) { x.State = StateCreated }, client: true},
		"draining":                {change: func(x *examination) { x.State = StateDraining }, want: []string{"draining: draining"}},
		"a client is stopped":     {change: func(x *examination) { x.State = StateStopped }, client: true, want: []string{"stopped: stopped"}},
		"no poll yet":             {change: func(x *examination) { x.LastPoll = time.Time{} }, want: []string{"poll: no poll has succeeded yet"}},
		"a client never polls":    {change: func(x *examination) { x.LastPoll, x.LastHeartbeat = time.Time{}, time.Time{} }, client: true},
		"polls fail":              {change: func(x *examination) { x.LastPoll = ago(40 * time.Second) }, want: []string{"poll: no poll has succeeded for 40s"}},
		"schema older":            {change: func(x *examination) { x.Schema = migrations.StateOlder }, want: []string{"schema: the schema is older"}},
		"slow, but the engine is": {change: func(x *examination) { x.Schema, x.Err = "", context.DeadlineExceeded }},
		"read-only":               {change: func(x *examination) { x.readOnly = true }, want: []string{"read_only: the database takes no writes"}},
		"a client, too":           {change: func(x *examination) { x.readOnly = true }, client: true, want: []string{"read_only: the database takes no writes"}},
		"no heartbeat yet": {
			change: func(x *examination) { x.LastHeartbeat = time.Time{} },
			want:   []string{"heartbeat: no heartbeat has succeeded yet"},
		},
		"heartbeats fail, as yet in time": {change: func(x *examination) {
			x.LastHeartbeat, x.Failing = ago(lease), []Failing{{Doing: DoingHeartbeat, Since: ago(lease), Obstacle: ObstacleConnections}}
		}},
		"heartbeats fail": {
			change: func(x *examination) {
				x.LastHeartbeat = ago(lease + time.Second)
				x.Failing = []Failing{{Doing: DoingHeartbeat, Since: ago(lease), Obstacle: ObstacleConnections}}
			},
			want: []string{"heartbeat: no heartbeat has succeeded for 1m1s: there is no connection left for it"},
		},
		"claims and commits fail, as yet not for long": {change: func(x *examination) {
			x.Failing = []Failing{{Doing: DoingCommit, Since: ago(lease - 1)}, {Doing: DoingClaim, Queue: "q", Since: ago(lease - 1)}}
		}},
		"claims and commits fail": {
			change: func(x *examination) {
				x.LastCommit = ago(time.Hour) // there was nothing to commit meanwhile
				x.Failing = []Failing{{Doing: DoingCommit, Since: ago(lease), Obstacle: ObstacleReadOnly},
					{Doing: DoingClaim, Queue: "q", Since: ago(2 * lease), Obstacle: ObstacleRefused}}
			},
			want: []string{
				"commit: no commit has succeeded for 1m0s: the database takes no writes",
				`claim: no claim of queue "q" has succeeded for 2m0s: the database refuses it`,
			},
		},
		"slow": {
			change: func(x *examination) {
				x.Database, x.Schema, x.Err = false, "", fmt.Errorf("check: %w", context.DeadlineExceeded)
			},
			want: []string{"database: the database does not answer in time"},
		},
		"no connection in the pool": {
			change: func(x *examination) {
				x.Database, x.Schema, x.Err, x.exhausted = false, "", fmt.Errorf("check: %w", context.DeadlineExceeded), true
			},
			want: []string{"pool: all connections of the pool are in use"},
		},
		"away": {
			change: func(x *examination) {
				x.Database, x.Schema, x.Err = false, "", errors.New("dial tcp 10.0.0.7: refused")
			},
			want: []string{"database: the database is not reachable"},
		},
		"no right to": {
			change: func(x *examination) { x.Database, x.Schema, x.Err = false, "", &pgconn.PgError{Code: "42501"} },
			want:   []string{"database: the database refuses to show its schema"},
		},
		"all at once": {
			change: func(x *examination) {
				x.State, x.Database, x.Schema, x.Err = StateDraining, false, "", errors.New("refused")
			},
			want: []string{"draining: draining", "database: the database is not reachable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := examination{worker: !c.client, lease: lease, now: now}
			x.Health = Health{State: StateStarted, Database: true, Schema: migrations.StateCurrent,
				Activity: Activity{LastPoll: now.Add(-pollStale), LastHeartbeat: now.Add(-lease)}}
			c.change(&x)
			x.conclude()
			var got []string
			for _, r := range x.Reasons {
				got = append(got, string(r.Kind)+": "+r.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}
