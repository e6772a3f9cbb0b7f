package stored

import (
	"encoding/json"
	"math/big"
	"net/url"
	"time"

	"github.com/gendurable/gendurable/fsm"
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
	log      func()
	Skipped  chan int `json:"-"`
	own
}

type own struct{ Cents int }

type custom struct{ cents int }

func (c custom) MarshalJSON() ([]byte, error)     { return json.Marshal(c.cents) }
func (c *custom) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &c.cents) }

var (
	G = fsm.Declare[Fine, custom]("g")
	H = fsm.DeclareSignal[[]custom]("h")
	I = fsm.Declare[fsm.None, struct{}]("i")
)

// Of a type parameter nothing is known.
func declare[S any](name string) *fsm.Machine[S, fsm.None] { return fsm.Declare[S, fsm.None](name) }
