package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/report"
)

// document is the content of the JSON file.
type document struct {
	Began    time.Time       `json:"began"`
	Machine  string          `json:"machine"`
	Settings []lab.Setting   `json:"settings"`
	Results  []report.Result `json:"results"`
	Courses  []Course        `json:"courses,omitempty"`
}

// open starts the server and prints the settings that the figures depend on.
func (b *bench) open(ctx context.Context) (*document, error) {
	var err error
	if b.lab, err = lab.Open(ctx, os.Getenv("DATABASE_URL"), b.account); err != nil {
		return nil, err
	}
	b.databases = map[string]*lab.Database{}
	d := &document{Began: time.Now().UTC(), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version())}
	if d.Settings, err = b.lab.Settings(ctx); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	fmt.Fprint(b.out, d.Machine)
	for _, s := range d.Settings {
		fmt.Fprintf(b.out, ", %s %s", s.Name, s.Value)
	}
	fmt.Fprintln(b.out)
	return d, nil
}

func (b *bench) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for _, db := range b.databases {
		err = errors.Join(err, db.Close(ctx))
	}
	for _, end := range b.opened {
		err = errors.Join(err, end(ctx))
	}
	return errors.Join(err, b.lab.Close(ctx))
}

// print adds a result to the document and prints it.
func (b *bench) print(d *document, r report.Result) {
	d.Results = append(d.Results, r)
	if b.quick {
		fmt.Fprintf(b.out, "%s (%.0f s)\n", r.ID, r.Seconds)
		return
	}
	fmt.Fprintf(b.out, "\n%s  %s  (%.0f s)\n%s", r.ID, r.Title, r.Seconds, r.Table())
	for _, note := range r.Notes {
		fmt.Fprintln(b.out, "  "+note)
	}
	fmt.Fprintln(b.out, r.Line())
}

func (d *document) read(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, d); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (d *document) write(path string) error {
	raw, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644) //nolint:gosec // to be read by anyone
}
