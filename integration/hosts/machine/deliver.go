package machine

import (
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Deliver drives deliveries. Its state has a field of each kind that the client selects by.
var Deliver = fsm.Declare[Trip, fsm.None]("deliver", fsm.Version(3), fsm.StateSince(2))

// Trip is the state of a delivery.
type Trip struct {
	Driver   string
	Vehicle  Vehicle     `json:"vehicle,omitempty"`
	Stops    uint8       `json:"stops"`
	Weight   float64     `json:"weight"`
	Express  bool        `json:"express,omitempty"`
	Due      time.Time   `json:"due,omitzero"`
	Depot    Place       `json:"depot"`
	Distance             // promotes its field
	Note     *string     // a pointer
	Tags     []string    // a slice
	Cents    int64       `json:"cents,string"` // a text in JSON
	Secret   string      `json:"-"`
	Mode     mode        // of a type that others cannot name
	Last     fsm.Failure // of a type of another package
}

// Vehicle is a kind of vehicle.
type Vehicle string

type mode int

// Place is where a delivery begins.
type Place struct {
	City  string
	Floor int32 `json:"floor,omitempty"`
	Geo   struct{ Lat float64 }
}

// Distance is a part of several states.
type Distance struct{ Metres int64 }
