package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type tariff struct {
	Cents    int64
	Currency string
}

var (
	faresV1 = fsm.Declare[int64, string]("fares", fsm.Version(1))
	faresV2 = fsm.Declare[tariff, string]("fares", fsm.Version(2))
)

// inTwo registers version 2 of the fares, which takes instances of version 1.
func inTwo(c *engine.Config) {
	start := fsm.Step("start", func(_ context.Context, v *fsm.Visit[tariff, string]) (fsm.Outcome, error) {
		return v.Done(fmt.Sprint(v.State.Cents, " ", v.State.Currency)), nil
	})
	c.Machines = append(c.Machines, faresV2.Define(start.To()).From(fsm.Migrate(faresV1, faresV2, func(cents int64) (tariff, error) {
		if cents < 0 {
			return tariff{}, fmt.Errorf("a fare of %d", cents)
		}
		return tariff{cents, "EUR"}, nil
	}, fsm.StepNames{"start": "start"})))
}

// A plan converts all that waits in memory first, and changes nothing: what cannot be converted is
// known before anything is moved.
func ExampleAdmin_Migrate() {
	shop := openShop(inTwo)
	defer shop.close()
	ctx := context.Background()
	_, err := shop.eng.InsertMany(ctx, []fsm.Spec{faresV1.New(250).After(time.Hour), faresV1.New(-1).After(time.Hour)})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := shop.eng.Admin().Migrate(ctx, "fares", 1, 2)
	fmt.Println(plan.Ready, plan.Faulty, plan.Faults[0].Error, err)
	// Output:
	// 1 1 a fare of -1 <nil>
}

// Instances that wait for long are moved at once, rather than when they run next.
func ExampleMigrationPlan_Apply() {
	shop := openShop(inTwo)
	defer shop.close()
	ctx := context.Background()
	id, err := shop.eng.Insert(ctx, faresV1.New(250).After(time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := shop.eng.Admin().Migrate(ctx, "fares", 1, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	done, err := plan.Apply(ctx, engine.Actor("deploy"), engine.Reason("release 2"))
	fmt.Println(done.Moved, done.Skipped, err)
	i, err := faresV2.Get(ctx, shop.eng, id)
	fmt.Println(i.Version, i.State.Cents, i.State.Currency, err)
	// Output:
	// 1 0 <nil>
	// 2 250 EUR <nil>
}

// A program lists machines that it was not compiled with, as those that run them have stored them.
func ExampleEngine_Definitions() {
	shop := openShop(inTwo)
	defer shop.close()
	list, err := shop.eng.Definitions(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range list {
		fmt.Println(d.Machine, d.Version, d.Graph.Initial, len(d.Graph.Steps))
	}
	// Output:
	// checkout 1 start 2
	// fares 2 start 1
}
