// Command cmd checks the record of clients' calls that a soak has made: bin/soak -calls file.
package main

import (
	"fmt"
	"os"

	"github.com/gendurable/gendurable/integration/clients"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: calls file")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	record, err := os.Open(path)
	if err != nil {
		return err
	}
	defer record.Close()
	return clients.Check(record, os.Stdout)
}
