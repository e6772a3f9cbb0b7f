// Sealed shows a codec that encrypts states, results and payloads, so that a reader of the tables
// or a backup learns nothing from them.
//
//	go run ./examples/sealed
//
// Keys, labels, steps and error texts stay readable, since hosts search by them. Put no secret
// there.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// patient is the secret.
type patient struct{ Name, Diagnosis string }

// Letter writes to a patient; its result is the letter.
var Letter = fsm.Declare[patient, string]("letter")

func main() { run.Main("gendurable_sealed", write) }

func write(ctx context.Context, out io.Writer, db *run.Database) error {
	// Of course keys come from a key store.
	codec, err := newSealed("2026", map[string][]byte{
		"2025": []byte("an old key of 32 bytes, as it is"),
		"2026": []byte("a new one of 32 bytes, and so on"),
	})
	if err != nil {
		return err
	}
	eng, err := engine.New(engine.Config{
		Pool:   db.Pool,
		Schema: db.Schema,
		Codec:  codec,
		Machines: []fsm.Definition{Letter.Job(func(_ context.Context, p patient) (string, error) {
			return fmt.Sprintf("Dear %s, it is only a %s.", p.Name, p.Diagnosis), nil
		})},
		Queues: map[string]engine.Queue{"default": {}},
	})
	if err != nil {
		return err
	}
	return run.While(ctx, eng, func(ctx context.Context) error {
		id, err := eng.Insert(ctx, Letter.New(patient{"Ada", "cold"}).Label("clinic", "7"))
		if err != nil {
			return err
		}
		letter, err := Letter.Wait(ctx, eng, id)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "the host reads:", letter)

		row, err := eng.Ent().Instance.Query().Where(instance.ID(id)).Only(ctx)
		if err != nil {
			return err
		}
		stored := string(row.State) + string(row.Result)
		fmt.Fprintf(out, "the table has: %.60s…\n", row.Result)
		if strings.Contains(stored, "Ada") || strings.Contains(stored, "cold") {
			return errors.New("a secret is in the table")
		}
		return nil
	})
}
