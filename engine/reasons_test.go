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
	fine := Health{State: StateStarted, Database: true, Schema: migrations.StateCurrent, Activity: Activity{LastPoll: now.Add(-pollStale)}}
	for name, c := range map[string]struct {
		change func(h *Health)
		client bool
		want   []string
	}{
		"none":                    {change: func(*Health) {}},
		"not started":             {change: func(h *Health) { h.State = StateCreated }, want: []string{"not started"}},
		"a client need not be":    {change: func(h *Health) { h.State = StateCreated }, client: true},
		"draining":                {change: func(h *Health) { h.State = StateDraining }, want: []string{"draining"}},
		"a client is stopped":     {change: func(h *Health) { h.State = StateStopped }, client: true, want: []string{"stopped"}},
		"no poll yet":             {change: func(h *Health) { h.LastPoll = time.Time{} }, want: []string{"no poll has succeeded yet"}},
		"a client never polls":    {change: func(h *Health) { h.LastPoll = time.Time{} }, client: true},
		"polls fail":              {change: func(h *Health) { h.LastPoll = now.Add(-40 * time.Second) }, want: []string{"no poll has succeeded for 40s"}},
		"schema older":            {change: func(h *Health) { h.Schema = migrations.StateOlder }, want: []string{"the schema is older"}},
		"slow, but the engine is": {change: func(h *Health) { h.Schema, h.Err = "", context.DeadlineExceeded }},
		"slow": {
			change: func(h *Health) {
				h.Database, h.Schema, h.Err = false, "", fmt.Errorf("check: %w", context.DeadlineExceeded)
			},
			want: []string{"the database does not answer in time"},
		},
		"away": {
			change: func(h *Health) { h.Database, h.Schema, h.Err = false, "", errors.New("dial tcp 10.0.0.7: refused") },
			want:   []string{"the database is not reachable"},
		},
		"no right to": {
			change: func(h *Health) { h.Database, h.Schema, h.Err = false, "", &pgconn.PgError{Code: "42501"} },
			want:   []string{"the database refuses to show its schema"},
		},
		"all at once": {
			change: func(h *Health) {
				h.State, h.Database, h.Schema, h.Err = StateDraining, false, "", errors.New("refused")
			},
			want: []string{"draining", "the database is not reachable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := fine
			c.change(&h)
			require.Equal(t, c.want, h.reasons(!c.client, now))
		})
	}
}
