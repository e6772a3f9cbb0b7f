// Package pgdev runs a Postgres from the machine's own binaries: a throwaway one for tests,
// benchmarks and the demo, or one whose data are kept, for whoever develops on a machine without a
// server.
//
// A cluster lives in one directory below [os.TempDir], listens on 127.0.0.1 at a free port and asks
// for a random password, so that other users of the machine cannot use its superuser.
// [Cluster.Stop] removes everything, unless the directory was given ([WithDirectory]).
//
// When the owning process dies without Stop, the server goes down, too: Linux sees to it
// (parent-death signal), elsewhere a shell does that reads from the owner. Either way the directory
// stays locked while the owner or the server lives, and the next [Start] removes the directories
// nobody locks any more.
//
// On Windows there is no such server, and [Start] says so.
package pgdev
