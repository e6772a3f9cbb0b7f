package stored

import (
	"context"
	"io"
	"math/big"
	"sync"
	"time"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/fsm"
)

type hidden struct{ cents int }

type failure struct {
	Why error
}

type Loop struct {
	Next *Loop
	Done chan int
}

type Order struct {
	ID    int64
	Items []Item[string]
}

type Item[T any] struct {
	Of    T
	cache map[string]T
}

type Guarded struct {
	mu sync.Mutex
	N  int
}

type Embeds struct {
	part
	N int
}

type part struct {
	Sum int
	at  time.Time
}

var (
	A = fsm.Declare[hidden, string]("a")                  // want `stored: the state: stored.hidden: all fields of stored.hidden are unexported`
	B = fsm.Declare[string, failure]("b")                 // want `stored: the result: stored.failure.Why: nothing says which type to decode for the interface error`
	C = fsm.DeclareSignal[func()]("c")                    // want `stored: the payload: func\(\): there is no JSON of func\(\)`
	D = fsm.Declare[map[string]big.Int, string]("d")      // want `stored: the state: map\[string\]big.Int\[\]: the MarshalJSON of big.Int is a method of the pointer`
	E = fsm.Declare[Loop, string]("e")                    // want `stored: the state: stored.Loop.Done: there is no JSON of chan int`
	F = fsm.Declare[[]map[float64]string, io.Reader]("f") // want `stored: the state: .*JSON has no keys of type float64` `stored: the result: io.Reader: nothing says which type`
	N = fsm.Declare[string, string]("n")

	O = fsm.Declare[Order, string]("o")  // want `stored: the state: stored.Order.Items\[\].cache: the field is unexported, so JSON loses it: export it, tag it json:"-"`
	P = fsm.DeclareSignal[*Guarded]("p") // want `stored: the payload: \*stored.Guarded.mu: sync.Mutex is not stored`
	Q = fsm.Declare[string, Embeds]("q") // want `stored: the result: stored.Embeds.part.at: the field is unexported`
)

func graph() []fsm.Definition {
	g := dag.New(N)
	a := dag.Do(g, "a", dag.In(g), func(context.Context, string) (failure, error) { return failure{}, nil }) // want `stored: the result of the node: stored.failure.Why`
	list := dag.Do(g, "list", a, func(context.Context, failure) ([]hidden, error) { return nil, nil })       // want `stored: the result of the node: \[\]stored.hidden\[\]: all fields`
	dag.Each(g, "each", list, func(context.Context, hidden) (string, error) { return "", nil })              // want `stored: the argument of the piece: stored.hidden`
	return g.Return(dag.In(g))
}
