package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// taken is what a stage took, a line of the log. The first line says only when the run began.
type taken struct {
	Began   time.Time     `json:"began,omitzero"`
	Stage   string        `json:"stage"`
	Elapsed time.Duration `json:"elapsed"`
	CPU     time.Duration `json:"cpu"` // of the command and all that it waited for, Postgres too

	memory
	outcome
}

func begin(log string) error {
	if log == "" {
		return errors.New("TIER_LOG names no file")
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return fmt.Errorf("make room for the log: %w", err)
	}
	line, err := json.Marshal(taken{Began: time.Now()})
	if err != nil {
		return fmt.Errorf("encode when it began: %w", err)
	}
	if err := os.WriteFile(log, append(line, '\n'), 0o644); err != nil {
		return fmt.Errorf("begin the log: %w", err)
	}
	return nil
}

// stage runs a command, and appends what it took to the log. A failure is in the log, too.
func stage(log, name string, command []string) error {
	t, failed := execute(command)
	t.Stage = name
	line, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode what %s took: %w", name, err)
	}
	if log != "" {
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			return fmt.Errorf("make room for the log: %w", err)
		}
		f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return errors.Join(fmt.Errorf("write the log: %w", err), f.Close())
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("close the log: %w", err)
		}
	}
	fmt.Printf("== %s: %s, %s of CPU\n", name, seconds(t.Elapsed), seconds(t.CPU))
	return failed
}

// execute runs a command with this process's output. What it prints is condensed if it is go test
// -json; with -v as well, everything is printed.
func execute(command []string) (taken, error) {
	var t taken
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends by itself, or by the terminal's signal
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	before := watchMemory()
	began := time.Now()
	var err error
	if slices.Contains(command, "-json") {
		err = t.condensed(cmd, slices.Contains(command, "-v"))
	} else {
		err = cmd.Run()
	}
	t.Elapsed, t.memory = time.Since(began), before()
	if cmd.ProcessState != nil {
		t.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return t, nil
}

func (t *taken) condensed(cmd *exec.Cmd, verbose bool) error {
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var readErr error
	t.outcome, readErr = condense(out, os.Stdout, verbose)
	return errors.Join(cmd.Wait(), readErr)
}

// report prints what the stages of the log took, and the slowest packages and tests of all.
func report(to io.Writer, log string) error {
	content, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	var all, sum taken // stages may run side by side
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "stage\tseconds\tCPU\tmemory\tlargest process\t\t")
	row := func(t taken) {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%d MB\t%d MB\t%s\t\n",
			t.Stage, t.Elapsed.Seconds(), t.CPU.Seconds(), t.Used>>20, t.Largest>>20, t.Process)
	}
	for line := range strings.Lines(string(content)) {
		var t taken
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if !t.Began.IsZero() {
			sum.Elapsed = time.Since(t.Began)
			continue
		}
		row(t)
		sum.CPU += t.CPU
		sum.Used = max(sum.Used, t.Used)
		if t.Largest > sum.Largest {
			sum.Largest, sum.Process = t.Largest, t.Process
		}
		all.Packages, all.Tests = append(all.Packages, t.Packages...), append(all.Tests, t.Tests...)
	}
	sum.Stage = "all"
	row(sum)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for _, list := range []struct {
		title string
		of    []timed
	}{{"slowest packages", all.Packages}, {"slowest tests", all.Tests}} {
		if len(list.of) == 0 {
			continue
		}
		fmt.Fprintf(to, "\n%s:\n", list.title)
		for _, t := range slowest(list.of) {
			fmt.Fprintf(to, "%7.1f s  %s\n", t.Seconds, t.Name)
		}
	}
	return nil
}
