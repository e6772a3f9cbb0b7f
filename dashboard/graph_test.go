package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The page of a graph shows each node as it is, the least time that is left, and the nodes that a
// failed node blocks. It offers no Retry of a node, which would be refused.
func TestAGraphIsDrawn(t *testing.T) {
	t.Parallel()
	night, part := fsm.Declare[string, string]("night"), fsm.Declare[string, string]("part")
	whole := night.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.ScheduleGraph("join", v.State, fsm.Node("load", part.New("load")), fsm.Node("bad", part.New("bad")),
				fsm.Node("slow", part.New("slow")).After("load"), fsm.Node("<mail>", part.New("mail")).After("slow"), fsm.Node("late", part.New("late")).After("bad")), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil }))
	each := part.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			switch v.State {
			case "bad":
				return nil, fsm.Permanent(errors.New("no"))
			case "slow":
				return v.Await("end", v.State, paid), nil
			}
			return v.Done(v.State), nil
		}).To("end"),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Done(v.State), nil
		}))
	eng, err := engine.New(engine.Config{
		Pool: pgtest.Pool(t, pgtest.Migrated(t)), Machines: []fsm.Definition{whole, each},
		Queues: map[string]engine.Queue{"default": {Concurrency: 4, PollMax: 300 * time.Millisecond}},
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })
	id, err := eng.Insert(t.Context(), night.New(""))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g, err := eng.Graph(t.Context(), id)
		is := map[string]fsm.Status{}
		for _, n := range g.Nodes {
			is[n.Name] = n.Status
		}
		return err == nil && is["bad"] == fsm.StatusFailed && is["slow"] == fsm.StatusAwaitingSignal
	}, patience, 10*time.Millisecond)

	access := dashboard.Access{Level: dashboard.Operate}
	h, err := dashboard.New(eng, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	require.NoError(t, err)
	w := &world{t, eng, httptest.NewServer(h)}
	t.Cleanup(w.Close)
	w.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	path := fmt.Sprintf("/instances/%d/graph", id)
	text := w.get(path, http.StatusOK)
	require.Contains(t, text, "The longest chain that is left has 2 nodes.")
	require.Contains(t, text, "&lt;mail&gt;")
	require.NotContains(t, text, "<mail>")
	require.Contains(t, text, `class="figure`)
	require.Contains(t, text, "does not run again by itself")
	require.Contains(t, w.get("/api"+path, http.StatusOK), `"name":"slow"`)
	g, err := eng.Graph(t.Context(), id)
	require.NoError(t, err)
	for _, n := range g.Nodes {
		if n.Name == "bad" {
			bad := w.get(fmt.Sprintf("/instances/%d", n.ID), http.StatusOK)
			require.NotContains(t, bad, fmt.Sprintf("/instances/%d/retry", n.ID))
			require.NotContains(t, bad, fmt.Sprintf("/instances/%d/rewind", n.ID))
			w.post(fmt.Sprintf("/instances/%d/retry", n.ID), http.StatusConflict)
			require.Contains(t, bad, fmt.Sprintf("/instances/%d/restart", n.ID))
			require.Contains(t, text, fmt.Sprintf("/instances/%d/restart", id))
			require.Contains(t, w.post(fmt.Sprintf("/instances/%d/restart", n.ID), http.StatusSeeOther), "did=restart")
			require.Eventually(t, func() bool {
				row, err := eng.Ent().Instance.Get(t.Context(), n.ID)
				return err == nil && row.Status == fsm.StatusFailed
			}, patience, 10*time.Millisecond)
		}
	}
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d", id), http.StatusOK), fmt.Sprintf("instances/%d/graph", id))
	require.Contains(t, w.get("/instances/1000000/graph", http.StatusNotFound), "There is no such instance")
	plain, err := eng.Insert(t.Context(), part.New("slow"))
	require.NoError(t, err)
	require.Contains(t, w.get(fmt.Sprintf("/instances/%d/graph", plain), http.StatusOK), "no nodes of a graph")

	// The root has failed at its join: a Retry of it is refused, so it has no button.
	verbs := func(id fsm.ID) (offered []string) {
		text := w.get(fmt.Sprintf("/instances/%d", id), http.StatusOK)
		for _, verb := range []string{"retry", "restart"} {
			if strings.Contains(text, fmt.Sprintf("/instances/%d/%s\"", id, verb)) {
				offered = append(offered, verb)
			}
		}
		return offered
	}
	_, err = eng.Admin().Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"restart"}, verbs(id))
	for _, n := range g.Nodes {
		if n.Name == "bad" {
			require.Empty(t, verbs(n.ID), "the root is to be restarted")
			require.Contains(t, w.get(fmt.Sprintf("/instances/%d", n.ID), http.StatusOK), fmt.Sprintf("a Restart of instance %d runs it again", id))
		}
	}
	_, err = eng.Admin().Cancel(t.Context(), plain)
	require.NoError(t, err)
	require.Equal(t, []string{"retry"}, verbs(plain))

	access.Within.Queues = []string{"default"} // of which all nodes are
	require.Contains(t, w.get(path, http.StatusOK), "slow")
	require.Contains(t, w.get("/api"+path, http.StatusOK), "slow")
	access.Within.Queues = []string{"other"}
	w.get(path, http.StatusNotFound)
}
