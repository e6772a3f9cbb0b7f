package browser

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The page of a graph is accessible, fits, and moves with its nodes.
func TestAGraphInTheBrowser(t *testing.T) {
	script := axe(t)
	night, part := fsm.Declare[string, string]("night"), fsm.Declare[string, string]("part")
	definitions := []fsm.Definition{
		night.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.ScheduleGraph("join", v.State, fsm.Node("load", part.New("")), fsm.Node(hostile, part.New("")).After("load")), nil
		}).To("join"), fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil })),
		part.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Await("end", v.State, paid), nil
		}).To("end"), fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(""), nil })),
	}
	eng, err := engine.New(engine.Config{
		Pool: pgtest.Pool(t, pgtest.Migrated(t)), Machines: definitions,
		Queues: map[string]engine.Queue{"default": {Concurrency: 4, PollMax: 300 * time.Millisecond}},
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })
	id, err := eng.Insert(t.Context(), night.New(""))
	require.NoError(t, err)
	var load fsm.ID
	require.Eventually(t, func() bool {
		g, err := eng.Graph(t.Context(), id)
		if err != nil || len(g.Nodes) == 0 {
			return false
		}
		load = g.Nodes[0].ID
		return g.Nodes[0].Status == fsm.StatusAwaitingSignal
	}, patience, 10*time.Millisecond)
	server := newServer(t, served(t, eng, dashboard.Options{}))
	for _, dark := range []bool{false, true} {
		b := openTab(t, map[bool]int64{false: 360, true: 1440}[dark], 900, dark)
		b.open(server.URL + fmt.Sprintf("/instances/%d/graph", id))
		b.checkPage(script, "a graph")
		b.until(`document.images.length === 0 && document.querySelectorAll('svg.figure .box').length === 2`)
		if dark {
			b.run(chromedp.Evaluate(`window.sameDocument = true`, nil))
			_, err := eng.Signal(t.Context(), load, paid.With(1))
			require.NoError(t, err)
			b.until(`document.querySelector('[data-live=nodes]').innerText.includes('done') && window.sameDocument`)
		}
	}
}
