package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// report is what a joining step saw of its children.
type report struct {
	Children []string
	Dropped  []string
}

func seen(v *fsm.Visit[int, report]) report {
	var r report
	for _, c := range v.Children() {
		text := fmt.Sprintf("%s/%d %s", c.Machine, c.Version, c.Status)
		if c.Failure != "" {
			text += " " + string(c.Failure) + ": " + c.LastError
		}
		r.Children = append(r.Children, text)
	}
	for _, d := range v.Dropped() {
		r.Dropped = append(r.Dropped, fmt.Sprint(d.Index, " ", d.Key, " by ", d.Occupant))
	}
	return r
}

// parent schedules the children that a test gives it and reports their ends.
func parent(children func(v *fsm.Visit[int, report]) []fsm.Spec) (*fsm.Machine[int, report], *fsm.Defined[int, report]) {
	m := fsm.Declare[int, report]("parent")
	return m, m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, report]) (fsm.Outcome, error) {
			return v.ScheduleChildren("join", v.State, children(v)...), nil
		}),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[int, report]) (fsm.Outcome, error) { return v.Done(seen(v)), nil }))
}

func TestChildrenTakeEveryInsertOption(t *testing.T) {
	t.Parallel()
	child := fsm.Declare[int, int]("child", fsm.Queue("children"), fsm.Version(3))
	infos := make(chan fsm.Info, 10)
	run := func(ctx context.Context, n int) (int, error) {
		i, _ := fsm.InfoFrom(ctx)
		infos <- i
		if n < 0 {
			return 0, fsm.Permanent(errors.New("negative"))
		}
		return n, nil
	}
	m, def := parent(func(*fsm.Visit[int, report]) []fsm.Spec {
		return []fsm.Spec{
			child.New(1).Key("own").Priority(7).PartitionKey("p").After(time.Millisecond),
			child.New(2).Queue("default"),
			child.New(-3),
			child.New(4).Key("own"),
			child.New(5).Key("taken"),
		}
	})
	c := config(t, def, child.Job(run))
	c.Queues["children"] = quick(5)
	eng := start(t, c)
	occupant := insert(t, eng, fsm.Declare[int, int]("elsewhere").New(0).Key("taken"))
	id := insert(t, eng, m.New(0))
	got := result(t, eng, m, id)
	require.Equal(t, []string{"child/3 done", "child/3 done", "child/3 failed error: negative"}, got.Children)
	require.Len(t, got.Dropped, 2)
	require.Contains(t, got.Dropped[0], "3 own by ")
	require.Equal(t, fmt.Sprint(4, " taken by ", occupant), got.Dropped[1])
	close(infos)
	by := map[string]fsm.Info{}
	for i := range infos {
		require.Equal(t, id, i.Parent)
		require.Equal(t, 1, i.Depth)
		by[i.Queue+string(i.Key)] = i
	}
	require.Len(t, by, 3)
	require.Equal(t, 7, by["childrenown"].Priority)
	require.Equal(t, "p", by["childrenown"].PartitionKey)
}

func TestAllChildrenDroppedReleaseTheParentAtOnce(t *testing.T) {
	t.Parallel()
	child := fsm.Declare[int, int]("child")
	m, def := parent(func(*fsm.Visit[int, report]) []fsm.Spec {
		return []fsm.Spec{child.New(1).Key("taken"), child.New(2).Key("taken")}
	})
	eng := start(t, config(t, def))
	insert(t, eng, fsm.Declare[int, int]("elsewhere").New(0).Key("taken"))
	got := result(t, eng, m, insert(t, eng, m.New(0)))
	require.Empty(t, got.Children)
	require.Len(t, got.Dropped, 2)
}

// Rounds do not mix, and children have children.
func TestATreeOfRoundsJoinsLevelByLevel(t *testing.T) {
	t.Parallel()
	type visit = fsm.Visit[int, int]
	m := fsm.Declare[int, int]("tree")
	spawn := func(to string) func(context.Context, *visit) (fsm.Outcome, error) {
		return func(_ context.Context, v *visit) (fsm.Outcome, error) {
			if v.Depth == 3 {
				return v.Done(1), nil
			}
			sum := v.State
			for _, c := range m.Children(v) {
				n, err := c.Result()
				if err != nil {
					return nil, err
				}
				sum += n
			}
			return v.ScheduleChildren(to, sum, m.New(0), m.New(0), m.New(0)), nil
		}
	}
	def := m.Define(
		fsm.Step("start", spawn("again")), fsm.Step("again", spawn("join")),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			sum := v.State
			for _, c := range m.Children(v) {
				n, err := c.Result()
				if err != nil {
					return nil, err
				}
				sum += n
			}
			return v.Done(sum), nil
		}))
	eng := start(t, config(t, def))
	require.Equal(t, 6*6*6, result(t, eng, m, insert(t, eng, m.New(0))))
}

// A step may insert, signal and wait by its own engine, as everybody else.
func TestAStepUsesItsEngine(t *testing.T) {
	t.Parallel()
	helper := fsm.Declare[int, int]("helper")
	m := fsm.Declare[int, int]("asking")
	c := config(t,
		helper.Job(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			eng := engine.FromContext(ctx)
			got, err := eng.GetOrInsert(ctx, helper.New(v.State).Key(fsm.Key(v.IdempotencyKey("helper"))))
			if err != nil {
				return nil, err
			}
			n, err := helper.Wait(ctx, eng, got.ID)
			return v.Done(n), err
		})))
	eng := start(t, c)
	require.Equal(t, 42, result(t, eng, m, insert(t, eng, m.New(21))))
}
