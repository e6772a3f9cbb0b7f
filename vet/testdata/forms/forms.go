// Package forms has types of all kinds. A test asks the same of each by reflection and by the type
// checker.
package forms

import (
	"encoding"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/vet/testdata/forms/protobuf/runtime/protoimpl"
)

type (
	Hidden    struct{ n int }
	Embedded  struct{ *inner }
	inner     struct{ N int }
	Nameless  struct{ struct1 }
	struct1   struct{ n int }
	Texted    struct{ n int }
	Written   struct{ n int }
	Recursive struct {
		Next *Recursive
		All  []Recursive
		By   map[string]Recursive
	}
	Generic[T any] struct{ Of T }
	Named          string
	Keyed          struct{ n int }
	Tagged         struct {
		C chan int `json:"-"`
		D func()   `json:"d"`
	}
	Beside struct {
		N     int
		cache map[string]int
	}
	Meant struct {
		N     int
		cache map[string]int `json:"-"`
		none  struct{}
	}
	Promotes struct {
		inner
		Beside
	}
	Locked struct {
		sync.Mutex
		N int
	}
	Locks struct {
		N  int
		mu *sync.RWMutex
	}
	Message struct { // as protobuf generates one
		state     protoimpl.MessageState
		N         int
		sizeCache int32
	}
	Entity struct {
		ID    int
		Edges EntityEdges
		kept  sql.SelectValues
	}
	EntityEdges struct {
		Of     []*Entity
		loaded [1]bool
	}
	EmbedsEntity struct {
		*Entity
		Total int
	}
	EmbedsMessage struct {
		Message
		Total int
	}
	EmbedsMore struct {
		*Entity
		Total, hidden int
	}
	Marked struct {
		N            int
		noComparison [0]func()
	}
	OnceOnly struct {
		N    int
		once sync.Once
	}
	Rebuilt struct {
		N     int
		index int
	}
	Blank struct{ _ int }
	Own   interface{ hidden() }
)

func (*Rebuilt) UnmarshalJSON([]byte) error   { return nil }
func (Texted) MarshalText() ([]byte, error)   { return nil, nil }
func (*Written) MarshalJSON() ([]byte, error) { return nil, nil }
func (*Written) UnmarshalJSON([]byte) error   { return nil }
func (Keyed) MarshalText() ([]byte, error)    { return nil, nil }
func (*Keyed) UnmarshalText([]byte) error     { return nil }
func (Named) MarshalText() ([]byte, error)    { return nil, nil }

// All are the types, by the name of the type of All that the checker finds.
type All struct {
	A  Hidden
	B  Embedded
	C  Nameless
	D  Texted
	E  Written
	F  map[string]Written
	G  Recursive
	H  Generic[chan int]
	I  Generic[Generic[error]]
	J  map[Named]int
	K  map[Keyed]int
	L  map[Texted]int
	M  map[bool]int
	N  Tagged
	O  Blank
	P  Own
	Q  []error
	R  any
	S  time.Time
	T  big.Int
	U  map[int]big.Float
	V  url.URL
	W  *url.Userinfo
	X  http.Header
	Y  http.Client
	Z  netip.Addr
	A2 Beside
	B2 map[string][]*Beside
	C2 Meant
	D2 Promotes
	E2 Locked
	F2 Locks
	G2 []*Message
	H2 Entity
	I2 Rebuilt
	J2 struct{ Mu sync.Mutex }
	K2 struct{ Of Generic[Beside] }
	L2 EmbedsEntity
	M2 EmbedsMessage
	N2 EmbedsMore
	O2 Marked
	P2 OnceOnly
	Q2 struct{ Of sync.WaitGroup }
	A1 json.RawMessage
	B1 encoding.TextMarshaler
	C1 io.Reader
	D1 complex128
	E1 unsafe.Pointer
	F1 [3]Written
	G1 map[string][2]Written
	H1 struct{ n int }
	I1 struct{ N int }
	J1 reflect.Kind
	K1 time.Duration
	L1 []byte
	M1 json.Number
	N1 uintptr
	O1 float32
	P1 **Recursive
	Q1 Named
}
