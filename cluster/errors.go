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
	// ErrUninitialised is returned for a schema that [Init] has not made a place.
	ErrUninitialised = errors.New("gendurable: the schema is not initialised as a place")
	// ErrPlaces is returned when the places differ from what [Init] recorded: in their number or
	// order, by a place of another cluster, or by a schema with ids that belong to another place.
	ErrPlaces = errors.New("gendurable: the places are not those that were recorded: give all of them, in their order")
	// ErrStrays is returned by [Init] for a schema with live instances or schedules whose keys or
	// names belong to other places. A cluster would not find them.
	ErrStrays = errors.New("gendurable: the schema has instances or schedules of other places")
	// ErrElsewhere is returned by inserts whose keys belong to different places, and by inserts at
	// the engine of one place with a key of another. It comes within a *[engine.InsertError].
	ErrElsewhere = errors.New("gendurable: the key belongs to another place")
)

// PlaceError says at which place a call failed. It wraps the error of that place's engine, so that
// errors.Is and errors.As find it.
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

// PlaceErrors returns the *PlaceErrors that are joined in the error of a call to several places, in
// the order of the places.
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

// unreachable reports whether an error says that a place gave no answer and has done nothing.
func unreachable(err error) bool {
	if errors.Is(err, engine.ErrUnknown) {
		return false
	}
	_, broken := errors.AsType[net.Error](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return broken || refused || errors.Is(err, context.DeadlineExceeded)
}

// isInput reports whether an error is about the input, so that every place would return it.
func isInput(err error) bool {
	_, query := errors.AsType[*engine.QueryError](err)
	_, verb := errors.AsType[*engine.VerbError](err)
	return query || verb
}

// noPlace returns the error for an id that no place of this cluster can have.
func (c *Cluster) noPlace(sentinel error, id fsm.ID) error {
	return fmt.Errorf("%w: instance %d would be of place %d, and there are %d", sentinel, id, PlaceOfID(id), len(c.places))
}
