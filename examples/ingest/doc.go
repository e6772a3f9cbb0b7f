// Package ingest reads a tree of files durably: an instance per directory spawns one per entry and
// joins them, level by level. When a process dies, the others continue. The totals equal a plain
// walk's.
//
// Where to look:
//
//   - machine.go: the directory's machine and the file's job. Start here.
//   - totals.go: the counts, and how a directory adds up its entries.
//   - read.go: one file, one directory listing.
//   - plain.go: the same without any engine, to compare with.
//   - run.go: one run of both.
package ingest
