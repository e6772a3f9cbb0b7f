// Package calls lets clients call an engine about keys, and records what they asked and what they
// were told. Module integration/clients has porcupine look for an order that explains a record; its
// tests and the soak make records. This package needs no porcupine, so that the library does not
// either.
//
// A record is a text file of JSON, one [Operation] a line, which several processes may append to.
package calls
