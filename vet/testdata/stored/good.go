package stored

import (
	"encoding/json"
	"math/big"
	"net/url"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/vet/testdata/forms/protobuf/runtime/protoimpl"
)

type Fine struct {
	At       time.Time
	Sum      big.Int
	Many     map[string]*big.Int
	At2      url.URL
	Any      any
	Raw      json.RawMessage
	Anything map[int]any
	Sub      *Fine
	log      func()   `json:"-"`
	Skipped  chan int `json:"-"`
	own
}

type own struct{ Cents int }

// Message is as protobuf generates one.
type Message struct {
	state     protoimpl.MessageState
	sizeCache int32
	Text      string
}

// Rebuilt makes its index when it is decoded.
type Rebuilt struct {
	All   []int
	index map[int]int
}

func (r *Rebuilt) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &r.All) }

type custom struct{ cents int }

func (c custom) MarshalJSON() ([]byte, error)     { return json.Marshal(c.cents) }
func (c *custom) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &c.cents) }

var (
	G = fsm.Declare[Fine, custom]("g")
	H = fsm.DeclareSignal[[]custom]("h")
	I = fsm.Declare[fsm.None, struct{}]("i")
	J = fsm.Declare[Message, Rebuilt]("j")
)

// Of a type parameter nothing is known.
func declare[S any](name string) *fsm.Machine[S, fsm.None] { return fsm.Declare[S, fsm.None](name) }
