package work

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// floods says for each sweep what it sends, and how it begins.
var floods = map[string]struct {
	verb  string
	begin func(s *scene, p *player)
}{
	"awaits":       {"time out", nil},
	"deadlines":    {"expire", nil},
	"kept signals": {"hand over", nil},
	"rest":         {"cancel rest", nil},
	"skips":        {"skip", nil},
	"leases":       {"reap", nil},
	"keys":         {"sweep", nil},
	"gc":           {"prune", nil},
	"promotions":   {"promote", func(_ *scene, p *player) { p.promotions.add(make([]string, promoteMost)) }},
	"keys in line": {"scout", func(_ *scene, p *player) { p.queues["q"].cut.Store(true); wake(p.scout, true) }},
	"lines":        {"refile", func(s *scene, _ *player) { s.gates(store.Gate{Name: "first", Machine: "other", Places: 1}) }},
}

// gates stores gates.
func (s *scene) gates(gates ...store.Gate) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.gates = gates
}

const (
	// floodSlice is how long the server works on a slice of a flooded sweep.
	floodSlice = 100 * time.Millisecond
	// pollSoon is a poll or two of an idle queue.
	pollSoon = 1100 * time.Millisecond
)

// flooded starts a process whose sweeps of some verbs find as much as they take, each time.
func flooded(s *scene, names ...string) *player {
	s.config.Sweeps, s.config.Reap = 2, 5*time.Second
	s.config.Queues["other"] = usual(4)
	s.db.flood = map[string]bool{}
	for _, name := range names {
		s.db.flood[floods[name].verb] = true
	}
	s.change(func(w *weather) {
		w.latency = func(verb string) time.Duration {
			if s.db.flood[verb] {
				return floodSlice
			}
			return 0
		}
	})
	p := s.start()
	s.pass(time.Minute) // the holding off of reapers is over
	for _, name := range names {
		if begin := floods[name].begin; begin != nil {
			begin(s, p)
		}
	}
	for _, name := range names {
		s.until(3*time.Minute, func() bool { return len(s.sent(floods[name].verb)) >= 10 }, name)
	}
	return p
}

// bystand requires that its sweeps do not hold up a process.
func bystand(s *scene, p *player) {
	t := s.t
	for range 5 {
		r := s.db.insert(in("other")) // by another process
		s.until(pollSoon, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "what others insert begins")
		s.pass(333 * time.Millisecond)
	}
	s.db.mu.Lock()
	s.db.paused = []store.PausedQueue{{Queue: "q"}}
	s.db.mu.Unlock()
	s.until(pollSoon, p.queues["q"].paused.Load, "a pause is obeyed")
	s.gates(store.Gate{Name: "closed", Machine: "m", Places: 0})
	s.until(pollSoon, func() bool { return len(p.gates.all()) == 1 && p.gates.all()[0].Name == "closed" }, "a gate is obeyed")
	took, err := p.stop()
	require.NoError(t, err)
	require.Less(t, took, floodSlice, "it stops in the middle of a slice")
}

// Each sweep in turn finds more than it can ever do. Inserts of others begin within a poll, as do
// pauses and gates, the sweep leaves the server half of the time, and Stop does not wait for it. A
// sweep that is not in the table fails the test.
func TestAFloodedSweepHoldsUpNobody(t *testing.T) {
	t.Parallel()
	c := Config{Env: &step.Env{}, Logger: slog.New(&journal{})}
	all := assemble(c, newFake(), func(string) beater { return &fakeLine{} }).sweepLoops()
	require.Len(t, all, len(floods))
	for _, sweep := range all {
		require.Contains(t, floods, sweep.name, "a sweep that no test floods")
		t.Run(sweep.name, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				p := flooded(s, sweep.name)
				began, verb := time.Now(), floods[sweep.name].verb
				s.pass(20 * time.Second)
				require.Less(t, time.Duration(len(s.sent(verb, began)))*floodSlice, 11*time.Second, "it makes room")
				require.Greater(t, len(s.sent(verb, began)), 10, "and goes on")
				bystand(s, p)
			})
		})
	}
}

// All sweeps at once have no more connections than they may.
func TestSweepsTakeTurns(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var names []string
		for name := range floods {
			names = append(names, name)
		}
		p := flooded(s, names...)
		require.Equal(t, 2, s.db.mostEver)
		bystand(s, p)
	})
}
