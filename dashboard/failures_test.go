package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// incident are failures of two kinds, of which one has an id in each error, and one tenant's queue.
func incident(t *testing.T) (*pgxpool.Pool, *engine.Engine) {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	for queue, text := range map[string]string{"orders": `'request ' || substr(md5(n::text), 1, 12) || ': declined'`, "theirs": `'request ' || md5(n::text)::uuid || ': hidden'`} {
		_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, last_error, errors, finished_at)
			SELECT 'shop', 'start', $1, 'failed', 'error', `+text+`, jsonb_build_array(jsonb_build_object('step', 'start', 'error', `+text+`)), now() FROM generate_series(1, 137) n`, queue)
		require.NoError(t, err)
	}
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, last_error, errors, finished_at)
		VALUES ('shop', 'start', 'orders', 'failed', 'error', 'the disk is full', '[{"step": "start", "error": "the disk is full"}]', now())`)
	require.NoError(t, err)
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	return pool, eng
}

// The link of a group leads to exactly its instances, and so do the API and a plan: "Retry these
// 137" retries these, and no others of the same machine, step and kind.
func TestTheLinkOfAGroupIsTheGroup(t *testing.T) {
	t.Parallel()
	pool, eng := incident(t)
	h, err := dashboard.New(eng, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) {
		return dashboard.Access{Level: dashboard.Operate, Actor: "ada", Within: engine.Bounds{Queues: []string{"orders"}}}, nil
	}})
	require.NoError(t, err)
	w := &world{t: t, eng: eng, Server: httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	body := w.get("/", http.StatusOK)
	require.NotContains(t, body, ": hidden")
	links := regexp.MustCompile(`href="\./(instances\?fingerprint=([0-9a-f]{16})&amp;status=failed)">(\d+)</a>`).FindAllStringSubmatch(body, -1)
	require.Len(t, links, 2, body)
	require.Equal(t, "137", links[0][3])
	require.Equal(t, "1", links[1][3])
	require.Contains(t, body, "Retry these 137")

	seen := map[string]bool{}
	for next := ""; ; {
		var page struct {
			Instances []struct {
				ID        json.Number `json:"id"`
				LastError string      `json:"last_error"`
			} `json:"instances"`
			Next string `json:"next"`
		}
		require.NoError(t, json.Unmarshal([]byte(w.get("/api/instances?rows=50&after="+next+"&fingerprint="+links[0][2], http.StatusOK)), &page))
		for _, i := range page.Instances {
			require.Regexp(t, "^request .*declined$", i.LastError)
			seen[i.ID.String()] = true
		}
		if next = page.Next; next == "" {
			break
		}
	}
	require.Len(t, seen, 137)
	list := w.get("/"+strings.ReplaceAll(links[0][1], "&amp;", "&"), http.StatusOK)
	require.NotContains(t, list, "the disk is full")
	require.Contains(t, list, `name="fingerprint" value="`+links[0][2]+`"`)
	require.Contains(t, list, "137 failed alike")

	plan := w.post("/plan", http.StatusSeeOther, "verb", "retry", "fingerprint", links[0][2])
	require.Contains(t, w.get(plan, http.StatusOK), "Retry 137 instances")
	w.post(plan+"/apply", http.StatusSeeOther, "reason", "the bank is back")
	require.Eventually(t, func() bool { return strings.Contains(w.get(plan, http.StatusOK), "137 changed") }, patience, 20*time.Millisecond)
	left, err := eng.List(t.Context(), engine.Query{Filter: engine.Filter{Status: []fsm.Status{fsm.StatusFailed}}, Limit: fsm.MaxLimit})
	require.NoError(t, err)
	require.Len(t, left.Instances, 138)
	require.NotContains(t, w.get("/", http.StatusOK), "declined")

	theirs, err := eng.Failures(t.Context(), engine.FailuresOptions{Queue: "theirs"})
	require.NoError(t, err)
	foreign := theirs.Groups[0].Fingerprint
	require.Contains(t, w.get("/instances?fingerprint="+foreign, http.StatusOK), "No instance meets this filter.")
	nothing := w.post("/plan", http.StatusSeeOther, "verb", "retry", "fingerprint", foreign)
	require.Contains(t, w.get(nothing, http.StatusOK), "The verb applies to none of them.")
	w.get("/instances?fingerprint=x", http.StatusBadRequest)
	var status int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE queue = 'theirs' AND status = 'failed'`).Scan(&status))
	require.Equal(t, 137, status)
}

// A list says how far a page has searched if that did not find enough, and its link goes on.
func TestAListSaysHowFarItSearched(t *testing.T) {
	t.Parallel()
	pool, eng := incident(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, finished_at, inserted_at)
		SELECT 'shop', 'start', 'orders', 'done', now(), now() - interval '1 day' FROM generate_series(1, 61000) n`)
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{})
	require.NoError(t, err)
	w := &world{t: t, eng: eng, Server: httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	body := w.get("/instances?status=failed", http.StatusOK)
	require.NotContains(t, body, "Searched back to", "an index has what has failed")
	require.Equal(t, 50, strings.Count(body, `<td class="id">`))
	require.Contains(t, body, "275 failed")
	pages, found := 0, 0
	for path := "/instances?error=disk"; path != ""; pages++ {
		body = w.get(path, http.StatusOK)
		found += strings.Count(body, `<td class="id">`)
		_, after, more := strings.Cut(body, `rel="next" href="./`)
		require.Equal(t, more, strings.Contains(body, "Searched back to"), path)
		path = ""
		if more {
			to, _, _ := strings.Cut(after, `"`)
			path = "/" + strings.ReplaceAll(to, "&amp;", "&")
			require.Contains(t, body, "go on")
		}
	}
	require.Equal(t, 1, found)
	require.LessOrEqual(t, pages, 7)
	var page struct {
		Instances  []any  `json:"instances"`
		Next       string `json:"next"`
		SearchedTo string `json:"searched_to"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.get("/api/instances?error=nobody", http.StatusOK)), &page))
	require.Empty(t, page.Instances)
	require.NotEmpty(t, page.Next)
	require.NotEmpty(t, page.SearchedTo, fmt.Sprintf("%+v", page))
}
