package hosts

import (
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// follow tells the checkout of each ticket whose price or seat the client changes. A zero Message
// sends nothing.
func follow(client *ent.Client, eng *engine.Engine) {
	client.Ticket.OnUpdate(eng, func(t *ent.Ticket) fsm.Message { return machine.Paid.With(t.Cents) })
}
