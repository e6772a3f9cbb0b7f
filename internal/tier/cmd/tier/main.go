// Command tier runs the commands of a tier of tests, and says where the time went.
//
//	tier begin                   forget what earlier stages took
//	tier stage name command…     run a command as a stage; what go test -json prints is condensed
//	tier report                  print what the stages took, and the ten slowest packages and tests
//	tier proof part command…     run a part of make proof, and write its row of docs/proof.md
//	tier proven                  fail unless every row of docs/proof.md is of this code
//	tier beside n command…       run a command beside n busy loops
//
// The stages of one run are in the file that TIER_LOG names. The exit code is the command's.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

func main() {
	err := run(os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "tier:", err)
		os.Exit(2)
	}
}

var errUsage = errors.New("usage: tier begin | stage name command… | report | proof part command… | proven | beside n command…")

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errUsage
	}
	verb, rest := arguments[0], arguments[1:]
	switch {
	case verb == "begin" && len(rest) == 0:
		return begin(os.Getenv("TIER_LOG"))
	case verb == "stage" && len(rest) > 1:
		return stage(os.Getenv("TIER_LOG"), rest[0], rest[1:])
	case verb == "report" && len(rest) == 0:
		return report(os.Stdout, os.Getenv("TIER_LOG"))
	case verb == "proof" && len(rest) > 1:
		return proof(rest[0], rest[1:])
	case verb == spin && len(rest) == 0:
		return loop()
	case verb == "proven" && len(rest) == 0:
		return proven()
	case verb == "beside" && len(rest) > 1:
		n, err := strconv.Atoi(rest[0])
		if err != nil || n < 1 {
			return fmt.Errorf("beside %s: want a number of loops", rest[0])
		}
		return beside(n, rest[1:])
	}
	return errUsage
}
