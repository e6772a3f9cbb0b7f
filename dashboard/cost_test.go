package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Each page sends a bounded number of statements, and whoever looks again within the interval, or
// at the same time, sends none of those that are shared. Settings and the bounds of transactions,
// which read nothing, do not count.
func TestPagesSendFewStatements(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	count := func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
		mu.Lock()
		for n := range stmts {
			if text := strings.ToUpper(strings.Join(strings.Fields(stmts[n].SQL), " ")); strings.HasPrefix(text, "SELECT") && strings.Contains(text, " FROM ") || strings.HasPrefix(text, "WITH") {
				sent = append(sent, stmts[n].SQL)
			}
		}
		mu.Unlock()
		return send(ctx)
	}
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Driver: entpgx.New(pool).Around(count)})
	require.NoError(t, err)
	id, err := eng.Insert(t.Context(), shop.New(order{Card: "4111"}))
	require.NoError(t, err)
	_, err = eng.Admin().SetGate(t.Context(), engine.Gate{Name: "narrow", Queue: "orders", Places: 3})
	require.NoError(t, err)
	for path, most := range map[string][2]int{ // at first, and again
		"/": {8, 0}, "/machines": {2, 0}, "/machine?name=shop": {5, 0}, "/instances": {1, 0}, "/queues": {5, 0}, "/limits": {3, 0},
		"/schedules": {1, 0}, "/workers": {4, 0}, "/audit": {1, 0}, fmt.Sprintf("/instances/%d", id): {12, 12},
	} {
		h, err := dashboard.New(eng, dashboard.Options{Refresh: time.Hour})
		require.NoError(t, err)
		for n, bound := range most {
			mu.Lock()
			sent = nil
			mu.Unlock()
			require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, path, nil).StatusCode, path)
			mu.Lock()
			assert.LessOrEqual(t, len(sent), bound, "%s, look %d", path, n+1)
			mu.Unlock()
		}
	}
}
