// Package clients checks histories of clients' calls by porcupine, which knows nothing of the
// engine: several clients insert, signal, cancel, get and wait at a time, over connections that
// are cut now and then, so that some answers are unknown. In some histories worker processes do
// the work, which are killed, and stopped for longer than their leases. What they were told has to
// be what a small sequential model would tell, in some order that agrees with time.
//
// [Check] reads such a history from a file: package soak records one of its clients, under all of
// its faults, and package cmd below is the program that checks it. Both use the calls and the
// format of package integration/calls. This is a separate module, so that the library does not
// require porcupine.
package clients
