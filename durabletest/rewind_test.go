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
func crawling(joins func(v *fsm.Visit[int, int]) bool) (fsm.Machine[int, int], []fsm.Definition) {
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
