package store

import (
	"sync"
	"time"
)

// Postgres may refuse to change a row: a trigger or a policy of the host raises an error for it, it
// violates a check that was added later, its page is damaged. A statement for many rows fails for such
// a row as a whole. So claims, sweeps, heartbeats and promotions narrow down: the statement is repeated
// for halves, until the culprits are alone and the others are done. What is found out so is set apart
// in memory, so that the next statement passes it over and does not fail again; after a while it is
// tried like any other. Only who meets such a row pays for it: an array of ids that is empty else.

// Refused is a row, or a partition key whose next row it is, that Postgres refuses to change. It is for
// the log: nothing else is done about it than to try again later.
type Refused struct {
	ID  int64
	Key string
	Err error
}

// narrow hands things to try, and halves those for which it fails through one thing's doing, until the
// culprits are alone: it returns them, and all others have been tried with success. First try gets
// none: an error that comes with nothing to do is nobody's doing. Any other error ends it.
func narrow[T any](things []T, try func([]T) error, culprit func(T, error) Refused) (refused []Refused, err error) {
	if err := try(nil); err != nil {
		return nil, err
	}
	todo := [][]T{things}
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch err := try(next); {
		case err == nil:
		case !blames(err):
			return refused, err
		case len(next) == 1:
			refused = append(refused, culprit(next[0], err))
		default:
			half := len(next) / 2
			todo = append(todo, next[half:], next[:half])
		}
	}
	return refused, nil
}

func ofID(id int64, err error) Refused { return Refused{ID: id, Err: err} }

const (
	// apartFor is how long a refused row is passed over: often enough that a row that was mended goes
	// on soon, and seldom enough that the search for culprits costs little.
	apartFor = time.Minute
	// apartMost bounds the rows that are passed over, so that what a statement compares each row with
	// stays small. Beyond it the oldest are tried again first.
	apartMost = 4096
)

// apart are the rows that one kind of statement passes over. The zero value is ready. A row is in it
// for the sake of the others only: to forget one, or to keep one too long, does no harm.
type apart struct {
	mu    sync.Mutex
	order []setApart // oldest first
}

type setApart struct {
	id    int64
	until time.Time
}

// ids returns the rows to pass over now, and forgets those whose time is over.
func (a *apart) ids() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.order) == 0 {
		return nothingApart
	}
	now := time.Now()
	for len(a.order) > 0 && !now.Before(a.order[0].until) {
		a.order = a.order[1:]
	}
	ids := make([]int64, len(a.order))
	for i, one := range a.order {
		ids[i] = one.id
	}
	return ids
}

// nothingApart is not nil: "<> ALL (NULL)" holds for no row.
var nothingApart = []int64{}

// add sets rows apart.
func (a *apart) add(rows []Refused) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := time.Now().Add(apartFor)
	for _, r := range rows {
		a.order = append(a.order, setApart{r.ID, until})
	}
	if over := len(a.order) - apartMost; over > 0 {
		a.order = append([]setApart(nil), a.order[over:]...)
	}
}
