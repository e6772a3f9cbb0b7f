// Package dag declares graphs of work in typed Go. A node is a function, or another machine; an
// edge is an argument of a node. A node takes only what was declared before it, so a cycle cannot
// be written, and a result of another type does not compile.
//
//	g := dag.New(Nightly) // fsm.Declare[Day, string]("nightly")
//	orders := dag.Do(g, "orders", dag.In(g), load)
//	users := dag.Do(g, "users", dag.In(g), load)
//	report := dag.Do2(g, "report", orders, users, compare)
//	machines := g.Return(report) // for engine.Config.Machines
//
// An instance of the graph's machine makes the graph, by [fsm.Visit.ScheduleGraph], and ends with
// what [Graph.Return] names. Each node is an instance of a separate machine, which is named after
// the graph and the node: "nightly.orders". So queues, retries, leases, deadlines, pauses, the GC
// and the command line are for nodes what they are for all instances, and what the guide says of
// graphs is true of these.
package dag
