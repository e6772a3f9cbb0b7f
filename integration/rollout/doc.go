// Package rollout tests a rolling deploy: two builds of one program, with different machines, one
// migration and one release apart, are restarted in turn under load. The newer build is this very
// code with one more migration and the next release's number, which the tests give it when they
// compile it. Two versions of machines in one build are deployed in turn as well, forward, back and
// forward again.
package rollout
