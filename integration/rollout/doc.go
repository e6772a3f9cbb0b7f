// Package rollout tests a rolling deploy: two builds of one program, with different machines and
// one migration apart, restarted in turn under load. The newer build is this very code with one
// migration more, which the tests lay over it when they compile it.
package rollout
