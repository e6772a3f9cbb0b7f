// Package pairs proves that features hold together. Every other suite proves one of them; here each
// is a driver of a few lines, and a generator combines them: two or three features on one
// population of instances, a verb of an operator and a fault, run by a real engine on a real
// database.
//
// A case is a life, such as "graph,join", with a verb and a fault. A life is a list of features. An
// instance takes the first one, by its steps, and then the next. A feature with children (graph,
// join, race, stream) gives the rest of the life to each of its children. So "graph,join" is a
// graph whose nodes join children, and "signal,graph" an instance that waits for a signal and then
// makes a graph. All instances are of one machine, which has the steps of all features in the life:
// what one feature says of the definition or the specs, the others meet by construction.
//
// A case runs step by step, on an engine that is worked by hand, so its seed repeats it exactly.
// Time passes by moving the times in the tables. With the feature "fleet" two engines work by
// themselves instead: the seed then chooses the events, but not their order. After the verb and the
// fault the case mends what has failed, as an operator would, and then every instance has to be
// done with the one result that its life has. Beside that:
//
//   - each feature has a separate check;
//   - invariants_test.go asks the tables, after each phase, what must hold whatever has happened;
//   - engines of a fleet leave nothing undone, unless Why knows a cause that holds it back;
//   - every sweep of the GC is compared with what it had to keep;
//   - in the end a month passes, and nothing is left.
//
// # Adding a feature
//
// Add a file feature_NAME_test.go with one register call. From then on it meets every other
// feature, every verb and every fault. Beside its steps it may say what it adds to the definition,
// to the engine's Config and to the specs, what the world outside does for it, and what it checks.
//
// # Running
//
//	make pairs                         # the sample of make ci
//	SEED=7 go test ./integration/pairs # another sample
//	CASE=graph,join/cancel/month/7 go test -v -run TestPairs ./integration/pairs
//
// # Known faults
//
// ledger_test.go lists the faults that are known and not cured, each with the case that shows it.
// Each of these cases has to fail as it is recorded: the cure of a fault takes it off the list.
// Other cases may meet a known fault, too. They pass if nothing else is wrong with them, and the
// test logs how many did.
package pairs
