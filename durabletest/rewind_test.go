package durabletest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// crawling is the stream of the guide. What a page says decides how it ends; the others wait for a
// word.
func crawling(joins func(v *fsm.Visit[int, int]) bool) (*fsm.Machine[int, int], []fsm.Definition) {
	site := fsm.Declare[int, int]("site")
	page := fsm.Declare[string, int]("site.page")
	collect := func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		sum := v.State
		for _, page := range page.Children(v) {
			if words, err := page.Result(); err == nil {
				sum += words
			}
		}
		if joins(v) && v.Round().Left == 0 {
			return v.Done(sum), nil
		}
		return v.Rejoin("collect", sum).Stream(2), nil
	}
	return site, []fsm.Definition{
		site.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			var pages []fsm.Spec
			for n := range v.State {
				text := "slow"
				if n < 3 {
					text = "ready"
				}
				pages = append(pages, page.New(text))
			}
			return v.ScheduleChildren("collect", 0, pages...).Stream(2), nil
		}).To("collect"), fsm.Step("collect", collect).To("collect")),
		page.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			if v.State == "slow" {
				return v.Await("end", v.State, letterOfPages), nil
			}
			return v.Done(10), nil
		}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			if v.State == "slow" {
				return v.Done(1), nil
			}
			return nil, errors.New("never")
		})),
	}
}

var letterOfPages = fsm.DeclareSignal[string]("letter of pages")

// A stream that is rewound goes on behind its last portion: each end is shown once, and it ends
// when all are. Without Joins its step would take the visit of the rewind, at which nothing joins,
// for the end.
func TestARewoundStreamGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages int
		joins func(v *fsm.Visit[int, int]) bool
		want  int
	}{
		"goes on":     {5, (*fsm.Visit[int, int]).Joins, 32},
		"no children": {0, (*fsm.Visit[int, int]).Joins, 0},
		"not asked":   {5, func(*fsm.Visit[int, int]) bool { return true }, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site, machines := crawling(c.joins)
			kit := durabletest.New(t, durabletest.Config{Machines: machines})
			id, err := kit.Engine.Insert(t.Context(), site.New(c.pages))
			require.NoError(t, err)
			durabletest.RequireDrain(t, kit)
			if c.pages > 0 {
				_, err = kit.Engine.Admin().Rewind(t.Context(), id, "collect", fsm.Change{})
				require.NoError(t, err)
				durabletest.RequireDrain(t, kit)
				for i := range fsm.ID(c.pages) {
					if k, err := kit.Engine.Get(t.Context(), id+1+i); err == nil && !k.Status.Terminal() {
						_, err = kit.Engine.Signal(t.Context(), k.ID, letterOfPages.With(""))
						require.NoError(t, err)
						durabletest.RequireDrain(t, kit)
					}
				}
			}
			got, err := site.Get(t.Context(), kit.Engine, id)
			require.NoError(t, err)
			require.Equal(t, fsm.StatusDone, got.Status, got.LastError)
			require.Equal(t, c.want, got.Result)
		})
	}
}

// A node that is rewound to its first step has what it has waited for, as at its first visit.
// Whatever it has joined since makes no reason to skip it.
func TestARewoundNodeHasItsUpstream(t *testing.T) {
	t.Parallel()
	root, source, sink, piece := fsm.Declare[int, int]("rewound"), fsm.Declare[int, int]("rewound.source"),
		fsm.Declare[int, int]("rewound.sink"), fsm.Declare[int, int]("rewound.piece")
	job := func(_ context.Context, n int) (int, error) {
		if n < 0 {
			return 0, fsm.Permanent(errors.New("bad"))
		}
		return n, nil
	}
	var given []int
	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{
		root.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			return v.ScheduleGraph("end", 0, fsm.Node("good", source.New(7)), fsm.Node("bad", source.New(-1)),
				fsm.Node("sink", sink.New(0)).After("good").AfterEnd("bad")), nil
		}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(0), nil })),
		source.Job(job), piece.Job(job),
		sink.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			n, err := source.Upstream(v, "good")
			if err != nil {
				return nil, err
			}
			if bad, waited := v.Upstream("bad"); !waited || bad.Status != fsm.StatusFailed {
				return nil, errors.New("it has not waited for bad")
			}
			given = append(given, n)
			return v.ScheduleChildren("joined", n, piece.New(-1)), nil // a child that fails is none that it waits for
		}), fsm.Step("joined", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			return v.Await("end", v.State, letterOfPages), nil
		}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			if _, waited := v.Upstream("good"); waited {
				return nil, errors.New("a later step has it, too")
			}
			return v.Done(v.State), nil
		})),
	}})
	id, err := kit.Engine.Insert(t.Context(), root.New(0))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	graph, err := kit.Engine.Graph(t.Context(), id)
	require.NoError(t, err)
	for _, n := range graph.Nodes {
		if n.Name != "sink" {
			continue
		}
		require.Equal(t, fsm.StatusAwaitingSignal, n.Status)
		_, err = kit.Engine.Admin().Rewind(t.Context(), n.ID, "start", fsm.Change{})
		require.NoError(t, err)
		durabletest.RequireDrain(t, kit)
		_, err = kit.Engine.Signal(t.Context(), n.ID, letterOfPages.With(""))
		require.NoError(t, err)
		durabletest.RequireDrain(t, kit)
		got, err := sink.Get(t.Context(), kit.Engine, n.ID)
		require.NoError(t, err)
		require.Equal(t, fsm.StatusDone, got.Status, got.LastError)
		require.Equal(t, 7, got.Result)
	}
	require.Equal(t, []int{7, 7}, given)
}
