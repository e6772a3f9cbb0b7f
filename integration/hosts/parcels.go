package hosts

import (
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// drive starts a checkout with each parcel that the client creates.
func drive(client *ent.Client, eng *engine.Engine) {
	client.Parcel.OnCreate(eng, func(p *ent.Parcel) fsm.Spec {
		return machine.Checkout.New(machine.Cart{Order: int64(p.ID), Cents: p.Cents}).Key(fsm.Key("parcel:" + p.Number))
	})
}
