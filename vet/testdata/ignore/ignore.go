package ignore

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type visit = fsm.Visit[int, int]

func above(_ context.Context, v *visit) (fsm.Outcome, error) {
	//gendurable:ignore state the number is for the log of this run
	v.State++
	return v.Again(time.Minute), nil
}

func beside(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State++ //gendurable:ignore state the number is for the log of this run
	return v.Again(time.Minute), nil
}

func other(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State++ /* want `state: this change` */ //gendurable:ignore key it is another rule that is wrong here
	return v.Again(time.Minute), nil
}

func unsaid(_ context.Context, v *visit) (fsm.Outcome, error) {
	/* want `say why rule state is to be silent here` */ //gendurable:ignore state
	v.State++                                            // want `state: this change`
	/* want `name the rule that is to be silent: one of steps, state, outcome, effect, stored, key` */ //gendurable:ignore stat no such rule
	return v.Again(time.Minute), nil
}
