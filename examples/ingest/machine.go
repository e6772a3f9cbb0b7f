package ingest

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Clients need these to start an ingest and to wait for it.
var (
	Directory = fsm.Declare[Walk, Totals]("ingest.directory", fsm.Queue("ingest"))
	File      = fsm.Declare[Path, Content]("ingest.file", fsm.Queue("ingest"))
)

// roundSize bounds the children of one round. A directory with more entries than that takes several
// rounds, one after the other, so that neither its outcomes nor what it waits for grow without
// bound.
const roundSize = 2_000

// Walk is the state of a directory: how far it is.
type Walk struct {
	Path   Path   `json:"path"`
	After  entry  `json:"after,omitzero"` // the last entry of the newest round
	More   bool   `json:"more,omitempty"` // entries came after that one
	Totals Totals `json:"totals"`         // of the rounds before the newest
}

type visit = fsm.Visit[Walk, Totals]

// ingest is the behaviour of both machines.
type ingest struct{ files reader }

func (m ingest) definitions() []fsm.Definition {
	again := fsm.RetryPolicy{MaxAttempts: 5, Base: 100 * time.Millisecond}
	return []fsm.Definition{
		Directory.Define(
			fsm.Step("start", m.start).To("join"),
			fsm.Step("join", m.join).To("start"),
		).Retry(again),
		File.Job(m.read).Retry(again),
	}
}

// start lists the directory and spawns the next round. Spawning and parking are one transaction, so
// a crash leaves all children or none.
func (m ingest) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	listed, err := m.files.list(v.State.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed since its parent listed it
		v.State.Totals.Vanished++
		return v.Done(v.State.Totals), nil
	case err != nil:
		return nil, hopeless(err)
	}
	walk := v.State
	if walk.After == (entry{}) {
		walk.Totals = begin(listed)
	}
	round := listed.after(walk.After)
	walk.More = len(round) > roundSize
	round = round[:min(roundSize, len(round))]
	children := make([]fsm.Spec, 0, len(round))
	for _, e := range round {
		walk.After = e
		path := walk.Path.join(e.Name)
		if e.Directory {
			children = append(children, Directory.New(Walk{Path: path}))
		} else {
			children = append(children, File.New(path))
		}
	}
	// Without children, for an empty directory, join follows at once.
	return v.ScheduleChildren("join", walk, children...), nil
}

// join adds up a round whose children have all ended: in the order in which they were spawned, not
// of their ends.
func (m ingest) join(_ context.Context, v *visit) (fsm.Outcome, error) {
	walk := v.State
	for _, child := range File.Children(v) {
		content, err := child.Result()
		walk.Totals.addFile(content, err)
	}
	for _, child := range Directory.Children(v) {
		totals, err := child.Result()
		walk.Totals.addDirectory(totals, err)
	}
	if walk.More {
		return v.Next("start", walk), nil
	}
	return v.Done(walk.Totals), nil
}

func (m ingest) read(ctx context.Context, path Path) (Content, error) {
	content, err := m.files.read(ctx, path)
	if errors.Is(err, fs.ErrNotExist) { // removed since its directory was listed
		return Content{Vanished: true}, nil
	}
	return content, hopeless(err)
}

// hopeless marks errors that no retry cures. Others, such as too many open files, may pass.
func hopeless(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fsm.Permanent(err)
	}
	return err
}
