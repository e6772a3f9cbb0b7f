package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// console is the program's input and output.
type console struct {
	in        io.Reader
	out, errs io.Writer
	// interactive says that a person can answer a question.
	interactive bool
	// size returns the size of the terminal that out is. If it is nil, out is no terminal, and nothing
	// is cut off.
	size func() (width, height int)
	// raw makes in return each key at once, until restore. If it is nil, in cannot do that.
	raw func() (restore func(), err error)
}

// standard returns the console of the process.
func standard() *console {
	c := &console{in: os.Stdin, out: os.Stdout, errs: os.Stderr}
	in, out := int(os.Stdin.Fd()), int(os.Stdout.Fd())
	if term.IsTerminal(out) {
		c.size = func() (int, int) {
			width, height, err := term.GetSize(out)
			if err != nil || width < 1 || height < 1 { // some terminals do not know
				return 80, 24
			}
			return width, height
		}
	}
	if term.IsTerminal(in) {
		c.interactive = term.IsTerminal(int(os.Stderr.Fd())) // questions are written there
		c.raw = func() (func(), error) {
			before, err := term.MakeRaw(in)
			if err != nil {
				return nil, err
			}
			return func() { _ = term.Restore(in, before) }, nil
		}
	}
	return c
}

func (c *console) width() int {
	if c.size == nil {
		return 0
	}
	width, _ := c.size()
	return width
}

// confirm asks before an action that cannot be undone. yes says that the command line has answered.
func (c *console) confirm(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if !c.interactive {
		return &exitError{codeUnconfirmed, fmt.Errorf("%s There is no terminal to answer at: confirm with --yes", question)}
	}
	fmt.Fprintf(c.errs, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read of a terminal does not end with ctx; the program does
		line, err := bufio.NewReader(c.in).ReadString('\n')
		if err != nil && line == "" {
			fmt.Fprintln(c.errs)
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case said := <-answer:
		if said == "y" || said == "yes" {
			return nil
		}
		return &exitError{codeUnconfirmed, errors.New("not confirmed: nothing was done")}
	}
}
