// Package clients checks histories of clients' calls by porcupine, which knows nothing of the
// engine: several clients insert, signal, cancel, get and wait at a time, over connections that
// are cut now and then, so that some answers are unknown. In some histories worker processes do
// the work, which are killed, and stopped for longer than their leases. What they were told has to
// be what a small sequential model would tell, in some order that agrees with time. It is a
// separate module, so that the library does not require porcupine.
package clients
