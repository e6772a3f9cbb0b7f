package ingest

import (
	"context"
	"errors"
	"io/fs"
)

// plain walks the tree one entry after the other, in one process, and has to start over when it
// dies.
func plain(ctx context.Context, files reader, directory Path) (Totals, error) {
	listed, err := files.list(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return Totals{Sums: Sums{Vanished: 1}}, nil
	}
	if err != nil {
		return Totals{}, err
	}
	totals := begin(listed)
	for _, e := range listed.entries {
		path := directory.join(e.Name)
		if e.Directory {
			below, err := plain(ctx, files, path)
			totals.addDirectory(below, err)
		} else {
			content, err := files.read(ctx, path)
			if errors.Is(err, fs.ErrNotExist) {
				content, err = Content{Vanished: true}, nil
			}
			totals.addFile(content, err)
		}
		if err := ctx.Err(); err != nil {
			return Totals{}, err
		}
	}
	return totals, nil
}
