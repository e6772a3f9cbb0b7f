package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// imagined is a schedule by the rules of docs/guide/schedules.md and nothing else: whole seconds
// since the epoch of the history, and every multiple of the period is an occurrence.
type imagined struct {
	period     int
	catchUp    CatchUp
	overlap    Overlap
	next, last int // last: 0, none
	paused     bool
	newest     string // key of the newest instance; empty: none
}

// imagination is all schedules and all instances, by key, with whether they live.
type imagination struct {
	now       int
	schedules map[string]*imagined
	instances map[string]bool
	missed    bool // by the newest firing
	skipped   int
}

// fire what is due.
func (w *imagination) fire() {
	w.missed, w.skipped = false, 0
	for name, s := range w.schedules {
		if s.paused {
			continue
		}
		var due []int
		for ; s.next <= w.now; s.next += s.period {
			due = append(due, s.next)
		}
		if len(due) > MaxCatchUp {
			due, w.missed = due[len(due)-MaxCatchUp:], true
		}
		if s.catchUp != CatchUpAll {
			onTime := slices.IndexFunc(due, func(at int) bool { return w.now-at <= 60 })
			switch {
			case onTime < 0 && s.catchUp == CatchUpLatest:
				onTime = max(0, len(due)-1)
			case onTime < 0:
				onTime = len(due)
			}
			w.missed, due = w.missed || onTime > 0, due[onTime:]
		}
		for _, at := range due {
			if s.overlap == OverlapSkip && w.instances[s.newest] {
				w.skipped++
				continue
			}
			s.last, s.newest = at, key(name, moment(at))
			if _, begun := w.instances[s.newest]; !begun {
				w.instances[s.newest] = true
			}
		}
	}
}

// moment is a second of the history, whose epoch is a multiple of each period.
func moment(at int) time.Time { return time.Unix(25_200*71_429+int64(at), 0).UTC() }

// declared is a schedule as a program has it.
func (s *imagined) declared(name string) Schedule {
	return Every(name, time.Duration(s.period)*time.Second, report.New(nil)).CatchUp(s.catchUp).Overlap(s.overlap)
}

// TestFiringIsAsImagined: random histories of schedules, by the engine and by the rules; after each
// operation all that can be seen is the same. SEEDS histories, else 20.
func TestFiringIsAsImagined(t *testing.T) {
	t.Parallel()
	seeds := tier.Size(t, "SEEDS", 6, 12, 100)
	s := newStage(t, nil)
	done := map[string]int{}
	for seed := range seeds {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s.t = t
			s.exec(`TRUNCATE gendurable.gen_durable, gendurable.schedules CASCADE`)
			h := &firingHistory{stage: s, Rand: rand.New(rand.NewPCG(uint64(seed), 1)), done: done, //nolint:gosec // repeatable
				w: imagination{now: 10_000_000, schedules: map[string]*imagined{}, instances: map[string]bool{}}}
			for range 60 {
				h.operate()
				h.compare()
			}
		}) {
			break
		}
	}
	if !t.Failed() {
		for _, what := range []string{"missed", "skipped", "run", "refused", "pause", "resume", "delete", "declare", "set back", "end", "fire"} {
			require.Positive(t, done[what], "%s never happened", what)
		}
	}
}

type firingHistory struct {
	*stage
	*rand.Rand
	w    imagination
	told []string
	done map[string]int
}

func (h *firingHistory) did(what, name string) {
	h.done[what]++
	h.told = append(h.told, fmt.Sprintf("%d: %s %s", h.w.now, what, name))
}

func (h *firingHistory) operate() {
	names := []string{"a", "b", "c"}
	name := names[h.IntN(len(names))]
	s, a, ctx := h.w.schedules[name], h.Admin(), h.t.Context()
	switch n := h.IntN(20); {
	case n < 9 || s == nil && n < 17:
		// Time passes: seldom much of it, now and then more than is caught up with.
		h.w.now += []int{h.IntN(3), h.IntN(10), h.IntN(100), h.IntN(300), h.IntN(300), h.IntN(4000)}[h.IntN(6)]
		h.did("fire", "")
		h.stage.told.missed, h.stage.told.skipped = 0, 0
		for moved := true; moved; {
			moved = false
			_, err := h.fireDue(ctx, moment(h.w.now), func(e FireEvent) {
				moved = true
				h.note(e)
			})
			require.NoError(h.t, err)
		}
		h.w.fire()
		require.Equal(h.t, h.w.missed, h.stage.told.missed > 0, h.story())
		require.Equal(h.t, h.w.skipped, h.stage.told.skipped, h.story())
		if h.w.missed {
			h.done["missed"]++
		}
		h.done["skipped"] += h.w.skipped
	case n < 11:
		h.did("end", "all")
		h.end()
		for k := range h.w.instances {
			h.w.instances[k] = false
		}
	case n < 12:
		h.did("pause", name)
		changed, err := a.PauseSchedule(ctx, name)
		require.NoError(h.t, err)
		require.Equal(h.t, !s.paused, changed)
		s.paused = true
	case n < 14:
		h.did("resume", name)
		changed, err := a.ResumeSchedule(ctx, name)
		require.NoError(h.t, err)
		require.Equal(h.t, s.paused, changed)
		s.paused = false
	case n < 15:
		id, err := a.RunSchedule(ctx, name)
		if s.overlap == OverlapSkip && h.w.instances[s.newest] {
			h.did("refused", name)
			require.ErrorIs(h.t, err, ErrConflict, h.story())
			return
		}
		h.did("run", name)
		require.NoError(h.t, err, h.story())
		i, err := h.Get(ctx, id)
		require.NoError(h.t, err)
		s.newest = string(i.Key)
		h.w.instances[s.newest] = true
	case n < 16:
		h.did("delete", name)
		require.NoError(h.t, a.DeleteSchedule(ctx, name))
		delete(h.w.schedules, name)
	case n < 17 && s.overlap == OverlapAllow:
		h.did("set back", name)
		by := h.IntN(10) * s.period
		s.next -= by
		h.exec(`UPDATE gendurable.schedules SET next_at = next_at - $2::interval WHERE name = $1`, name, time.Duration(by)*time.Second)
	default:
		h.declare(name)
	}
}

// declare is a process that starts, with a schedule that is new, or changed, or as it was.
func (h *firingHistory) declare(name string) {
	is := imagined{period: []int{1, 7, 60, 3600}[h.IntN(4)], catchUp: []CatchUp{CatchUpLatest, CatchUpNone, CatchUpAll}[h.IntN(3)],
		overlap: []Overlap{OverlapAllow, OverlapSkip}[h.IntN(2)]}
	is.next = (h.w.now/is.period + 1) * is.period
	if was := h.w.schedules[name]; was != nil {
		if h.IntN(2) == 0 {
			is.period = was.period
		}
		is.last, is.paused, is.newest = was.last, was.paused, was.newest
		if is.next = (h.w.now/is.period + 1) * is.period; is.period == was.period {
			is.next = was.next
		}
	}
	h.did("declare", fmt.Sprintf("%s: every %d s, %s, %s", name, is.period, is.catchUp, is.overlap))
	e, err := New(Config{Pool: h.pool, Schedules: []Schedule{is.declared(name)}, Logger: h.config.Logger})
	require.NoError(h.t, err)
	require.NoError(h.t, e.storeSchedules(h.t.Context(), moment(h.w.now)))
	h.w.schedules[name] = &is
}

// seen is a schedule as it is listed.
type seen struct {
	Name, Expression string
	CatchUp          CatchUp
	Overlap          Overlap
	Next, Last       time.Time
	Paused           bool
	Newest           string
}

func (h *firingHistory) compare() {
	want, got := []seen{}, []seen{}
	for name, s := range h.w.schedules {
		one := seen{Name: name, Expression: s.declared(name).expression, CatchUp: s.catchUp, Overlap: s.overlap, Next: moment(s.next), Paused: s.paused,
			Newest: s.newest}
		if s.last != 0 {
			one.Last = moment(s.last)
		}
		want = append(want, one)
	}
	slices.SortFunc(want, func(a, b seen) int { return cmp.Compare(a.Name, b.Name) })
	for s, err := range h.Admin().AllSchedules(h.t.Context(), ScheduleQuery{Limit: 1}) {
		require.NoError(h.t, err)
		one := seen{Name: s.Name, Expression: s.Expression, CatchUp: s.CatchUp, Overlap: s.Overlap, Next: s.Next.UTC(), Paused: !s.Paused.IsZero()}
		if !s.Last.IsZero() {
			one.Last = s.Last.UTC()
		}
		if s.Instance != 0 {
			i, err := h.Get(h.t.Context(), s.Instance)
			require.NoError(h.t, err)
			one.Newest = string(i.Key)
		}
		got = append(got, one)
	}
	require.Equal(h.t, want, got, h.story())
	keys := h.keys()
	slices.Sort(keys)
	all := []string{}
	for k := range h.w.instances {
		all = append(all, k)
	}
	slices.Sort(all)
	require.True(h.t, slices.Equal(all, keys), "%d instances, want %d\n%s", len(keys), len(all), h.story())
}

func (h *firingHistory) story() string { return strings.Join(h.told, "\n") }
