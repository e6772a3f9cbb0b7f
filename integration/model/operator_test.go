package model_test

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// operate applies an operator's order to an instance, and compares whether that was changed.
func (p *pair) operate(id model.ID, want bool, o store.Order) {
	require.Equal(p, want, len(p.order(id, o)) == 1, "%s of instance %d", o.Verb, id)
}

// order carries an order out, and returns the instances that it changed.
func (p *pair) order(id model.ID, o store.Order) []model.ID {
	ctx, cancel := p.context()
	defer cancel()
	o.Mark, o.Most = uuid.NewString(), 1000
	got, err := p.Operate(ctx, []int64{p.ids[id]}, &o)
	if occupied, ok := errors.AsType[*store.OccupiedError](err); ok {
		require.Equal(p, p.model.Occupant(p.model.Get(id).Key).ID, p.models[occupied.Occupant], "occupant of the key of instance %d", id)
		return nil
	}
	require.NoError(p, err)
	p.miss(got.Missed)
	var rows []int64
	for _, c := range got.Changed {
		rows = append(rows, c.ID)
	}
	return p.ofRows(rows)
}

// redrive applies an operator's Retry.
func (p *pair) redrive(id model.ID) {
	p.logf("redrive(%d)", id)
	p.operate(id, p.model.Redrive(id), store.Order{Verb: store.Retry})
}

func (p *pair) cancel(id model.ID) {
	p.logf("cancel(%d)", id)
	p.operate(id, p.model.Cancel(id), store.Order{Verb: store.Cancel})
}

func (p *pair) cancelFamily(id model.ID) {
	p.logf("cancel family(%d)", id)
	require.Equal(p, p.model.CancelFamily(id), p.order(id, store.Order{Verb: store.Cancel, Descendants: true}), "ended with instance %d", id)
}

func (p *pair) pause(id model.ID) {
	p.logf("pause(%d)", id)
	p.operate(id, p.model.Pause(id), store.Order{Verb: store.Pause})
}

func (p *pair) resume(id model.ID) {
	p.logf("resume(%d)", id)
	p.operate(id, p.model.Resume(id), store.Order{Verb: store.Resume})
}

func (p *pair) runNow(id model.ID) {
	p.logf("run now(%d)", id)
	p.operate(id, p.model.RunNow(id), store.Order{Verb: store.RunNow})
}

func (p *pair) reschedule(id model.ID, in time.Duration) {
	p.logf("reschedule(%d, %s)", id, in)
	to := p.model.Now + model.Moment(in)
	p.operate(id, p.model.Reschedule(id, to), store.Order{Verb: store.Reschedule, At: at(to)})
}
