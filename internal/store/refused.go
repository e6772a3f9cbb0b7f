package store

import (
	"sync"
	"time"
)

// Postgres may refuse to change a row: a trigger or a policy of the host raises an error for it, it
// violates a check that was added later, or a part of it is damaged. A statement for many rows then
// fails as a whole. So claims, sweeps, heartbeats and promotions narrow down: they repeat the
// statement for halves until the culprits are alone and the other rows are done. They set the
// culprits apart in memory, so that the next statement passes them over and does not fail again.
// After a while they try them like any other row. Only users with such a row pay for this; for
// others, an array of ids is empty.

// Refused is a row that Postgres refuses to change, or a partition key whose next row it refuses to
// change. It goes to the log; the engine does nothing about it but try again later.
type Refused struct {
	ID  int64
	Key string
	Err error
}

// narrow calls try with all things, and repeats it for halves while it fails and one thing may be
// the cause, until the culprits are alone. It returns the culprits; try has succeeded for all
// others. First it calls try with none: no thing causes an error that comes with nothing to do. Any
// other error ends narrow.
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
		case !holdsUp(err):
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
	// apartFor is how long statements pass a refused row over. It is short, so that a row that was
	// mended goes on soon, and long, so that the search for culprits costs little.
	apartFor = time.Minute
	// apartMost bounds the rows that are set apart, so that a statement compares each row with few of
	// them. Beyond it the oldest are tried again first.
	apartMost = 4096
)

// apart holds the rows that one kind of statement passes over. The zero value is ready for use.
// Passing a row over only protects the others: it does no harm to forget one, or to keep one too
// long.
type apart struct {
	mu    sync.Mutex
	order []setApart // oldest first
}

type setApart struct {
	id    int64
	until time.Time
}

// ids returns the rows to pass over now, and forgets those whose time has passed.
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

// nothingApart is empty and not nil, since "<> ALL (NULL)" holds for no row.
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

// aparts holds the rows that claims pass over, by queue: the refused rows of one queue do not
// displace another's. The zero value is ready for use.
type aparts struct {
	mu sync.Mutex
	of map[string]*apart
}

func (a *aparts) queue(name string) *apart {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]*apart{}
	}
	if a.of[name] == nil {
		a.of[name] = &apart{}
	}
	return a.of[name]
}
