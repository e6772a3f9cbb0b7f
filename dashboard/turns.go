package dashboard

import "context"

// The dashboard shares the engine's connections with workers, so it uses few at a time, however
// many pages are open and however slow the database is: Options.Heavy for reads of many rows, and
// these numbers for everything else. Each kind waits in its own line, so that a verb that waits
// for a lock holds up no page, and a page that counts holds up no verb.
const (
	lightTurns = 4
	verbTurns  = 4
	bulkTurns  = 2 // plans that are being applied
	// exportTurns is how many exports are sent at a time: each holds one instance with its documents.
	exportTurns = 2
)

// turn is a line: there is one place for each that may run.
type turn chan struct{}

// turns are the lines.
type turns struct{ heavy, light, verbs, bulk, exports turn }

func newTurns(heavy int) turns {
	return turns{make(turn, heavy), make(turn, lightTurns), make(turn, verbTurns), make(turn, bulkTurns), make(turn, exportTurns)}
}

// take waits for a place. Call the function that it returns when what needed it has ended.
func (t turn) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// turned calls ask when there is a place.
func turned[T any](ctx context.Context, t turn, ask func(context.Context) (T, error)) (none T, err error) {
	done, err := t.take(ctx)
	if err != nil {
		return none, err
	}
	defer done()
	return ask(ctx)
}
