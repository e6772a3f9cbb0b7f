// Package pgdev runs a Postgres from the machine's own binaries: a throwaway one for tests,
// benchmarks and the demo, or one that keeps its data, for development on a machine without a
// server.
//
// A cluster lives in one directory, below [os.TempDir] or in memory, listens on 127.0.0.1 at a free
// port and demands a random password, so that other users of the machine cannot use its superuser.
// [Cluster.Stop] removes everything, except a directory of [WithDirectory].
//
// If the owning process dies without Stop, the server goes down, too: Linux stops it by a
// parent-death signal; elsewhere a shell does, which reads from a pipe of the owner. Either way the
// directory stays locked while the owner or the server lives, and the next [Start] removes the
// directories that are not locked any more.
//
// Windows is not supported: [Start] returns an error there.
package pgdev
