package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert/yaml"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// measured holds what a small workload leaves in a manual reader and in a registry of Prometheus.
// It records every metric.
type measured struct {
	reader   *sdkmetric.ManualReader
	registry *prometheus.Registry
	eng      *engine.Engine
}

func measure(t *testing.T) measured {
	t.Helper()
	m := measured{reader: sdkmetric.NewManualReader(), registry: prometheus.NewRegistry()}
	scraped, err := exporter.New(exporter.WithRegisterer(m.registry))
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader), sdkmetric.WithReader(scraped))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	var fired atomic.Int64
	eng, tel := shop(t, Config{MeterProvider: provider, TracerProvider: noop.NewTracerProvider(), LagEvery: time.Hour}, func(c *engine.Config) {
		c.Lease, c.Heartbeat = 3*time.Second, 100*time.Millisecond
		c.Schedules = []engine.Schedule{engine.Every("pulse", time.Second, fsm.Declare[string, fsm.None]("elsewhere").New("").Queue("elsewhere"))}
		// The hooks of one firing end before the next begins: at the second, the first is counted.
		c.Hooks = append(c.Hooks, engine.Hooks{Fire: func(context.Context, engine.FireEvent) { fired.Add(1) }})
	})
	m.eng = eng
	require.Eventually(t, func() bool { return fired.Load() > 1 }, time.Minute, time.Millisecond)
	_, err = eng.Admin().SetGate(t.Context(), engine.Gate{Name: "calm", Queue: "calm", Places: 2})
	require.NoError(t, err)
	stop, err := tel.Observe(eng)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	buy(t.Context(), t, eng)
	_, err = eng.Signal(t.Context(), fsm.Key("nobody"), paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)
	require.Eventually(t, func() bool {
		a := eng.Activity()
		return a.InFlight == 0 && !a.LastPoll.IsZero() && !a.LastHeartbeat.IsZero()
	},
		time.Minute, time.Millisecond)
	// A small workload does not meet these, so the test calls their hooks itself.
	told, ctx := tel.metrics.hooks(), t.Context()
	start := fsm.Info{Machine: "checkout", Step: "start", Crashes: 1}
	told.Contended(ctx, engine.ContendedEvent{Claims: 1})
	told.Batch(ctx, engine.BatchEvent{Machine: "checkout", Step: "start", Size: 3, Waited: time.Second})
	told.Reap(ctx, engine.ReapEvent{Released: 2, Failed: 1})
	told.Expire(ctx, engine.ExpireEvent{Failed: 1})
	told.Cancel(ctx, engine.CancelEvent{Cancelled: 1})
	told.Zombie(ctx, engine.ZombieEvent{Instance: start})
	told.Stale(ctx, engine.StaleEvent{Instance: start})
	told.Drain(ctx, engine.DrainEvent{Released: 3, Abandoned: 1})
	told.Prune(ctx, engine.PruneEvent{Deleted: 5, Unread: 1, Expired: 4})
	told.Unread(ctx, engine.UnreadEvent{Instance: start, Signals: map[string]int{"paid": 2}})
	told.Fire(ctx, engine.FireEvent{Schedule: "nightly", Inserted: 2, Missed: 3, Skipped: 1, Late: time.Hour})
	told.Step(ctx, engine.StepEvent{Instance: fsm.Info{Machine: "checkout", Step: "start"}, CutOff: fsm.ErrLeaseLost})
	told.Step(ctx, engine.StepEvent{Instance: start, Outcome: fsm.OutcomeFail, Failure: fsm.FailureDecided, Took: time.Millisecond})
	return m
}

// family is a metric as the guide describes it.
type family struct {
	unit, kind string
	attributes []string
}

func (m measured) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &all))
	out := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, Scope, scope.Scope.Name)
		for _, one := range scope.Metrics {
			out[one.Name] = one
		}
	}
	return out
}

// described returns a metric's kind, and the attributes of its points.
func described(t *testing.T, m metricdata.Metrics) family {
	t.Helper()
	names := map[string]bool{}
	note := func(set attribute.Set) {
		for _, a := range set.ToSlice() {
			names[string(a.Key)] = true
		}
	}
	f := family{unit: m.Unit}
	sum := func(monotonic bool) {
		if f.kind = "up-down counter"; monotonic {
			f.kind = "counter"
		}
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		sum(data.IsMonotonic)
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	case metricdata.Sum[float64]:
		sum(data.IsMonotonic)
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	case metricdata.Gauge[int64]:
		f.kind = "gauge"
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	case metricdata.Gauge[float64]:
		f.kind = "gauge"
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	case metricdata.Histogram[int64]:
		f.kind = "histogram"
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		f.kind = "histogram"
		for _, p := range data.DataPoints {
			note(p.Attributes)
		}
	default:
		require.Fail(t, "a kind of metric that the guide does not know", "%T", data)
	}
	f.attributes = slices.Sorted(maps.Keys(names))
	return f
}

// The guide has a row for each metric, with its kind, unit and attributes, and no row for any
// other.
func TestTheGuideHasEachMetric(t *testing.T) {
	t.Parallel()
	got := map[string]family{}
	for name, m := range measure(t).collect(t) {
		require.NotEmpty(t, m.Description, name)
		got[name] = described(t, m)
	}
	guide, err := os.ReadFile("../docs/guide/observability.md")
	require.NoError(t, err)
	quoted := regexp.MustCompile("`([^`]+)`")
	want := map[string]family{}
	for line := range strings.Lines(string(guide)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `gendurable.") || len(cells) < 6 {
			continue
		}
		f := family{kind: strings.TrimSpace(cells[2]), unit: strings.Trim(strings.TrimSpace(cells[3]), "`"), attributes: nil}
		for _, a := range quoted.FindAllStringSubmatch(cells[4], -1) {
			f.attributes = append(f.attributes, a[1])
		}
		slices.Sort(f.attributes)
		want[quoted.FindStringSubmatch(cells[1])[1]] = f
	}
	require.Equal(t, want, got)
}

func TestValuesOfMetrics(t *testing.T) {
	t.Parallel()
	all := measure(t).collect(t)
	total := func(name string, is ...attribute.KeyValue) (n float64) {
		matches := func(set attribute.Set) bool {
			return !slices.ContainsFunc(is, func(a attribute.KeyValue) bool { v, ok := set.Value(a.Key); return !ok || v != a.Value })
		}
		switch data := all[name].Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if matches(p.Attributes) {
					n += float64(p.Value)
				}
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				if matches(p.Attributes) {
					n += float64(p.Count)
				}
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				n += float64(p.Sum)
			}
		}
		return n
	}
	require.EqualValues(t, 1, total("gendurable.step.duration", keyMachine.String("checkout"), keyOutcome.String("await")))
	require.EqualValues(t, 5, total("gendurable.step.duration", keyMachine.String("parcel")))
	require.EqualValues(t, 2, total("gendurable.step.errors", keyErrorType.String("panic")))
	require.EqualValues(t, 2, total("gendurable.step.errors", keyErrorType.String("_OTHER")))
	require.EqualValues(t, 1, total("gendurable.step.crashed"))
	require.EqualValues(t, 1, total("gendurable.step.cut", keyMachine.String("checkout"), keyStep.String("start"), keyResult.String("lease_lost")))
	require.EqualValues(t, 1, total("gendurable.step.zombies", keyMachine.String("checkout"), keyStep.String("start")))
	for _, failure := range []fsm.Failure{fsm.FailureDecided, fsm.FailureCrashes, fsm.FailureDeadline, fsm.FailureCancelled} {
		require.EqualValues(t, 1, total("gendurable.instance.failed", keyFailure.String(string(failure))), failure)
	}
	require.GreaterOrEqual(t, total("gendurable.commit.size"), 8.)
	require.GreaterOrEqual(t, total("gendurable.pick.claimed", keyQueue.String("parcels")), 5.)
	require.Greater(t, total("gendurable.pick.wanted"), total("gendurable.pick.claimed"))
	require.EqualValues(t, 1, total("gendurable.call.duration", keyVerb.String("insert")))
	require.EqualValues(t, 1, total("gendurable.call.duration", keyVerb.String("signal"), keyErrorType.String("no_target")))
	require.EqualValues(t, 4, total("gendurable.queue.slots", keyQueue.String("parcels")))
	require.Zero(t, total("gendurable.claims"))
	require.Positive(t, total("gendurable.schedule.occurrences", keySchedule.String("pulse"), keyResult.String("inserted")))
	require.EqualValues(t, 2, total("gendurable.schedule.occurrences", keySchedule.String("nightly"), keyResult.String("inserted")))
	require.EqualValues(t, 3, total("gendurable.schedule.occurrences", keySchedule.String("nightly"), keyResult.String("missed")))
	require.EqualValues(t, 1, total("gendurable.schedule.occurrences", keySchedule.String("nightly"), keyResult.String("skipped")))
	require.EqualValues(t, 1, total("gendurable.schedule.lateness", keySchedule.String("nightly")))
	require.Positive(t, total("gendurable.pool.connection.max"))
}

// Prometheus takes the increase of a counter from its first sample on. If a counter appeared with a
// value above 0, an alert on the first reaped claim, stale outcome or missed occurrence would not
// fire.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	m := measured{reader: sdkmetric.NewManualReader()}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	tel, err := New(Config{MeterProvider: provider, TracerProvider: noop.NewTracerProvider()})
	require.NoError(t, err)
	pulse := fsm.Declare[string, fsm.None]("pulse")
	tel.Instrument(&engine.Config{
		Machines:  []fsm.Definition{pulse.Job(func(context.Context, string) (fsm.None, error) { return fsm.None{}, nil })},
		Queues:    map[string]engine.Queue{"default": {}},
		Schedules: []engine.Schedule{engine.Every("hourly", time.Hour, pulse.New(""))},
	})
	born := map[string]int{}
	for name, metric := range m.collect(t) {
		sum, ok := metric.Data.(metricdata.Sum[int64])
		require.True(t, ok, name)
		for _, p := range sum.DataPoints {
			require.Zero(t, p.Value, name)
		}
		born[name] = len(sum.DataPoints)
	}
	require.Equal(t, map[string]int{
		"gendurable.pick.wanted": 1, "gendurable.pick.claimed": 1, "gendurable.key.contended": 1, "gendurable.step.errors": 3,
		"gendurable.step.crashed": 1, "gendurable.step.cut": 3, "gendurable.step.zombies": 1, "gendurable.commit.stale": 1, "gendurable.instance.failed": 7,
		"gendurable.reap.claims": 2, "gendurable.drain.claims": 2, "gendurable.gc.deleted": 1, "gendurable.signal.unread": 3, "gendurable.schedule.occurrences": 3,
	}, born, "each counter, and for how many sets of attributes")
}

// exported returns the names that Prometheus scrapes, and the names of their labels.
func (m measured) exported(t *testing.T) (metrics, labels map[string]bool) {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	metrics, labels = map[string]bool{}, map[string]bool{}
	for _, f := range families {
		suffixes := []string{""}
		if f.GetMetric()[0].GetHistogram() != nil {
			suffixes = []string{"_bucket", "_sum", "_count"}
		}
		for _, suffix := range suffixes {
			metrics[f.GetName()+suffix] = true
		}
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = true
			}
		}
	}
	return metrics, labels
}

var (
	quotes    = regexp.MustCompile(`"[^"]*"`)
	selection = regexp.MustCompile(`\{[^}]*\}`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	variable  = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	ours      = regexp.MustCompile(`\b(?:gendurable|error)_\w+`)
)

// named returns the metrics and the labels of this module that an expression of PromQL names.
func named(expression string) (metrics, labels []string) {
	rest := quotes.ReplaceAllString(expression, `""`)
	for _, s := range selection.FindAllString(rest, -1) {
		labels = append(labels, ours.FindAllString(s, -1)...)
	}
	rest = selection.ReplaceAllString(rest, "")
	if m := variable.FindStringSubmatch(rest); m != nil {
		return []string{m[1]}, append(labels, ours.FindAllString(m[2], -1)...)
	}
	for _, g := range grouping.FindAllStringSubmatch(rest, -1) {
		labels = append(labels, ours.FindAllString(g[1], -1)...)
	}
	return ours.FindAllString(grouping.ReplaceAllString(rest, ""), -1), labels
}

// expressions returns the PromQL in a decoded value, at whatever depth.
func expressions(v any) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if text, ok := inner.(string); ok && (key == "expr" || key == "definition") {
				found = append(found, text)
			}
			found = append(found, expressions(inner)...)
		}
	case []any:
		for _, inner := range v {
			found = append(found, expressions(inner)...)
		}
	}
	return found
}

// All metrics and labels that the dashboard and the alerts name exist.
func TestDashboardAndAlertsNameWhatIsExported(t *testing.T) {
	t.Parallel()
	metrics, labels := measure(t).exported(t)
	for file, read := range map[string]func([]byte, any) error{"dashboard.json": json.Unmarshal, "alerts.yml": yaml.Unmarshal} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var content map[string]any
		require.NoError(t, read(text, &content), file)
		found := expressions(content)
		require.NotEmpty(t, found, file)
		for _, expression := range found {
			names, of := named(expression)
			require.NotEmpty(t, names, "%s: %s", file, expression)
			for _, name := range names {
				require.Contains(t, metrics, name, "%s: %s", file, expression)
			}
			for _, name := range of {
				require.Contains(t, labels, name, "%s: %s", file, expression)
			}
			require.Equal(t, strings.Count(expression, "("), strings.Count(expression, ")"), "%s: %s", file, expression)
		}
	}
	text, err := os.ReadFile("prometheus.yml")
	require.NoError(t, err)
	var content struct {
		RuleFiles     []string         `yaml:"rule_files"`
		ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &content))
	require.Equal(t, []string{"alerts.yml"}, content.RuleFiles)
	require.NotEmpty(t, content.ScrapeConfigs)
}

func TestNamesInExpressions(t *testing.T) {
	t.Parallel()
	metrics, labels := named(`sum by (gendurable_queue) (rate(gendurable_a_total{gendurable_step=~"gendurable_x"}[5m])) / gendurable_b`)
	require.Equal(t, []string{"gendurable_a_total", "gendurable_b"}, metrics)
	require.Equal(t, []string{"gendurable_step", "gendurable_queue"}, labels)
	metrics, labels = named(`label_values(gendurable_a, gendurable_queue)`)
	require.Equal(t, []string{"gendurable_a"}, metrics)
	require.Equal(t, []string{"gendurable_queue"}, labels)
}

// However many collectors ask, the database is queried once per LagEvery; if it does not answer, an
// old lag is not reported as a new one.
func TestLagIsCached(t *testing.T) {
	t.Parallel()
	asked := 0
	away := errors.New("away")
	l := kept[map[string]time.Duration]{every: time.Hour, ask: func(ctx context.Context) (map[string]time.Duration, error) {
		asked++
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		if asked == 2 {
			return nil, away
		}
		return map[string]time.Duration{"q": time.Second}, nil
	}}
	for range 3 {
		lag, err := l.now(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]time.Duration{"q": time.Second}, lag)
	}
	require.Equal(t, 1, asked)
	l.at = l.at.Add(-2 * time.Hour)
	lag, err := l.now(t.Context())
	require.ErrorIs(t, err, away)
	require.Empty(t, lag)
	lag, err = l.now(t.Context())
	require.NoError(t, err)
	require.Empty(t, lag)
	require.Equal(t, 2, asked)
}

// A host makes the Configs of several engines from one, whose slices may have room for more.
func TestConfigsMayShareAnArray(t *testing.T) {
	t.Parallel()
	own := engine.Hooks{Step: func(context.Context, engine.StepEvent) {}}
	shared := engine.Config{Hooks: append(make([]engine.Hooks, 0, 4), own), Middleware: append(make([]engine.Middleware, 0, 4), engine.Middleware{})}
	var configs [2]engine.Config
	for i := range configs {
		tel, err := New(Config{})
		require.NoError(t, err)
		configs[i] = shared
		tel.Instrument(&configs[i])
		require.Len(t, configs[i].Hooks, 2)
		require.Len(t, configs[i].Middleware, 2)
	}
	require.Len(t, shared.Hooks, 1)
	require.NotSame(t, &configs[0].Hooks[1], &configs[1].Hooks[1], "the second engine's hooks would be called for the first one, too")
	require.Nil(t, shared.Hooks[:2][1].Step)
	require.Nil(t, shared.Middleware[:2][1].Step)
}
