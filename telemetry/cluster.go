package telemetry

import (
	"slices"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
)

// InstrumentCluster is [Telemetry.Instrument] for each place of a cluster; call it before
// [cluster.New]. All that a place reports has the attribute gendurable.place, its number.
// InstrumentCluster sets Each of the Config, and calls the function that was set there first.
// Places with the same pool report that pool once, at the first of them.
func (t *Telemetry) InstrumentCluster(c *cluster.Config) {
	t.places = make([]*Telemetry, len(c.Places))
	for place := range t.places {
		t.places[place] = t.at(place)
	}
	before := c.Each
	c.Each = func(place int, config *engine.Config) {
		if before != nil {
			before(place, config)
		}
		own := t.places[place]
		own.Instrument(config)
		if slices.ContainsFunc(t.places[:place], func(other *Telemetry) bool { return other.pool == own.pool }) {
			own.pool = nil
		}
	}
}

// at returns the same instruments for a place.
func (t *Telemetry) at(place int) *Telemetry {
	own := *t
	own.config.Attributes = append(slices.Clone(t.config.Attributes), keyPlace.Int(place))
	own.metrics = t.metrics.with(own.config.Attributes)
	own.spans = &spans{config: own.config, tracer: t.spans.tracer}
	own.places = nil
	return &own
}

// ObserveCluster is [Telemetry.Observe] for all places of a cluster that InstrumentCluster has
// prepared. With LagEvery a collection asks all places side by side, and waits at most 5 s for one
// that does not answer.
func (t *Telemetry) ObserveCluster(c *cluster.Cluster) (stop func() error, err error) {
	g := &gauges{}
	for place, own := range t.places {
		g.of = append(g.of, own.observed(c.Engine(place)))
	}
	return t.observe(g)
}
