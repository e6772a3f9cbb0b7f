package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var (
	// ErrUninitialised is returned when a schema is no place yet: call [Init].
	ErrUninitialised = errors.New("gendurable: the schema is not initialised as a place")
	// ErrPlaces is returned when the places are not those that [Init] recorded: another number,
	// another order, a place of another cluster, or ids in it that belong to another place.
	ErrPlaces = errors.New("gendurable: not the places that were recorded")
	// ErrStrays is returned by [Init] for a schema that holds what would not be found in a cluster:
	// live instances or schedules whose keys or names belong to other places.
	ErrStrays = errors.New("gendurable: what is in the schema belongs to other places")
	// ErrElsewhere is returned by inserts whose keys belong to different places, and by inserts at the
	// engine of a place whose key belongs to another one. A *[engine.SpecError] wraps it.
	ErrElsewhere = errors.New("gendurable: the key belongs to another place")
)

// PlaceError says at which place something went wrong. It wraps the error of that place's engine,
// so that errors.Is and errors.As find that one.
type PlaceError struct {
	Place  int    `json:"place"`
	Schema string `json:"schema"`
	Err    error  `json:"-"`
}

func (e *PlaceError) Error() string {
	return fmt.Sprintf("place %d (schema %q): %v", e.Place, e.Schema, e.Err)
}

// Unwrap returns the error of the place.
func (e *PlaceError) Unwrap() error { return e.Err }

// MarshalJSON writes the error as its text.
func (e *PlaceError) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"place": e.Place, "schema": e.Schema, "error": e.Err.Error()})
}

// PlaceErrors returns all that an error of a call to several places joins, in the order of the
// places.
func PlaceErrors(err error) []*PlaceError {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return nil
	case *PlaceError:
		return []*PlaceError{e}
	case interface{ Unwrap() []error }:
		var all []*PlaceError
		for _, one := range e.Unwrap() {
			all = append(all, PlaceErrors(one)...)
		}
		return all
	default:
		return PlaceErrors(errors.Unwrap(err))
	}
}

// at names the place of an error.
func (p *place) at(err error) error {
	if err == nil {
		return nil
	}
	return &PlaceError{Place: p.index, Schema: p.schema, Err: err}
}

// unreachable reports whether an error says that a place gave no answer, and has done nothing
// either.
func unreachable(err error) bool {
	if errors.Is(err, engine.ErrUnknown) {
		return false
	}
	_, broken := errors.AsType[net.Error](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return broken || refused || errors.Is(err, context.DeadlineExceeded)
}

// isInput reports whether an error says that the input was wrong, as it would be at each place.
func isInput(err error) bool {
	_, query := errors.AsType[*engine.QueryError](err)
	_, verb := errors.AsType[*engine.VerbError](err)
	return query || verb
}

// noPlace says that an id is none of this cluster's.
func (c *Cluster) noPlace(sentinel error, id fsm.ID) error {
	return fmt.Errorf("%w: instance %d would be of place %d, and there are %d", sentinel, id, PlaceOfID(id), len(c.places))
}
